"""Requests about many resources: their work and their responses in slices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.limits import SLICED_ABOVE
from headrace.protocol.large_responses import LazyArray, Sliced
from headrace.protocol.time_slices import run_now

R = TypeVar("R")
T = TypeVar("T")


def run_sliced(broker: Broker, steps: Generator[None, None, R], count: int) -> R | Awaitable[R]:
    """Run the work for a request and return its value: at once for few resources, else in slices.

    :param steps: yields between its steps, where no other request may see half a change
    :param count: the number of resources
    """
    return run_now(steps) if count <= SLICED_ABOVE else broker.slices.run(steps)


def run_sliced_durably(
    broker: Broker, steps: Generator[None, None, R], count: int
) -> R | Awaitable[R]:
    """Run the work for a request as :func:`run_sliced` does, and return its value when everything
    that it has written is durable.
    """
    return broker.when_durable(run_now(steps)) if count <= SLICED_ABOVE else _durably(broker, steps)


async def _durably(broker: Broker, steps: Generator[None, None, R]) -> R:
    result = await broker.slices.run(steps)
    await broker.durable()
    return result


def lazily(make: Callable[[T], R], items: Sequence[T]) -> Any:
    """Return an array of a response: made now if it is short, else when it is written."""
    if len(items) <= SLICED_ABOVE:
        return tuple(map(make, items))
    return LazyArray(len(items), map(make, items))


def sliced(response: R, count: int) -> R | Sliced:
    """Have a response written in slices, if it describes many resources.

    :param count: the number of resources
    """
    return response if count <= SLICED_ABOVE else Sliced(response)
