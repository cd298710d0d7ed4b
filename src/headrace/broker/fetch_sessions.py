"""Fetch sessions: what a client is fetching, told once and then only by its changes (KIP-227).

A Fetch with epoch 0 opens a session, if there is room for one; each further Fetch names the next
epoch, and only the partitions that it wants added, changed or forgotten. The answers have only
partitions with news. A session belongs to no connection: it lasts until the client ends it or
others need its place.

A partition of a session is either *pending*, to be looked at by the next Fetch, or nobody has to
look at it: there is nothing to read, the client has been told so, and
:class:`~headrace.broker.long_polls.LongPolls` will say when something happens to its log. So a
Fetch costs what the pending partitions cost, however many the session has.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from typing import Protocol
from uuid import UUID

from headrace.errors import ErrorCode, Refusal

from .limits import FETCH_SESSION_EVICTION_MS, MAX_FETCH_SESSION_PARTITIONS
from .long_polls import LongPolls

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFF_FFFF
_UNTOLD = -1

NOT_FOUND = Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
INVALID_EPOCH = Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
TOPIC_ID_ERROR = Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)

TopicKey = UUID | str | None
"""A topic's id (None is how the zero id is read), or its name in the sessions of clients that know
no ids.
"""


class AskedPartition(Protocol):
    """What a Fetch says of a partition, as kio's ``FetchPartition`` has it."""

    @property
    def partition(self) -> int: ...
    @property
    def fetch_offset(self) -> int: ...
    @property
    def partition_max_bytes(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
    @property
    def last_fetched_epoch(self) -> int: ...


def next_epoch(epoch: int) -> int:
    """The epoch that follows in a session: after the largest one comes 1, for 0 would open
    another."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class CachedPartition:
    """A partition of a session: what the client asked of it, and what it was told last.

    :ivar high_watermark: as told; -1 when it has not been told, or was told of an error
    :ivar log_start_offset: likewise
    :ivar watched_key: what it watches; None while it is pending
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "session",
        "topic",
        "watched_key",
    )

    def __init__(self, session: FetchSession, topic: TopicKey, asked: AskedPartition) -> None:
        self.session = session
        self.topic = topic
        self.partition = asked.partition
        self.high_watermark = self.log_start_offset = _UNTOLD
        self.watched_key: Hashable = None
        self.asked(asked)

    def asked(self, asked: AskedPartition) -> None:
        """Take over what a request says."""
        self.fetch_offset = asked.fetch_offset
        self.partition_max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def tell(self, high_watermark: int, log_start_offset: int) -> bool:
        """Note what an answer would say (-1 with an error), and whether that is news."""
        news = self.high_watermark != high_watermark or self.log_start_offset != log_start_offset
        if news:
            # One number object for what is mostly the same number: there may be very many of these.
            self.high_watermark = (
                self.fetch_offset if high_watermark == self.fetch_offset else high_watermark
            )
            self.log_start_offset = log_start_offset
        return news

    def notified(self) -> None:
        """Something has happened to the log."""
        self.watched_key = None
        self.session.look_at(self)


class FetchSession:
    """One client's fetching.

    :ivar epoch: the epoch that the next request must name
    :ivar uses_names: whether the client names topics, as before version 13, rather than giving
        their ids
    :ivar pending: the partitions to look at, first come first served; a set kept in a dict
    :ivar isolation_level: that of the last request
    :ivar counted: how many partitions it had when it was last used
    :ivar is_evictable: whether a larger one may take its place
    :ivar is_open: whether it was neither ended nor evicted
    """

    __slots__ = (
        "_long_polls",
        "_partitions",
        "counted",
        "created_ms",
        "epoch",
        "is_evictable",
        "is_open",
        "isolation_level",
        "last_used_ms",
        "pending",
        "session_id",
        "uses_names",
    )

    def __init__(
        self,
        session_id: int,
        long_polls: LongPolls,
        now_ms: float,
        *,
        uses_names: bool,
        isolation_level: int,
    ) -> None:
        self.session_id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.uses_names = uses_names
        self.isolation_level = isolation_level
        self.created_ms = self.last_used_ms = now_ms
        self.counted = 0
        self.is_evictable = False
        self.is_open = True
        self.pending: dict[CachedPartition, None] = {}
        self._long_polls = long_polls
        self._partitions: dict[tuple[TopicKey, int], CachedPartition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def wait_key(self) -> Hashable:
        """What a request waits for that waits for any of the partitions to get pending."""
        return ("fetch session", self.session_id)

    def update(self, topic: TopicKey, asked: AskedPartition) -> CachedPartition:
        """Add a partition, or take over what is now asked of it. It is pending then."""
        key = (topic, asked.partition)
        cached = self._partitions.get(key)
        if cached is None:
            cached = self._partitions[key] = CachedPartition(self, topic, asked)
        else:
            cached.asked(asked)
        self.pending[cached] = None
        return cached

    def forget(self, topic: TopicKey, partition: int) -> None:
        """Remove a partition, if it is there."""
        cached = self._partitions.pop((topic, partition), None)
        if cached is not None:
            self.pending.pop(cached, None)
            self._unwatch(cached)

    def isolate(self, isolation_level: int) -> None:
        """What can be read depends on the isolation level: with another one all partitions are
        pending.
        """
        if isolation_level != self.isolation_level:
            self.isolation_level = isolation_level
            self.pending.update(dict.fromkeys(self._partitions.values()))

    def look_at(self, cached: CachedPartition) -> None:
        """A partition is pending from now on; wake a request that waits."""
        self.pending[cached] = None
        self._long_polls.notify(self.wait_key)

    def settle(self, cached: CachedPartition, log_key: Hashable) -> None:
        """A partition has nothing to be told now. What happens to its log next makes it pending
        again.
        """
        self.pending.pop(cached, None)
        if cached.watched_key is None:
            cached.watched_key = log_key
            self._long_polls.watch(log_key, cached)

    def requeue(self, cached: CachedPartition) -> None:
        """A partition has had its turn: it is looked at again when all others have been."""
        self.pending.pop(cached, None)
        self.pending[cached] = None

    def close(self) -> None:
        """Stop watching; a request that still waits is answered."""
        self.is_open = False
        for cached in self._partitions.values():
            self._unwatch(cached)
        self._long_polls.notify(self.wait_key)

    def _unwatch(self, cached: CachedPartition) -> None:
        if cached.watched_key is not None:
            self._long_polls.unwatch(cached.watched_key, cached)
            cached.watched_key = None


class FetchSessions:
    """All sessions of this broker. Volatile: a restart forgets them.

    When there are as many as there may be, a new one takes the place of the one that was not used
    for longest, if that is more than ``FETCH_SESSION_EVICTION_MS``; else of the smallest, if that
    is smaller than the new one and older than so long. Else none is opened.

    :param most: ``max.incremental.fetch.session.cache.slots``
    :param new_id: a number from 1 to 2^31 - 1 that is hard to meet twice: clients name sessions of
        before a restart
    :ivar partitions: how many partitions all sessions have together
    :ivar evictions: how many sessions had to make place for others
    """

    def __init__(self, long_polls: LongPolls, most: int, new_id: Callable[[], int]) -> None:
        self.partitions = 0
        self.evictions = 0
        self._long_polls = long_polls
        self._most = most
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # in the order of their last use
        self._evictable: list[tuple[int, int]] = []  # (size, id), ascending

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, size: int, now_ms: float, *, uses_names: bool, isolation_level: int
    ) -> FetchSession | None:
        """A new session, to be filled; None when there is no place for it.

        :param size: how many partitions it will have
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
            now_ms,
            uses_names=uses_names,
            isolation_level=isolation_level,
        )
        session.counted = size
        self.partitions += size
        self._sessions[session_id] = session
        return session

    def find(self, session_id: int, epoch: int, *, uses_names: bool) -> FetchSession | Refusal:
        """The session that an incremental Fetch belongs to."""
        session = self._sessions.get(session_id)
        if session is None:
            return NOT_FOUND
        if epoch != session.epoch:
            return INVALID_EPOCH
        if uses_names != session.uses_names:
            return TOPIC_ID_ERROR
        return session

    def advance(self, session: FetchSession, now_ms: float) -> FetchSession | Refusal:
        """A session is used, with the partitions that it has now: the next request names the next
        epoch.

        It ends when it has none left; and with a refusal, after which the client names all its
        partitions again, when all sessions together have too many.
        """
        size = len(session)
        too_many = (
            size > session.counted
            and self.partitions + size - session.counted > MAX_FETCH_SESSION_PARTITIONS
        )
        if too_many or not size:
            self.close(session.session_id)
            return NOT_FOUND if too_many else session
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
        """End a session, if there is such a one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._not_evictable(session)
            self.partitions -= session.counted
            session.close()

    def _evict(self, size: int, now_ms: float) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > FETCH_SESSION_EVICTION_MS:
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
