"""OffsetCommit requests that begin like one before (docs/decisions/0009).

A consumer commits the same partitions of the same topic as the same member of its group again and again; only the
offsets differ. What was found out about who commits where is kept with the connection. What the group says to a commit
is asked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.limits import MAX_COMMIT_HEADS
from headrace.broker.together import Later
from headrace.errors import ErrorCode
from headrace.groups.classic_member import MemberIdentity
from headrace.groups.offsets import Commit
from headrace.groups.records import GroupRecord
from headrace.outcome import Outcome, make
from headrace.wire import offset_commit
from headrace.wire.frames import SIZE, request_header
from headrace.wire.messages import Codec, codec
from headrace.wire.offset_commit import (
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
    """What does not vary, and what that which does must look like, as :class:`headrace.wire.offset_commit.Head`.

    :ivar granted: what the answer is before and behind its correlation id when no partition is refused
    """

    group_id: str
    member: MemberIdentity
    generation_id: int
    topic: Topic
    by_name: bool
    wire: Codec
    places: list[int]
    extras: list[int]
    granted: tuple[bytes, bytes] = (b"", b"")


class CommitHeads:
    """The heads that a connection's requests have had."""

    __slots__ = ("_broker", "_known", "_shapes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shapes: dict[int, Struct] = {}
        """What a whole frame of that length is made of: a head, and fields of fixed length behind it."""
        self._known: dict[tuple[bytes, bytes], _Known] = {}
        """By api and version, and what of the head comes behind the correlation id."""

    def serve(self, frame: memoryview) -> Later[bytes] | None:
        """Have the offsets committed that a request with a known head brings.

        :returns: the frame of its answer, later; None when nothing was done, as it has to be served in the ordinary way
        """
        shape = self._shapes.get(len(frame))
        if shape is None:
            return None
        version, correlation_id, start, *values = shape.unpack(frame)
        known = self._known.get((version, start))
        if known is None or values[0::4] != known.places or values[3::4] != known.extras:
            return None
        broker, topic = self._broker, known.topic
        name, topic_id = topic.name, topic.topic_id
        if broker.catalog.topics.get(name) is not topic:
            return None
        commits = [
            make(Commit, (name, topic_id, partition, offset, leader_epoch, None))
            for partition, offset, leader_epoch in zip(known.places, values[1::4], values[2::4], strict=False)
        ]
        return broker.commits.submit(known.group_id, partial(self._decide, known, correlation_id, commits))

    def _decide(self, known: _Known, correlation_id: bytes, commits: list[Commit]) -> Outcome[GroupRecord, bytes]:
        outcome = self._broker.groups.commit(
            known.group_id,
            known.member,
            known.generation_id,
            commits,
            self._broker.now_ms(),
            says_group_unknown=known.wire.version >= FIRST_WITH_GROUP_ID_NOT_FOUND,
        )
        if any(outcome.reply):
            return Outcome(_answer(known, int.from_bytes(correlation_id, signed=True), outcome.reply), outcome.records)
        size, granted = known.granted
        return make(Outcome, (size + correlation_id + granted, outcome.records, (), ()))

    def learn(self, frame: memoryview, body_offset: int, request: OffsetCommitRequest) -> None:
        """Take in the head of a request that was served in the ordinary way."""
        version = request_header(frame).api_version
        found = offset_commit.head(frame, body_offset, version, request) if version >= FIRST_BY_HAND else None
        if found is None:
            return
        topic = topic_of(self._broker, request.topics[0])
        if topic is None or not all(0 <= partition < topic.partitions for partition in found.places):
            return
        if len(self._known) >= MAX_COMMIT_HEADS:
            self._known.clear()
            self._shapes.clear()
        known = _Known(
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id_or_member_epoch,
            topic,
            request.topics[0].name is not None,
            codec(API_KEY, version),
            found.places,
            found.extras,
        )
        answer = _answer(known, 0, [ErrorCode.NONE] * (len(found.places) - 1))
        known.granted = (answer[: SIZE.size], answer[2 * SIZE.size :])
        version_bytes, _, start, *_ = found.shape.unpack(frame)
        self._known[version_bytes, start] = known
        self._shapes[len(frame)] = found.shape


def _answer(known: _Known, correlation_id: int, codes: Sequence[ErrorCode]) -> bytes:
    topic = known.topic
    response = OffsetCommitResponseTopic(
        tuple(map(OffsetCommitResponsePartition, known.places, codes)),
        topic.name if known.by_name else None,
        None if known.by_name else topic.topic_id,
    )
    return b"".join(known.wire.write_response(correlation_id, OffsetCommitResponse((response,))))
