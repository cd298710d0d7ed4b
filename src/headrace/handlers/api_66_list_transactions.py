"""ListTransactions (66), versions 0-2: list transactional ids (KIP-664).

Version 0 filters by state and producer id.

The filter by duration counts from the start of the latest transaction, also if that is complete. An
id that had none is older than any duration.

Version notes:

* Version 1 adds a filter by duration (KIP-994).
* Version 2 adds a filter by a regular expression (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Generator, Sequence

from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.groups.consumer.regex import InvalidRegex
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
    transactions = broker.transactions.coordinator.transactions
    if request.transactional_id_pattern:
        return _match_and_list(broker, request, context.access, list(transactions))
    return run_sliced(broker, _list(broker, request, context.access, None), len(transactions))


async def _match_and_list(
    broker: Broker,
    request: ListTransactionsRequest,
    access: AnyAccess,
    transactional_ids: Sequence[str],
) -> ListTransactionsResponse | Sliced:
    """Match the ids with the pattern of the request first, off the event loop."""
    pattern = request.transactional_id_pattern or ""
    try:
        matching = await broker.regex_matcher.matching(pattern, transactional_ids)
    except InvalidRegex:
        return _response(ErrorCode.INVALID_REGULAR_EXPRESSION, ())
    return await broker.slices.run(_list(broker, request, access, matching))


def _list(
    broker: Broker,
    request: ListTransactionsRequest,
    access: AnyAccess,
    matching: Collection[str] | None,
) -> Generator[None, None, ListTransactionsResponse | Sliced]:
    """List transactional ids.

    :param matching: the ids that match the pattern of the request; None without a pattern
    """
    unknown = tuple(name for name in request.state_filters if name not in _STATES)
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
            and (matching is None or transactional_id in matching)
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
