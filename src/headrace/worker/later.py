"""The topics of a task beside its own, and the room that waiting records have there.

A broker keeps track of few records of a partition at once (``share.partition.max.record.locks``),
from the first one that has not ended. Records that wait for days would keep all behind them from
being looked at. So while there are more than fit, those in front are written again, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, describe_configs, share_group_config
from headrace.client.errors import ClientError, raised
from headrace.client.offsets import LATEST, list_offsets, share_offsets
from headrace.client.records import Record

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


async def crowded(cluster: Cluster, group_id: str, waiting: Sequence[Record]) -> list[Record]:
    """Return those of the records that wait which are in the way of others, or so old that the
    topic may soon delete them.

    :raises ClientError: a broker refuses or does not answer
    """
    partitions = {(record.topic, record.partition) for record in waiting}
    locks = await share_group_config(cluster, group_id, "share.partition.max.record.locks")
    room = int(locks or _LEAST_RECORD_LOCKS) // 2
    starts = raised(await share_offsets(cluster, {group_id: sorted(partitions)}))[group_id]
    ends = raised(await list_offsets(cluster, dict.fromkeys(partitions, LATEST)))
    old_ms = time.time() * 1000 - _MAX_AGE_MS
    behind = []
    for record in waiting:
        partition = record.topic, record.partition
        start, end = starts.get(partition), ends[partition].offset
        is_crowded = (
            start is not None
            and not isinstance(start, ClientError)
            and start.start_offset is not None
            and end is not None
            and end - start.start_offset > room
            and record.offset < end - room
        )
        if is_crowded or record.timestamp_ms < old_ms:
            behind.append(record)
    return behind
