"""The offsets of a request, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.records import OffsetCommit
from headrace.net.call import Call
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


def commit_records(
    call: Call,
    group_id: str,
    topics: Iterable[tuple[RequestTopic, list[P]]],
    make_answer: Callable[..., P],
    *,
    has_ids: bool,
    wall_ms: int,
    retention_ms: int = NO_RETENTION,
) -> tuple[list[OffsetCommit], list[P]]:
    """Return the records of the partitions that exist, and the answers for these partitions, which
    have no error yet.

    :param topics: each with the answers for its partitions, which are added
    :param make_answer: makes the answer for a partition
    :param has_ids: the topics of the request have ids instead of names
    :param wall_ms: the time of the commit, in epoch milliseconds
    :param retention_ms: how long to keep the offsets
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
    return records, accepted


def answered_topics(call: Call, topics: Iterable[T]) -> list[T]:
    """Return topics of a response without those that exist and have no partitions in it."""
    find = call.catalog.find
    return [topic for topic in topics if topic.partitions or not find(topic.topic_id, topic.name)]


def set_codes(answers: Iterable[P], codes: Sequence[ErrorCode]) -> None:
    """Set the error codes of answers, which have none yet."""
    if any(codes):
        for answer, code in zip(answers, codes, strict=True):
            answer.error_code = code
