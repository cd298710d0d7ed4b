"""Inputs of a task of ``kafka-ordered``, and questions about their logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.protocol.partitions import TopicPartition

Offsets = dict[TopicPartition, int]


class Log(Protocol):
    """Questions about the subscribed partitions. All but :meth:`scan` take many partitions at once.

    A record is *visible* if a consumer would get it: transaction markers are not, and with
    read_committed neither are records of aborted transactions. A partition whose broker does not
    answer is missing in the result.
    """

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record that can be read."""

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the first offset of the whole log with that timestamp or a later one.

        The record may be invisible. None if there is no such record.
        """

    def largest_timestamps(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return (timestamp in ms, offset) of the first record with the largest timestamp.

        The record may be invisible. An empty partition is missing in the result.
        """

    def first_visible(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return (offset, timestamp in ms) of the first visible record in each range.

        :param ranges: (start inclusive, end exclusive)
        """

    def scan(self, partition: TopicPartition, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        """Yield offsets and timestamps in ms of the visible records in a range, as numpy arrays."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The partitions of one task, and the offsets of each that may be read.

    :param partitions: their order breaks ties between equal timestamps
    :param starts: the next offset to read
    :param ends: the offset after the last one that may be read; missing while unknown
    """

    partitions: tuple[TopicPartition, ...]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    def __len__(self) -> int:
        return sum(map(self.available, self.partitions))

    def available(self, partition: TopicPartition) -> int:
        """Return the number of offsets of ``partition`` that may be read."""
        return max(0, self.ends.get(partition, 0) - self.starts[partition])

    @property
    def filled(self) -> list[TopicPartition]:
        """The partitions with offsets that may be read."""
        return [partition for partition in self.partitions if self.available(partition)]

    @property
    def reached(self) -> Offsets:
        """The next offset of each partition after all of this has been read."""
        return {p: max(self.starts[p], self.ends.get(p, 0)) for p in self.partitions}

    def until(self, ends: Mapping[TopicPartition, int]) -> Inputs:
        """Return the same inputs with other ends for some partitions."""
        return Inputs(self.partitions, self.starts, {**self.ends, **ends})

    def emptied(self) -> Inputs:
        """Return the same inputs with nothing to read."""
        return self.until({p: self.starts[p] for p in self.partitions})

    def after(self, taken: Inputs) -> Inputs:
        """Return what is left after ``taken`` has been read."""
        return Inputs(self.partitions, taken.reached, self.ends)
