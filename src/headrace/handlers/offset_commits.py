"""The decision of an offset commit, for OffsetCommit, TxnOffsetCommit and request templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.catalog import Catalog, Topic
from headrace.errors import ErrorCode
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.offsets.service import OffsetService
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.outcome import Apply, Outcome
from headrace.protocol.offset_commit import OffsetCommitRequest

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Commit = Callable[[list[OffsetCommit]], Outcome[GroupRecord, tuple[ErrorCode, ...]]]
"""Decides whether records are committed: an error code for each."""


class Committer(NamedTuple):
    """A member or client that commits to a group.

    :ivar generation_id: the member's generation or epoch; -1 outside of a generation
    :ivar knows_group_id_not_found: see :meth:`OffsetService.check_commit`
    :ivar transactional: the commit is part of a transaction
    """

    offsets: OffsetService
    group_id: str
    member: MemberIdentity
    generation_id: int
    knows_group_id_not_found: bool = False
    transactional: bool = False

    def commit(
        self, commits: Sequence[OffsetCommit], now_ms: int
    ) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
        """Decide commits in existing partitions: return an error code for each."""
        offsets, group_id, member, generation_id, knows_group_id_not_found, transactional = self
        return offsets.commit(
            group_id,
            member,
            generation_id,
            commits,
            now_ms,
            knows_group_id_not_found=knows_group_id_not_found,
            transactional=transactional,
        )

    @property
    def check(self) -> Callable[[Sequence[OffsetCommit], int], tuple[ErrorCode, Apply | None]]:
        """Function of commits without metadata and steady time; returns their error or NONE."""
        return partial(
            self.offsets.check_commit,
            self.group_id,
            self.member,
            self.generation_id,
            self.knows_group_id_not_found,
            self.transactional,
        )


def committer_of(offsets: OffsetService, request: OffsetCommitRequest, version: int) -> Committer:
    """Return the committer of an OffsetCommit request."""
    return Committer(
        offsets,
        request.group_id,
        MemberIdentity(request.member_id, request.group_instance_id),
        request.generation_id_or_member_epoch,
        version >= _FIRST_WITH_GROUP_ID_NOT_FOUND,
    )


def topic_of(catalog: Catalog, name: str | None, topic_id: UUID | None = None) -> Topic | None:
    """Return a topic by its name, or else by its id; None if it does not exist."""
    if name is not None:
        return catalog.topics.get(name)
    return None if topic_id is None else catalog.topics_by_id.get(topic_id)


def decide_commit(
    group_id: str,
    topics: Sequence[tuple[Any, Topic | None]],
    commit: Commit,
    *,
    wall_ms: int,
    retention_ms: int = NO_RETENTION,
) -> Outcome[GroupRecord, Sequence[ErrorCode]]:
    """Decide a commit: an error code for each partition, in the order of the request.

    Partitions that do not exist get UNKNOWN_TOPIC_OR_PARTITION; ``commit`` decides the others.

    :param topics: topics of the request, each with the existing topic or None
    :param wall_ms: the time of the commit, in epoch milliseconds
    :param retention_ms: how long to keep the offsets
    """
    commits: list[OffsetCommit] = []
    exist: list[bool] = []
    for asked, topic in topics:
        for one in asked.partitions:
            if topic is None or not 0 <= one.partition_index < topic.partitions:
                exist.append(False)
                continue
            exist.append(True)
            commits.append(
                commit_record(
                    group_id,
                    topic.name,
                    topic.topic_id,
                    one.partition_index,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata,
                    wall_ms=wall_ms,
                    retention_ms=retention_ms,
                )
            )
    if not commits:
        return Outcome((_UNKNOWN,) * len(exist))
    outcome = commit(commits)
    if len(commits) == len(exist):
        return outcome
    decided = iter(outcome.reply)
    return outcome.with_reply([next(decided) if exists else _UNKNOWN for exists in exist])
