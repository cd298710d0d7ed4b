"""ListTransactions (66), versions 0-2: list transactional ids (KIP-664).

Version 0 filters by state and producer id.

The filter by duration counts from the start of the latest transaction, also if that is complete. An
id that had none is older than any duration.

Version notes:

* Version 1 adds a filter by duration (KIP-994).
* Version 2 adds a filter by a regular expression (KIP-1152).
"""

from __future__ import annotations

from headrace.groups.consumer.regex import InvalidRegex
from headrace.net.api import DESCRIBE, TRANSACTIONAL_ID, Api, Inside
from headrace.net.call import Call
from headrace.protocol.api import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.errors import ErrorCode
from headrace.transactions.records import State

TransactionState = ListTransactionsResponse.TransactionState

API = Api(66, Inside(DESCRIBE, TRANSACTIONAL_ID, "left out of the answer"))

_STATES = {state.label for state in State}


async def handle(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactional ids that match the filters."""
    transactions = call.transactions.coordinator.transactions
    matching = None
    if request.transactional_id_pattern:  # matched off the event loop
        try:
            matching = await call.regex_matcher.matching(
                request.transactional_id_pattern, list(transactions)
            )
        except InvalidRegex:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [name for name in request.state_filters if name not in _STATES]
    states = _STATES.intersection(request.state_filters)
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    wall_ms = call.clock.wall_ms()
    producer_ids, least_ms = request.producer_id_filters, request.duration_filter
    listed = []
    for transactional_id, transaction in list(transactions.items()):
        state, producer_id = transaction.state.label, transaction.producer_id
        if (
            (not states or state in states)
            and (not producer_ids or producer_id in producer_ids)
            and (least_ms < 0 or wall_ms - transaction.start_ms > least_ms)
            and (matching is None or transactional_id in matching)
            and call.may(DESCRIBE, TRANSACTIONAL_ID, transactional_id)
        ):
            listed.append(TransactionState(transactional_id, producer_id, state))
        await call.pause()
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)
