"""Large responses: arrays whose items are made while they are written, and the mark of a response
that is written in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class LazyArray(Collection[T]):
    """An array of a response, whose items are made when they are written. It can be iterated over
    once.

    :param count: the number of items
    """

    __slots__ = ("_count", "_items")

    def __init__(self, count: int, items: Iterable[T]) -> None:
        self._count = count
        self._items = items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __contains__(self, item: object) -> bool:
        raise TypeError("the items of a lazy array are made once, when they are written")


def lazy_map(function: Callable[[Any], T], items: Any) -> LazyArray[T] | tuple[T, ...]:
    """Apply a function to the items of an array: when they are written if the array is lazy, else
    at once.
    """
    if isinstance(items, LazyArray):
        return LazyArray(len(items), map(function, items))
    return tuple(map(function, items))


@dataclass(frozen=True, slots=True)
class Sliced:
    """A response that is written in slices, between which other requests are served."""

    response: Any


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a response, as pieces to send.

    :ivar error_code: the top-level error of the response; None if it has none
    """

    pieces: list[Any]
    error_code: Any = None
