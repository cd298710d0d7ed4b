"""The group that shows how far a ``kafka-ordered`` query is: offsets of finished micro-batches,
committed to Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from headrace.client import ApiMissing, ClientError, Cluster, RequestRefused
from headrace.client.group_requests import (
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
    describe_streams_groups,
)
from headrace.client.offset_commits import commit_offsets
from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.spark.option_parsing import SourceError
from headrace.spark.reader.log_reader import Link

from .plan import Offsets

_log = logging.getLogger(__name__)

_RETRY_S = 10.0
"""A query is not held up more often than that by a coordinator that does not answer."""

_HAS_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
}
_WITHOUT_MEMBERS = {"Dead", "Empty"}


class GroupProgress:
    """Commits where a query is. Never fails it: what could not be committed is committed with the
    next batch.
    """

    def __init__(self, link: Link, group_id: str) -> None:
        self._link = link
        self._group_id = group_id
        self._committed: Offsets = {}
        self._not_before_s = 0.0

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All before these offsets has been processed. What has been committed already is not sent
        again.
        """
        news = {p: offset for p, offset in offsets.items() if self._committed.get(p) != offset}
        if not news or time.monotonic() < self._not_before_s:
            return
        try:
            self._link.call(commit_offsets(self._link.cluster, self._group_id, news))
        except ClientError as error:
            _log.warning("%s", _advice(self._group_id, error))
            self._not_before_s = time.monotonic() + _RETRY_S
        else:
            self._committed.update(news)


async def check_group(cluster: Cluster, group_id: str, timeout_ms: int) -> None:
    """See that offsets can be committed for the group.

    :raises SourceError: it has members, who commit for themselves, or is a share group
    :raises ClientError: its coordinator does not tell
    """
    of_types = (
        describe_share_groups,
        describe_consumer_groups,
        describe_classic_groups,
        describe_streams_groups,
    )
    for describe in of_types:
        answer = (await cluster.coordinators.ask([group_id], describe, timeout_ms))[group_id]
        if isinstance(answer, ApiMissing) or _is_unknown(answer):
            continue
        if isinstance(answer, ClientError):
            raise answer
        if describe is describe_share_groups:
            raise SourceError(
                f"'{group_id}' is a share group, which has no offsets to commit: {_CHOOSE}"
            )
        if str(answer.group_state) not in _WITHOUT_MEMBERS:
            raise SourceError(
                f"group '{group_id}' has consumers that commit offsets themselves: {_CHOOSE}"
            )


_CHOOSE = "choose another kafka.group.id"


def _is_unknown(answer: object) -> bool:
    return isinstance(answer, RequestRefused) and answer.code == ErrorCode.GROUP_ID_NOT_FOUND


def _advice(group_id: str, error: ClientError) -> str:
    if isinstance(error, RequestRefused) and error.code in _HAS_MEMBERS:
        return (
            f"group '{group_id}' has consumers of its own, so this query's offsets are not "
            f"committed: {_CHOOSE}"
        )
    return str(error)
