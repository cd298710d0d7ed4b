"""The records of a share-partition that can be acquired again, at once or after a backoff.

The backoff of a released record starts at ``share.release.backoff.ms`` and doubles with each
delivery, up to ``share.release.backoff.max.ms``. By default there is none, as in Apache Kafka. A
restart ends backoffs.

*Bad-record isolation* keeps a record that cannot be processed from using up the deliveries of its
neighbours. After half of the allowed deliveries of a record, its in-flight batch is delivered
alone, in smaller pieces each time. The last delivery of a record is that record alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.share.acquisition_locks import AcquiredRecords
from headrace.share.records import NO_BACKOFF
from headrace.share.settings import FetchLimits, ShareSettings
from headrace.share.spans import Range, Run, Spans, TimedSpans


class Backoff(NamedTuple):
    """A backoff during which AVAILABLE records cannot be acquired."""

    deadline_ms: int
    delivery_count: int


@dataclass(slots=True)
class InFlightBatches:
    """The offsets up to ``end_offset`` (exclusive), divided into contiguous batches: records that
    were acquired together. Bad-record isolation uses them, and the choice between error messages.
    """

    end_offset: int
    # First offset of each batch; it ends where the next begins. The first may begin below the
    # start offset.
    _firsts: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, firsts: Iterable[int], end_offset: int) -> None:
        """Add batches that begin at ``firsts``, the last of them up to the new ``end_offset``."""
        self._firsts += firsts
        self.end_offset = end_offset

    def bounds(self, offset: int) -> tuple[int, int]:
        """Return the first and last offset of the batch that contains ``offset``."""
        i = bisect_right(self._firsts, offset)
        return self._firsts[i - 1], (
            self._firsts[i] if i < len(self._firsts) else self.end_offset
        ) - 1

    def drop_below(self, offset: int) -> None:
        """Remove batches that end before ``offset``."""
        if offset >= self.end_offset:
            self._firsts.clear()
            self.end_offset = offset
        else:
            del self._firsts[: bisect_right(self._firsts, offset) - 1]


@dataclass(slots=True)
class AvailableRecords:
    """The AVAILABLE records of one share-partition.

    :ivar spans: the records that can be acquired now, with their delivery counts
    :ivar backoffs: the records in a backoff
    """

    spans: Spans[int] = field(default_factory=Spans)
    backoffs: TimedSpans[Backoff] = field(default_factory=TimedSpans)

    def covers(self, first: int, last: int) -> bool:
        """Return True if all of ``first..last`` are available, with the same delivery count and
        backoff.
        """
        return self.spans.covers(first, last) or self.backoffs.spans.covers(first, last)

    def add(self, runs: Sequence[Run[int]], not_before_ms: Mapping[int, int] = NO_BACKOFF) -> None:
        """Add ``runs`` of (first, last, delivery count) that are not available yet.

        :param not_before_ms: the end of the backoff by delivery count; a count without an entry has
            no backoff
        """
        for count, deadline_ms in not_before_ms.items():
            backoff = Backoff(deadline_ms, count)
            waiting = [(run[0], run[1], backoff) for run in runs if run[2] == count]
            if waiting:
                self.backoffs.grant(waiting, deadline_ms)
        self.spans.paint(
            [run for run in runs if run[2] not in not_before_ms] if not_before_ms else runs
        )

    def end_backoffs(self, now_ms: int) -> bool:
        """End the backoffs that are due; return True if there were any."""
        over = self.backoffs.expired(now_ms)
        self.backoffs.spans.erase(over)
        self.spans.paint([(first, last, backoff.delivery_count) for first, last, backoff in over])
        return bool(over)

    def erase(self, ranges: Sequence[Range]) -> None:
        """Remove ``ranges`` (ascending, disjoint)."""
        self.spans.erase(ranges)
        self.backoffs.spans.erase(ranges)

    def drop_below(self, offset: int) -> None:
        """Remove everything before ``offset``."""
        self.spans.drop_below(offset)
        self.backoffs.spans.drop_below(offset)

    def take(
        self,
        last: int,
        limits: FetchLimits,
        batches: InFlightBatches,
        settings: ShareSettings,
    ) -> tuple[list[AcquiredRecords], bool]:
        """Take records up to ``last``, in whole in-flight batches, until there are ``max_records``;
        with ``record_limit`` no more, even if this splits a batch.

        A batch that may contain a bad record is delivered alone.

        :returns: the records taken, and True if they must be delivered without new records
        """
        spans, max_records, record_limit = self.spans, limits.max_records, limits.record_limit
        # the lowest delivery count at which a record is suspected to be bad
        suspect = max(2, -(-settings.delivery_count_limit // 2))
        taken: list[AcquiredRecords] = []
        total = 0
        while spans.firsts and spans.firsts[0] <= last and total < max_records:
            first = spans.firsts[0]
            batch_first, batch_last = batches.bounds(first)
            waiting = spans.within(first, min(batch_last, last))
            throttled = max(count for _, _, count in waiting) >= suspect
            if throttled:
                if taken:
                    return taken, True
                size = batch_last - batch_first + 1
                waiting = _isolate(waiting, size, settings.delivery_count_limit, suspect)
            for run_first, run_last, count in waiting:
                if record_limit:
                    run_last = min(run_last, run_first + max_records - total - 1)
                taken.append(AcquiredRecords(run_first, run_last, count + 1))
                total += run_last - run_first + 1
                if record_limit and total >= max_records:
                    break
            # records are taken in order: all before the last are taken
            spans.drop_below(taken[-1].last_offset + 1)
            if throttled:
                return taken, True
        return taken, False


def _isolate(
    runs: Sequence[Run[int]], size: int, delivery_count_limit: int, suspect: int
) -> list[Run[int]]:
    """Return the part of a batch's available ``runs`` to deliver.

    The first suspected record determines how many are delivered. If at least as many records
    precede it, there is no limit, as in Apache Kafka.

    :param size: the number of offsets of the whole batch
    :param runs: (first, last, delivery count), ascending
    :param suspect: the lowest delivery count of a suspected record
    """
    last_attempt = delivery_count_limit - 1 if delivery_count_limit > 2 else None
    most: int | None = None
    total = 0
    part: list[Run[int]] = []
    for first, last, count in runs:
        if count == last_attempt:
            return part or [(first, first, count)]
        length = last - first + 1
        if most is None and count >= suspect:
            most = max(1, size >> (count - suspect + 1))
        if most is not None and total < most:
            length = min(length, most - total)
        part.append((first, first + length - 1, count))
        total += length
        if total == most:
            break
    return part
