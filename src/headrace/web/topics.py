"""A topic in detail: its partitions, configs, and the groups that read it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from headrace.client.configs import ConfigType
from headrace.client.dead_letters import reading
from headrace.client.errors import ClientError, has_code
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.offsets import EARLIEST, LATEST
from headrace.client.topics import describe_topics
from headrace.client.workers import WORKERS_TOPIC
from headrace.errors import ErrorCode

from .errors import NotThere
from .groups import configs_of
from .limits import PARTITIONS_OF_PAGE
from .lists import PageNumber, listed, page_of
from .schemas import text
from .site import Visit
from .views import PartitionOfTopic, Topic

_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


async def topic(
    visit: Visit,
    *,
    topic: Annotated[str, text("the topic")],
    page: PageNumber = 1,
) -> Topic:
    """Return a topic: partitions, configs, and the groups that read it.

    :raises NotThere: it does not exist
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    seen = await visit.seen_if_any()
    described = (await describe_topics(visit.cluster, [topic])).get(topic)
    if described is None or has_code(described, *_MISSING):
        raise NotThere(f"The topic {topic!r} does not exist.")
    if isinstance(described, ClientError):
        raise described
    on_page = page_of(described.partitions, page, PARTITIONS_OF_PAGE)
    keys = [(topic, partition.number) for partition in on_page.rows]
    leaders = PartitionLeaders(visit.cluster)
    warnings: list[str] = []

    async def bounds() -> list[PartitionOfTopic]:
        starts, ends = await leaders.offsets(keys, EARLIEST), await leaders.offsets(keys, LATEST)
        return [
            PartitionOfTopic(
                partition.number,
                partition.leader,
                partition.replicas,
                partition.isr,
                starts.get((topic, partition.number)),
                ends.get((topic, partition.number)),
            )
            for partition in on_page.rows
        ]

    rows, configs = await asyncio.gather(
        bounds(), configs_of(visit, ConfigType.TOPIC, topic, warnings)
    )
    summary = None if seen is None else seen.topics.get(topic)
    letters_of = () if summary is None else summary.dead_letters_of
    is_enabled = any(
        config.name == reading.GROUP_ENABLE and config.value == "true" for config in configs or ()
    )
    return Topic(
        topic,
        summary,
        str(described.topic_id),
        described.is_internal or topic == WORKERS_TOPIC,
        on_page.of(rows),
        configs,
        sorted(
            [] if seen is None else listed(seen.readers(topic), "group_id", "lag"),
            key=lambda group: not group.member_count,
        ),
        bool(letters_of) or is_enabled or topic.startswith(reading.DEFAULT_PREFIX),
        visit.site.observer.topics.of(topic),
        [*warnings, *leaders.problems],
    )
