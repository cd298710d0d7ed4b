"""The decision of an offset commit, for OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.errors import ErrorCode
from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.outcome import Outcome
from headrace.protocol.api import OffsetCommitRequest, TxnOffsetCommitRequest
from headrace.topics.catalog import Catalog, Topic

RequestTopic = TypeVar(
    "RequestTopic",
    OffsetCommitRequest.OffsetCommitRequestTopic,
    TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
)
Commit = Callable[[list[OffsetCommit]], Outcome[GroupRecord, tuple[ErrorCode, ...]]]
"""Decides whether records are committed: an error code for each."""
Codes = Sequence[ErrorCode]
"""The error codes of the partitions of a topic."""


def decide_commit(
    catalog: Catalog,
    group_id: str,
    topics: Sequence[RequestTopic],
    commit: Commit,
    *,
    has_ids: bool,
    wall_ms: int,
    retention_ms: int = NO_RETENTION,
) -> Outcome[GroupRecord, list[tuple[RequestTopic, Codes]]]:
    """Decide a commit: the topics of the response, with an error code for each partition. Existing
    topics without partitions are left out.

    :param commit: decides for the partitions that exist
    :param has_ids: the topics have ids instead of names
    :param wall_ms: the time of the commit, in epoch milliseconds
    :param retention_ms: how long to keep the offsets
    """
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    commits: list[OffsetCommit] = []
    decided: list[tuple[RequestTopic, Codes]] = []
    for requested in topics:
        topic = find_topic(catalog, requested, has_ids=has_ids)
        if topic is None:
            decided.append((requested, [unknown] * len(requested.partitions)))
            continue
        codes = []
        for partition in requested.partitions:
            index = partition.partition_index
            if not 0 <= index < topic.partitions:
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            codes.append(ErrorCode.NONE)
            commits.append(
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
        if codes:
            decided.append((requested, codes))
    if not commits:
        return Outcome(decided)
    outcome = commit(commits)
    if any(outcome.reply):
        refusals = iter(outcome.reply)
        decided = [
            (requested, [code or next(refusals) for code in codes]) for requested, codes in decided
        ]
    return outcome.with_reply(decided)


def find_topic(catalog: Catalog, requested: RequestTopic, *, has_ids: bool) -> Topic | None:
    """Return the topic that a request names, None if it does not exist."""
    if not has_ids:
        return catalog.topics.get(requested.name)
    return None if requested.topic_id is None else catalog.topics_by_id.get(requested.topic_id)
