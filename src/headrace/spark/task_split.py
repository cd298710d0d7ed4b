"""Division of ranges of offsets into Spark tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Part(NamedTuple):
    """A part of one item.

    :param item: index of the item
    :param start: first record of the part, counted from the start of the item
    :param end: exclusive
    """

    item: int
    start: int
    end: int


def split_evenly(sizes: Sequence[int], most: int) -> list[list[Part]]:
    """Divide items into as few tasks as possible, of about equal size.

    Items keep their order. A task may hold a part of an item, or parts of several.

    :param sizes: the number of records of each item
    :param most: the largest number of records of a task
    :returns: the parts of each task
    """
    total = sum(sizes)
    if not total:
        return []
    task_count = -(-total // most)
    task_size = -(-total // task_count)
    tasks: list[list[Part]] = []
    room = 0
    for item, size in enumerate(sizes):
        start = 0
        while start < size:
            if not room:
                tasks.append([])
                room = task_size
            end = min(size, start + room)
            tasks[-1].append(Part(item, start, end))
            room -= end - start
            start = end
    return tasks
