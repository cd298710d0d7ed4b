"""Large responses: arrays whose items are made while they are written, and the mark of a response
that is written in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

Write = Callable[[Callable[[Any], object], Any], None]
"""See :mod:`headrace.protocol.writer`."""


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


class EncodedArray(Protocol):
    """An array of a response that keeps the bytes of its items."""

    is_encoded: bool
    """True; the mark of such an array."""

    def __len__(self) -> int: ...

    def put(self, put: Callable[[Any], object], write: Write) -> Generator[None]:
        """Put the bytes of all items; yield between pieces of work.

        :param write: writes an item in the version of the response
        """


class SharedArray(Generic[T]):
    """An array that is in several messages of a response, which is written in slices. Its items are
    encoded once.
    """

    __slots__ = ("_encoded", "_items", "_write", "is_encoded")

    def __init__(self, items: tuple[T, ...]) -> None:
        self.is_encoded = True
        self._items = items
        self._write: Write | None = None
        self._encoded = b""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def put(self, put: Callable[[Any], object], write: Write) -> Generator[None]:
        """Put the bytes of all items, see :class:`EncodedArray`."""
        if self._write is not write:
            parts: list[Any] = []
            for item in self._items:
                write(parts.append, item)
            self._write, self._encoded = write, b"".join(parts)
        put(self._encoded)
        yield


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
