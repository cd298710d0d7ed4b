"""Division of ranges of offsets into Spark tasks."""

from __future__ import annotations

from collections.abc import Sequence


def split_evenly(
    starts: Sequence[int], ends: Sequence[int], most: int
) -> list[list[tuple[int, int, int]]]:
    """Divide ranges of offsets into as few tasks as possible, of about equal size.

    Ranges keep their order. A task may hold a part of a range, or parts of several.

    :param starts: the first offset of each range
    :param ends: exclusive
    :param most: the largest number of offsets of a task
    :returns: the parts of each task: index of the range, start and exclusive end
    """
    total = sum(max(0, end - start) for start, end in zip(starts, ends, strict=True))
    if not total:
        return []
    task_count = -(-total // most)
    task_size = -(-total // task_count)
    tasks: list[list[tuple[int, int, int]]] = []
    room = 0
    for item, (start, end) in enumerate(zip(starts, ends, strict=True)):
        while start < end:
            if not room:
                tasks.append([])
                room = task_size
            part_end = min(end, start + room)
            tasks[-1].append((item, start, part_end))
            room -= part_end - start
            start = part_end
    return tasks
