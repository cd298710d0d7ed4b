"""Templates of OffsetCommit requests, versions 8-10, for partitions of one topic
(docs/decisions/0009).

A member's commits of the same partitions differ only in offsets and leader epochs. The group
decides each of them. There is no template for several topics, very many partitions, or metadata.
The handler serves a request whose topic has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from struct import Struct

from headrace.coordinators.waiting import Deferred
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.records import CommittedOffset, GroupRecord, OffsetCommit
from headrace.net.api import READ
from headrace.net.call import Call
from headrace.net.wire import write_response
from headrace.outcome import Outcome, make
from headrace.protocol.api import OffsetCommitRequest
from headrace.protocol.errors import ErrorCode
from headrace.protocol.file_range import joined
from headrace.protocol.frames import SIZE, RequestHeader
from headrace.protocol.primitives import i32
from headrace.protocol.record_batch import NO_TIMESTAMP
from headrace.topics.catalog import Topic

from .offset_commits import FIRST_WITH_GROUP_ID_NOT_FOUND, FIRST_WITH_TOPIC_IDS

MAX_PARTITIONS = 64
"""Of a template: with 16 templates a connection holds some 300 KB."""
_FIRST_FLEXIBLE = 8
_NEXT, _LAST = "qi6s", "qi4s"
"""Offset and leader epoch of a partition, then empty metadata, no tagged fields, and the number of
the next partition; or what ends topic and request.
"""


@dataclass(slots=True, eq=False, repr=False)
class CommitTemplate:
    """OffsetCommit requests of one version and one member for the same partitions of a topic.

    :param prefix_bytes: the frame up to the first offset
    :param _offsets: what follows: see :data:`_NEXT`
    :param _constants: of what follows
    :param _accepted: the frame of a response without errors, around the correlation id
    """

    prefix_bytes: int
    _call: Call
    _request: OffsetCommitRequest
    _member: MemberIdentity
    _topic: Topic
    _places: list[tuple[str, str, int]]
    _offsets: Struct
    _constants: tuple[object, ...]
    _accepted: tuple[bytes, bytes]

    def try_serve(
        self, frame: memoryview, correlation_id: bytes
    ) -> Deferred[bytes | ErrorCode] | None:
        """Commit the offsets of a request.

        :returns: the response's frame, or the error of all partitions, deferred; None if the
            handler must serve the request
        """
        if len(frame) != self.prefix_bytes + self._offsets.size or not self._is_there():
            return None
        values = self._offsets.unpack_from(frame, self.prefix_bytes)
        if values[2::3] != self._constants:
            return None
        decide = partial(self._decide, correlation_id, values)
        return self._call.group_runtime.write(self._request.group_id, decide, commutes=True)

    def _is_there(self) -> bool:
        """Return whether the topic has not changed."""
        return self._call.catalog.topics_by_id.get(self._topic.topic_id) is self._topic

    def _decide(
        self, correlation_id: bytes, values: tuple[int, ...], now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, bytes | ErrorCode]:
        version, request, topic_id = self._call.version, self._request, self._topic.topic_id
        if not self._is_there():  # changed in this turn
            has_id = version >= FIRST_WITH_TOPIC_IDS
            return Outcome(
                ErrorCode.UNKNOWN_TOPIC_ID if has_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        numbers, records = iter(values), []
        for place, offset, leader_epoch, _ in zip(
            self._places, numbers, numbers, numbers, strict=True
        ):
            fields = offset, leader_epoch, "", wall_ms, NO_TIMESTAMP, topic_id
            records.append(make(OffsetCommit, (*place, make(CommittedOffset, fields))))
        outcome = self._call.groups.offsets.commit(
            request.group_id,
            self._member,
            request.generation_id_or_member_epoch,
            records,
            now_ms,
            knows_group_id_not_found=version >= FIRST_WITH_GROUP_ID_NOT_FOUND,
        )
        return outcome.with_reply(outcome.reply or correlation_id.join(self._accepted))


def make_template(frame: memoryview, header: RequestHeader, call: Call) -> CommitTemplate | None:
    """Return a template of a request that was served; None if it cannot have one. What the client
    may not read has none: so templates need no authorization.
    """
    request: OffsetCommitRequest = call.request
    topics = request.topics
    if header.api_version < _FIRST_FLEXIBLE or len(topics) != 1:
        return None
    (requested,) = topics
    partitions = requested.partitions
    topic = call.catalog.find(requested.topic_id, requested.name)
    if topic is None or not 0 < len(partitions) <= MAX_PARTITIONS:
        return None
    if not call.may_use_topic(READ, requested.topic_id or requested.name):
        return None
    offsets = Struct(f">{_NEXT * (len(partitions) - 1)}{_LAST}")
    prefix_bytes = len(frame) - offsets.size
    following = [i32(partition.partition_index) for partition in partitions[1:]]
    expected: list[object] = []
    for partition, end in zip(partitions, [*following, b"\0\0"], strict=True):
        empty = b"\0" if partition.committed_metadata is None else b"\1"
        if partition.committed_metadata or not 0 <= partition.partition_index < topic.partitions:
            return None
        expected += partition.committed_offset, partition.committed_leader_epoch
        expected.append(empty + b"\0" + end)
    if offsets.unpack_from(frame, prefix_bytes) != tuple(expected):  # tagged fields
        return None
    accepted = joined(write_response(call.api, header, call.api.refused(request, ErrorCode.NONE)))
    return CommitTemplate(
        prefix_bytes,
        call,
        request,
        MemberIdentity(request.member_id, request.group_instance_id),
        topic,
        [(request.group_id, topic.name, p.partition_index) for p in partitions],
        offsets,
        tuple(expected[2::3]),
        (accepted[: SIZE.size], accepted[2 * SIZE.size :]),
    )
