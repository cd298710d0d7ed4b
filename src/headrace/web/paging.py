"""Pages of long lists. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list.

    :param number: from 1
    :param count: the number of pages; at least 1
    :param total: the number of rows on all pages
    """

    rows: Sequence[T]
    number: int
    count: int
    total: int


def page_of(rows: Sequence[T], number: int, size: int) -> Page[T]:
    """Return a page of a list; the nearest one if the list has no such page.

    :param size: the rows of one page
    """
    count = max(1, -(-len(rows) // size))
    number = min(max(1, number), count)
    return Page(rows[(number - 1) * size : number * size], number, count, len(rows))
