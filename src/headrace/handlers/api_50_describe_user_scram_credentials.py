"""DescribeUserScramCredentials (50), version 0: the mechanisms and iterations of users (KIP-554).
Keys and salts are never told.
"""

from __future__ import annotations

from collections import Counter

from headrace.net.api import DESCRIBE, Api, on_cluster
from headrace.net.call import Call
from headrace.net.scram_users import SCRAM, credentials_of
from headrace.protocol.api import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from headrace.protocol.errors import ErrorCode

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
CredentialInfo = DescribeUserScramCredentialsResponse.CredentialInfo

API = Api(50, on_cluster(DESCRIBE))


async def handle(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users, or all."""
    catalog = call.catalog
    times = Counter([user.name for user in request.users or ()] or catalog.configured(SCRAM))

    def describe(name: str) -> Result:
        if times[name] > 1:
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{name}"
            )
            return Result(name, ErrorCode.DUPLICATE_RESOURCE, message)
        credentials = credentials_of(catalog, name)
        if not credentials:
            message = f"Attempt to describe a user credential that does not exist: {name}"
            return Result(name, ErrorCode.RESOURCE_NOT_FOUND, message)
        infos = [
            CredentialInfo(mechanism.number, credential.iterations)
            for mechanism, credential in credentials.items()
        ]
        return Result(name, ErrorCode.NONE, None, infos)

    results = call.lazily(describe, list(times))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)
