"""Committed offsets under their former names: see :mod:`headrace.client.offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

from . import offsets as requests
from .cluster import Cluster
from .errors import RequestRefused, raised


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Commit offsets of a group without members; ignore partitions that do not exist."""
    outcomes = await requests.commit_offsets(cluster, group_id, offsets)
    for error in outcomes.values():
        is_missing = (
            isinstance(error, RequestRefused) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        if error is not None and not is_missing:
            raise error


async def committed_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int = 30_000,
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, without partitions that have none."""
    answers = await requests.committed_offsets(
        cluster, {group_id: partitions}, require_stable=True, timeout=timeout_ms / 1000
    )
    return {partition: at.offset for partition, at in raised(answers)[group_id].items()}
