"""The offsets of a request, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from headrace.groups.classic.member import MemberIdentity
from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.net.call import Call
from headrace.outcome import Outcome
from headrace.protocol.api import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headrace.protocol.errors import ErrorCode

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
    """Answer for each partition of a request; return the commits in those that exist, with their
    answers.

    :param topics: each with the answers for its partitions, which are added
    :param wall_ms: the time of the commit, in epoch milliseconds
    """
    unknown, make_answer = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, api.answer_type
    if call.version >= api.ids_from:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    retention_ms = NO_RETENTION
    if isinstance(request, OffsetCommitRequest):
        retention_ms = request.retention_time_ms
    records: list[OffsetCommit] = []
    accepted: list[P] = []
    for requested, answers in topics:
        topic = call.catalog.find(requested.topic_id, requested.name)
        for partition in requested.partitions:
            index = partition.partition_index
            if topic is None:
                answers.append(make_answer(index, unknown))
                continue
            if not 0 <= index < topic.partitions:
                answers.append(make_answer(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            answer = make_answer(index)
            answers.append(answer)
            accepted.append(answer)
            records.append(
                commit_record(
                    request.group_id,
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
    return records, accepted


def decide_commit(
    call: Call,
    request: CommitRequest,
    topics: AnsweredTopics[P],
    api: CommitApi[P],
    now_ms: int,
    wall_ms: int,
) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
    """Decide whether a request may commit the offsets of the partitions that exist, and answer for
    each partition (:func:`commit_records`).
    """
    records, accepted = commit_records(call, request, topics, api, wall_ms)
    if not records:
        return Outcome(())
    outcome = call.groups.offsets.commit(
        request.group_id,
        MemberIdentity(request.member_id, request.group_instance_id),
        request.generation_id_or_member_epoch,
        records,
        now_ms,
        knows_group_id_not_found=call.version >= api.group_id_not_found_from,
        transactional=api.transactional,
    )
    if any(outcome.reply):
        for answer, code in zip(accepted, outcome.reply, strict=True):
            answer.error_code = code
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
