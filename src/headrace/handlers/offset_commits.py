"""The offsets of a request, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.outcome import Outcome
from headrace.protocol.api import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.topics.catalog import Catalog, Topic

RequestTopic = (
    OffsetCommitRequest.OffsetCommitRequestTopic
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
)
T = TypeVar("T")
P = TypeVar(
    "P",
    OffsetCommitResponse.OffsetCommitResponsePartition,
    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
)


class RequestedCommits(Generic[T, P]):
    """The offsets that a request commits, and the topics of its response. Existing topics without
    partitions are left out of it.

    :param make_topic: makes a topic of the response
    :param make_partition: makes a partition of the response
    :param has_ids: the topics of the request have ids instead of names
    :param wall_ms: the time of the commit, in epoch milliseconds
    :param retention_ms: how long to keep the offsets
    :ivar records: those of the partitions that exist
    """

    __slots__ = ("_accepted", "_topics", "records")

    def __init__(
        self,
        catalog: Catalog,
        group_id: str,
        topics: Sequence[RequestTopic],
        make_topic: Callable[[str, UUID | None, list[P]], T],
        make_partition: Callable[[int, int], P],
        *,
        has_ids: bool,
        wall_ms: int,
        retention_ms: int = NO_RETENTION,
    ) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.records: list[OffsetCommit] = []
        self._accepted: list[P] = []
        self._topics: list[T] = []
        for requested in topics:
            topic = find_topic(catalog, requested, has_ids=has_ids)
            answers: list[P] = []
            for partition in requested.partitions:
                index = partition.partition_index
                if topic is None:
                    answers.append(make_partition(index, unknown))
                    continue
                if not 0 <= index < topic.partitions:
                    answers.append(make_partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                    continue
                answer = make_partition(index, ErrorCode.NONE)
                answers.append(answer)
                self._accepted.append(answer)
                self.records.append(
                    commit_record(
                        group_id,
                        topic.name,
                        topic.topic_id,
                        index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        wall_ms=wall_ms,
                        retention_ms=retention_ms,
                    )
                )
            if answers or topic is None:
                self._topics.append(make_topic(requested.name, requested.topic_id, answers))

    def refused(self, code: ErrorCode) -> Outcome[GroupRecord, list[T]]:
        """Return the outcome if nothing may be committed."""
        for answer in self._accepted:
            answer.error_code = code
        return Outcome(self._topics)

    def decided(
        self, outcome: Outcome[GroupRecord, tuple[ErrorCode, ...]]
    ) -> Outcome[GroupRecord, list[T]]:
        """Return the outcome with the topics of the response.

        :param outcome: the group's, with an error code for each record
        """
        if any(outcome.reply):
            for answer, code in zip(self._accepted, outcome.reply, strict=True):
                answer.error_code = code
        return outcome.with_reply(self._topics)


def find_topic(catalog: Catalog, requested: RequestTopic, *, has_ids: bool) -> Topic | None:
    """Return the topic that a request names, None if it does not exist."""
    if not has_ids:
        return catalog.topics.get(requested.name)
    return None if requested.topic_id is None else catalog.topics_by_id.get(requested.topic_id)
