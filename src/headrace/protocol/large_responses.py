"""Large responses: arrays whose items are made while they are written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

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
