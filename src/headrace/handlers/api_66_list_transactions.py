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
from headrace.transactions.records import State, Transaction

TransactionState = ListTransactionsResponse.TransactionState

API = Api(66, Inside(DESCRIBE, TRANSACTIONAL_ID, "left out of the answer"))

_STATES = {state.label: state for state in State}


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
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    wall_ms = call.clock.wall_ms()

    def is_listed(transactional_id: str, transaction: Transaction) -> bool:
        return (
            (not states or transaction.state in states)
            and (
                not request.producer_id_filters
                or transaction.producer_id in request.producer_id_filters
            )
            and (
                request.duration_filter < 0
                or wall_ms - transaction.start_ms > request.duration_filter
            )
            and (matching is None or transactional_id in matching)
            and call.may(DESCRIBE, TRANSACTIONAL_ID, transactional_id)
        )

    listed = []
    for transactional_id, transaction in list(transactions.items()):
        if is_listed(transactional_id, transaction):
            state = transaction.state.label
            listed.append(TransactionState(transactional_id, transaction.producer_id, state))
        await call.pause()
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)
