"""A group in detail: its partitions, members, settings, and what is in flight; and a topic.

The cost of a page grows with the partitions on it, not with those of the group: only their end
offsets, timestamps and spans are queried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from headrace.client.configs import Config, ConfigType, describe_configs
from headrace.client.dead_letters import reading
from headrace.client.errors import ClientError, UnknownGroup, has_code, raised
from headrace.client.groups import ListedGroup, describe_group
from headrace.client.lag.model import LagQuery
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.snapshot import GroupProgress, measure, read_positions
from headrace.client.lag.times import RecordTimes
from headrace.client.offsets import EARLIEST, LATEST
from headrace.client.share_state import SPANS_OF_PARTITION, SharePartitionState, share_states
from headrace.client.topics import describe_topics
from headrace.client.workers import WORKERS_TOPIC
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition, by_topic

from .errors import NotThere
from .lists import PageNumber, listed, page_of
from .observation import LEAST_SPANS_OF_PARTITION, PARTITIONS_OF_PAGE, Observation
from .schemas import text
from .site import Visit
from .views import Group, MemberOfGroup, PartitionOfGroup, PartitionOfTopic, Topic

_UNKNOWN_NODE = -1
MAX_SPANS_OF_PAGE = 500
"""Spans of records in flight on the page of a group, shared by its partitions."""


async def group(
    visit: Visit,
    *,
    group_id: Annotated[str, text("the group")],
    page: PageNumber = 1,
) -> Group:
    """Return a group: partitions, members, settings, and what is in flight.

    :raises UnknownGroup: it does not exist
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    cluster, site = visit.cluster, visit.site
    seen = await visit.seen_if_any()
    leaders = PartitionLeaders(cluster)
    query = LagQuery(groups=(group_id,), complete_counts=False)
    warnings: list[str] = []
    progress = await _progress(query, leaders, seen)
    kind = progress.type
    on_page = page_of(sorted(progress.partitions), page, PARTITIONS_OF_PAGE)
    shown = on_page.rows
    fair = MAX_SPANS_OF_PAGE // max(1, len(shown))
    spans_limit = min(max(LEAST_SPANS_OF_PARTITION, fair), SPANS_OF_PARTITION)

    async def in_flight() -> Mapping[TopicPartition, SharePartitionState]:
        if kind != "share" or not shown:
            return {}
        return await share_states(cluster, group_id, shown, spans_limit)

    of_page = replace(progress, partitions={key: progress.partitions[key] for key in shown})
    (lag,), states, configs = await asyncio.gather(
        measure(leaders, [of_page], query, time.time_ns() // 1_000_000, RecordTimes()),
        in_flight(),
        configs_of(visit, ConfigType.GROUP, group_id, warnings),
    )
    others = tuple(f"{each}." for each in ("share", "consumer", "streams") if each != kind)
    return Group(
        group_id,
        kind,
        progress.state,
        seen.groups.get(group_id),
        [note for note in seen.notes if note.group_id == group_id],
        on_page.of(
            [
                PartitionOfGroup(
                    lag.topic,
                    lag.partition,
                    lag.position if kind == "share" else None,
                    None if kind == "share" else lag.position,
                    lag.end_offset,
                    lag.records,
                    lag.time_lag_ms,
                    [member.member_id for member in lag.members],
                    states.get(lag.key),
                )
                for lag in lag.partitions
            ],
        ),
        any(state.spans is not None for state in states.values()) if states else None,
        spans_limit,
        members_of(progress),
        configs and [config for config in configs if not config.name.startswith(others)],
        seen.queues.get(group_id),
        site.observer.groups.of(group_id),
        [*warnings, *leaders.problems],
    )


async def _progress(query: LagQuery, leaders: PartitionLeaders, seen: Observation) -> GroupProgress:
    """Return the progress of the group of a query.

    :raises UnknownGroup: it does not exist
    :raises ClientError: the cluster cannot be reached, or refuses
    """
    (group_id,) = query.groups

    async def read(kind: str, state: str) -> GroupProgress | ClientError:
        group = ListedGroup(group_id, kind, "", state, _UNKNOWN_NODE)
        return (await read_positions(leaders, [group], query))[group_id]

    summary = seen.groups.get(group_id)
    if summary is not None:  # saves a question for its type
        progress = await read(summary.group_type, summary.group_state)
        if isinstance(progress, GroupProgress):
            return progress
        leaders.problems.clear()
    # The group is new, or was created again with another type.
    group = await describe_group(leaders.cluster, group_id)
    if group is None:
        raise UnknownGroup(group_id)
    return raised({group_id: await read(group.type, group.state)})[group_id]


async def configs_of(
    visit: Visit, kind: ConfigType, name: str, warnings: list[str]
) -> Sequence[Config] | None:
    """Return the configs of a group or topic; None, with a warning, if the broker refuses. Return
    none for a part of a page, which does not show them.
    """
    if visit.is_part:
        return ()
    try:
        return raised(await describe_configs(visit.cluster, kind, [name]))[name]
    except ClientError as error:
        warnings.append(f"the configs are unknown: {error}")
        return None


def members_of(progress: GroupProgress) -> list[MemberOfGroup]:
    """Return the members of a group, by client id."""
    return [
        MemberOfGroup(
            member.member_id,
            member.client_id,
            member.host.removeprefix("/"),
            by_topic(member.assignment),
        )
        for member in sorted(
            progress.members, key=lambda member: (member.client_id, member.member_id)
        )
    ]


# Topics -------------------------------------------------------------------------------------------


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
    summary = seen.topics.get(topic)
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
            listed(seen.readers(topic), "group_id", "lag"),
            key=lambda group: not group.member_count,
        ),
        bool(letters_of) or is_enabled or topic.startswith(reading.DEFAULT_PREFIX),
        visit.site.observer.topics.of(topic),
        [*warnings, *leaders.problems],
    )
