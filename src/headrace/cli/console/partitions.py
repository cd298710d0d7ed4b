"""Where ``headrace consume`` begins and ends in partitions, which it reads without a group."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence

from headrace.cli.errors import Failure
from headrace.cli.librdkafka import check_partition
from headrace.client import Cluster
from headrace.client.errors import raised
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.partition_reader import PartitionReader
from headrace.patterns import matches
from headrace.positions import EARLIEST, Position
from headrace.positions import LATEST as AT_END
from headrace.protocol.partitions import TopicPartition


async def open_reader(cluster: Cluster, options: Namespace) -> PartitionReader:
    """Return a reader of the records that the options choose.

    :raises Failure: no topic matches
    :raises ClientError: a broker refuses
    """
    level = int(options.read_committed)

    async def offsets_at(
        partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        times = dict.fromkeys(partitions, time_ms)
        listed = raised(await list_offsets(cluster, times, isolation_level=level))
        return {partition: answer.offset for partition, answer in listed.items()}

    async def offsets(position: Position) -> dict[TopicPartition, int]:
        """Return offsets. A time after the last record gives the end of the log."""
        offset, time_ms = position
        if offset is not None and offset >= 0:
            return dict.fromkeys(partitions, offset)
        listed = await offsets_at(partitions, LATEST if time_ms is None else time_ms)
        after = [partition for partition, at in listed.items() if at is None]
        listed |= await offsets_at(after, LATEST) if after else {}
        return {p: max(0, (at or 0) + (offset or 0)) for p, at in listed.items()}

    partitions = [
        partition
        for name in options.topics
        for partition in await _partitions(cluster, name, options.partition)
    ]
    starts = await offsets(options.start or EARLIEST)
    ends: dict[TopicPartition, int] = {}
    if options.exit or options.end is not None:
        ends = await offsets(AT_END)
        if options.end is not None:
            chosen = await offsets(options.end)
            ends = {p: min(end, chosen[p]) for p, end in ends.items()}
        starts = {p: start for p, start in starts.items() if start < ends[p]}
    return PartitionReader(cluster, starts, ends, level)


async def _partitions(
    cluster: Cluster, name: str, numbers: Sequence[int] | None
) -> list[TopicPartition]:
    """Return the partitions of a topic, or of those that match an expression.

    :param numbers: only these, which all of the topics must have; None for all
    """
    if name.startswith("^"):
        topics = {
            topic.name: topic
            for topic in (await cluster.all_topics()).values()
            if matches(name[1:], topic.name)
        }
        if not topics:
            raise Failure(f"no topic matches '{name}'")
    else:
        topics = await cluster.topics([name])
    for topic in topics.values():
        for number in numbers or ():
            check_partition(number, topic.name, len(topic.leaders))
    return [
        (topic.name, number) for topic in topics.values() for number in numbers or topic.leaders
    ]
