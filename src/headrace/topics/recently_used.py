"""Values that are remembered up to a sum of their sizes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """The values that were used last, by key.

    :param max_size: the limit on the sizes of all values together; the last one may be larger alone
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it is not remembered."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value, and forget those that were not used for the longest time."""
        if key in self._entries:
            self._size -= self._entries.pop(key)[1]
        self._entries[key] = value, size
        self._size += size
        while self._size > self._max_size and len(self._entries) > 1:
            _, (_, oldest_size) = self._entries.popitem(last=False)
            self._size -= oldest_size
