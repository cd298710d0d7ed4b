"""DescribeAcls (29), versions 1-3: list the ACLs that a filter finds, by resource pattern.

Version notes:

* Version 1 adds prefixed patterns (KIP-290).
* Version 2 is flexible (KIP-482).
* Version 3 adds resources of type USER (KIP-373).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import Acl, AclFilter
from headrace.security.authorizer import Authorizer

from .acl_requests import NO_AUTHORIZER, filter_of
from .context import RequestContext
from .slicing import run_sliced, sliced


def handle(
    broker: Broker, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse | Sliced | Awaitable[DescribeAclsResponse | Sliced]:
    """Return the ACLs that match the filter."""
    condition = filter_of(request)
    control = broker.access_control
    if control is None:
        return _response(NO_AUTHORIZER, ())
    return run_sliced(broker, _find(control.authorizer, condition), len(control.authorizer))


def _find(
    authorizer: Authorizer, condition: AclFilter
) -> Generator[None, None, DescribeAclsResponse | Sliced]:
    found = yield from authorizer.find_sliced(condition)
    by_pattern: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in found:
        by_pattern.setdefault((acl.resource_type, acl.name, acl.pattern_type), []).append(acl)
    resources = []
    for (resource_type, name, pattern_type), acls in by_pattern.items():
        resources.append(
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=tuple(map(_described, acls)),
            )
        )
        yield
    return sliced(_response(Refusal(ErrorCode.NONE), tuple(resources)), len(found))


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _response(result: Refusal, resources: Any) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.code,
        error_message=result.message,
        resources=resources,
    )
