"""What a task needs at the broker: its topics, its share group, and room for records that wait.

A broker keeps track of few records of a partition at once (``share.partition.max.record.locks``),
from the first one that has not ended. Records that wait for days would keep all behind them from
being looked at. So while there are more than fit, those in front are written again, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, alter_configs, describe_configs, share_group_config
from headrace.client.errors import ClientError, RequestRefused, has_code, raised
from headrace.client.groups import SHARE, GroupDescription, describe_group
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.topics import NewTopic, ensure_topic
from headrace.log_lines import get_logger
from headrace.protocol.errors import ErrorCode

from .attempts import Attempt
from .task import Task

_log = get_logger(__name__)

_MAX_DELIVERIES = 10
"""The largest ``share.delivery.count.limit`` of Apache Kafka."""
_RECORD_LOCKS = "share.partition.max.record.locks"
_LEAST_RECORD_LOCKS, _MAX_RECORD_LOCKS = 100, 4000
"""The smallest number, and the largest that brokers allow to groups by default."""
_MAX_AGE_S = 86_400.0
_LARGEST_RECORD = "max.message.bytes"


async def prepare(cluster: Cluster, task: Task[Any, Any]) -> None:
    """Create what is missing: topics, the share group's configs.

    :raises ClientError: no broker answers, or it refuses; the records of the group go to others
    """
    if task.envelope is not None:
        await ensure_topic(cluster, task.new_topic)
    largest = await _largest_records(cluster, task.topics)
    later = task.new_later
    await ensure_topic(cluster, replace(later, configs={**later.configs, **largest}))
    if task.dead_letters is not None:
        await _ensure_queue(cluster, task.dead_letters, largest)
    group = await describe_group(cluster, task.group)
    if group is not None:
        _check_group(group, task)
    await _configure_group(cluster, task, is_new=group is None)


async def _largest_records(cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
    """Return the config of a topic that takes all records of these topics; nothing if they have the
    broker's default, or the user may not know.
    """
    described = await describe_configs(cluster, ConfigType.TOPIC, topics, keys=[_LARGEST_RECORD])
    sizes = [
        int(config.value)
        for configs in described.values()
        if not isinstance(configs, ClientError)
        for config in configs
        if config.name == _LARGEST_RECORD and config.value and config.is_dynamic
    ]
    return {_LARGEST_RECORD: str(max(sizes))} if sizes else {}


async def _ensure_queue(cluster: Cluster, topic: str, configs: Mapping[str, str]) -> None:
    try:
        allowed = {"errors.deadletterqueue.group.enable": "true"}
        await ensure_topic(cluster, NewTopic(topic, configs={**configs, **allowed}))
    except RequestRefused as refusal:
        if not has_code(refusal, ErrorCode.INVALID_CONFIG):
            raise
        # Brokers before Kafka 4.4 write no dead letters.
        await ensure_topic(cluster, NewTopic(topic, configs=configs))


def _check_group(group: GroupDescription, task: Task[Any, Any]) -> None:
    """:raises ClientError: the records of the group go to others, too"""
    if group.type != SHARE:
        raise ClientError(
            f"{task} needs a share group, and '{group.group_id}' is a {group.type} group: give "
            "the task another group"
        )
    for member in group.members:
        name, at, worker = member.client_id.rpartition("@")
        if at and name != task.name:
            raise ClientError(
                f"{task} and task '{name}' of worker {worker} have one group, "
                f"'{group.group_id}', whose records go to either: give one another group, or "
                "stop that worker"
            )


async def _configure_group(cluster: Cluster, task: Task[Any, Any], *, is_new: bool) -> None:
    configs: dict[str, str] = {}
    if is_new:
        configs = {
            "share.auto.offset.reset": task.start,
            "share.delivery.count.limit": str(_MAX_DELIVERIES),
            _RECORD_LOCKS: str(_MAX_RECORD_LOCKS),
        }
    if task.dead_letters is not None:  # for records whose workers died at each delivery
        configs["errors.deadletterqueue.topic.name"] = task.dead_letters
        configs["errors.deadletterqueue.copy.record.enable"] = "true"
    described = await describe_configs(cluster, ConfigType.GROUP, [task.group], keys=list(configs))
    answer = described[task.group]
    if not isinstance(answer, ClientError):  # what others have set stays
        for config in answer:
            if config.is_dynamic:
                configs.pop(config.name, None)
    try:
        if configs:  # one change, one line in the broker's log
            await alter_configs(cluster, ConfigType.GROUP, task.group, configs)
    except RequestRefused:  # a broker may know some of them only
        for name, value in configs.items():
            try:
                await alter_configs(cluster, ConfigType.GROUP, task.group, {name: value})
            except RequestRefused as refusal:
                if name == "share.auto.offset.reset":
                    raise
                _log.info("%s goes on without %s: %s", task, name, refusal)


async def crowded(
    cluster: Cluster, task: Task[Any, Any], waiting: Sequence[Attempt]
) -> list[Attempt]:
    """Return those of the attempts that wait whose records are in the way of others, or so old that
    the topic may soon delete them.

    :raises ClientError: a broker refuses or does not answer
    """
    locks = await share_group_config(cluster, task.group, _RECORD_LOCKS)
    room = int(locks or _LEAST_RECORD_LOCKS) // 2
    partitions = {(attempt.record.topic, attempt.record.partition) for attempt in waiting}
    ends = raised(await list_offsets(cluster, dict.fromkeys(partitions, LATEST)))
    old_ms = (time.time() - _MAX_AGE_S) * 1000
    return [
        attempt
        for attempt in waiting
        if attempt.record.timestamp_ms < old_ms
        or attempt.record.offset
        < (ends[attempt.record.topic, attempt.record.partition].offset or 0) - room
    ]
