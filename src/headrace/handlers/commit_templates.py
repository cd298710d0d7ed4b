"""Templates of OffsetCommit requests, versions 8-10, for partitions of one topic
(docs/decisions/0009).

A member's commits of the same partitions differ only in offsets and leader epochs. The group
decides each commit. Requests with several topics, more than 256 partitions, or metadata have no
template. If the topic has changed, the handler serves the request.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.coordinators.runtime import Command, Deferred
from headrace.errors import ErrorCode
from headrace.groups.records import NO_TIMESTAMP, CommittedOffset, GroupRecord, OffsetCommit
from headrace.outcome import Outcome, make
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.file_range import joined
from headrace.protocol.frames import RequestHeader
from headrace.protocol.messages import codec
from headrace.protocol.offset_commit import (
    API_KEY,
    FIRST_BY_HAND,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetsLayout,
    offsets_layout,
)
from headrace.protocol.request_templates import split_response
from headrace.security.acls import ResourceType

from .context import RequestContext
from .offset_commits import Committer, committer_of, topic_of


class CommitTemplate:
    """OffsetCommit requests of one version and one member for the same partitions of a topic.

    :ivar check: see :attr:`Committer.check`
    :ivar accepted: the frame of a response without errors, before and after the correlation id
    :ivar places: group id, topic name and number of each partition
    :ivar prefix_bytes: the frame up to the first offset
    :ivar topics: the topics that exist, by name
    """

    __slots__ = (
        "_by_name",
        "_codec",
        "_constants",
        "_frame_bytes",
        "_partitions",
        "_submit",
        "_unpack_offsets",
        "accepted",
        "check",
        "group_id",
        "places",
        "prefix_bytes",
        "topic",
        "topics",
    )

    def __init__(
        self,
        broker: Broker,
        version: int,
        layout: OffsetsLayout,
        committer: Committer,
        topic: Topic,
        partitions: Sequence[int],
        *,
        by_name: bool,
    ) -> None:
        self.prefix_bytes = layout.prefix_bytes
        self.group_id = committer.group_id
        self.check = committer.check
        self.topic = topic
        self.places = [(committer.group_id, topic.name, partition) for partition in partitions]
        self.topics = broker.catalog.topics
        self._submit = broker.group_runtime.submit
        self._codec = codec(API_KEY, version)
        self._by_name = by_name
        self._partitions = partitions
        self._frame_bytes = layout.prefix_bytes + layout.offsets.size
        self._unpack_offsets = layout.offsets.unpack_from
        self._constants = layout.constants
        self.accepted = split_response(self.response(bytes(4), [ErrorCode.NONE] * len(partitions)))

    def try_serve(self, frame: memoryview, correlation_id: bytes) -> Deferred[bytes] | None:
        """Commit the offsets of a request.

        :returns: the response's frame, deferred; None if the handler must serve the request
        """
        if len(frame) != self._frame_bytes or self.topics.get(self.topic.name) is not self.topic:
            return None
        offsets = self._unpack_offsets(frame, self.prefix_bytes)
        if offsets[2::3] != self._constants:
            return None
        return self._submit(TemplatedCommit(self, correlation_id, offsets))

    def gone(self, correlation_id: bytes) -> bytes:
        """Return the response's frame for a topic that no longer exists."""
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._by_name else ErrorCode.UNKNOWN_TOPIC_ID
        return self.response(correlation_id, [code] * len(self._partitions))

    def response(self, correlation_id: bytes, codes: Sequence[ErrorCode]) -> bytes:
        """Return the response's frame with an error code for each partition."""
        topic = OffsetCommitResponseTopic(
            tuple(map(OffsetCommitResponsePartition, self._partitions, codes)),
            self.topic.name if self._by_name else None,
            None if self._by_name else self.topic.topic_id,
        )
        number = int.from_bytes(correlation_id, signed=True)
        return joined(self._codec.write_response(number, OffsetCommitResponse((topic,))))


class TemplatedCommit(Command[bytes]):
    """A commit by template, decided at the end of the turn.

    :param offsets: offset, leader epoch and a constant for each partition
    """

    __slots__ = ("_correlation_id", "_offsets", "_template")

    commutes = True

    def __init__(
        self, template: CommitTemplate, correlation_id: bytes, offsets: tuple[int, ...]
    ) -> None:
        self.waiter = None
        self.key = template.group_id
        self._template = template
        self._correlation_id = correlation_id
        self._offsets = offsets

    def decide(self, now_ms: int, wall_ms: int) -> Outcome[GroupRecord, bytes]:
        template = self._template
        topic = template.topic
        if template.topics.get(topic.name) is not topic:  # deleted in this turn
            return Outcome(template.gone(self._correlation_id))
        topic_id, commits = topic.topic_id, []
        values = iter(self._offsets)
        for place, offset, leader_epoch, _ in zip(
            template.places, values, values, values, strict=True
        ):
            value = make(
                CommittedOffset, (offset, leader_epoch, "", wall_ms, NO_TIMESTAMP, topic_id)
            )
            commits.append(make(OffsetCommit, (*place, value)))
        refused, apply = template.check(commits, now_ms)
        if refused:
            response = template.response(self._correlation_id, [refused] * len(commits))
            return Outcome(response, apply=apply)
        size, after_correlation_id = template.accepted
        response = size + self._correlation_id + after_correlation_id
        return make(Outcome, (response, tuple(commits), (), (), apply))


def make_template(
    broker: Broker, frame: memoryview, header: RequestHeader, request: OffsetCommitRequest
) -> CommitTemplate | None:
    """Return a template of a served request; None if it cannot have one."""
    version = header.api_version
    if version < FIRST_BY_HAND:
        return None
    layout = offsets_layout(frame, header.body_offset, version, request)
    if layout is None:
        return None
    (asked,) = request.topics
    topic = topic_of(broker.catalog, asked.name, asked.topic_id)
    partitions = [one.partition_index for one in asked.partitions]
    if topic is None or not all(0 <= partition < topic.partitions for partition in partitions):
        return None
    return CommitTemplate(
        broker,
        version,
        layout,
        committer_of(broker.groups.offsets, request, version),
        topic,
        partitions,
        by_name=asked.name is not None,
    )


def is_allowed(broker: Broker, request: OffsetCommitRequest, context: RequestContext) -> bool:
    """Return whether a client may commit offsets of the group in the topics of a request."""
    access = context.access
    topics = [topic_of(broker.catalog, one.name, one.topic_id) for one in request.topics]
    return access.allows(Operation.READ, ResourceType.GROUP, request.group_id) and all(
        topic is not None and access.allows(Operation.READ, ResourceType.TOPIC, topic.name)
        for topic in topics
    )
