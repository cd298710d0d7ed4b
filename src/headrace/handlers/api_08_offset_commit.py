"""OffsetCommit (8), versions 2-10: commit offsets of a group.

The response has no top-level error: an error of the group is the error of every partition. Topics
without partitions are left out of the response.

Version notes:

* Version 5 removes the retention time (KIP-211); the broker's applies.
* Version 6 adds leader epochs (KIP-320).
* Version 7 adds the group instance id (KIP-345).
* Version 9 adds member epochs, STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848).
* Version 10 replaces topic names by ids (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.coordinators.runtime import Command, Deferred
from headrace.errors import ErrorCode
from headrace.groups.offsets.committed import NO_RETENTION
from headrace.groups.records import GroupRecord
from headrace.outcome import Outcome
from headrace.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from .context import RequestContext
from .durations import to_ms
from .offset_commits import committer_of, decide_commit, topic_of


def handle(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> Deferred[OffsetCommitResponse]:
    """Commit offsets at the end of this turn, together with other commits."""
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
        broker, request = self._broker, self._request
        topics = []
        for asked in request.topics:
            topic = topic_of(broker.catalog, asked.name, asked.topic_id)
            if topic is None or asked.partitions:
                topics.append((asked, topic))
        retention = self._context.legacy.get("retention_time")
        committer = committer_of(broker.groups.offsets, request, self._context.api_version)
        outcome = decide_commit(
            self.key,
            topics,
            lambda commits: committer.commit(commits, now_ms),
            wall_ms=wall_ms,
            retention_ms=NO_RETENTION if retention is None else to_ms(retention),
        )
        codes = iter(outcome.reply)
        response_topics = [_response_topic(asked, topic, codes) for asked, topic in topics]
        return outcome.with_reply(OffsetCommitResponse(tuple(response_topics)))


def _response_topic(
    asked: OffsetCommitRequestTopic, topic: Topic | None, codes: Iterator[ErrorCode]
) -> OffsetCommitResponseTopic:
    """Return a topic's part of the response, with the next of ``codes``."""
    has_unknown_id = asked.name is None and topic is None
    partitions = tuple(
        [
            OffsetCommitResponsePartition(
                one.partition_index, ErrorCode.UNKNOWN_TOPIC_ID if has_unknown_id else code
            )
            for one, code in zip(asked.partitions, codes, strict=False)
        ]
    )
    return OffsetCommitResponseTopic(partitions, asked.name, asked.topic_id)
