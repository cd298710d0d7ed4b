"""Produce requests that begin like one before (docs/decisions/0009).

A producer says the same before its records again and again: who it is, how it wants to be acknowledged, and for which
partition they are. What was found out about such a head is kept with the connection, so that a request for one
partition goes straight from its records to the log and from there to its answer. Whatever is not as usual, refusals
too, is left to the ordinary way, which has the words for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.limits import MAX_PRODUCE_HEADS
from headrace.errors import ErrorCode, Refusal
from headrace.log.batch import ATTRIBUTES_LOW_BYTE, HEADER_BYTES, TRANSACTIONAL_BIT
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.wire import produce
from headrace.wire.frames import head_bytes


class _Known(NamedTuple):
    log: PartitionLog
    config: LogConfig
    topic_id: bytes
    partition: int


class ProduceHeads:
    """The heads of a connection's requests. All end at the same place, as a client does not change its name."""

    __slots__ = ("_broker", "_end", "_known")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[bytes, _Known] = {}
        self._end = 0

    def serve(self, frame: memoryview) -> bytes | None:
        """Append what a request with a known head brings.

        :returns: the frame of its answer; None when nothing was done, as it has to be served in the ordinary way
        """
        known = self._known.get(head_bytes(frame, self._end))
        if known is None:
            return None
        log, config, topic_id, partition = known
        records = produce.records_behind(frame, self._end)
        if records is None or log.config is not config:
            return None
        if len(records) < HEADER_BYTES or records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            return None
        broker = self._broker
        appended = log.append(records, broker.now_ms())
        if isinstance(appended, Refusal):
            return None
        broker.appended(log)
        base_offset, _, log_append_time_ms, log_start_offset, _ = appended
        return produce.answer_to_one(frame, topic_id, partition, base_offset, log_append_time_ms, log_start_offset)

    def learn(self, frame: memoryview, body_offset: int, request: Any) -> None:
        """Take in the head of a request that was served in the ordinary way.

        Not of one that is not answered, and not where an answer has to wait until the disk has what was appended.
        """
        head = produce.head(frame, body_offset)
        if head is None or not head.acks:
            return
        log = self._broker.partition(head.topic_id, head.partition)
        if isinstance(log, ErrorCode) or log.config.is_flushed:
            return
        if head.end != self._end or len(self._known) >= MAX_PRODUCE_HEADS:
            self._known.clear()
            self._end = head.end
        known = _Known(log, log.config, head.topic_id.bytes, head.partition)
        self._known[head_bytes(frame, head.end)] = known
