"""The topics of a task beside its own, and the room that waiting records have there.

A broker keeps track of few records of a partition at once (``share.partition.max.record.locks``),
from the first one that has not ended. Records that wait for days would keep all behind them from
being looked at. So while there are more than fit, those in front are written again, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, describe_configs, share_group_config
from headrace.client.errors import ClientError, RequestRefused, has_code, raised
from headrace.client.offsets import LATEST, ShareOffset, list_offsets, share_offsets
from headrace.client.records import Record
from headrace.client.topics import NewTopic, ensure_topic
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

_LEAST_RECORD_LOCKS = 100
"""The smallest ``share.partition.max.record.locks``."""
_MAX_AGE_MS = 86_400_000
_LARGEST_RECORD = "max.message.bytes"


async def largest_records(cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
    """Return the config of a topic that takes all records of these topics; nothing if they have the
    broker's default, or the user may not know.

    :raises ClientError: no broker answers
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


async def ensure_queue(cluster: Cluster, topic: str, configs: Mapping[str, str]) -> None:
    """Create a topic for dead letters, unless there is one of its name.

    :raises ClientError: the broker refuses or does not answer
    """
    try:
        allowed = {"errors.deadletterqueue.group.enable": "true"}
        await ensure_topic(cluster, NewTopic(topic, configs={**configs, **allowed}))
    except RequestRefused as refusal:
        if not has_code(refusal, ErrorCode.INVALID_CONFIG):
            raise
        # Brokers before Kafka 4.4 write no dead letters.
        await ensure_topic(cluster, NewTopic(topic, configs=configs))


async def crowded(cluster: Cluster, group_id: str, waiting: Sequence[Record]) -> list[Record]:
    """Return those of the records that wait which are in the way of others, or so old that the
    topic may soon delete them.

    :raises ClientError: a broker refuses or does not answer
    """
    firsts: dict[TopicPartition, int] = {}
    for record in waiting:
        partition = record.topic, record.partition
        firsts[partition] = min(record.offset, firsts.get(partition, record.offset))
    locks = await share_group_config(cluster, group_id, "share.partition.max.record.locks")
    room = int(locks or _LEAST_RECORD_LOCKS) // 2
    offsets = raised(await share_offsets(cluster, {group_id: sorted(firsts)}))[group_id]
    for partition, offset in offsets.items():
        # Until a record has ended, the broker may not know where the group has begun.
        if isinstance(offset, ShareOffset) and offset.start_offset is not None:
            firsts[partition] = min(firsts[partition], offset.start_offset)
    ends = raised(await list_offsets(cluster, dict.fromkeys(firsts, LATEST)))
    old_ms = time.time() * 1000 - _MAX_AGE_MS
    behind = []
    for record in waiting:
        partition = record.topic, record.partition
        end = ends[partition].offset or 0
        is_crowded = end - firsts[partition] > room and record.offset < end - room
        if is_crowded or record.timestamp_ms < old_ms:
            behind.append(record)
    return behind
