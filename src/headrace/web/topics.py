"""A topic in detail: its partitions and configs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.configs import Config, ConfigType
from headrace.client.errors import RequestRefused
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.list_offsets import EARLIEST, LATEST
from headrace.client.topics import PartitionInfo, describe_topics
from headrace.errors import ErrorCode

from .groups import configs_of
from .limits import PARTITIONS_OF_PAGE


class PartitionOfTopic(NamedTuple):
    """A partition of a topic; None for an unknown offset."""

    info: PartitionInfo
    start_offset: int | None
    end_offset: int | None

    @property
    def offset_count(self) -> int | None:
        """The offsets from start to end; compaction may have left fewer records."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic in detail.

    :param partitions: those of the page
    :param partition_count: of all pages
    :param configs: None if the broker does not tell them
    :param warnings: what could not be determined, one line each
    """

    name: str
    topic_id: str
    is_internal: bool
    partitions: Sequence[PartitionOfTopic]
    partition_count: int
    configs: Sequence[Config] | None
    warnings: Sequence[str]


async def topic_detail(cluster: Cluster, name: str, page: int = 1) -> TopicDetail | None:
    """Return a topic, or None if it does not exist.

    :param page: of its partitions, from 1
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    await cluster.metadata()
    topic = (await describe_topics(cluster, [name])).get(name)
    if isinstance(topic, RequestRefused):
        missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if topic.code in missing:
            return None
        raise topic
    if topic is None:
        return None
    first = (page - 1) * PARTITIONS_OF_PAGE
    partitions = sorted(topic.partitions, key=lambda one: one.number)
    shown = partitions[first : first + PARTITIONS_OF_PAGE]
    leaders = PartitionLeaders(cluster)
    keys = [(name, one.number) for one in shown]
    starts = await leaders.offsets(keys, EARLIEST)
    ends = await leaders.offsets(keys, LATEST)
    warnings = list(leaders.problems)
    return TopicDetail(
        name,
        str(topic.topic_id),
        topic.is_internal,
        [
            PartitionOfTopic(one, starts.get((name, one.number)), ends.get((name, one.number)))
            for one in shown
        ],
        len(partitions),
        await configs_of(cluster, ConfigType.TOPIC, name, warnings),
        warnings,
    )
