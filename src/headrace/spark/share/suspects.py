"""Records of a micro-batch that did not finish, one of which may make it fail each time.

Spark's checkpoint names them when the query starts again. Micro-batches of half as many records
process those that are not to blame, until one record fails alone. From then on, this one waits
until there are no others, and those that have failed alone take turns. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.client import AcquiredRange
from headrace.client.share.spans import Span, intersect, subtract
from headrace.client.share.types import parts
from headrace.protocol.partitions import TopicPartition

Position = tuple[str, int, int]
"""The topic, the partition and the offset of a record."""

NO_LIMIT = 2**31 - 1
MOST_ALONE = 100
"""The largest number of records that are known to have failed alone."""
AVAILABLE_AFTER_S = 2.0
"""Time until the records are available again: headrace's broker keeps those that are released
without counting for a second."""


class Suspects:
    """The records that have not been processed since a micro-batch with them did not finish.

    :ivar alone: those that were the only one of their micro-batch, the last of them last
    """

    def __init__(self) -> None:
        self.alone: list[Position] = []
        self._spans: dict[TopicPartition, list[Span]] = {}
        self._count = 0
        self._available_at_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._spans or self.alone)

    @property
    def most_records(self) -> int:
        """The largest number of records of the next micro-batch."""
        return self._count // 2 if self._spans else NO_LIMIT

    def most_to_hold(self, limit: int) -> int:
        """Return how many records to acquire for a micro-batch of at most ``limit``: those that
        failed alone are held besides.
        """
        return min(min(limit, self.most_records) + len(self.alone), NO_LIMIT)

    def begin(
        self,
        count: int,
        spans: Mapping[TopicPartition, Span],
        alone: Iterable[Position],
        now_s: float,
    ) -> None:
        """Suspect the records of a micro-batch that did not finish.

        :param count: their number
        :param spans: the first and the last offset of each partition
        :param alone: :attr:`alone` at the time of this micro-batch
        """
        self._count = count
        self._spans = {partition: [span] for partition, span in spans.items()}
        self.alone = list(alone)
        if count == 1:
            ((partition, (offset, _)),) = spans.items()
            position = (*partition, offset)
            others = (other for other in self.alone if other != position)
            self.alone = [*others, position][-MOST_ALONE:]
            self._spans = {}
        self._available_at_s = now_s + AVAILABLE_AFTER_S

    def processed(self, ranges: Iterable[AcquiredRange]) -> None:
        """Suspect these records no longer: their micro-batch has finished."""
        for acquired in ranges if self else ():
            partition = acquired.topic_partition
            rest = subtract(self._spans.pop(partition, ()), [acquired.span])
            if rest:
                self._spans[partition] = rest
            self.alone = [position for position in self.alone if not _has(acquired, position)]

    def choose(
        self, ranges: Sequence[AcquiredRange], limit: int, now_s: float
    ) -> tuple[list[AcquiredRange], list[AcquiredRange]]:
        """Return the acquired ranges of the next micro-batch, and those of a later one.

        :param limit: the largest number of records of any micro-batch
        """
        alone: list[AcquiredRange] = []
        suspects: list[AcquiredRange] = []
        others: list[AcquiredRange] = []
        for acquired in ranges:
            alone_here = sorted(position for position in self.alone if _has(acquired, position))
            single = [(offset, offset) for *_, offset in alone_here]
            alone += parts(acquired, single)
            for part in parts(acquired, subtract([acquired.span], single)):
                spans = self._spans.get(part.topic_partition, ())
                suspects += parts(part, intersect(spans, [part.span]))
                others += parts(part, subtract([part.span], spans))
        if now_s >= self._available_at_s:
            self._forget_finished(suspects, others)
        if suspects or others:
            chosen, later = _divided([*suspects, *others], min(limit, self.most_records))
            return chosen, [*later, *alone]
        alone.sort(key=lambda r: self.alone.index((*r.topic_partition, r.first_offset)))
        return alone[:1], alone[1:]

    def _forget_finished(
        self, suspects: Sequence[AcquiredRange], others: Sequence[AcquiredRange]
    ) -> None:
        """Forget partitions whose later records are acquired first, or all if there is nothing:
        the records have had their outcomes, or other members have them.
        """
        if not suspects and not others:
            self._spans.clear()
        for acquired in others:
            partition = acquired.topic_partition
            spans = self._spans.get(partition)
            is_held = any(r.topic_partition == partition for r in suspects)
            if spans and not is_held and acquired.first_offset > spans[-1][1]:
                del self._spans[partition]


def _has(acquired: AcquiredRange, position: Position) -> bool:
    is_own = acquired.topic_partition == position[:2]
    return is_own and acquired.first_offset <= position[2] <= acquired.last_offset


def _divided(
    ranges: Iterable[AcquiredRange], most: int
) -> tuple[list[AcquiredRange], list[AcquiredRange]]:
    """Return the first ``most`` records, and the others."""
    first: list[AcquiredRange] = []
    others: list[AcquiredRange] = []
    for acquired in ranges:
        spans = [acquired.span]
        own = [(acquired.first_offset, acquired.first_offset + most - 1)] if most > 0 else []
        first += parts(acquired, intersect(spans, own))
        others += parts(acquired, subtract(spans, own))
        most -= acquired.count
    return first, others
