"""The records that a member holds acquisition locks on. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.protocol.partitions import TopicIdPartition

from .spans import Span, intersect, normalize, subtract

PartitionSpans = dict[TopicIdPartition, list[Span]]
"""Topic id and partition → runs of offsets, sorted and disjoint."""


def intersection(
    left: Mapping[TopicIdPartition, Sequence[Span]],
    right: Mapping[TopicIdPartition, Sequence[Span]],
) -> PartitionSpans:
    """Return the offsets in both."""
    return _by_partition(intersect, left, right)


def difference(
    left: Mapping[TopicIdPartition, Sequence[Span]],
    right: Mapping[TopicIdPartition, Sequence[Span]],
) -> PartitionSpans:
    """Return the offsets of ``left`` that are not in ``right``."""
    return _by_partition(subtract, left, right)


def _by_partition(
    combine: Callable[[Sequence[Span], Sequence[Span]], list[Span]],
    left: Mapping[TopicIdPartition, Sequence[Span]],
    right: Mapping[TopicIdPartition, Sequence[Span]],
) -> PartitionSpans:
    return {
        partition: spans
        for partition in left
        if (spans := combine(left[partition], right.get(partition, ())))
    }


@dataclass(slots=True)
class HeldRecords:
    """The records that are held at one broker.

    :ivar spans: their offsets; do not change it
    """

    spans: PartitionSpans = field(default_factory=dict)
    _locked_at_ms: dict[TopicIdPartition, int] = field(default_factory=dict)

    def add(self, acquired: PartitionSpans, now_ms: int) -> None:
        """Add acquired runs."""
        for partition, spans in acquired.items():
            self.spans[partition] = normalize([*self.spans.get(partition, ()), *spans])
            self._locked_at_ms.setdefault(partition, now_ms)

    def drop(self, ended: PartitionSpans) -> None:
        """Remove runs that were acknowledged or lost."""
        for partition, spans in ended.items():
            if rest := subtract(self.spans.get(partition, ()), spans):
                self.spans[partition] = rest
            else:
                self.spans.pop(partition, None)
                self._locked_at_ms.pop(partition, None)

    def locked_before(self, at_ms: int) -> PartitionSpans:
        """Return the partitions with a lock acquired or renewed at ``at_ms`` or earlier."""
        return {
            partition: self.spans[partition]
            for partition, locked_at_ms in self._locked_at_ms.items()
            if locked_at_ms <= at_ms
        }

    def renew(self, renewed: PartitionSpans, now_ms: int) -> None:
        """Note the partitions of which all locks were renewed."""
        for partition, spans in renewed.items():
            if partition in self.spans and not subtract(self.spans[partition], spans):
                self._locked_at_ms[partition] = now_ms
