"""Produce requests that begin like one before (docs/decisions/0009).

A producer says the same before its records again and again: who it is, how it wants to be
acknowledged, and for which partition they are. What was found out about such a head is kept with
the connection, so that a request for one partition goes straight from its records to the log and
from there to its answer. Whatever is not as usual, refusals too, is left to the ordinary way, which
has the words for it.
"""

from __future__ import annotations

from struct import Struct
from types import SimpleNamespace
from typing import Any, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.limits import MAX_PRODUCE_HEAD_LENGTHS, MAX_PRODUCE_HEADS
from headrace.errors import ErrorCode, Refusal
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.protocol import produce
from headrace.protocol.frames import SIZE, correlation_bytes, head_bytes, request_header
from headrace.protocol.messages import NO_THROTTLE, codec
from headrace.protocol.record_batch import ATTRIBUTES_LOW_BYTE, HEADER_BYTES, TRANSACTIONAL_BIT

_FIRST_WITH_LOG_START = 5
"""The first version whose answer has all of :data:`_OFFSETS`."""
_OFFSETS = Struct(">qqq")
"""Of an answer: base offset, append time, log start offset."""
_ANY_OFFSETS = (0x1234567890ABCDEF, 1_234_567_890_123, 0x23456789ABCDEF01)
"""Stand for them where an answer is made to see what it is around them."""


class _Known(NamedTuple):
    """What a head leads to.

    :ivar size: what the frame of an answer is before its correlation id
    :ivar before: between that and the offsets
    :ivar after: behind them
    """

    log: PartitionLog
    config: LogConfig
    size: bytes
    before: bytes
    after: bytes


class ProduceHeads:
    """The heads of a connection's requests: those of the same length together, which is that of the
    topic's name.
    """

    __slots__ = ("_broker", "_known")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[produce.Head, dict[bytes, _Known]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def serve(self, frame: memoryview) -> bytes | None:
        """Append what a request with a known head brings.

        :returns: the frame of its answer; None when nothing was done, as it has to be served in the
            ordinary way
        """
        for head, by_bytes in self._known.items():
            known = by_bytes.get(head_bytes(frame, head.end))
            if known is not None:
                break
        else:
            return None
        log, config, size, before, after = known
        records = produce.records_behind(frame, head)
        if records is None or log.config is not config:
            return None
        if len(records) < HEADER_BYTES or records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            return None
        broker = self._broker
        appended = log.append(records, broker.clock.wall_ms())
        if isinstance(appended, Refusal):
            return None
        broker.appended(log)
        base_offset, _, log_append_time_ms, log_start_offset, _ = appended
        offsets = _OFFSETS.pack(base_offset, log_append_time_ms, log_start_offset)
        return b"".join((size, correlation_bytes(frame), before, offsets, after))

    def learn(self, frame: memoryview, body_offset: int, request: Any) -> None:
        """Take in the head of a request that was served in the ordinary way.

        Not of one that is not answered, and not where an answer has to wait until the disk has what
        was appended.
        """
        version = request_header(frame).api_version
        if version < _FIRST_WITH_LOG_START or not request.acks or len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) != 1:
            return
        ((index, records),) = ((one.index, one.records) for one in topic.partition_data)
        log = self._broker.partition(topic.topic_id, index)
        head = produce.head(frame, version, records) if records else None
        if (
            head is None
            or isinstance(log, ErrorCode)
            or log.config.is_flushed
            or log.config.internal
        ):
            return
        by_bytes = self._known.setdefault(head, {})
        if len(self) >= MAX_PRODUCE_HEADS or len(self._known) > MAX_PRODUCE_HEAD_LENGTHS:
            self._known = {head: (by_bytes := {})}
        by_bytes[head_bytes(frame, head.end)] = _Known(log, log.config, *_answer(version, log))


def _answer(version: int, log: PartitionLog) -> tuple[bytes, bytes, bytes]:
    """What the frame of an answer is before its correlation id, between that and the offsets, and
    behind them.
    """
    base_offset, log_append_time_ms, log_start_offset = _ANY_OFFSETS
    one = produce.PartitionProduceResponse(
        log.partition, ErrorCode.NONE, base_offset, log_append_time_ms, log_start_offset
    )
    topic = SimpleNamespace(name=log.topic, topic_id=log.topic_id, partition_responses=(one,))
    response = SimpleNamespace(responses=(topic,), throttle_time=NO_THROTTLE, node_endpoints=())
    frame = b"".join(codec(produce.API_KEY, version).write_response(0, response))
    before, after = frame[2 * SIZE.size :].split(_OFFSETS.pack(*_ANY_OFFSETS))
    return frame[: SIZE.size], before, after
