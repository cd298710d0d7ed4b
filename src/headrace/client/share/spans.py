"""Set operations on runs of offsets, each in linear time at most.

Results are sorted and disjoint. Both ends of a run are inclusive.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from headrace.protocol.partitions import TopicIdPartition

Span = tuple[int, int]
"""(first offset, last offset), both inclusive"""


def normalize(spans: Iterable[Span]) -> list[Span]:
    """Sort spans, and merge those that overlap or touch."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def intersect(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """Return the offsets in both; each argument is sorted and disjoint."""
    if len(left) > len(right):
        left, right = right, left  # few runs need not pass by all of many
    return subtract(left, subtract(left, right))


def subtract(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """Return the offsets of ``left`` not in ``right``; each argument is sorted and disjoint."""
    rest: list[Span] = []
    j = max(bisect_right(right, left[0]) - 1, 0) if left else 0
    for first, last in left:
        while j < len(right) and right[j][1] < first:
            j += 1
        k = j
        while k < len(right) and right[k][0] <= last:
            if first < right[k][0]:
                rest.append((first, right[k][0] - 1))
            first = right[k][1] + 1
            k += 1
        if first <= last:
            rest.append((first, last))
    return rest


def contains(spans: Sequence[Span], offset: int) -> bool:
    """Return whether an offset is in sorted and disjoint spans."""
    at = bisect_right(spans, (offset, math.inf)) - 1
    return at >= 0 and offset <= spans[at][1]


def count(spans: Iterable[Span]) -> int:
    """Return the number of offsets in disjoint spans."""
    return sum(last - first + 1 for first, last in spans)


# Of several partitions ----------------------------------------------------------------------------

PartitionSpans = dict[TopicIdPartition, list[Span]]
"""Topic id and partition → runs of offsets, sorted and disjoint."""


def intersection(left: PartitionSpans, right: PartitionSpans) -> PartitionSpans:
    """Return the offsets in both. There are few in ``left``, or as many."""
    return difference(left, difference(left, right))


def difference(left: PartitionSpans, right: PartitionSpans) -> PartitionSpans:
    """Return the offsets of ``left`` that are not in ``right``."""
    return {
        partition: rest
        for partition, spans in left.items()
        if (rest := subtract(spans, right.get(partition, ())))
    }


def add(held: PartitionSpans, acquired: PartitionSpans) -> None:
    """Add runs to those that are held."""
    for partition, spans in acquired.items():
        held[partition] = normalize([*held.get(partition, ()), *spans])


def drop(held: PartitionSpans, ended: PartitionSpans) -> None:
    """Remove runs from those that are held."""
    for partition, spans in ended.items():
        if rest := subtract(held.get(partition, ()), spans):
            held[partition] = rest
        else:
            held.pop(partition, None)
