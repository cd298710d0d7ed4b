"""AlterUserScramCredentials (51), version 0: create, change and delete users (KIP-554).

Clients send salted passwords, never the passwords themselves. A user can be changed once in a
request.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.broker.scram_users import find_credential, store
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.scram_users import Change, Deletion, Upsertion, plan

from .context import RequestContext


def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Change users in one transaction."""
    changes: list[Change] = [Deletion(one.name, one.mechanism) for one in request.deletions]
    changes += [
        Upsertion(
            one.name,
            one.mechanism,
            one.iterations,
            bytes(one.salt),
            bytes(one.salted_password),
        )
        for one in request.upsertions
    ]
    catalog = broker.catalog
    planned = plan(
        changes, lambda name, mechanism: find_credential(catalog, mechanism, name) is not None
    )
    try:
        store(catalog, (one for one in planned.values() if not isinstance(one, Refusal)))
    except CatalogError as error:
        failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        planned = {
            name: one if isinstance(one, Refusal) else failed for name, one in planned.items()
        }
    return _response(planned)


def _response(planned: Mapping[str, Change | Refusal]) -> AlterUserScramCredentialsResponse:
    done = Refusal(ErrorCode.NONE)
    results = {name: one if isinstance(one, Refusal) else done for name, one in planned.items()}
    return AlterUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterUserScramCredentialsResult(
                user=name, error_code=result.code, error_message=result.message
            )
            for name, result in results.items()
        ),
    )
