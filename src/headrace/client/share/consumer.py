"""A share group as a queue of records, on asyncio (KIP-932)."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import groupby
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headrace.client.arguments import Deserializer, Seconds, deserializer, seconds, whole_number
from headrace.client.cluster import Cluster
from headrace.client.config import librdkafka_config, read_config
from headrace.client.configs import ConfigType, alter_configs, describe_config
from headrace.client.errors import ClientError, RequestRefused, UnsupportedSetting
from headrace.client.groups import SHARE, describe_group
from headrace.client.records import Record, UnreadableBatch
from headrace.log_lines import LimitedLog, get_logger, printable
from headrace.protocol.partitions import TopicIdPartition, TopicPartition

from .arrived import Arrived, offset_of, runs, size_of
from .range_consumer import RangeConsumer
from .spans import PartitionSpans, contains, count, difference, intersect
from .types import AcknowledgeType, AcquireMode

if TYPE_CHECKING:
    from headrace.client.tracing import Tracing

_log = get_logger(__name__)
_lines = LimitedLog(__name__)

T = TypeVar("T")

_RESET, _BACKOFF = "share.auto.offset.reset", "share.release.backoff.ms"
_MIN_WAIT_S, _MAX_WAIT_S = 0.02, 0.5
"""The shortest and the longest wait of a broker for records. Outcomes wait meanwhile: so while
records are held, it is half of the time since the last change of what is held.
"""
_ANSWER_S = 0.2
"""The time that an answer may take after it; a later call returns its records."""
_FAST_S = 0.1
"""Iteration takes more records at once if it needs less than this time for them."""
_MAX_AHEAD = 500
"""The limit of records that iteration takes at once."""
_MAX_INT32 = 2**31 - 1
_MAX_LOSSES = 1000
"""The limit of losses whose reasons are known when their records are ended."""
_MAX_DELAY_S = 86_400.0
_MAX_START_S = 1e12
"""Before all records."""
_MAX_REASON_CHARS = 1000
_CLOSE_TIMEOUT_S = 1.5
"""The time in which calls of ``on_lock_lost`` may end."""

_SETTINGS = (
    "group.id",
    "client.id",
    "client.rack",
    "metadata.broker.list",
    "oauth_cb",
    "log_level",  # of librdkafka's clients with the same configuration
)
_SETTINGS_OF_CONNECTIONS = (
    "bootstrap.servers",
    "socket.",
    "security.protocol",
    "ssl.",
    "sasl.",
    "https.",
    "enable.ssl.",
    "enable.sasl.",
)

Form = Deserializer | type | ModuleType
Records = Record | Iterable[Record]
"""One record, or several, whose outcome is sent in one request to each broker."""
OnUndecodable = Literal["reject", "raise"] | Callable[[Record, Exception], Record]
Start = Literal["earliest", "latest"] | Seconds | None

RELEASE = AcknowledgeType.RELEASE

# Faster than attrgetter().
_topic_id_of = itemgetter(Record._fields.index("topic_id"))
_number_of = itemgetter(Record._fields.index("partition"))


def _partition_of(record: Record) -> TopicIdPartition:
    assert record.topic_id is not None
    return record.topic_id, record.partition


class OutcomesFailed(ClientError):
    """Outcomes that the broker has not accepted. The others of the call are accepted.

    :ivar failed: record → why; the record is not held any more
    """

    def __init__(self, failed: Mapping[Record, str], total: int) -> None:
        self.failed = dict(failed)
        record, reason = next(iter(failed.items()))
        super().__init__(
            f"{len(failed)} of {total} outcomes failed: {record.topic}-{record.partition} offset "
            f"{record.offset}: {reason}"
        )


class Undecodable(ClientError):
    """A record whose key or value cannot be decoded. It is held, to be ended as any other one.

    :ivar record: with key and value as bytes
    """

    def __init__(self, record: Record, reason: object) -> None:
        self.record = record
        super().__init__(
            f"{record.topic}-{record.partition} offset {record.offset} does not decode: {reason}"
        )


def is_setting(name: str) -> bool:
    """Return whether a share consumer has a setting, by librdkafka's name."""
    return name in _SETTINGS or name.startswith(_SETTINGS_OF_CONNECTIONS)


class ShareConsumer:
    """A member of a share group: takes records from topics as from a queue.

    ::

        conf = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "packers"}
        async with ShareConsumer(conf, ["orders"], start="earliest") as queue:
            async for record in queue:
                print(record.value)
                await queue.accept(record)

    Every record that iteration or :meth:`poll` returns is held: no other member gets it until it is
    accepted, released or rejected, or until the lock is lost. A record that nobody has ended when
    the consumer closes is released. One consumer may be used by several tasks of its event loop.

    :param conf: librdkafka's names and values, such as ``bootstrap.servers``, ``group.id``,
        ``client.id``, ``client.rack`` and the settings of TLS and login
    :param topics: names of the topics
    :param start: where a *new* group begins: ``"earliest"``, ``"latest"``, or so many seconds ago
        (also as ``timedelta``); None leaves it to the config ``share.auto.offset.reset``. A group
        that exists keeps its config, and a log line tells if it differs
    :param key: turns the bytes of a key into ``record.key``; see ``value``
    :param value: turns the bytes of a value into ``record.value``: the module ``json``, a type, or
        a function of bytes, see :func:`headrace.client.arguments.deserializer`
    :param on_undecodable: what happens to a record for which ``key`` or ``value`` raises:
        ``"reject"`` rejects it with the reason, ``"raise"`` raises :class:`Undecodable` with the
        record, which is held, and a function of (record with bytes, error) returns the record to
        hand out, with another key or value
    :param renew: ``"auto"`` renews the lock of each held record in time, for as long as it is held;
        ``"manual"`` leaves it to :meth:`renew`
    :param on_lock_lost: called with the list of records whose locks were lost: other members get
        them again. May be a coroutine function
    :param max_held_records: while so many records are held, no more are acquired
    :param max_held_bytes: the same, by the size of keys, values and headers
    :param tracing: traces and metrics of OpenTelemetry (:mod:`headrace.client.tracing`)
    :raises ClientError: a setting is wrong
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Iterable[str],
        *,
        start: Start = None,
        key: Form | None = None,
        value: Form | None = None,
        on_undecodable: OnUndecodable = "reject",
        renew: Literal["auto", "manual"] = "auto",
        on_lock_lost: Callable[[list[Record]], object] | None = None,
        max_held_records: int = 10_000,
        max_held_bytes: int = 256 * 1024 * 1024,
        tracing: Tracing | None = None,
    ) -> None:
        if not isinstance(conf, Mapping):
            raise ClientError(f"conf is of type {type(conf).__name__}, not a dict of settings")
        config = librdkafka_config(conf)
        for name in config:
            if not is_setting(name):
                hint = ": pass start=" if name == "auto.offset.reset" else ""
                raise UnsupportedSetting(f"{name} is not a setting of a share consumer{hint}")
        self.group_id = str(config.get("group.id") or "")
        if not self.group_id:
            raise ClientError("group.id is not set: name the share group")
        topics = _topic_names(topics)
        if renew not in ("auto", "manual"):
            raise ClientError(f"renew is {renew!r}, not 'auto' or 'manual'")
        if on_undecodable not in ("reject", "raise") and not callable(on_undecodable):
            raise ClientError(
                f"on_undecodable is {on_undecodable!r}, not 'reject', 'raise' or a function"
            )
        if on_lock_lost is not None and not callable(on_lock_lost):
            raise ClientError(f"on_lock_lost is {on_lock_lost!r}, not a function of records")
        whole_number(max_held_records, "max_held_records")
        whole_number(max_held_bytes, "max_held_bytes")
        self._reset = _reset(start)
        self._read_key = None if key is None else deserializer(key)
        self._read_value = None if value is None else deserializer(value)
        self._on_undecodable = on_undecodable
        self._renews = renew == "auto"
        self._on_lock_lost = on_lock_lost
        self._max_held_records, self._max_held_bytes = max_held_records, max_held_bytes
        read = read_config({"client.id": "headrace", **config})
        self._ranges = RangeConsumer(
            read.cluster(),
            self.group_id,
            topics,
            rack_id=config.get("client.rack"),
            on_lost=self._lose,
        )
        self._tracing = None if tracing is None else tracing.member(self.group_id, read.client_id)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        """Calls of ``on_lock_lost``, and of the broker for a delayed release."""
        self._acquiring = asyncio.Lock()
        self._arrived: deque[Arrived] = deque()
        self._held: dict[int, Record] = {}
        """The records that were handed out, by ``id()``: another delivery of a record, which is not
        in hand, is another object.
        """
        self._held_bytes = 0
        self._changed_at_s = 0.0
        """When records were last handed out or ended."""
        self._ended = asyncio.Event()
        """Set when records are no longer held."""
        self._problems: dict[int, ClientError] = {}
        """Errors to raise, by the ``id()`` of the undecodable record or of the error."""
        self._losses: deque[tuple[PartitionSpans, str]] = deque(maxlen=_MAX_LOSSES)
        self._delayed: dict[asyncio.TimerHandle, dict[int, Record]] = {}
        """The releases that are not due yet, and their records."""
        self._delays_at_broker: bool | None = None
        self._ahead, self._is_fast, self._acquired_at_s = 1, False, 0.0
        self._first: Record | None = None
        """The first record that was handed out after the last acquisition."""

    async def __aenter__(self) -> ShareConsumer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Join the group.

        :raises ClientError: a topic does not exist, the user lacks a permission, or no broker
            answers
        """
        if self._loop is not None or self._is_closed:
            raise ClientError(f"{self} was opened before: create another one")
        self._loop = asyncio.get_running_loop()
        try:
            if self._reset is not None:
                await _begin_group(self._ranges.cluster, self.group_id, self._reset)
            await self._ranges.start()
            if self.is_closed:
                await self._ranges.close()
                raise ClientError(f"{self} was closed while it opened")
        except BaseException:
            self._is_closed = True
            await self._ranges.cluster.close()
            raise
        if self._renews:
            self._keeper = asyncio.create_task(self._ranges.keep_locks())

    async def close(self) -> None:
        """Release the held records, and leave the group. Iteration ends. May be called twice.

        On headrace's broker, a delivery that was not handed out does not count.
        """
        if self._loop is None or self._is_closed:
            self._is_closed = True
            return
        self._check()
        self._is_closed = True
        for handle in self._delayed:
            handle.cancel()
        for arrived in self._arrived:
            unseen = {arrived.partition: arrived.left}
            self._ranges.submit(RELEASE, unseen, uncounted_release=True)
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_S)
        finally:
            for task in filter(None, (self._keeper, *tasks)):
                task.cancel()
            if self._tracing is not None:
                self._tracing.closed()
            await self._ranges.close()

    @property
    def is_closed(self) -> bool:
        """True after :meth:`close`."""
        return self._is_closed

    def __repr__(self) -> str:
        return f"the consumer of share group '{self.group_id}'"

    def _check(self) -> None:
        """:raises ClientError: the consumer cannot be used here and now"""
        if self._is_closed or self._loop is None:
            state = "is closed" if self._is_closed else "is not open: use 'async with', or open()"
            raise ClientError(f"{self} {state}")
        if asyncio.get_running_loop() is not self._loop:
            raise ClientError(
                f"{self} belongs to another event loop: create one in each, or use "
                "headrace.blocking.ShareConsumer"
            )

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ran)
        return task

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller that would be told may have been cancelled

    # -- records

    def __aiter__(self) -> ShareConsumer:
        return self

    async def __anext__(self) -> Record:
        """Wait for the next record. It takes few at a time while their work is slow, so that other
        members get the rest.

        :raises ClientError: the membership has ended, or a broker refuses
        """
        while not self._is_closed:
            self._check()
            if records := self._take(1):
                return records[0]
            while self._problems:
                problem = self._next_problem()
                if not isinstance(problem, UnreadableBatch):
                    raise problem
                _lines.warning(str(self), "%s: %s", self, problem)  # of no record in hand
            try:
                await self._acquire(None, _MAX_WAIT_S)
            except ClientError:
                if not self._is_closed:
                    raise
        raise StopAsyncIteration

    async def poll(self, max_records: int = 500, timeout: Seconds = 1.0) -> list[Record]:
        """Return up to ``max_records`` records as soon as there are some; none after ``timeout``.

        :param timeout: in seconds
        :raises ClientError: the membership has ended, a broker refuses, or a record batch cannot be
            read. If there are records from elsewhere, the next call raises it
        """
        self._check()
        whole_number(max_records, "max_records")
        deadline_s, left_s = time.monotonic() + seconds(timeout, "timeout", math.inf), 1.0
        while not self._problems:
            if records := self._take(max_records):
                return records
            if not self._problems:
                if not left_s:
                    return []
                left_s = max(deadline_s - time.monotonic(), 0)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s + _ANSWER_S):
                        await self._acquire(max_records, left_s)
        raise self._next_problem()

    def _next_problem(self) -> ClientError:
        return self._problems.pop(next(iter(self._problems)))

    def _take(self, max_records: int) -> list[Record]:
        """Hand out records that have arrived."""
        taken: list[Record] = []
        while self._arrived and len(taken) < max_records:
            if self._held_bytes >= self._max_held_bytes:
                break
            arrived = self._arrived[0]
            try:
                records = arrived.take(
                    max_records - len(taken), self._max_held_bytes - self._held_bytes
                )
            except UnreadableBatch as error:
                self._problems[id(error)] = error
                unread = intersect(arrived.left, [(error.offset, error.last_offset)])
                arrived.lose(unread)
                self._ranges.submit(RELEASE, {arrived.partition: unread})
                continue
            is_empty = not records
            if self._read_key is not None or self._read_value is not None:
                records = [decoded for record in records if (decoded := self._decode(record))]
            self._hold(records)
            taken += records
            if is_empty or not arrived.left:
                self._arrived.popleft()
                self._ranges.submit(AcknowledgeType.GAP, {arrived.partition: arrived.left})
        if taken and self._tracing is not None:
            self._tracing.delivered(taken)
        return taken

    def _hold(self, records: Sequence[Record]) -> None:
        self._held.update((id(record), record) for record in records)
        self._first = self._first or next(iter(records), None)
        self._held_bytes += sum(map(size_of, records))
        self._changed_at_s = time.monotonic()

    def _decode(self, record: Record) -> Record | None:
        key, value = record.key, record.value
        try:
            if self._read_key is not None and key is not None:
                key = self._read_key(key)
            if self._read_value is not None and value is not None:
                value = self._read_value(value)
            return record._replace(key=key, value=value)
        except Exception as error:
            problem = error
        try:
            if callable(self._on_undecodable):
                substitute = self._on_undecodable(record, problem)
                if isinstance(substitute, Record) and substitute[:3] == record[:3]:
                    return record._replace(key=substitute.key, value=substitute.value)
                raise TypeError("on_undecodable has not returned this record")
        except Exception as error:
            problem = error
        reason = f"{type(problem).__name__}: {problem}"
        undecodable = Undecodable(record, reason)
        if self._on_undecodable == "raise":
            self._hold([record])
            self._problems[id(record)] = undecodable
        else:
            _lines.warning(str(self), "%s rejects a record: %s", self, undecodable)
            # Without its place in the reason, so that records of one reason travel together.
            spans = _spans_of([record])
            self._ranges.submit(AcknowledgeType.REJECT, spans, reject_reason=_reason(reason))
        return None

    async def _acquire(self, max_records: int | None, wait_s: float) -> None:
        """Acquire records, unless enough are held, or another task has acquired some.

        Parts of batches leave records to other members, but a broker sends whole batches: so one
        that needs little time for its records takes whole batches.

        :param max_records: None leaves it to the time that the last records have taken
        """
        async with self._acquiring:
            if self._arrived and self._held_bytes < self._max_held_bytes:
                return
            room = self._max_held_records - self.held
            if room <= 0 or self._held_bytes >= self._max_held_bytes:
                self._ended.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._ended.wait()
                return
            if self._acquired_at_s:
                # Tasks that share a consumer may be slow, and yet ask one shortly after the other.
                has_ended = self._first is None or id(self._first) not in self._held
                self._is_fast = has_ended and time.monotonic() - self._acquired_at_s < _FAST_S
                self._first = None
                ahead = 2 * self._ahead if self._is_fast else self._ahead // 2
                self._ahead = min(max(ahead, 1), _MAX_AHEAD)
                self._acquired_at_s = 0.0
            max_records = min(max_records or self._ahead, room, _MAX_INT32)
            takes_batches = self._is_fast and max_records < room
            unchanged_s = time.monotonic() - self._changed_at_s if self.held else math.inf
            longest_s = min(_MAX_WAIT_S, self._ranges.lock_timeout_ms / 6000, unchanged_s / 2)
            acquired = await self._ranges.acquire(
                max_records=max_records,
                max_wait_ms=math.ceil(min(wait_s, max(longest_s, _MIN_WAIT_S)) * 1000),
                max_bytes=min(self._max_held_bytes - self._held_bytes, _MAX_INT32),
                mode=AcquireMode.BATCH_OPTIMIZED if takes_batches else AcquireMode.RECORD_LIMIT,
            )
        if acquired.ranges:
            self._acquired_at_s = time.monotonic()
        for place, ranges in acquired.ranges_by_partition().items():
            self._arrived.append(Arrived(acquired.data.get(place, b""), ranges))

    # -- outcomes

    async def accept(self, records: Records) -> None:
        """End records: they were processed, and nobody gets them again.

        :raises OutcomesFailed: the broker has not accepted the outcome of some records
        """
        await self._end(records, AcknowledgeType.ACCEPT)

    async def release(self, records: Records, *, delay: float = 0.0, counted: bool = True) -> None:
        """Give records back, to be delivered again, by default at once.

        :param delay: seconds until then, or the group's backoff if that is longer; at most a day.
            headrace's broker keeps the records meanwhile. At another one, this consumer holds and
            renews them, and releases them when they are due or it is closed
        :param counted: False for records that were not processed: headrace's broker does not count
            this delivery, and delivers them again after a second or later. Another one counts it
        :raises OutcomesFailed: the broker has not accepted the outcome of some records
        """
        delay = seconds(delay, "delay", _MAX_DELAY_S)
        if delay:  # also if the caller is cancelled, as other outcomes
            await asyncio.shield(self._run(self._release_delayed(records, delay, counted)))
        else:
            await self._end(records, RELEASE, uncounted_release=not counted)

    async def _release_delayed(self, records: Records, delay: float, counted: bool) -> None:
        if await self.broker_delays():
            delay_ms = math.ceil(delay * 1000)
            terms = {"release_delay_ms": delay_ms, "uncounted_release": not counted}
            await self._end(records, RELEASE, **terms)
        else:
            self._release_later(records, delay)

    async def reject(self, records: Records, *, reason: str = "") -> None:
        """End records that cannot be processed: they go to the group's dead-letter queue, if it has
        one.

        :param reason: is logged, and headrace's broker writes it into the dead letters
        :raises OutcomesFailed: the broker has not accepted the outcome of some records
        """
        records = _listed(records)
        reason = _reason(reason)
        if reason:
            _log.info("%s rejects %d records: %s", self, len(records), reason)
        await self._end(records, AcknowledgeType.REJECT, reject_reason=reason)

    async def renew(self, records: Records) -> None:
        """Restart the acquisition locks of held records now.

        :raises OutcomesFailed: some locks were lost
        :raises ClientError: the broker does not renew locks (Kafka 4.2 or later does)
        """
        if not self._ranges.can_renew:
            raise ClientError(
                "the broker does not renew acquisition locks: Kafka 4.2 or later does"
            )
        await self._end(records, AcknowledgeType.RENEW)

    async def _end(self, records: Records, kind: AcknowledgeType, **terms: Any) -> None:
        self._check()
        listed = _listed(records)
        began_s = time.monotonic()
        chosen, failed = self._choose(listed, keep=kind is AcknowledgeType.RENEW)
        spans = _spans_of(chosen)
        refused = difference(spans, await self._ranges.settle(kind, spans, **terms))
        if refused:
            failed |= {
                record: self._why_not(record)
                for record in chosen
                if contains(refused.get(_partition_of(record), ()), record.offset)
            }
        if self._tracing is not None and kind is not AcknowledgeType.RENEW:
            took_s = time.monotonic() - began_s
            self._tracing.ended(listed, failed, kind.name.lower(), took_s)
        if failed:
            raise OutcomesFailed(failed, len(listed))

    def _choose(
        self, records: Sequence[Record], *, keep: bool = False
    ) -> tuple[list[Record], dict[Record, str]]:
        """Return the held ones of some records, and why the others are not.

        :param keep: go on holding them
        """
        chosen = [record for record in records if id(record) in self._held]
        failed = {r: self._why_not(r) for r in records if id(r) not in self._held}
        if not keep:
            for record in chosen:
                del self._held[id(record)]
            self._let_go(chosen)
        return chosen, failed

    def _let_go(self, records: Sequence[Record]) -> None:
        self._held_bytes -= sum(map(size_of, records))
        self._changed_at_s = time.monotonic()
        self._ended.set()

    def _why_not(self, record: Record) -> str:
        partition = _partition_of(record)
        for lost, reason in reversed(self._losses):
            if contains(lost.get(partition, ()), record.offset):
                return f"its lock was lost: {reason}"
        if self._is_closed:
            return "the consumer was closed"
        return "it is not held: it was ended, or came from elsewhere"

    async def broker_delays(self) -> bool:
        """Return whether the broker is headrace's, which keeps released records for a while, and
        does not count some releases. False if it does not answer.
        """
        if self._delays_at_broker is None:
            try:
                self._delays_at_broker = await delays_releases(self._ranges.cluster, self.group_id)
            except ClientError:
                return False
        return self._delays_at_broker

    def _release_later(self, records: Records, delay: float) -> None:
        self._check()
        lock_s = self._ranges.lock_timeout_ms / 1000
        if delay > lock_s / 2 and not (self._renews and self._ranges.can_renew):
            raise ClientError(
                f"a delay of {delay:g} s needs locks that are renewed, because the broker does not "
                f"delay releases: they end after {lock_s:.1f} s"
            )
        records = _listed(records)
        chosen, failed = self._choose(records)

        def release() -> None:
            due = self._delayed.pop(handle)
            self._ranges.submit(RELEASE, _spans_of(due.values()))

        assert self._loop is not None
        handle = self._loop.call_later(delay, release)
        self._delayed[handle] = {id(record): record for record in chosen}
        if self._tracing is not None:  # the delivery has ended, whatever becomes of the release
            self._tracing.ended(records, failed, "release", 0.0)
        if failed:
            raise OutcomesFailed(failed, len(records))

    def _lose(self, lost: PartitionSpans, reason: str) -> None:
        self._losses.append((lost, reason))
        for arrived in self._arrived:
            arrived.lose(lost.get(arrived.partition, ()))
        for delayed in self._delayed.values():
            _remove(delayed, lost)
        records = _remove(self._held, lost)
        if not records:
            return
        self._let_go(records)
        # An undecodable record that was not raised yet was never seen.
        records = [record for record in records if not self._problems.pop(id(record), None)]
        if self._tracing is not None:
            self._tracing.lost(records)
        if records and self._on_lock_lost is not None:
            self._run(_call(self._on_lock_lost, records))

    # -- flow

    @property
    def problem(self) -> str | None:
        """Why this is not a member of the group now; None while it is one."""
        return "it is closed" if self._is_closed else self._ranges.problem

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group assigns to this member."""
        return self._ranges.assignment

    @property
    def held(self) -> int:
        """The number of held records, also of those that this consumer has not handed out yet, or
        keeps for a delayed release.
        """
        return (
            len(self._held)
            + sum(count(arrived.left) for arrived in self._arrived)
            + sum(map(len, self._delayed.values()))
        )

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire no more records from these partitions until :meth:`resume`."""
        self._ranges.pause(_partitions(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire records from these partitions again."""
        self._ranges.resume(_partitions(partitions))

    def processing(self, record: Record) -> AbstractContextManager[object]:
        """Return a context in which spans are children of the delivery of a held record.

        Without ``tracing`` it does nothing.
        """
        return nullcontext() if self._tracing is None else self._tracing.processing(record)


def _listed(records: Records) -> list[Record]:
    """Return records, each once.

    :raises ClientError: one of them is something else
    """
    items: Any = records
    if isinstance(records, Record) or not isinstance(records, Iterable):
        items = [records]
    by_id: dict[int, Record] = {id(record): record for record in items}
    for item in by_id.values():
        if not isinstance(item, Record):
            raise ClientError(f"{type(item).__name__} is not a record: pass what poll() returned")
    return list(by_id.values())


def _topic_names(topics: Iterable[str]) -> list[str]:
    names = [topics] if isinstance(topics, str) else list(topics or ())
    for name in names:
        if not isinstance(name, str):
            raise ClientError(f"a topic is {name!r}, not a name")
    if not names:
        raise ClientError("no topic given: name one, such as ['orders']")
    return names


def _partitions(partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
    """:raises ClientError: they are something else"""
    for partition in partitions:
        match partition:
            case (str(), int()):
                continue
        raise ClientError(f"{partition!r} is not a partition: give them as [('orders', 0)]")
    return partitions


def _spans_of(records: Iterable[Record]) -> PartitionSpans:
    offsets: defaultdict[TopicIdPartition, list[int]] = defaultdict(list)
    # By topic and then by number: half the time of groups by both.
    for topic_id, of_topic in groupby(records, _topic_id_of):
        for number, group in groupby(of_topic, _number_of):
            offsets[topic_id, number] += map(offset_of, group)
    return {partition: runs(of_partition) for partition, of_partition in offsets.items()}


def _remove(records: dict[int, Record], lost: PartitionSpans) -> list[Record]:
    """Remove and return the lost ones of some records."""
    gone = {
        record_id: record
        for record_id, record in records.items()
        if contains(lost.get(_partition_of(record), ()), record.offset)
    }
    for record_id in gone:
        del records[record_id]
    return list(gone.values())


def _reason(reason: object) -> str:
    return printable(str(reason), _MAX_REASON_CHARS)


async def _call(callback: Callable[[list[Record]], object], records: list[Record]) -> None:
    try:
        result = callback(records)
        if isinstance(result, Awaitable):
            await result
    except Exception:
        _log.exception("on_lock_lost failed")


def _reset(start: Start) -> str | None:
    """Return the value of ``share.auto.offset.reset``."""
    if start is None or (isinstance(start, str) and start in ("earliest", "latest")):
        return start
    try:
        return f"by_duration:PT{seconds(start, 'start', _MAX_START_S):.3f}S"
    except ClientError:
        raise ClientError(f"start is {start!r}, not 'earliest', 'latest', or seconds ago") from None


async def delays_releases(cluster: Cluster, group_id: str) -> bool:
    """Return whether the broker is headrace's, which keeps released records for a while.

    :raises ClientError: no broker answers
    """
    try:
        return bool(await describe_config(cluster, ConfigType.GROUP, group_id, [_BACKOFF]))
    except RequestRefused:
        return False


async def _begin_group(cluster: Cluster, group_id: str, reset: str) -> None:
    """Set where a group begins, if it is new; say so if it exists and begins elsewhere."""
    group = await describe_group(cluster, group_id)
    if group is None:
        await alter_configs(cluster, ConfigType.GROUP, group_id, {_RESET: reset})
        return
    if group.type != SHARE:
        raise ClientError(
            f"'{group_id}' is a {group.type} group, not a share group: choose another group.id"
        )
    try:
        configs = await describe_config(cluster, ConfigType.GROUP, group_id, [_RESET])
        current = configs.get(_RESET)
    except RequestRefused as refusal:
        current = f"unknown ({refusal})"
    if current != reset:
        line = "share group '%s' exists, so start=%s changes nothing: its %s is %s"
        _log.warning(line, group_id, reset, _RESET, current)
