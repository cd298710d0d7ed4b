"""DeleteAcls (31), versions 1-3: delete the ACLs that filters find, and return them. An ACL that
several filters find is in the result of each.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.audit import Change, acl_change
from headrace.net.call import Call
from headrace.net.rules import ALTER, on_cluster
from headrace.protocol.api import DeleteAclsRequest, DeleteAclsResponse
from headrace.security.acls import Acl
from headrace.topics.catalog import CatalogError

from .acl_requests import NO_AUTHORIZER, filter_of

Result = DeleteAclsResponse.DeleteAclsFilterResult
MatchingAcl = DeleteAclsResponse.DeleteAclsMatchingAcl


def changes(request: DeleteAclsRequest, response: DeleteAclsResponse) -> Iterator[Change]:
    """Yield the ACLs that were deleted, for the log."""
    for result in response.filter_results:
        for deleted in result.matching_acls:
            acl = Acl(
                deleted.resource_type,
                deleted.resource_name,
                deleted.pattern_type,
                deleted.principal,
                deleted.host,
                deleted.operation,
                deleted.permission_type,
            )
            yield acl_change("removed", acl)


API = Api(31, on_cluster(ALTER), changes=changes)


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the ACLs that match any of the filters, all of them or none."""
    conditions = list(map(filter_of, request.filters))
    control = call.broker.access_control
    if control is None:
        refusal = Result(NO_AUTHORIZER.code, NO_AUTHORIZER.message)
        return DeleteAclsResponse(filter_results=[refusal] * len(conditions))
    acls_by_filter = [
        await call.in_slices(control.authorizer.find_sliced(condition)) for condition in conditions
    ]
    # another request may have deleted some of them since they were found
    acls = [
        acl
        for acl in dict.fromkeys(chain.from_iterable(acls_by_filter))
        if acl in control.authorizer
    ]
    try:
        control.delete(acls)
    except CatalogError as error:
        failure = Result(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return DeleteAclsResponse(filter_results=[failure] * len(conditions))
    results = []
    for matching in acls_by_filter:
        deleted = []
        for acl in matching:
            deleted.append(MatchingAcl(ErrorCode.NONE, None, *acl))
            await call.pause()
        results.append(Result(ErrorCode.NONE, None, deleted))
    return DeleteAclsResponse(filter_results=results)
