"""Where ``headrace consume`` begins and ends in partitions, which it reads without a group."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.clients import Cluster, TopicMetadata, errors
from headrace.cli.clients import offsets as positions
from headrace.cli.errors import BadUsage, Failure
from headrace.patterns import matches
from headrace.positions import EARLIEST, LATEST, Position
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.partition_reader import PartitionReader


async def open_reader(cluster: Cluster, options: Namespace) -> PartitionReader:
    """Return a reader of the records that the options choose.

    :raises Failure: no topic matches
    :raises ClientError: a broker refuses
    """
    from headrace.client.partition_reader import PartitionReader

    level = int(options.read_committed)
    partitions = [
        partition
        for name in options.topics
        for partition in await _partitions(cluster, name, options.partition)
    ]

    async def offsets(position: Position) -> dict[TopicPartition, int]:
        return errors.raised(
            await positions.offsets_of_positions(
                cluster, dict.fromkeys(partitions, position), isolation_level=level
            )
        )

    starts, ends = await offsets(options.start or EARLIEST), {}
    if options.exit or options.end is not None:
        ends = await offsets(options.end or LATEST)
        starts = {key: start for key, start in starts.items() if start < ends[key]}
    return PartitionReader(cluster, starts, ends, level)


def check_partition(number: int, topic: TopicMetadata) -> None:
    """Check the number of a partition.

    :raises BadUsage: the topic has no such partition
    """
    count = len(topic.leaders)
    if not 0 <= number < count:
        raise BadUsage(f"topic '{topic.name}' has no partition {number}: it has {count}")


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
            check_partition(number, topic)
    return [
        (topic.name, number) for topic in topics.values() for number in numbers or topic.leaders
    ]
