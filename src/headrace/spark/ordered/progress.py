"""Offsets of finished micro-batches, committed to a group so that other tools see the progress."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace.client import ClientError, Cluster, RequestRefused
from headrace.client.errors import has_code
from headrace.client.groups import SHARE, describe_group
from headrace.client.offsets import commit_offsets
from headrace.errors import ErrorCode
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError
from headrace.spark.reader.cluster_thread import ClusterThread

from .inputs import Offsets

_log = get_logger(__name__)

RETRY_S = 10.0
"""Shortest interval between commits after a failure, so that a coordinator that does not answer
does not delay the query."""

_HAS_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
}
_EMPTY = "Empty"
_CHOOSE_ANOTHER = "choose another kafka.group.id"


class GroupProgress:
    """Commits of a query's position to its group.

    A failure never stops the query: the next micro-batch commits what is missing.
    """

    def __init__(self, thread: ClusterThread, group_id: str) -> None:
        self._thread = thread
        self._group_id = group_id
        self._committed: Offsets = {}
        self._not_before_s = 0.0

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offset of each partition, where it has changed."""
        changed = {p: offset for p, offset in offsets.items() if self._committed.get(p) != offset}
        if not changed or time.monotonic() < self._not_before_s:
            return
        outcomes = self._thread.call(commit_offsets(self._thread.cluster, self._group_id, changed))
        errors = [
            error
            for error in outcomes.values()
            # The next plan finds out that a partition does not exist any more.
            if error is not None and not has_code(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        if errors:
            _log.warning("%s", _describe(self._group_id, errors[0]))
            self._not_before_s = time.monotonic() + RETRY_S
        else:
            self._committed.update(changed)


async def check_group(cluster: Cluster, group_id: str) -> None:
    """Check that offsets can be committed to a group.

    :raises SourceError: it is a share group, or has members, which commit offsets themselves
    :raises ClientError: the coordinator does not answer
    """
    group = await describe_group(cluster, group_id)
    if group is None:
        return
    if group.type == SHARE:
        raise SourceError(
            f"'{group_id}' is a share group, which has no offsets to commit: {_CHOOSE_ANOTHER}"
        )
    if group.state != _EMPTY:
        raise SourceError(
            f"group '{group_id}' has consumers that commit offsets themselves: {_CHOOSE_ANOTHER}"
        )


def _describe(group_id: str, error: ClientError) -> str:
    if isinstance(error, RequestRefused) and error.code in _HAS_MEMBERS:
        return (
            f"group '{group_id}' has consumers of its own, so this query's offsets are not "
            f"committed: {_CHOOSE_ANOTHER}"
        )
    return str(error)
