"""DescribeUserScramCredentials (50), version 0: the mechanisms and iterations of users (KIP-554).
Keys and salts are never told.
"""

from __future__ import annotations

from collections import Counter

from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from headrace.broker.broker import Broker
from headrace.broker.scram_users import credentials_of, user_names
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import lazily, sliced


def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse | Sliced:
    """Describe the named users, or all."""
    if request.users:
        times = Counter(user.name for user in request.users)
    else:
        times = Counter(user_names(broker.catalog))

    def describe(name: str) -> DescribeUserScramCredentialsResult:
        return _describe(broker, name, is_named_twice=times[name] > 1)

    response = DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=lazily(describe, list(times)),
    )
    return sliced(response, len(times))


def _describe(
    broker: Broker, name: str, *, is_named_twice: bool
) -> DescribeUserScramCredentialsResult:
    found = {} if is_named_twice else credentials_of(broker.catalog, name)
    result = Refusal(ErrorCode.NONE)
    if is_named_twice:
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        result = Refusal(ErrorCode.DUPLICATE_RESOURCE, message)
    elif not found:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        result = Refusal(ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=result.code,
        error_message=result.message,
        credential_infos=tuple(
            CredentialInfo(mechanism=mechanism.number, iterations=credential.iterations)
            for mechanism, credential in found.items()
        ),
    )
