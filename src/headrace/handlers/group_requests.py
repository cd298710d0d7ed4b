"""What the handlers of group requests share: durations, and waiting for the answer to a parked
request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.broker.broker import Broker
from headrace.coordinators.runtime import Deferred
from headrace.outcome import Outcome

A = TypeVar("A")
R = TypeVar("R")


def decide_parked(
    broker: Broker,
    group_id: str,
    decide: Callable[[str, A, int, int], Outcome[Any, R | None]],
    asked: A,
    pack: Callable[[R], Any],
) -> Deferred[Any]:
    """Write a decision that may park the request.

    :param decide: given the group id, ``asked``, a ticket and the time, the outcome; a reply of
        None is completed later, under this ticket
    :param pack: makes the response from the reply
    """

    def decide_and_count(ticket: int, now_ms: int, wall_ms: int) -> Outcome[Any, R | None]:
        outcome = decide(group_id, asked, ticket, now_ms)
        broker.groups.meters.heard(outcome.records)
        return outcome

    return broker.group_runtime.write_parkable(group_id, decide_and_count, pack)
