"""A topic in detail: its partitions and configs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.configs import Config, ConfigType
from headrace.client.dead_letters import queues
from headrace.client.errors import ClientError, has_code
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.list_offsets import EARLIEST, LATEST
from headrace.client.topics import PartitionInfo, describe_topics
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from .groups import configs_of, no_configs
from .limits import PARTITIONS_OF_PAGE
from .paging import Page, page_of


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

    :param page: of the partitions
    :param configs: None if the broker refuses to describe them; empty if they were not queried
    :param warnings: what could not be determined, one line each
    """

    name: str
    topic_id: str
    is_internal: bool
    page: Page[PartitionOfTopic]
    configs: Sequence[Config] | None
    warnings: Sequence[str]

    @property
    def partitions(self) -> Sequence[PartitionOfTopic]:
        """The partitions of the page."""
        return self.page.rows

    @property
    def may_have_letters(self) -> bool:
        """True if groups may use it as dead-letter queue, or its name begins with ``dlq.``."""
        enabled = any(
            one.name == queues.GROUP_ENABLE and one.value == "true" for one in self.configs or ()
        )
        return enabled or self.name.startswith(queues.DEFAULT_PREFIX)


async def topic_detail(
    cluster: Cluster, name: str, page: int = 1, *, with_configs: bool = True
) -> TopicDetail | None:
    """Return a topic, or None if it does not exist.

    :param page: of its partitions, from 1
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    topic = (await describe_topics(cluster, [name])).get(name)
    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if topic is None or has_code(topic, *missing):
        return None
    if isinstance(topic, ClientError):
        raise topic
    partitions = sorted(topic.partitions, key=lambda one: one.number)
    shown = page_of(partitions, page, PARTITIONS_OF_PAGE)
    leaders = PartitionLeaders(cluster)
    warnings: list[str] = []
    bounds, configs = await asyncio.gather(
        _bounds(leaders, [(name, one.number) for one in shown.rows]),
        configs_of(cluster, ConfigType.TOPIC, name, warnings) if with_configs else no_configs(),
    )
    starts, ends = bounds
    rows = [
        PartitionOfTopic(one, starts.get((name, one.number)), ends.get((name, one.number)))
        for one in shown.rows
    ]
    return TopicDetail(
        name,
        str(topic.topic_id),
        topic.is_internal,
        Page(rows, shown.number, shown.count, shown.total),
        configs,
        [*warnings, *leaders.problems],
    )


async def _bounds(
    leaders: PartitionLeaders, keys: Sequence[TopicPartition]
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return the start and end offsets of partitions."""
    return await leaders.offsets(keys, EARLIEST), await leaders.offsets(keys, LATEST)
