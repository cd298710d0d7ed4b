"""What the handlers of transaction requests share."""

from __future__ import annotations

from headrace.errors import ErrorCode, Refusal
from headrace.transactions.records import State


def error_code(refusal: Refusal, knows_fenced: bool) -> ErrorCode:
    """The code of a refusal; a client that does not know PRODUCER_FENCED is told of its epoch
    instead (KIP-588).
    """
    if refusal.code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code


def state_name(state: State) -> str:
    """A state as Kafka's tools spell it: PREPARE_COMMIT is PrepareCommit."""
    return state.name.title().replace("_", "")
