"""JoinGroup and SyncGroup, which may wait for the other members of their group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.broker.broker import Broker
from headrace.coordinators.runtime import Deferred
from headrace.outcome import Outcome

Q = TypeVar("Q")
R = TypeVar("R")


def write_parkable(
    broker: Broker,
    group_id: str,
    decide: Callable[[str, Q, int, int, int], Outcome[Any, R | None]],
    request: Q,
    pack: Callable[[R], Any],
) -> Deferred[Any]:
    """Decide a request of a member, and answer it when the group has completed it.

    :param decide: given the group id, the request, a ticket, the steady and the wall time in
        ms; a reply of None parks the request until an outcome completes the ticket
    :param pack: makes the response from the reply
    """

    def decide_and_count(ticket: int, now_ms: int, wall_ms: int) -> Outcome[Any, R | None]:
        outcome = decide(group_id, request, ticket, now_ms, wall_ms)
        broker.groups.meters.heard(outcome.records)
        return outcome

    return broker.group_runtime.write_parkable(group_id, decide_and_count, pack)
