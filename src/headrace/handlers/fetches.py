"""A Fetch, of all partitions that it names or within a fetch session (KIP-227).

It reads the available records and returns whether to respond at once. The response has what was
read last; nothing runs between the last reading and the response.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from headrace.log.partition_log import PartitionLog
from headrace.net.api import READ
from headrace.net.call import Call
from headrace.protocol.api import FetchRequest, FetchResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.file_range import FileRange
from headrace.protocol.record_batch import offset_after
from headrace.topics.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION_ID,
    CachedPartition,
    FetchSession,
    TopicKey,
)

MAX_READ_AHEAD_BYTES = 64 * 1024
"""The records that a Fetch reads while its response is made, to send them with one system call. The
rest, and what the socket does not take at once, is read from the file when the socket takes it.
"""

Topic = FetchResponse.FetchableTopicResponse
PartitionData = FetchResponse.PartitionData
Partition = FetchRequest.FetchPartition | CachedPartition

FIRST_WITH_TOPIC_IDS = 13
NOT_DIVERGING = FetchResponse.EpochEndOffset()
_READ_COMMITTED = 1
_EMPTY_RESPONSE_BYTES, _PARTITION_BYTES = 21, 60
"""The sizes of a response without partitions, and of a partition without records with its topic,
as quotas count them.
"""


@dataclass(slots=True, repr=False, eq=False)
class _Reading:
    """One pass over the partitions of a request, within its limits of bytes.

    :param _left_bytes: those that still fit into the response
    :param _wanted_bytes: those that it lacks to be sent at once
    :param _committed: the reader is read_committed
    :param _again: the request has waited, so an unknown partition may have been deleted meanwhile
    :param _has_existing: there is a partition that exists, among those that this pass reads or not
    :ivar _held_bytes: the bytes that may still be read ahead
    :ivar _is_first: no batch was read. The first may be larger than the limits, so that every
        batch can be read
    :ivar _allowed: whether the client may read a topic: decided once in a pass
    """

    _call: Call
    _left_bytes: int
    _wanted_bytes: int
    _committed: bool
    _again: bool
    _has_existing: bool
    _held_bytes: int = MAX_READ_AHEAD_BYTES
    _is_first: bool = True
    _refused: bool = False
    _allowed: dict[TopicKey, bool] = field(default_factory=dict)

    @property
    def is_enough(self) -> bool:
        """True if the response can be sent: enough bytes, an error, or no partition to wait for.

        As in Kafka, an unknown partition does not end the wait for others: clients request it
        until they have new metadata. Nor does one that the client may not read.
        """
        return self._wanted_bytes <= 0 or self._refused or not self._has_existing

    @property
    def is_full(self) -> bool:
        """True when no more records fit into the response."""
        return self._left_bytes <= 0 and not self._is_first

    def partition(self, topic: TopicKey, reader: Partition) -> PartitionData:
        """Read a partition.

        :param topic: the topic's id, or its name in a request with names
        :param reader: where the client is in it
        """
        index = reader.partition
        if self._call.access.is_limited and not self._may_read(topic):
            return _refused(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, aborted=())
        log = self._call.topic_logs.partition(topic, index)
        if log is ErrorCode.KAFKA_STORAGE_ERROR:
            self._refused = True
            return _refused(index, log)
        if isinstance(log, ErrorCode):
            self._refused = self._refused or self._again
            return _refused(index, log, aborted=())
        self._has_existing = True
        if reader.current_leader_epoch > 0:
            self._refused = True
            return _refused(index, ErrorCode.UNKNOWN_LEADER_EPOCH)
        first, left_bytes, offset = self._is_first, self._left_bytes, reader.fetch_offset
        records: bytes | FileRange | Refusal = b""
        if reader.last_fetched_epoch >= 0 and (diverging := _diverging(log, reader)) is not None:
            self._refused = True
            return diverging
        if first or left_bytes > 0 or offset > log.end_offset or offset < log.log_start_offset:
            records = log.find(
                offset,
                max(min(reader.partition_max_bytes, left_bytes), 0),
                minimum_one=first,
                up_to=log.last_stable_offset if self._committed else None,
                held_bytes=self._held_bytes,
            )
        if isinstance(records, Refusal):
            self._refused = True
            return _refused(index, records.code)
        if records:
            self._is_first = False
            self._left_bytes -= len(records)
            self._wanted_bytes -= len(records)
            self._held_bytes = max(self._held_bytes - len(records), 0)
        return _partition_data(
            log, records, _aborted(log, offset, records) if self._committed else None
        )

    def _may_read(self, topic: TopicKey) -> bool:
        """Return whether the client may read a topic; True for an unknown id."""
        if topic not in self._allowed:
            self._allowed[topic] = self._call.may_use_topic(READ, topic)
        return self._allowed[topic]


def _partition_data(
    log: PartitionLog,
    records: bytes | FileRange,
    aborted: list[FetchResponse.AbortedTransaction] | None,
    diverging: FetchResponse.EpochEndOffset = NOT_DIVERGING,
) -> PartitionData:
    return PartitionData(
        log.partition,
        ErrorCode.NONE,
        log.end_offset,
        log.last_stable_offset,
        log.log_start_offset,
        diverging,
        aborted_transactions=aborted,
        records=records,
    )


def _refused(index: int, code: ErrorCode, aborted: tuple[()] | None = None) -> PartitionData:
    return PartitionData(
        index, code, -1, -1, -1, NOT_DIVERGING, aborted_transactions=aborted, records=b""
    )


def _diverging(log: PartitionLog, reader: Partition) -> PartitionData | None:
    """Return the diverging epoch of a reader whose last records were truncated (KIP-320), or None.

    An offset before the log start is refused as usual.
    """
    epoch, end_offset = log.end_offset_for_epoch(reader.last_fetched_epoch)
    if reader.fetch_offset <= max(end_offset, log.log_start_offset - 1):
        return None
    if epoch < 0:
        return _refused(reader.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    return _partition_data(log, b"", None, FetchResponse.EpochEndOffset(epoch, end_offset))


def _aborted(
    log: PartitionLog, fetch_offset: int, records: bytes | FileRange
) -> list[FetchResponse.AbortedTransaction]:
    """Return the aborted transactions that a read_committed reader must skip in ``records``."""
    if not records or not log.aborted:
        return []
    end_offset = offset_after(records, otherwise=log.end_offset)
    return [
        FetchResponse.AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in log.aborted.overlapping(fetch_offset, end_offset)
    ]


class Fetch:
    """A Fetch of the partitions that it names, or of those of its session that are pending: then
    the response has only partitions that changed. Without a session, and with epoch 0, it opens
    one.

    :param session: the session, with the changes of the request applied; None without one
    """

    __slots__ = ("_call", "_committed", "_epoch", "_last_read", "_request", "_session")

    def __init__(self, call: Call, request: FetchRequest, session: FetchSession | None) -> None:
        self._call = call
        self._request = request
        self._session = session
        self._committed = request.isolation_level == _READ_COMMITTED
        self._epoch = INITIAL_EPOCH if session is None else session.epoch
        self._last_read: list[tuple[TopicKey, Partition, PartitionData]] = []

    @property
    def _error_code(self) -> ErrorCode:
        """The error if another request has used or closed the session meanwhile, or NONE."""
        session = self._session
        if session is None or (session.is_open and session.epoch == self._epoch):
            return ErrorCode.NONE
        if session.is_open:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def read(self, *, again: bool = False) -> bool:
        """Read all partitions, or those that are pending; return whether to respond at once.

        :param again: the request has waited
        """
        call, request, session = self._call, self._request, self._session
        left_bytes, wanted_bytes = min(request.max_bytes, call.fetch_max_bytes), request.min_bytes
        charge = call.client.charge
        most_bytes = None if charge is None else charge.most_fetch_bytes()
        if most_bytes is not None:
            left_bytes, wanted_bytes = min(left_bytes, most_bytes), min(wanted_bytes, most_bytes)
        has_others = session is not None and len(session) > len(session.pending)
        reading = _Reading(call, left_bytes, wanted_bytes, self._committed, again, has_others)
        last_read = self._last_read
        last_read.clear()
        if session is None:
            for topic in request.topics:
                key = topic_key(call, topic)
                for reader in topic.partitions:
                    last_read.append((key, reader, reading.partition(key, reader)))
            return reading.is_enough
        if self._error_code:
            return True
        for cached in session.pending:
            if reading.is_full:  # the others stay pending and are read next
                break
            last_read.append((cached.topic, cached, reading.partition(cached.topic, cached)))
        return reading.is_enough

    def wait_keys(self) -> Iterable[Hashable]:
        """Return the keys to wait on; see :class:`headrace.topics.long_polls.LongPolls`."""
        if self._session is not None:
            yield self._session.wait_key
        for topic, reader, _ in self._last_read:
            yield ("log", id_of(self._call, topic), reader.partition)

    @property
    def size_bytes(self) -> int:
        """The size of the response with what was read last, in which no partition has more than its
        records.
        """
        records = sum(len(data.records) for _, _, data in self._last_read)
        return _EMPTY_RESPONSE_BYTES + _PARTITION_BYTES * len(self._last_read) + records

    def throttled(self) -> FetchResponse:
        """Return the response without records to a client that exceeds its quota. It opens no
        session; the next one within a session has what was read now.
        """
        code = self._error_code
        if code or self._session is None:
            return FetchResponse(error_code=code)
        return FetchResponse(session_id=self._session.session_id)

    def answer(self) -> FetchResponse:
        """Return the response with what was read last."""
        response = self.throttled()
        if self._session is not None:
            if not response.error_code:
                response.responses = self._news()
            return response
        if self._request.session_epoch == INITIAL_EPOCH:
            response.session_id = self._open_session()
        next_data = (data for _, _, data in self._last_read)
        response.responses = [
            Topic(topic.topic, topic.topic_id, list(islice(next_data, len(topic.partitions))))
            for topic in self._request.topics
        ]
        return response

    def _news(self) -> list[Topic]:
        by_topic: dict[TopicKey, list[PartitionData]] = {}
        for topic, cached, data in self._last_read:
            assert isinstance(cached, CachedPartition)
            if self._note_sent(cached, data):
                by_topic.setdefault(topic, []).append(data)
        return [
            Topic(topic, None, partitions)
            if isinstance(topic, str)
            else Topic(topic_id=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]

    def _open_session(self) -> int:
        call = self._call
        session = call.fetch_sessions.open(
            len(self._last_read),
            call.clock.now_ms(),
            uses_names=call.version < FIRST_WITH_TOPIC_IDS,
            isolation_level=self._request.isolation_level,
        )
        if session is None:
            return NO_SESSION_ID
        sent = [(session.update(key, reader), data) for key, reader, data in self._last_read]
        for cached, data in sent:  # only now: those with records go behind all others
            self._note_sent(cached, data)
        return session.session_id

    def _note_sent(self, cached: CachedPartition, data: PartitionData) -> bool:
        """Record a partition's response in the session; return whether it must be sent."""
        session = cached.session
        news = cached.tell(data.high_watermark, data.log_start_offset)
        if data.records or data.error_code or data.diverging_epoch is not NOT_DIVERGING:
            session.requeue(cached)
            return True
        end_offset = data.last_stable_offset if self._committed else data.high_watermark
        if cached.fetch_offset >= end_offset:  # nothing can be read before the log changes
            session.watch(cached, ("log", id_of(self._call, cached.topic), cached.partition))
        return news


def topic_key(call: Call, topic: FetchRequest.FetchTopic | FetchRequest.ForgottenTopic) -> TopicKey:
    """Return what a request names a topic by: its id, or its name before version 13 (KIP-516)."""
    return topic.topic if call.version < FIRST_WITH_TOPIC_IDS else topic.topic_id


def id_of(call: Call, topic: TopicKey) -> UUID | None:
    """Return the id of a topic, None if it does not exist. A name may have a new topic now."""
    if not isinstance(topic, str):
        return topic
    existing = call.catalog.topics.get(topic)
    return None if existing is None else existing.topic_id
