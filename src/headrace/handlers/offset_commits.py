"""The offsets of a request, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from headrace.groups.classic.member import MemberIdentity
from headrace.groups.records import CommittedOffset, GroupRecord, OffsetCommit
from headrace.net.call import Call
from headrace.outcome import Outcome, make
from headrace.protocol.api import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.primitives import MAX_INT64
from headrace.protocol.record_batch import NO_TIMESTAMP

FIRST_WITH_GROUP_ID_NOT_FOUND, FIRST_WITH_TOPIC_IDS = 9, 10
"""Versions of OffsetCommit."""
_NO_RETENTION = -1
"""The retention of a commit without its own (OffsetCommit 2-4); the broker's applies."""

RequestTopic = (
    OffsetCommitRequest.OffsetCommitRequestTopic
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
)
CommitRequest = OffsetCommitRequest | TxnOffsetCommitRequest
T = TypeVar("T")
P = TypeVar(
    "P",
    OffsetCommitResponse.OffsetCommitResponsePartition,
    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
)
AnsweredTopics = Iterable[tuple[RequestTopic, list[P]]]
"""Topics of a request, each with the answers for its partitions."""


class CommitApi(NamedTuple, Generic[P]):
    """What OffsetCommit and TxnOffsetCommit differ in.

    :param answer_type: the answer for a partition
    :param ids_from: the first version whose topics have ids instead of names
    :param group_id_not_found_from: the first version whose clients know that error
    :param transactional: the commits are part of transactions
    """

    answer_type: Callable[..., P]
    ids_from: int
    group_id_not_found_from: int
    transactional: bool


def commit_records(
    call: Call, request: CommitRequest, topics: AnsweredTopics[P], api: CommitApi[P], wall_ms: int
) -> tuple[list[OffsetCommit], list[P]]:
    """Answer for each partition of a request; return the commits that have no error, and the
    answers of all partitions that exist.

    :param topics: each with the answers for its partitions, which are added
    :param wall_ms: the time of the commit, in epoch milliseconds
    """
    no_partition = no_topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if call.version >= api.ids_from:
        no_topic = ErrorCode.UNKNOWN_TOPIC_ID
    expire_ms = NO_TIMESTAMP
    if isinstance(request, OffsetCommitRequest) and request.retention_time_ms != _NO_RETENTION:
        expire_ms = min(wall_ms + request.retention_time_ms, MAX_INT64)
    make_answer, max_metadata = api.answer_type, call.config.get_int("offset.metadata.max.bytes")
    records: list[OffsetCommit] = []
    accepted: list[P] = []
    for requested, answers in topics:
        topic = call.catalog.find(requested.topic_id, requested.name)
        for partition in requested.partitions:
            index = partition.partition_index
            if topic is None or not 0 <= index < topic.partitions:
                answers.append(make_answer(index, no_topic if topic is None else no_partition))
                continue
            answer, metadata = make_answer(index), partition.committed_metadata or ""
            answers.append(answer)
            accepted.append(answer)
            if len(metadata) > max_metadata:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            # Any offset may be committed: Kafka does not check it.
            offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
            fields = offset, leader_epoch, metadata, wall_ms, expire_ms, topic.topic_id
            commit = request.group_id, topic.name, index, make(CommittedOffset, fields)
            records.append(make(OffsetCommit, commit))
    return records, accepted


def decide_commit(
    call: Call,
    request: CommitRequest,
    topics: AnsweredTopics[P],
    api: CommitApi[P],
    now_ms: int,
    wall_ms: int,
) -> Outcome[GroupRecord, ErrorCode]:
    """Decide whether a request may commit the offsets of the partitions that exist, and answer for
    each partition (:func:`commit_records`).
    """
    records, accepted = commit_records(call, request, topics, api, wall_ms)
    if not accepted:
        return Outcome(ErrorCode.NONE)
    outcome = call.groups.offsets.commit(
        request.group_id,
        MemberIdentity(request.member_id, request.group_instance_id),
        request.generation_id_or_member_epoch,
        records,
        now_ms,
        knows_group_id_not_found=call.version >= api.group_id_not_found_from,
        transactional=api.transactional,
    )
    if outcome.reply:
        for answer in accepted:
            answer.error_code = outcome.reply
    return outcome


def answered_topics(
    call: Call,
    topics: AnsweredTopics[P],
    make_topic: Callable[[str, UUID | None, list[P]], T],
) -> list[T]:
    """Return the topics of the response without those that exist and have no partitions in it."""
    return [
        make_topic(topic.name, topic.topic_id, answers)
        for topic, answers in topics
        if answers or call.catalog.find(topic.topic_id, topic.name) is None
    ]
