"""Templates of Produce requests, versions 5-13, for one partition (docs/decisions/0009).

A producer's requests for the same partition differ only in the records. They are appended to the
log, and the offsets are put into a prepared response. There is no template for several partitions,
acks=0, internal topics, or topics that are flushed before the response. The handler serves null and
transactional records, records that the log refuses, and large ones.
"""

from __future__ import annotations

from struct import Struct
from types import SimpleNamespace

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.log.validation import OpenElsewhere
from headrace.protocol import produce
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.file_range import joined
from headrace.protocol.frames import RequestHeader
from headrace.protocol.limits import LARGE_BATCH_BYTES
from headrace.protocol.messages import NO_THROTTLE, codec
from headrace.protocol.produce import PartitionProduceResponse, ProduceRequest, records_at
from headrace.protocol.record_batch import (
    ATTRIBUTES_LOW_BYTE,
    HEADER_BYTES,
    OPEN_ON_LOOP,
    TRANSACTIONAL_BIT,
)
from headrace.protocol.request_templates import split_response
from headrace.security.acls import ResourceType

from .context import RequestContext
from .topic_names import topic_name

_FIRST_WITH_LOG_START = 5
"""The first version with all of :data:`_OFFSETS` in its response."""
_OFFSETS = Struct(">qqq")
"""In a response: base offset, append time, log start offset."""
_SAMPLE_OFFSETS = (0x1234567890ABCDEF, 1_234_567_890_123, 0x23456789ABCDEF01)
"""Values to find the offsets in a sample response."""


class ProduceTemplate:
    """Produce requests of one version for one partition.

    :ivar prefix_bytes: the frame up to the length of the records
    """

    __slots__ = (
        "_after_offsets",
        "_before_offsets",
        "_broker",
        "_config",
        "_is_flexible",
        "_log",
        "_size",
        "prefix_bytes",
    )

    def __init__(self, broker: Broker, version: int, log: PartitionLog, prefix_bytes: int) -> None:
        self.prefix_bytes = prefix_bytes
        self._broker = broker
        self._log = log
        self._config = log.config
        self._is_flexible = version >= produce.FIRST_FLEXIBLE
        self._size, rest = split_response(_sample_response(version, log))
        self._before_offsets, self._after_offsets = rest.split(_OFFSETS.pack(*_SAMPLE_OFFSETS))

    def try_serve(self, frame: memoryview, correlation_id: bytes) -> bytes | None:
        """Append the records of a request.

        :returns: the response's frame; None if the handler must serve the request
        """
        log = self._log
        records = records_at(frame, self.prefix_bytes, self._is_flexible)
        if records is None or log.config is not self._config or len(records) < HEADER_BYTES:
            return None
        if records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            return None
        if len(records) > LARGE_BATCH_BYTES or log.is_staging:
            return None
        broker = self._broker
        try:
            appended = log.append(records, broker.clock.wall_ms(), opening=OPEN_ON_LOOP)
        except OpenElsewhere:
            return None
        if isinstance(appended, Refusal):
            return None
        broker.appended(log)
        base_offset, _, log_append_time_ms, log_start_offset, _ = appended
        offsets = _OFFSETS.pack(base_offset, log_append_time_ms, log_start_offset)
        pieces = (self._size, correlation_id, self._before_offsets, offsets, self._after_offsets)
        return b"".join(pieces)


def make_template(
    broker: Broker, frame: memoryview, header: RequestHeader, request: ProduceRequest
) -> ProduceTemplate | None:
    """Return a template of a served request; None if it cannot have one."""
    version = header.api_version
    if version < _FIRST_WITH_LOG_START or not request.acks or len(request.topic_data) != 1:
        return None
    (topic,) = request.topic_data
    if len(topic.partition_data) != 1:
        return None
    (partition,) = topic.partition_data
    if not partition.records or len(partition.records) > LARGE_BATCH_BYTES:
        return None
    log = broker.partition(topic.topic_id, partition.index)
    if isinstance(log, ErrorCode) or log.config.is_flushed or log.config.internal:
        return None
    prefix_bytes = produce.prefix_of_one_partition(frame, version, partition.records)
    if prefix_bytes is None:
        return None
    return ProduceTemplate(broker, version, log, prefix_bytes)


def is_allowed(broker: Broker, request: ProduceRequest, context: RequestContext) -> bool:
    """Return whether a client may write to the topics of a request. Templates do not serve
    transactional records.
    """
    names = [topic_name(broker, topic.topic_id, context) for topic in request.topic_data]
    return None not in names and context.access.allows_all(
        Operation.WRITE, ResourceType.TOPIC, filter(None, names)
    )


def _sample_response(version: int, log: PartitionLog) -> bytes:
    base_offset, log_append_time_ms, log_start_offset = _SAMPLE_OFFSETS
    partition = PartitionProduceResponse(
        log.partition, ErrorCode.NONE, base_offset, log_append_time_ms, log_start_offset
    )
    topic = SimpleNamespace(name=log.topic, topic_id=log.topic_id, partition_responses=(partition,))
    response = SimpleNamespace(responses=(topic,), throttle_time=NO_THROTTLE, node_endpoints=())
    return joined(codec(produce.API_KEY, version).write_response(0, response))
