"""Offsets that separate the records before a timestamp from those after it.

The merge of a task always takes the smallest timestamp among the partitions' next records. That is
the order of (largest timestamp so far within the partition, partition, offset). So *all records
before timestamp T* are, in each partition, those before its first record with timestamp T or later.
Brokers find that record (ListOffsets by timestamp), and a batch is cut without reading it.

The broker's answer is only a hint: transaction markers, aborted records, and records before the
batch's start can mislead it. Each hint is checked with the first visible record behind it. Where
the hint is wrong, the records themselves are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.ordered.ordered_merge import NO_TIMESTAMP
from headrace.protocol.partitions import TopicPartition

from .broker_log import BrokerLog, Offsets

SCAN_RECORDS = 100_000
"""Number of records of a partition to search for its largest timestamp when its broker cannot tell
it."""


class Cut(NamedTuple):
    """The first record of a partition from a timestamp on.

    :param offset: of that record; or where the search for it was given up
    :param given_up_ms: the largest timestamp that was seen before the search was given up; None if
        it was not
    """

    offset: int
    given_up_ms: int | None = None


def cut(log: BrokerLog, inputs: Inputs, timestamps_ms: Mapping[TopicPartition, int]) -> Inputs:
    """Return the inputs up to each partition's first record from its timestamp on."""
    cuts = find_cuts(log, inputs, timestamps_ms)
    return inputs.until({partition: at.offset for partition, at in cuts.items()})


def find_cuts(
    log: BrokerLog,
    inputs: Inputs,
    timestamps_ms: Mapping[TopicPartition, int],
    most: int | None = None,
) -> dict[TopicPartition, Cut]:
    """Find each partition's first record from its timestamp on, within the inputs.

    :param most: give up after this many offsets; None for never
    """
    cuts: dict[TopicPartition, Cut] = {}
    searched: dict[TopicPartition, int] = {}
    for partition, timestamp_ms in timestamps_ms.items():
        if timestamp_ms > NO_TIMESTAMP:
            searched[partition] = timestamp_ms
        else:
            # Nothing lies before the lowest timestamp. To a broker it would mean something else.
            cuts[partition] = Cut(inputs.starts[partition])
    hints = log.offsets_at(searched) if searched else {}
    unchecked: dict[TopicPartition, tuple[int, int]] = {}
    for partition in searched:
        end = inputs.ends[partition]
        offset = hinted_offset(hints, partition, inputs)
        if offset == end:
            cuts[partition] = Cut(end)
        else:
            unchecked[partition] = (offset, end)
    first_visible = log.first_visible(unchecked) if unchecked else {}
    for partition, (offset, end) in unchecked.items():
        if partition not in first_visible:
            cuts[partition] = Cut(end)
            continue
        _, first_ms = first_visible[partition]
        if first_ms >= searched[partition]:
            cuts[partition] = Cut(offset)
        else:
            limit = None if most is None else inputs.starts[partition] + most
            cuts[partition] = _search(log, partition, (offset, end), searched[partition], limit)
    return cuts


def hinted_offset(
    hints: Mapping[TopicPartition, int | None], partition: TopicPartition, inputs: Inputs
) -> int:
    """Return where the broker says that later timestamps begin, within the inputs.

    The start when it does not answer.
    """
    start, end = inputs.starts[partition], inputs.ends[partition]
    offset = hints.get(partition, start)
    return end if offset is None else min(max(offset, start), end)


def _search(
    log: BrokerLog,
    partition: TopicPartition,
    bounds: tuple[int, int],
    timestamp_ms: int,
    limit: int | None,
) -> Cut:
    """Search the records themselves for the first one from a timestamp on.

    :param limit: the offset at which to give up
    """
    largest_ms = NO_TIMESTAMP
    for offsets, timestamps in log.scan(partition, *bounds):
        later = (timestamps >= timestamp_ms).nonzero()[0]
        if len(later):
            return Cut(int(offsets[later[0]]))
        counted = timestamps
        if limit is not None and largest_ms >= 0:
            counted = timestamps[offsets < limit]
        largest_ms = max(largest_ms, int(counted.max(initial=NO_TIMESTAMP)))
        if limit is not None and len(offsets) and int(offsets[-1]) >= limit:
            return Cut(limit, largest_ms)
    return Cut(bounds[1])


def until_first_is_empty(log: BrokerLog, inputs: Inputs) -> tuple[Inputs, Inputs]:
    """Cut where the merge has taken the last record of one of the partitions that have records.

    :returns: what can be taken until then; and ``inputs`` with the later ends that were learned of
        meanwhile
    """
    filled = inputs.filled
    if len(filled) < 2:
        return inputs, inputs
    inputs, largest = _largest_timestamps(log, inputs)
    largest_ms, first, is_complete = min(
        (largest[partition].timestamp_ms, order, largest[partition].is_complete)
        for order, partition in enumerate(filled)
    )
    if is_complete:
        # The partition number `first` ends with this timestamp. Before its last record the merge
        # takes equal timestamps of earlier partitions, but not those of later ones.
        bounds = {
            partition: largest_ms + 1 if order < first else largest_ms
            for order, partition in enumerate(filled)
            if order != first
        }
    else:
        bounds = dict.fromkeys(filled, largest_ms)  # it has more: end with what was searched
    return cut(log, inputs, bounds), inputs


class _Largest(NamedTuple):
    """The largest timestamp of a partition.

    :param is_complete: False if only the first records were searched
    """

    timestamp_ms: int
    is_complete: bool


def _largest_timestamps(
    log: BrokerLog, inputs: Inputs
) -> tuple[Inputs, dict[TopicPartition, _Largest]]:
    """Find the largest timestamp of what may be read of each partition.

    Records that arrived after the ends were asked for are included, up to the one with the largest
    timestamp. Otherwise a partition that is written to all the time would be searched each time.

    :returns: ``inputs`` with these later ends; and the timestamps
    """
    filled = inputs.filled
    hints = log.largest_timestamps(filled)
    newer = [p for p, (_, offset) in hints.items() if offset >= inputs.ends[p]]
    readable = {**inputs.ends, **(log.ends(newer) if newer else {})}
    likely = {
        p: (offset, offset + 1)
        for p, (_, offset) in hints.items()
        if inputs.starts[p] <= offset < readable[p]
    }
    visible = log.first_visible(likely) if likely else {}
    largest: dict[TopicPartition, _Largest] = {}
    ends = {}
    for partition in filled:
        start, end = inputs.starts[partition], inputs.ends[partition]
        if partition in visible and visible[partition][1] == hints[partition][0]:
            offset, timestamp_ms = visible[partition]
            largest[partition] = _Largest(timestamp_ms, is_complete=True)
            ends[partition] = max(end, offset + 1)
        else:  # the hint is a marker, an aborted record, or one from before the start
            largest[partition] = _search_largest(log, partition, start, end)
    return inputs.until(ends), largest


def _search_largest(log: BrokerLog, partition: TopicPartition, start: int, end: int) -> _Largest:
    first_ms: int | None = None
    largest_ms = NO_TIMESTAMP
    seen = 0
    for _, timestamps in log.scan(partition, start, end):
        if not len(timestamps):
            continue
        if seen >= SCAN_RECORDS and first_ms is not None and largest_ms > first_ms:
            return _Largest(largest_ms, is_complete=False)
        if first_ms is None:
            first_ms = int(timestamps[0])
        largest_ms = max(largest_ms, int(timestamps.max()))
        seen += len(timestamps)
    return _Largest(largest_ms, is_complete=True)


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

    @classmethod
    def bounded(
        cls,
        partitions: Iterable[TopicPartition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Inputs:
        """Return those of the partitions whose start and end are known."""
        known = tuple(p for p in partitions if p in starts and p in ends)
        return cls(known, {p: starts[p] for p in known}, {p: ends[p] for p in known})

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
