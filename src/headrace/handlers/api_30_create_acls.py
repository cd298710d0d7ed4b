"""CreateAcls (30), versions 1-3: create ACLs. One that exists already is created again.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from typing import Any

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import Acl, check_new

from .acl_requests import NO_AUTHORIZER, check_known
from .context import RequestContext
from .slicing import sliced


def handle(broker: Broker, request: CreateAclsRequest, context: RequestContext) -> Any:
    """Create the valid ACLs of a request, all of them or none."""
    acls = list(map(_acl, request.creations))
    control = broker.access_control
    if control is None:
        return _response([NO_AUTHORIZER] * len(acls))
    results: list[Refusal] = []
    for acl in acls:
        message = check_new(acl)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST
        results.append(Refusal(code, message))
    try:
        control.create([acl for acl, one in zip(acls, results, strict=True) if not one.code])
    except CatalogError as error:
        failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        results = [one if one.code else failed for one in results]
    return sliced(_response(results), len(results))


def _acl(asked: AclCreation) -> Acl:
    check_known(
        asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type
    )
    return Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _response(results: list[Refusal]) -> CreateAclsResponse:
    return CreateAclsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AclCreationResult(error_code=one.code, error_message=one.message) for one in results
        ),
    )
