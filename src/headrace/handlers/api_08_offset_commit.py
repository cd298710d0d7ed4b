"""OffsetCommit (8), versions 2-10: how far a group has come.

Versions before 10 name their topics; 2-4 may bring a retention time of their own (KIP-211). There
is no error for the request as a whole: what the group refuses, it refuses for every partition. What
the topic or partition is at fault for does not get that far. A topic of which no partitions are
named is not in the answer.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.coordinators.runtime import Command, Deferred
from headrace.errors import ErrorCode
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.outcome import Outcome
from headrace.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from . import RequestContext
from .durations import to_ms

FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NOTHING: Outcome[GroupRecord, tuple[ErrorCode, ...]] = Outcome(())


def handle(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> Deferred[OffsetCommitResponse]:
    return broker.group_runtime.submit(_Commit(broker, request, context))


class _Commit(Command[OffsetCommitResponse]):
    __slots__ = ("_broker", "_context", "_request")

    commutes = True

    def __init__(
        self, broker: Broker, request: OffsetCommitRequest, context: RequestContext
    ) -> None:
        super().__init__(request.group_id)
        self._broker = broker
        self._request = request
        self._context = context

    def decide(self, now_ms: int, wall_ms: int) -> Outcome[GroupRecord, OffsetCommitResponse]:
        asked_retention = self._context.legacy.get("retention_time")
        retention_ms = NO_RETENTION if asked_retention is None else to_ms(asked_retention)
        found = [(asked, topic_of(self._broker, asked)) for asked in self._request.topics]
        commits = [
            commit_record(
                self.key,
                topic.name,
                topic.topic_id,
                *partition,
                wall_ms=wall_ms,
                retention_ms=retention_ms,
            )
            for asked, topic in found
            if topic is not None
            for partition in asked.partitions
            if 0 <= partition.partition_index < topic.partitions
        ]
        outcome = self._commit(commits, now_ms) if commits else _NOTHING
        codes = iter(outcome.reply)
        topics = []
        for asked, topic in found:
            if topic is not None and not asked.partitions:
                continue
            count = 0 if topic is None else topic.partitions
            unknown = (
                ErrorCode.UNKNOWN_TOPIC_ID if asked.name is None and topic is None else _UNKNOWN
            )
            partitions = tuple(
                OffsetCommitResponsePartition(index, next(codes) if 0 <= index < count else unknown)
                for index, *_ in asked.partitions
            )
            topics.append(OffsetCommitResponseTopic(partitions, asked.name, asked.topic_id))
        return outcome.with_reply(OffsetCommitResponse(tuple(topics)))

    def _commit(
        self, commits: list[OffsetCommit], now_ms: int
    ) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
        request = self._request
        return self._broker.groups.offsets.commit(
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id_or_member_epoch,
            commits,
            now_ms,
            says_group_unknown=self._context.api_version >= FIRST_WITH_GROUP_ID_NOT_FOUND,
        )


def topic_of(broker: Broker, asked: OffsetCommitRequestTopic) -> Topic | None:
    """The topic that offsets are committed for, by its name or its id."""
    if asked.name is not None:
        return broker.catalog.topics.get(asked.name)
    return None if asked.topic_id is None else broker.catalog.topics_by_id.get(asked.topic_id)
