"""kio's classes of the messages with the fields of :mod:`.own_fields`."""

import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.alter_share_group_offsets.v0.request import AlterShareGroupOffsetsRequestTopic
from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequestGroup
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.share_acknowledge.v2.request import AcknowledgeTopic
from kio.schema.share_fetch.v2.request import FetchTopic, ForgottenTopic
from kio.schema.types import GroupId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

FIRST_TAG = 10_000
"""Far from the tags that Kafka uses."""

(
    _TELL,
    _END,
    _RELEASES,
    _RELEASED,
    _ARCHIVED,
    _UNCOUNTED,
    _DELAY,
    _REASON,
    _LATE,
    _OFFSETS_ONLY,
) = range(FIRST_TAG, FIRST_TAG + 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightSpan:
    """A run of records in one state.

    :ivar last_offset: inclusive
    :ivar delivery_count: 0 where it is not known
    :ivar member_id: the holder of locked records, else None
    :ivar remaining_ms: time until the lock or the backoff ends; -1 for other states
    """

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    last_offset: i64 = field(metadata={"kafka_type": "int64"})
    state: i16 = field(metadata={"kafka_type": "int16"})
    delivery_count: i16 = field(metadata={"kafka_type": "int16"})
    member_id: str | None = field(metadata={"kafka_type": "string"})
    remaining_ms: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequest:
    """Kafka's request.

    :ivar in_flight_limit: the largest number of spans to return for a partition; 0 to return none
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...]
    in_flight_limit: i32 = field(metadata={"kafka_type": "int32", "tag": _TELL}, default=i32(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponsePartition:
    """Kafka's answer for a partition.

    :ivar in_flight: the spans from the start offset on, ascending
    :ivar in_flight_end: the offset after the last span; -1 if the broker does not tell
    :ivar released_count: records released since the broker loaded the share-partition
    :ivar archived_count: records archived without having been accepted, since the broker started
    :ivar late_count: records acknowledged after the end of their lock, since the broker started
    """

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    start_offset: i64 = field(metadata={"kafka_type": "int64"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    lag: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)
    in_flight: tuple[InFlightSpan, ...] = field(metadata={"tag": _TELL}, default=())
    in_flight_end: i64 = field(metadata={"kafka_type": "int64", "tag": _END}, default=i64(-1))
    released_count: i64 = field(metadata={"kafka_type": "int64", "tag": _RELEASED}, default=i64(0))
    archived_count: i64 = field(metadata={"kafka_type": "int64", "tag": _ARCHIVED}, default=i64(0))
    late_count: i64 = field(metadata={"kafka_type": "int64", "tag": _LATE}, default=i64(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseTopic:
    """Kafka's answer for a topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_name: TopicName = field(metadata={"kafka_type": "string"})
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseGroup:
    """Kafka's answer for a group."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    group_id: GroupId = field(metadata={"kafka_type": "string"})
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...]
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponse:
    """Kafka's response."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(90)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Records to release from the members that hold them.

    :ivar last_offset: inclusive
    """

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(91)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_name: TopicName = field(metadata={"kafka_type": "string"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    first_offset: i64 = field(metadata={"kafka_type": "int64"})
    last_offset: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareGroupOffsetsRequest:
    """Kafka's request.

    :ivar releases: with them the request has no ``topics``, and the group may have members
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(91)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_id: GroupId = field(metadata={"kafka_type": "string"})
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...]
    releases: tuple[Release, ...] = field(metadata={"tag": _RELEASES}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledgeRequest:
    """Kafka's request.

    :ivar uncounted_release: the records that the request releases were not processed: this delivery
        does not count
    :ivar release_delay_ms: the shortest time for which the records that the request releases are
        not delivered again
    :ivar reject_reason: why the records that the request rejects cannot be processed, for their
        dead letters
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(79)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_id: GroupId | None = field(metadata={"kafka_type": "string"}, default=None)
    member_id: str | None = field(metadata={"kafka_type": "string"})
    share_session_epoch: i32 = field(metadata={"kafka_type": "int32"})
    is_renew_ack: bool = field(metadata={"kafka_type": "bool"}, default=False)
    topics: tuple[AcknowledgeTopic, ...]
    uncounted_release: bool = field(
        metadata={"kafka_type": "bool", "tag": _UNCOUNTED}, default=False
    )
    release_delay_ms: i32 = field(metadata={"kafka_type": "int32", "tag": _DELAY}, default=i32(0))
    reject_reason: str | None = field(
        metadata={"kafka_type": "string", "tag": _REASON}, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchRequest:
    """Kafka's request.

    :ivar offsets_only: answer with the acquired offsets alone
    """

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(2)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(78)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_id: GroupId | None = field(metadata={"kafka_type": "string"}, default=None)
    member_id: str | None = field(metadata={"kafka_type": "string"})
    share_session_epoch: i32 = field(metadata={"kafka_type": "int32"})
    max_wait: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    min_bytes: i32 = field(metadata={"kafka_type": "int32"})
    max_bytes: i32 = field(metadata={"kafka_type": "int32"}, default=i32(2147483647))
    max_records: i32 = field(metadata={"kafka_type": "int32"})
    batch_size: i32 = field(metadata={"kafka_type": "int32"})
    share_acquire_mode: i8 = field(metadata={"kafka_type": "int8"}, default=i8(0))
    is_renew_ack: bool = field(metadata={"kafka_type": "bool"}, default=False)
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: tuple[ForgottenTopic, ...]
    offsets_only: bool = field(metadata={"kafka_type": "bool", "tag": _OFFSETS_ONLY}, default=False)


REQUESTS: dict[tuple[int, int], Any] = {
    (78, 2): ShareFetchRequest,
    (79, 2): ShareAcknowledgeRequest,
    (90, 1): DescribeShareGroupOffsetsRequest,
    (91, 0): AlterShareGroupOffsetsRequest,
}
RESPONSES: dict[tuple[int, int], Any] = {(90, 1): DescribeShareGroupOffsetsResponse}
