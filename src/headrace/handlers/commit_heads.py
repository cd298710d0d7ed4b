"""OffsetCommit requests that begin like one before (docs/decisions/0009).

A consumer commits the same partitions of the same topic as the same member of its group again and
again; only the offsets differ. What was found out about who commits where is kept with the
connection. What the group says to a commit is asked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from headrace.broker.broker import Broker
from headrace.broker.catalog import Catalog, Topic
from headrace.broker.limits import MAX_COMMIT_HEADS
from headrace.coordinators.runtime import Command, Deferred
from headrace.errors import ErrorCode
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.offsets.service import OffsetService
from headrace.groups.records import NO_TIMESTAMP, CommittedOffset, GroupRecord, OffsetCommit
from headrace.outcome import Outcome, make
from headrace.protocol import offset_commit
from headrace.protocol.frames import SIZE, correlation_bytes, request_header
from headrace.protocol.messages import Codec, codec
from headrace.protocol.offset_commit import (
    API_KEY,
    FIRST_BY_HAND,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from .api_08_offset_commit import FIRST_WITH_GROUP_ID_NOT_FOUND, topic_of


@dataclass(slots=True)
class _Known:
    """What does not vary.

    :ivar start: api and version
    :ivar behind: as of :class:`headrace.protocol.offset_commit.Head`
    :ivar places: of the offsets: group id, topic name, partition
    :ivar granted: what the answer is before and behind its correlation id when no partition is
        refused
    """

    start: bytes
    behind: list[bytes]
    catalog: Catalog
    offsets: OffsetService
    group_id: str
    member: MemberIdentity
    generation_id: int
    topic: Topic
    places: list[tuple[str, str, int]]
    by_name: bool
    wire: Codec
    says_group_unknown: bool
    granted: tuple[bytes, bytes] = (b"", b"")

    def answer(self, correlation_id: bytes, codes: Sequence[ErrorCode]) -> bytes:
        """The frame of an answer."""
        partitions = [partition for _, _, partition in self.places]
        response = OffsetCommitResponseTopic(
            tuple(map(OffsetCommitResponsePartition, partitions, codes)),
            self.topic.name if self.by_name else None,
            None if self.by_name else self.topic.topic_id,
        )
        number = int.from_bytes(correlation_id, signed=True)
        return b"".join(self.wire.write_response(number, OffsetCommitResponse((response,))))


class _CommitAgain(Command[bytes]):
    __slots__ = ("_correlation_id", "_known", "_said")

    commutes = True

    def __init__(self, known: _Known, correlation_id: bytes, said: list[int]) -> None:
        """``said``: offset, leader epoch and what stands behind for each partition."""
        self.waiter = None
        self.key = known.group_id
        self._known = known
        self._correlation_id = correlation_id
        self._said = said

    def decide(self, now_ms: int, wall_ms: int) -> Outcome[GroupRecord, bytes]:
        known, said, topic = self._known, self._said, self._known.topic
        if known.catalog.topics.get(topic.name) is not topic:  # deleted in this turn
            gone = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if known.by_name
                else ErrorCode.UNKNOWN_TOPIC_ID
            )
            return Outcome(known.answer(self._correlation_id, [gone] * len(known.places)))
        topic_id, commits = topic.topic_id, []
        for place, offset, leader_epoch in zip(known.places, said[0::3], said[1::3], strict=False):
            value = make(
                CommittedOffset, (offset, leader_epoch, "", wall_ms, NO_TIMESTAMP, topic_id)
            )
            commits.append(make(OffsetCommit, (*place, value)))
        refused, apply = known.offsets.check_commit(
            self.key,
            known.member,
            known.generation_id,
            commits,
            now_ms,
            known.says_group_unknown,
            False,
        )
        if refused:
            return Outcome(known.answer(self._correlation_id, [refused] * len(commits)))
        size, granted = known.granted
        return make(Outcome, (size + self._correlation_id + granted, tuple(commits), (), (), apply))


class CommitHeads:
    """The heads that a connection's requests have had."""

    __slots__ = ("_broker", "_known", "_shapes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shapes: dict[int, Struct] = {}
        """What a whole frame of that length is made of: a head, and fields of fixed length behind
        it.
        """
        self._known: dict[bytes, _Known] = {}
        """By what of the head comes behind the correlation id."""

    def serve(self, frame: memoryview) -> Deferred[bytes] | None:
        """Have the offsets committed that a request with a known head brings.

        :returns: the frame of its answer, later; None when nothing was done, as it has to be served
            in the ordinary way
        """
        shape = self._shapes.get(len(frame))
        if shape is None:
            return None
        start, correlation_id, head, *said = shape.unpack(frame)
        known = self._known.get(head)
        if known is None or start != known.start or said[2::3] != known.behind:
            return None
        broker, topic = self._broker, known.topic
        if broker.catalog.topics.get(topic.name) is not topic:
            return None
        return broker.group_runtime.submit(_CommitAgain(known, correlation_id, said))

    def learn(self, frame: memoryview, body_offset: int, request: OffsetCommitRequest) -> None:
        """Take in the head of a request that was served in the ordinary way."""
        version = request_header(frame).api_version
        found = (
            offset_commit.head(frame, body_offset, version, request)
            if version >= FIRST_BY_HAND
            else None
        )
        if found is None:
            return
        (asked,) = request.topics
        topic = topic_of(self._broker, asked)
        partitions = [one.partition_index for one in asked.partitions]
        if (
            topic is None
            or not partitions
            or not all(0 <= partition < topic.partitions for partition in partitions)
        ):
            return
        if len(self._known) >= MAX_COMMIT_HEADS:
            self._known.clear()
            self._shapes.clear()
        start, _, head, *_ = found.shape.unpack(frame)
        known = self._known[head] = _Known(
            start,
            found.behind,
            self._broker.catalog,
            self._broker.groups.offsets,
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id_or_member_epoch,
            topic,
            [(request.group_id, topic.name, partition) for partition in partitions],
            asked.name is not None,
            codec(API_KEY, version),
            version >= FIRST_WITH_GROUP_ID_NOT_FOUND,
        )
        answer = known.answer(correlation_bytes(frame), [ErrorCode.NONE] * len(partitions))
        known.granted = (answer[: SIZE.size], answer[2 * SIZE.size :])
        self._shapes[len(frame)] = found.shape
