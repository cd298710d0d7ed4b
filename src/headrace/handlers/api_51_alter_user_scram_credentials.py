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
from headrace.security.scram import (
    MAX_ITERATIONS,
    MECHANISM_NUMBERS,
    MIN_ITERATIONS,
    Credential,
    Mechanism,
    make_credential,
)
from headrace.topics.catalog import Catalog

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

_TWICE = Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


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
    """Change users in one transaction.

    A user with an invalid change, or with several changes, is not changed at all; errors come
    first, as in Kafka.
    """
    refused: dict[str, Refusal] = {}
    accepted: dict[str, tuple[Mechanism, Credential | None]] = {}
    changes: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    for change in changes:
        name = change.name
        if name in refused:
            continue
        planned = _TWICE if name in accepted else _plan(call.catalog, change)
        if isinstance(planned, Refusal):
            accepted.pop(name, None)
            refused[name] = planned
        else:
            accepted[name] = planned
    failed = failure_of(store, call.catalog, accepted)
    for name, (mechanism, credential) in accepted.items() if failed is None else ():
        verb = "deleted" if credential is None else "set"
        call.changed(ALTER, USER, name, f"{mechanism.name} {verb}")
    outcomes = {**refused, **dict.fromkeys(accepted, failed)}
    return AlterUserScramCredentialsResponse(
        results=await call.each(lambda item: Result(item[0]).refused(item[1]), outcomes.items())
    )


def _plan(
    catalog: Catalog, change: Deletion | Upsertion
) -> tuple[Mechanism, Credential | None] | Refusal:
    """Return what to store for a change, None to delete the credential; or its error."""
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    mechanism = MECHANISM_NUMBERS.get(change.mechanism)
    if not change.name:
        return Refusal(unacceptable, "Username must not be empty")
    if mechanism is None:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Deletion):
        if find_credential(catalog, mechanism, change.name) is not None:
            return mechanism, None
        return Refusal(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    iterations = change.iterations
    if iterations < MIN_ITERATIONS:
        return Refusal(unacceptable, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        return Refusal(unacceptable, "Too many iterations")
    salted_password, salt = bytes(change.salted_password), bytes(change.salt)
    return mechanism, make_credential(mechanism, salted_password, salt, iterations)
