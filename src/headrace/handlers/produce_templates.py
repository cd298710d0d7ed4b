"""Templates of Produce requests, versions 5-13, for one partition (docs/decisions/0009).

A producer's requests for the same partition differ only in the records. They are appended to the
log, and the offsets are put into a prepared response. There is no template for several partitions,
acks=0, internal topics, or topics that are flushed before the response. The handler serves null and
transactional records, records that the log refuses, and large ones.
"""

from __future__ import annotations

from struct import Struct

from headrace.log.partition_log import PartitionLog
from headrace.log.validation import OpenElsewhere
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.wire import write_response
from headrace.protocol.api import ProduceRequest, ProduceResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.file_range import joined
from headrace.protocol.frames import SIZE, RequestHeader
from headrace.protocol.limits import LARGE_BATCH_BYTES
from headrace.protocol.primitives import INT32, compact_length, i32, read_compact_length
from headrace.protocol.record_batch import (
    ATTRIBUTES_LOW_BYTE,
    HEADER_BYTES,
    OPEN_ON_LOOP,
    TRANSACTIONAL_BIT,
)

_FIRST_WITH_LOG_START = 5
"""The first version with all of :data:`_OFFSETS` in its response."""
_OFFSETS = Struct(">qqq")
"""In a response: base offset, append time, log start offset."""
_EMPTY_TAGS = b"\0\0\0"
"""The empty tagged fields of partition, topic and request, after the records."""
_SAMPLE_OFFSETS = (0x1234567890ABCDEF, 1_234_567_890_123, 0x23456789ABCDEF01)
"""Values to find the offsets in a sample response."""


class ProduceTemplate:
    """Produce requests of one version for one partition.

    :ivar prefix_bytes: the frame up to the length of the records
    """

    __slots__ = (
        "_after_offsets",
        "_before_offsets",
        "_clock",
        "_config",
        "_is_flexible",
        "_log",
        "_size",
        "_topics",
        "prefix_bytes",
    )

    def __init__(
        self,
        call: Call,
        header: RequestHeader,
        topic: ProduceRequest.TopicProduceData,
        log: PartitionLog,
        prefix_bytes: int,
    ) -> None:
        self.prefix_bytes = prefix_bytes
        self._clock, self._topics = call.clock, call.topic_logs
        self._log = log
        self._config = log.config
        self._is_flexible = call.api.request.is_flexible(header.api_version)
        frame = _sample_response(call.api, header, topic, log)
        self._size = frame[: SIZE.size]
        after_correlation_id = frame[2 * SIZE.size :]
        self._before_offsets, self._after_offsets = after_correlation_id.split(
            _OFFSETS.pack(*_SAMPLE_OFFSETS)
        )

    def try_serve(self, frame: memoryview, correlation_id: bytes) -> bytes | None:
        """Append the records of a request.

        :returns: the response's frame; None if the handler must serve the request
        """
        log = self._log
        records = _records_at(frame, self.prefix_bytes, self._is_flexible)
        if records is None or log.config is not self._config or len(records) < HEADER_BYTES:
            return None
        if records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            return None
        if len(records) > LARGE_BATCH_BYTES or log.is_staging:
            return None
        try:
            appended = log.append(records, self._clock.wall_ms(), opening=OPEN_ON_LOOP)
        except OpenElsewhere:
            return None
        if isinstance(appended, Refusal):
            return None
        self._topics.appended(log)
        base_offset, _, log_append_time_ms, log_start_offset, _ = appended
        offsets = _OFFSETS.pack(base_offset, log_append_time_ms, log_start_offset)
        pieces = (self._size, correlation_id, self._before_offsets, offsets, self._after_offsets)
        return b"".join(pieces)


def make_template(
    frame: memoryview,
    header: RequestHeader,
    call: Call,
    topic: ProduceRequest.TopicProduceData,
    log: PartitionLog,
) -> ProduceTemplate | None:
    """Return a template of a request that was served; None if it cannot have one.

    :param topic: the only one of the request, with one partition
    """
    (partition,) = topic.partition_data
    if header.api_version < _FIRST_WITH_LOG_START or not call.request.acks:
        return None
    if not partition.records or len(partition.records) > LARGE_BATCH_BYTES:
        return None
    if log.config.is_flushed or log.config.internal:
        return None
    is_flexible = call.api.request.is_flexible(header.api_version)
    prefix_bytes = _prefix_bytes(frame, partition.records, is_flexible=is_flexible)
    if prefix_bytes is None:
        return None
    return ProduceTemplate(call, header, topic, log, prefix_bytes)


def _prefix_bytes(
    frame: memoryview, records: bytes | memoryview, *, is_flexible: bool
) -> int | None:
    """Return the number of bytes before the length of the records in a request for one partition;
    None unless only empty tagged fields follow them.
    """
    length_bytes, tags_bytes = INT32.size, 0
    if is_flexible:
        length_bytes, tags_bytes = len(compact_length(len(records))), len(_EMPTY_TAGS)
    position = len(frame) - tags_bytes - len(records) - length_bytes
    at = _records_at(frame, position, is_flexible)
    # As bytes: Python compares views item by item.
    return position if at is not None and bytes(at) == bytes(records) else None


def _records_at(frame: memoryview, position: int, is_flexible: bool) -> memoryview | None:
    """Return the records with their length at ``position``, as a view of ``frame``; None if they
    are null, or if more than empty tagged fields follows.
    """
    if not is_flexible:
        start = position + INT32.size
        return frame[start:] if frame[position:start] == i32(len(frame) - start) else None
    try:
        length, start = read_compact_length(frame, position)
    except (IndexError, ValueError):
        return None
    end = start + length
    return frame[start:end] if length >= 0 and frame[end:] == _EMPTY_TAGS else None


def _sample_response(
    api: Api, header: RequestHeader, topic: ProduceRequest.TopicProduceData, log: PartitionLog
) -> bytes:
    base_offset, log_append_time_ms, log_start_offset = _SAMPLE_OFFSETS
    partition = ProduceResponse.PartitionProduceResponse(
        log.partition, ErrorCode.NONE, base_offset, log_append_time_ms, log_start_offset
    )
    answer = ProduceResponse.TopicProduceResponse(topic.name, topic.topic_id, [partition])
    response = ProduceResponse([answer])
    return joined(write_response(api, header._replace(correlation_id=0), response))
