"""ListTransactions (66), versions 0-2: list transactional ids (KIP-664).

Version 0 filters by state and producer id.

The filter by duration counts from the start of the latest transaction, also if that is complete. An
id that had none is older than any duration.

Version notes:

* Version 1 adds a filter by duration (KIP-994).
* Version 2 adds a filter by a regular expression (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.consumer.regex import InvalidRegex, Regex
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType
from headrace.transactions.records import State, Transaction

from .api_65_describe_transactions import state_name
from .context import RequestContext
from .slicing import run_sliced, sliced

_STATES = {state_name(state): state for state in State}


def handle(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse | Sliced | Awaitable[ListTransactionsResponse | Sliced]:
    """List the transactional ids that match the filters."""
    count = len(broker.transactions.coordinator.transactions)
    return run_sliced(broker, _list(broker, request, context.access), count)


def _list(
    broker: Broker, request: ListTransactionsRequest, access: AnyAccess
) -> Generator[None, None, ListTransactionsResponse | Sliced]:
    unknown = tuple(name for name in request.state_filters if name not in _STATES)
    try:
        pattern = (
            Regex(request.transactional_id_pattern) if request.transactional_id_pattern else None
        )
    except InvalidRegex:
        return _response(ErrorCode.INVALID_REGULAR_EXPRESSION, ())
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    if unknown and not states:
        return _response(ErrorCode.NONE, unknown)
    wall_ms = broker.clock.wall_ms()

    def asked_for(transactional_id: str, known: Transaction) -> bool:
        age_ms = wall_ms - known.start_ms
        return (
            (not states or known.state in states)
            and (
                not request.producer_id_filters or known.producer_id in request.producer_id_filters
            )
            and (request.duration_filter < 0 or age_ms > request.duration_filter)
            and (pattern is None or pattern.matches(transactional_id))
            and access.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        )

    found = []
    for transactional_id, known in list(broker.transactions.coordinator.transactions.items()):
        if asked_for(transactional_id, known):
            found.append(
                TransactionState(
                    transactional_id=transactional_id,
                    producer_id=known.producer_id,
                    transaction_state=state_name(known.state),
                )
            )
        yield
    return sliced(_response(ErrorCode.NONE, unknown, tuple(found)), len(found))


def _response(
    code: ErrorCode, unknown: tuple[str, ...], found: tuple[TransactionState, ...] = ()
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        unknown_state_filters=unknown,
        transaction_states=found,
    )
