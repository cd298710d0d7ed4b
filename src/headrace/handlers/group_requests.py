"""What the handlers of group requests share: durations, and waiting for the answer to a parked
request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from headrace.broker.broker import Broker
from headrace.outcome import Outcome

A = TypeVar("A")
R = TypeVar("R")

_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(duration: timedelta) -> int:
    """A duration of a message in whole milliseconds."""
    return duration // _MILLISECOND


def duration(length_ms: int) -> timedelta:
    """The inverse of :func:`milliseconds`."""
    return timedelta(milliseconds=length_ms)


def decide_parked(
    broker: Broker,
    group_id: str,
    decide: Callable[[str, A, int, int], Outcome[Any, R | None]],
    asked: A,
    pack: Callable[[R], Any],
) -> Any:
    """Submit a decision that may park the request.

    :param decide: given the group id, ``asked``, a ticket and the time, the outcome; a reply of
        None is completed later, under this ticket
    :param pack: makes the response from the reply
    """
    ticket, parked = broker.park()
    try:
        outcome = decide(group_id, asked, ticket, broker.now_ms())
        reply = broker.submit(broker.groups, group_id, outcome)
    except BaseException:
        parked.cancel()
        raise
    broker.groups.meters.heard(outcome.records)
    if reply is None:
        return _parked(broker, parked, pack)
    parked.cancel()
    return broker.when_durable(pack(reply))


async def _parked(broker: Broker, parked: Awaitable[R], pack: Callable[[R], Any]) -> Any:
    reply = await parked
    await broker.durable()
    return pack(reply)
