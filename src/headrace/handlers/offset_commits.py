"""The offsets of a request, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

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
ResponseTopic = (
    OffsetCommitResponse.OffsetCommitResponseTopic
    | TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
)
T = TypeVar("T", bound=ResponseTopic)
P = TypeVar(
    "P",
    OffsetCommitResponse.OffsetCommitResponsePartition,
    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
)


def decide_commit(
    call: Call,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    topics: Iterable[tuple[RequestTopic, list[P]]],
    make_answer: Callable[..., P],
    now_ms: int,
    wall_ms: int,
    *,
    has_ids: bool,
    knows_group_id_not_found: bool,
    retention_ms: int = NO_RETENTION,
    transactional: bool = False,
    refused: ErrorCode = ErrorCode.NONE,
) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
    """Decide whether a request may commit the offsets of the partitions that exist, and answer for
    each partition.

    :param topics: each with the answers for its partitions, which are added
    :param make_answer: makes the answer for a partition
    :param wall_ms: the time of the commit, in epoch milliseconds
    :param has_ids: the topics of the request have ids instead of names
    :param retention_ms: how long to keep the offsets
    :param refused: the error of all partitions that exist, if there is one already
    """
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
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
    outcome: Outcome[GroupRecord, tuple[ErrorCode, ...]] = Outcome((refused,) * len(records))
    if records and not refused:
        outcome = call.groups.offsets.commit(
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id_or_member_epoch,
            records,
            now_ms,
            knows_group_id_not_found=knows_group_id_not_found,
            transactional=transactional,
        )
    if any(outcome.reply):
        for answer, code in zip(accepted, outcome.reply, strict=True):
            answer.error_code = code
    return outcome


def answered_topics(call: Call, topics: Iterable[T]) -> list[T]:
    """Return topics of a response without those that exist and have no partitions in it."""
    find = call.catalog.find
    return [topic for topic in topics if topic.partitions or not find(topic.topic_id, topic.name)]
