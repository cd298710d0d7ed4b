"""The two kinds of Fetch: one that names all its partitions, and one within a fetch session
(KIP-227).

Each reads the available records and returns whether to respond at once. The response has what was
read last; nothing runs between the last reading and the response.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.broker.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION_ID,
    CachedPartition,
    FetchSession,
    TopicKey,
)
from headrace.broker.limits import MAX_READ_AHEAD_BYTES
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.fetch import (
    NOT_DIVERGING,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.file_range import FileRange
from headrace.protocol.record_batch import offset_after
from headrace.protocol.versions import TopicIds

from .context import RequestContext
from .topic_names import allows_topic

_READ_COMMITTED = 1
_EMPTY_RESPONSE_BYTES, _PARTITION_BYTES = 21, 60
"""The sizes of a response without partitions, and of a partition without records with its topic,
as quotas count them.
"""


class _Reading:
    """One pass over the partitions of a request, within its limits of bytes.

    :param context: the context of the request
    :param again: the request has waited, so an unknown partition may have been deleted meanwhile
    :param known: there are other existing partitions that this pass does not read
    """

    __slots__ = (
        "_again",
        "_allowed",
        "_broker",
        "_committed",
        "_context",
        "_held_bytes",
        "_is_first",
        "_known",
        "_left_bytes",
        "_refused",
        "_wanted_bytes",
    )

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        context: RequestContext,
        *,
        again: bool,
        known: bool = False,
    ) -> None:
        self._broker = broker
        self._context = context
        self._allowed: dict[UUID, bool] | None = {} if context.access.is_limited else None
        self._committed = request.isolation_level == _READ_COMMITTED
        self._left_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self._wanted_bytes = request.min_bytes
        most_bytes = None if context.charge is None else context.charge.most_fetch_bytes()
        if most_bytes is not None:
            self._left_bytes = min(self._left_bytes, most_bytes)
            self._wanted_bytes = min(self._wanted_bytes, most_bytes)
        self._held_bytes = MAX_READ_AHEAD_BYTES
        # The first batch may be larger than the limits, so that every batch can be read.
        self._is_first = True
        self._again = again
        self._known = known
        self._refused = False

    @property
    def is_enough(self) -> bool:
        """True if the response can be sent: enough bytes, an error, or no partition to wait for.

        As in Kafka, an unknown partition does not end the wait for others: clients request it
        until they have new metadata. Nor does one that the client may not read.
        """
        return self._wanted_bytes <= 0 or self._refused or not self._known

    @property
    def is_full(self) -> bool:
        """True when no more records fit into the response."""
        return self._left_bytes <= 0 and not self._is_first

    def partition(self, topic_id: UUID, asked: FetchPartition | CachedPartition) -> PartitionData:
        """Read a partition."""
        if self._allowed is not None and not self._may_read(topic_id):
            return _refused(asked.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED, aborted=())
        log = self._broker.partition(topic_id, asked.partition)
        if log is ErrorCode.KAFKA_STORAGE_ERROR:
            self._refused = True
            return _refused(asked.partition, log)
        if isinstance(log, ErrorCode):
            self._refused = self._refused or self._again
            return _refused(asked.partition, log, aborted=())
        self._known = True
        if asked.current_leader_epoch > 0:
            self._refused = True
            return _refused(asked.partition, ErrorCode.UNKNOWN_LEADER_EPOCH)
        first, left_bytes, offset = self._is_first, self._left_bytes, asked.fetch_offset
        records: bytes | FileRange | Refusal = b""
        if asked.last_fetched_epoch >= 0 and (diverging := _diverging(log, asked)) is not None:
            self._refused = True
            return diverging
        if first or left_bytes > 0 or offset > log.end_offset or offset < log.log_start_offset:
            records = log.find(
                offset,
                max(min(asked.partition_max_bytes, left_bytes), 0),
                minimum_one=first,
                up_to=log.last_stable_offset if self._committed else None,
                held_bytes=self._held_bytes,
            )
        if isinstance(records, Refusal):
            self._refused = True
            return _refused(asked.partition, records.code)
        if records:
            self._is_first = False
            self._left_bytes -= len(records)
            self._wanted_bytes -= len(records)
            self._held_bytes = max(self._held_bytes - len(records), 0)
        return _partition_data(
            log, records, _aborted(log, offset, records) if self._committed else None
        )

    def _may_read(self, topic_id: UUID) -> bool:
        """Return whether the client may read a topic; True for an unknown id. It is decided once in
        a pass.
        """
        assert self._allowed is not None
        allowed = self._allowed.get(topic_id)
        if allowed is None:
            allowed = allows_topic(self._broker, Operation.READ, topic_id, self._context)
            self._allowed[topic_id] = allowed
        return allowed

    def is_caught_up(self, asked: CachedPartition, data: PartitionData) -> bool:
        """Return whether nothing can be read before the log changes."""
        end_offset = data.last_stable_offset if self._committed else data.high_watermark
        return not data.error_code and asked.fetch_offset >= end_offset


def _partition_data(
    log: PartitionLog,
    records: bytes | FileRange,
    aborted: tuple[AbortedTransaction, ...] | None,
    diverging: EpochEndOffset = NOT_DIVERGING,
) -> PartitionData:
    offsets = log.end_offset, log.last_stable_offset, log.log_start_offset
    return PartitionData(log.partition, ErrorCode.NONE, *offsets, aborted, records, diverging)


def _refused(
    index: int, code: ErrorCode, aborted: tuple[AbortedTransaction, ...] | None = None
) -> PartitionData:
    return PartitionData(index, code, -1, -1, -1, aborted, b"")


def _diverging(log: PartitionLog, asked: FetchPartition | CachedPartition) -> PartitionData | None:
    """Return the diverging epoch of a reader whose last records were truncated (KIP-320), or None.

    An offset before the log start is refused as usual.
    """
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if asked.fetch_offset <= max(end_offset, log.log_start_offset - 1):
        return None
    if epoch < 0:
        return _refused(asked.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    return _partition_data(log, b"", None, EpochEndOffset(epoch, end_offset))


def _aborted(
    log: PartitionLog, fetch_offset: int, records: bytes | FileRange
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions that a read_committed reader must skip in ``records``."""
    if not records or not log.aborted:
        return ()
    if isinstance(records, FileRange):
        end_offset = records.end_offset
    else:
        end_offset = offset_after(records, otherwise=log.end_offset)
    return tuple(
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in log.aborted.overlapping(fetch_offset, end_offset)
    )


class FullFetch:
    """A Fetch that names all its partitions. With epoch 0 it opens a session.

    :param context: the context of the request; its ``topic_ids`` are the ids for the topic names in
        the request, None when it has ids
    """

    __slots__ = ("_broker", "_context", "_reading", "_request", "_topic_ids", "_topics")
    _reading: _Reading

    def __init__(self, broker: Broker, request: FetchRequest, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._topic_ids: TopicIds | None = context.legacy.get("topic_ids")
        self._topics: tuple[FetchableTopicResponse, ...] = ()

    def read(self, *, again: bool = False) -> bool:
        """Read all partitions; return whether to respond at once.

        :param again: the request has waited
        """
        self._reading = reading = _Reading(self._broker, self._request, self._context, again=again)
        self._topics = tuple(
            FetchableTopicResponse(
                topic.topic_id,
                tuple([reading.partition(topic.topic_id, asked) for asked in topic.partitions]),
            )
            for topic in self._request.topics
        )
        return reading.is_enough

    def wait_keys(self) -> Iterable[Hashable]:
        """Return the keys to wait on; see :class:`headrace.broker.long_polls.LongPolls`."""
        for topic in self._request.topics:
            for asked in topic.partitions:
                yield ("log", topic.topic_id, asked.partition)

    @property
    def size_bytes(self) -> int:
        """The size of the response with what was read last."""
        return _size_bytes(one for topic in self._topics for one in topic.partitions)

    def throttled(self) -> FetchResponse:
        """Return the response without records to a client that exceeds its quota. It opens no
        session.
        """
        return response(())

    def answer(self) -> FetchResponse:
        """Return the response with what was read last."""
        opens = self._request.session_epoch == INITIAL_EPOCH
        return response(self._topics, session_id=self._open_session() if opens else NO_SESSION_ID)

    def _open_session(self) -> int:
        broker, request, ids = self._broker, self._request, self._topic_ids
        session = broker.fetch_sessions.open(
            sum(len(topic.partitions) for topic in request.topics),
            broker.clock.now_ms(),
            uses_names=ids is not None,
            isolation_level=request.isolation_level,
        )
        if session is None:
            return NO_SESSION_ID
        sent: list[tuple[CachedPartition, UUID, PartitionData]] = []
        for topic, told in zip(request.topics, self._topics, strict=True):
            topic_key = topic.topic_id if ids is None else ids.name_of(topic.topic_id)
            for asked, data in zip(topic.partitions, told.partitions, strict=True):
                sent.append((session.update(topic_key, asked), topic.topic_id, data))
        # Only now: those with records go behind all others.
        for cached, topic_id, data in sent:
            _note_sent(self._reading, cached, topic_id, data)
        return session.session_id


class SessionFetch:
    """A Fetch within a session. The response has only partitions that changed.

    :param session: the session, with the changes of the request applied
    """

    __slots__ = (
        "_broker",
        "_context",
        "_epoch",
        "_last_read",
        "_reading",
        "_request",
        "_session",
        "_topic_ids",
    )
    _reading: _Reading

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        session: FetchSession,
        context: RequestContext,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._session = session
        self._epoch = session.epoch
        self._topic_ids: TopicIds | None = context.legacy.get("topic_ids")
        self._last_read: list[tuple[CachedPartition, UUID, PartitionData]] = []

    @property
    def _error_code(self) -> ErrorCode:
        """The error if another request has used or closed the session meanwhile, or NONE."""
        if not self._session.is_open:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return (
            ErrorCode.NONE
            if self._session.epoch == self._epoch
            else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        )

    def read(self, *, again: bool = False) -> bool:
        """Read the pending partitions; return whether to respond at once.

        :param again: the request has waited
        """
        session = self._session
        others = len(session) > len(session.pending)
        self._reading = reading = _Reading(
            self._broker, self._request, self._context, again=again, known=others
        )
        self._last_read.clear()
        if self._error_code:
            return True
        for cached in session.pending:
            if reading.is_full:  # the others stay pending and are read next
                break
            topic_id = self._topic_id(cached.topic)
            self._last_read.append((cached, topic_id, reading.partition(topic_id, cached)))
        return reading.is_enough

    def _topic_id(self, topic: TopicKey) -> Any:
        """Return the current id of a session's topic, which may be a new topic of the same name."""
        return (
            self._topic_ids.id_of(topic)
            if isinstance(topic, str) and self._topic_ids is not None
            else topic
        )

    def wait_keys(self) -> Iterable[Hashable]:
        """Return the keys to wait on: those of the session and of its pending partitions."""
        yield self._session.wait_key
        for cached, topic_id, _ in self._last_read:
            yield ("log", topic_id, cached.partition)

    @property
    def size_bytes(self) -> int:
        """The size of the response with what was read last."""
        return _size_bytes(data for _, _, data in self._last_read)

    def throttled(self) -> FetchResponse:
        """Return the response without records to a client that exceeds its quota. The next one has
        what was read now.
        """
        code = self._error_code
        return response((), code) if code else response((), session_id=self._session.session_id)

    def answer(self) -> FetchResponse:
        """Return the response with what was read last."""
        code = self._error_code
        if code:
            return response((), code)
        return response(tuple(self._news()), session_id=self._session.session_id)

    def _news(self) -> Iterator[FetchableTopicResponse]:
        by_topic: dict[UUID, list[PartitionData]] = {}
        for cached, topic_id, data in self._last_read:
            if _note_sent(self._reading, cached, topic_id, data):
                by_topic.setdefault(topic_id, []).append(data)
        for topic_id, partitions in by_topic.items():
            yield FetchableTopicResponse(topic_id, tuple(partitions))


def _size_bytes(partitions: Iterable[PartitionData]) -> int:
    """Return the size of a response in which no partition has more than its records."""
    size_bytes = _EMPTY_RESPONSE_BYTES
    for one in partitions:
        size_bytes += _PARTITION_BYTES + len(one.records)
    return size_bytes


def _note_sent(
    reading: _Reading, cached: CachedPartition, topic_id: UUID, data: PartitionData
) -> bool:
    """Record a partition's response in the session; return whether it must be sent."""
    session = cached.session
    news = cached.tell(data.high_watermark, data.log_start_offset)
    if data.records or data.error_code or data.diverging_epoch != NOT_DIVERGING:
        session.requeue(cached)
        return True
    if reading.is_caught_up(cached, data):
        session.watch(cached, ("log", topic_id, cached.partition))
    return news


def response(
    topics: tuple[FetchableTopicResponse, ...],
    code: ErrorCode = ErrorCode.NONE,
    session_id: int = NO_SESSION_ID,
) -> FetchResponse:
    """Return a response."""
    return FetchResponse(code, session_id, topics)
