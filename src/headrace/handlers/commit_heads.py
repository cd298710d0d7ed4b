"""OffsetCommit requests that begin like one before (docs/decisions/0009).

A consumer commits the same partitions of the same topic as the same member of its group again and again; only the
offsets differ. What was found out about who commits where is kept with the connection. What the group says to a commit
is asked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.broker.limits import MAX_COMMIT_HEADS
from headrace.broker.together import Later
from headrace.errors import ErrorCode
from headrace.groups.classic_member import MemberIdentity
from headrace.groups.offsets import Commit
from headrace.groups.records import GroupRecord
from headrace.outcome import Outcome
from headrace.wire.frames import SIZE, correlation_id_of, head_bytes, request_header
from headrace.wire.messages import Codec, codec
from headrace.wire.offset_commit import (
    API_KEY,
    FIRST_BY_HAND,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    head,
)

from .api_08_offset_commit import FIRST_WITH_GROUP_ID_NOT_FOUND, topic_of


class _Known(NamedTuple):
    """What does not vary, and what that which does must look like, as :class:`headrace.wire.offset_commit.Head`.

    :ivar granted: what the answer is behind its correlation id when no partition is refused
    """

    group_id: str
    member: MemberIdentity
    generation_id: int
    topic: Topic
    by_name: bool
    wire: Codec
    varying: Struct
    places: tuple[int, ...]
    extras: tuple[int, ...]
    granted: bytes


class CommitHeads:
    """The heads that a connection's requests have had."""

    __slots__ = ("_broker", "_ends", "_known")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends: dict[int, int] = {}
        """Where the head of a frame ends, by the length of the frame: behind it everything has a fixed length."""
        self._known: dict[bytes, _Known] = {}

    def serve(self, frame: memoryview) -> Later[bytes] | None:
        """Have the offsets committed that a request with a known head brings.

        :returns: the frame of its answer, later; None when nothing was done, as it has to be served in the ordinary way
        """
        end = self._ends.get(len(frame), 0)
        known = self._known.get(head_bytes(frame, end))
        if known is None:
            return None
        values = known.varying.unpack_from(frame, end)
        if values[0::4] != known.places or values[3::4] != known.extras:
            return None
        broker, topic = self._broker, known.topic
        if broker.catalog.topics.get(topic.name) is not topic:
            return None
        commits = [
            Commit(topic.name, topic.topic_id, partition, offset, leader_epoch)
            for partition, offset, leader_epoch in zip(known.places, values[1::4], values[2::4], strict=False)
        ]
        return broker.commits.submit(known.group_id, partial(self._decide, known, correlation_id_of(frame), commits))

    def _decide(self, known: _Known, correlation_id: int, commits: list[Commit]) -> Outcome[GroupRecord, bytes]:
        codes, records, *_ = self._broker.groups.commit(
            known.group_id,
            known.member,
            known.generation_id,
            commits,
            self._broker.now_ms(),
            says_group_unknown=known.wire.version >= FIRST_WITH_GROUP_ID_NOT_FOUND,
        )
        if any(codes):
            return Outcome(_answer(known, correlation_id, codes), records)
        return Outcome(known.granted[: SIZE.size] + SIZE.pack(correlation_id) + known.granted[SIZE.size :], records)

    def learn(self, frame: memoryview, body_offset: int, request: OffsetCommitRequest) -> None:
        """Take in the head of a request that was served in the ordinary way."""
        version = request_header(frame).api_version
        found = head(frame, body_offset, version, request) if version >= FIRST_BY_HAND else None
        if found is None:
            return
        topic = topic_of(self._broker, request.topics[0])
        if topic is None or not all(0 <= partition < topic.partitions for partition in found.places):
            return
        if len(self._known) >= MAX_COMMIT_HEADS:
            self._known.clear()
            self._ends.clear()
        known = _Known(
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id_or_member_epoch,
            topic,
            request.topics[0].name is not None,
            codec(API_KEY, version),
            found.varying,
            found.places,
            found.extras,
            b"",
        )
        answer = _answer(known, 0, [ErrorCode.NONE] * (len(found.places) - 1))
        self._known[head_bytes(frame, found.end)] = known._replace(
            granted=answer[: SIZE.size] + answer[2 * SIZE.size :]
        )
        self._ends[len(frame)] = found.end


def _answer(known: _Known, correlation_id: int, codes: Sequence[ErrorCode]) -> bytes:
    topic = known.topic
    response = OffsetCommitResponseTopic(
        tuple(map(OffsetCommitResponsePartition, known.places, codes)),
        topic.name if known.by_name else None,
        None if known.by_name else topic.topic_id,
    )
    return b"".join(known.wire.write_response(correlation_id, OffsetCommitResponse((response,))))
