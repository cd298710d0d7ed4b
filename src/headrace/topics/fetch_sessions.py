"""Fetch sessions (KIP-227): the client sends its partitions once, and then only changes.

A Fetch with epoch 0 opens a session if there is room. Each further Fetch has the next epoch and
only the partitions to add, change or forget. Responses have only partitions with records or
changes. A session is independent of connections: it lasts until the client closes it or it is
evicted.

A partition of a session is *pending* when the next Fetch must read it. Otherwise it is unchanged
until :class:`~headrace.topics.long_polls.LongPolls` notifies it of a change of its log. So a Fetch
takes time in proportion to the pending partitions, not to all partitions of the session.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.metric_family import metric
from headrace.protocol.errors import ErrorCode

from .long_polls import LongPolls

if TYPE_CHECKING:
    from headrace.protocol.api import FetchRequest

FETCH_SESSION_EVICTION_MS = 120_000
"""Kafka's own: how long after its creation, and after its last use, a fetch session cannot be
evicted.
"""

MAX_FETCH_SESSION_PARTITIONS = 500_000
"""The partitions of all fetch sessions together, at about 0.4 KiB each."""

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFF_FFFF
_UNTOLD = -1

TopicKey = UUID | str | None
"""A topic's id (None for the zero id), or its name in sessions of clients that do not send ids."""


def next_epoch(epoch: int) -> int:
    """Return the epoch after ``epoch``. 1 follows the largest one: 0 opens a session."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


@dataclass(slots=True, eq=False, repr=False)
class CachedPartition:
    """A partition of a session: its fields in the last request and in the last response.

    :ivar high_watermark: as last sent; -1 if it was not sent, or with an error
    :ivar log_start_offset: likewise
    :ivar watched_key: the key of the partition's log while it is watched; None while pending
    """

    session: FetchSession
    topic: TopicKey
    partition: int
    fetch_offset: int = 0
    partition_max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    high_watermark: int = _UNTOLD
    log_start_offset: int = _UNTOLD
    watched_key: Hashable = None

    def tell(self, high_watermark: int, log_start_offset: int) -> bool:
        """Store the offsets for a response (-1 with an error); return True if they differ from the
        last response.
        """
        news = self.high_watermark != high_watermark or self.log_start_offset != log_start_offset
        if news:
            # Share one int object, as both numbers are mostly equal and there may be very many.
            self.high_watermark = (
                self.fetch_offset if high_watermark == self.fetch_offset else high_watermark
            )
            self.log_start_offset = log_start_offset
        return news

    def notified(self) -> None:
        """Make the partition pending, as its log has changed, and wake the request that waits."""
        self.watched_key = None
        self.session.pending[self] = None
        self.session.long_polls.notify(self.session.wait_key)


@dataclass(slots=True, eq=False, repr=False)
class FetchSession:
    """The partitions that one client fetches.

    :ivar epoch: the epoch that the next request must have
    :ivar uses_names: True if the client names topics, as before version 13, instead of giving their
        ids
    :ivar pending: the pending partitions, first come first served; an ordered set
    :ivar isolation_level: the isolation level of the last request
    :ivar counted: the number of partitions at the last use
    :ivar is_evictable: True if a larger session may replace this one
    :ivar is_open: True until the session is closed or evicted
    """

    session_id: int
    long_polls: LongPolls
    created_ms: float
    last_used_ms: float
    counted: int
    uses_names: bool
    isolation_level: int
    epoch: int = next_epoch(INITIAL_EPOCH)
    is_evictable: bool = False
    is_open: bool = True
    pending: dict[CachedPartition, None] = field(default_factory=dict)
    _partitions: dict[tuple[TopicKey, int], CachedPartition] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def wait_key(self) -> Hashable:
        """The key that is notified when a partition becomes pending."""
        return ("fetch session", self.session_id)

    def update(
        self, topic: TopicKey, request: FetchRequest.FetchPartition | CachedPartition
    ) -> CachedPartition:
        """Add or change a partition. It is pending then."""
        key = (topic, request.partition)
        cached = self._partitions.get(key)
        if cached is None:
            cached = self._partitions[key] = CachedPartition(self, topic, request.partition)
        cached.fetch_offset = request.fetch_offset
        cached.partition_max_bytes = request.partition_max_bytes
        cached.current_leader_epoch = request.current_leader_epoch
        cached.last_fetched_epoch = request.last_fetched_epoch
        self.pending[cached] = None
        return cached

    def forget(self, topic: TopicKey, partition: int) -> None:
        """Remove a partition, if present."""
        cached = self._partitions.pop((topic, partition), None)
        if cached is not None:
            self.pending.pop(cached, None)
            self._unwatch(cached)

    def isolate(self, isolation_level: int) -> None:
        """Set the isolation level. If it changes, all partitions become pending."""
        if isolation_level != self.isolation_level:
            self.isolation_level = isolation_level
            self.pending.update(dict.fromkeys(self._partitions.values()))

    def watch(self, cached: CachedPartition, log_key: Hashable) -> None:
        """Remove an unchanged partition from the pending ones. The next change of its log makes it
        pending.
        """
        self.pending.pop(cached, None)
        if cached.watched_key is None:
            cached.watched_key = log_key
            self.long_polls.watch(log_key, cached)

    def requeue(self, cached: CachedPartition) -> None:
        """Move a partition behind all other pending ones."""
        self.pending.pop(cached, None)
        self.pending[cached] = None

    def close(self) -> None:
        """Stop watching, and wake the request that waits."""
        self.is_open = False
        for cached in self._partitions.values():
            self._unwatch(cached)
        self.long_polls.notify(self.wait_key)

    def _unwatch(self, cached: CachedPartition) -> None:
        if cached.watched_key is not None:
            self.long_polls.unwatch(cached.watched_key, cached)
            cached.watched_key = None


@dataclass(slots=True, eq=False, repr=False)
class FetchSessions:
    """All sessions of a broker. Volatile: a restart ends them.

    When all slots are taken, a new session replaces the least recently used one, if that is unused
    for longer than ``FETCH_SESSION_EVICTION_MS``; else the smallest one, if that is older than this
    time and smaller than the new one; else no session is opened.

    :param _most: ``max.incremental.fetch.session.cache.slots``
    :param _new_id: returns a random number from 1 to 2^31 - 1; clients send ids of sessions before
        a restart, so ids should not repeat
    :ivar partitions: the partitions of all sessions together
    :ivar evictions: sessions that were replaced
    """

    _long_polls: LongPolls
    _most: int
    _new_id: Callable[[], int]
    partitions: int = metric(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions of all fetch sessions.",
    )
    evictions: int = metric(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "Fetch sessions evicted for new ones.",
    )
    _sessions: dict[int, FetchSession] = field(default_factory=dict)
    """In the order of their last use."""
    _evictable: list[tuple[int, int]] = field(default_factory=list)
    """Size and id, ascending."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, size: int, now_ms: float, *, uses_names: bool, isolation_level: int
    ) -> FetchSession | None:
        """Open a session without partitions; return None if there is no slot for it.

        :param size: the number of partitions it will have
        """
        if self.partitions + size > MAX_FETCH_SESSION_PARTITIONS:
            return None
        if len(self._sessions) >= self._most and not self._evict(size, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(
            session_id,
            self._long_polls,
            created_ms=now_ms,
            last_used_ms=now_ms,
            counted=size,
            uses_names=uses_names,
            isolation_level=isolation_level,
        )
        self.partitions += size
        self._sessions[session_id] = session
        return session

    def find(self, session_id: int, epoch: int, *, uses_names: bool) -> FetchSession | ErrorCode:
        """Return the session of an incremental Fetch, or the error."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if uses_names != session.uses_names:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def advance(self, session: FetchSession, now_ms: float) -> FetchSession | ErrorCode:
        """Move a session to the next epoch.

        Close the session if it has no partitions, or if all sessions together have too many. In the
        latter case the error makes the client send all its partitions again.
        """
        size = len(session)
        too_many = (
            size > session.counted
            and self.partitions + size - session.counted > MAX_FETCH_SESSION_PARTITIONS
        )
        if too_many or not size:
            self.close(session.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND if too_many else session
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        if session.counted != size:
            self._not_evictable(session)
            self.partitions += size - session.counted
            session.counted = size
        if not session.is_evictable and now_ms - session.created_ms > FETCH_SESSION_EVICTION_MS:
            session.is_evictable = True
            insort(self._evictable, (size, session.session_id))
        return session

    def close(self, session_id: int) -> None:
        """Close a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._not_evictable(session)
            self.partitions -= session.counted
            session.close()

    def _evict(self, size: int, now_ms: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.last_used_ms > FETCH_SESSION_EVICTION_MS:
            session_id = oldest.session_id
        elif self._evictable and self._evictable[0][0] < size:
            session_id = self._evictable[0][1]
        else:
            return False
        self.evictions += 1
        self.close(session_id)
        return True

    def _not_evictable(self, session: FetchSession) -> None:
        if session.is_evictable:
            del self._evictable[bisect_left(self._evictable, (session.counted, session.session_id))]
            session.is_evictable = False
