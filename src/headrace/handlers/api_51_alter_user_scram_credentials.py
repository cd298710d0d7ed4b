"""AlterUserScramCredentials (51), version 0: create, change and delete users (KIP-554).

Clients send salted passwords, never the passwords themselves. A user can be changed once in a
request.
"""

from __future__ import annotations

from headrace.net.api import ALTER, USER, Api, on_cluster
from headrace.net.call import Call
from headrace.net.scram_users import find_credential, store
from headrace.protocol.api import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from headrace.protocol.errors import ErrorCode, Refusal, failure_of
from headrace.security.scram import MECHANISM_NUMBERS, Change, Deletion, Upsertion, plan

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Refuse each user of a request."""
    names = [deletion.name for deletion in request.deletions]
    names += [upsertion.name for upsertion in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[Result(name, code, None) for name in dict.fromkeys(names)]
    )


API = Api(51, on_cluster(ALTER), refuse=refuse, is_audited=True)


async def handle(
    call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change users in one transaction."""
    catalog = call.catalog
    requested: list[Change] = [
        *await call.each(lambda deletion: Deletion(*deletion.field_values()), request.deletions),
        *await call.each(
            lambda upsertion: Upsertion(*upsertion.field_values()), request.upsertions
        ),
    ]
    planned = plan(
        requested, lambda name, mechanism: find_credential(catalog, mechanism, name) is not None
    )
    accepted = [change for change in planned.values() if not isinstance(change, Refusal)]
    failed = failure_of(store, catalog, accepted)
    for change in accepted if failed is None else ():
        verb = "deleted" if isinstance(change, Deletion) else "set"
        mechanism = MECHANISM_NUMBERS[change.mechanism].name
        call.changed(ALTER, USER, change.name, f"{mechanism} {verb}")
    return AlterUserScramCredentialsResponse(
        results=await call.each(
            lambda item: Result(item[0]).refused(
                item[1] if isinstance(item[1], Refusal) else failed
            ),
            planned.items(),
        )
    )
