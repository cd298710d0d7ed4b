"""A model of `kafka-ordered`: logs in memory, and a merge of one record at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.ordered.ordered_task import OrderedTask
from headrace.ordered.readiness import Readiness
from headrace.protocol.partitions import TopicPartition
from headrace.spark.ordered.plan import Inputs


@dataclass
class SimulatedLog:
    """A log in memory: lists of (offset, timestamp, is visible). Offsets ascend, with gaps.

    :param heads: timestamps that the heads of batches tell, where they are not those of the records
    :ivar asked: number of questions by kind
    """

    records: dict[TopicPartition, list[tuple[int, int, bool]]]
    chunk: int = 3
    heads: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def end(self, partition: TopicPartition) -> int:
        records = self.records[partition]
        return records[-1][0] + 1 if records else 0

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self._count("ends")
        return {p: self.end(p) for p in partitions}

    def visible(self, partition: TopicPartition, start: int, end: int) -> list[tuple[int, int]]:
        return [
            (o, t)
            for o, t, is_visible in self.records[partition]
            if is_visible and start <= o < end
        ]

    def offsets_at(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        self._count("offsets_at")
        assert all(at >= 0 for at in timestamps_ms.values()), (
            "negative timestamps ask for something else"
        )
        return {
            p: next((o for o, t, _ in self.records[p] if t >= at), None)
            for p, at in timestamps_ms.items()
        }

    def largest_timestamps(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        self._count("largest_timestamps")
        found = {}
        for partition in partitions:
            if self.records[partition]:
                offset, timestamp, _ = max(self.records[partition], key=lambda r: (r[1], -r[0]))
                found[partition] = (timestamp, offset)
        return found

    def first_visible(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], by_heads: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        self._count("first_visible")
        firsts = {}
        for partition in ranges:
            for offset, timestamp in self.visible(partition, *ranges[partition])[:1]:
                told = self.heads.get((partition, offset), timestamp) if by_heads else timestamp
                firsts[partition] = offset, told
        return firsts

    def scan(self, partition: TopicPartition, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        self._count("scan")
        records = self.visible(partition, start, end)
        for at in range(0, len(records), self.chunk):
            piece = records[at : at + self.chunk]
            yield np.array([o for o, _ in piece]), np.array([t for _, t in piece])

    def _count(self, kind: str) -> None:
        self.asked[kind] = self.asked.get(kind, 0) + 1


def merged(log: SimulatedLog, inputs: Inputs) -> list[tuple[TopicPartition, int]]:
    """Return (partition, offset) of a batch's records in the order of a merge."""
    merge: OrderedTask[TopicPartition, int] = OrderedTask(inputs.partitions)
    for p in inputs.partitions:
        merge.add(p, [(t, o) for o, t in log.visible(p, inputs.starts[p], inputs.ends.get(p, 0))])
    return list(iter(merge.pop, None))


class BruteForce:
    """A task that merges one record at a time and asks the rule before each."""

    def __init__(self, partitions: tuple[TopicPartition, ...], max_task_idle_ms: int) -> None:
        self.partitions = partitions
        self.rule: Readiness[TopicPartition] = Readiness(partitions, max_task_idle_ms)

    def may_begin(self, log: SimulatedLog, inputs: Inputs, now_ms: int) -> bool:
        """Return the rule's decision about records to fetch, visible or not."""
        lags = {p: 0 if p in inputs.ends else None for p in self.partitions}
        return self.rule.decide(
            {p: inputs.available(p) for p in self.partitions}, lags, now_ms
        ).ready

    def run(
        self,
        log: SimulatedLog,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> list[tuple[TopicPartition, int]]:
        """Take visible records while the rule allows it."""
        queues = {p: log.visible(p, starts[p], ends.get(p, 0)) for p in self.partitions}
        lags = {p: 0 if p in ends else None for p in self.partitions}
        taken = []
        while self.rule.decide({p: bool(q) for p, q in queues.items()}, lags, now_ms).ready:
            filled = [(q[0][1], order, p) for order, (p, q) in enumerate(queues.items()) if q]
            if not filled:
                break
            partition = min(filled)[2]
            taken.append((partition, queues[partition].pop(0)[0]))
        return taken
