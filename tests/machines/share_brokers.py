"""Brokers of a share group in memory, for clients: connections without sockets, on a clock that
jumps to the next thing to happen.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client import connection as connections
from headrace.client.errors import ConnectionFailed
from headrace.client.share import consumer, range_consumer
from headrace.client.share.types import AcknowledgeType, AcquireMode
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

LOCK_MS = 3000
DELIVERIES = 5
NODES = (1, 2)
MAX_TURNS = 10_000
"""Turns of the event loop in which no time passes that show an endless loop."""
MAX_READINGS = 1000
"""Readings of the clock in one turn that show an endless loop."""
GAP, RELEASE, RENEW = AcknowledgeType.GAP, AcknowledgeType.RELEASE, AcknowledgeType.RENEW

Place = tuple[UUID, int, int]
"""(topic id, partition, offset)"""
Delivery = tuple[Place, int]
"""(place, delivery count)"""


class JumpingLoop(asyncio.BaseEventLoop):
    """An event loop that never waits: its clock jumps on instead."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 1000.0
        self._turns = self._readings = 0
        self.plans: list[tuple[int, Callable[[], object]]] = []
        """(turns until then, what is called)"""
        self._selector = self
        self.failures: list[dict[str, Any]] = []
        """Contexts of exceptions in callbacks and tasks, as asyncio describes them."""
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        return self._now_s

    def now_ms(self) -> int:
        return round(self._now_s * 1000)

    def monotonic(self) -> float:
        """Stand for :func:`time.monotonic`."""
        self._readings += 1
        assert self._readings < MAX_READINGS, "this looks at the clock again and again"
        return self._now_s

    def after(self, turns: int, call: Callable[[], object]) -> None:
        """Call a function after so many turns of the loop."""
        self.plans.append((turns, call))

    def select(self, timeout_s: float | None) -> list[Any]:
        """Stand for the selector: begin a turn."""
        self._readings = 0
        due = [call for turns, call in self.plans if turns <= 0]
        self.plans = [(turns - 1, call) for turns, call in self.plans if turns > 0]
        for call in due:
            call()
        if due:
            return []
        assert timeout_s is not None, "everything waits for ever"
        self._turns = 0 if timeout_s else self._turns + 1
        assert self._turns < MAX_TURNS, "this never comes to rest"
        self._now_s += timeout_s
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


@dataclass
class Lock:
    member_id: str
    until_ms: int


@dataclass
class Offset:
    """An offset of a share partition. It is available, locked, or ended."""

    count: int = 0
    lock: Lock | None = None
    available_at_ms: int = 0
    ended_by: AcknowledgeType | str | None = None


@dataclass
class Partition:
    leader: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(last offset, bytes)"""
    records: set[int] = field(default_factory=set)
    """The offsets that have a record; others are of markers, or were compacted."""
    offsets: list[Offset] = field(default_factory=list)


@dataclass
class Topic:
    name: str
    topic_id: UUID
    partitions: list[Partition]


@dataclass
class Session:
    epoch: int
    connection: Connection
    partitions: set[tuple[UUID, int]] = field(default_factory=set)


class Brokers:
    """Two brokers, one share group.

    :param rng: decides how long requests travel
    :param on_outcome: called with (member id, delivery, outcome) for each one that is accepted
    :ivar topic_ids: the number of topics that were created
    :ivar outcomes: (member id, delivery) → the outcome that was accepted
    :ivar delays: whether the brokers keep released records for a while, as headrace's does
    :ivar is_down: brokers that refuse connections
    :ivar stalled_until_ms: by broker: the time before which it serves nothing
    :ivar lost_answers: by broker: the number of requests that are served, and not answered
    :ivar refusals: by broker: error codes of the next ShareAcknowledges, and whether each is of the
        request; or of each of its partitions
    """

    def __init__(
        self,
        loop: JumpingLoop,
        rng: random.Random,
        on_outcome: Callable[[str, Delivery, AcknowledgeType], object] = lambda *_: None,
    ) -> None:
        self.loop = loop
        self.topics: dict[str, Topic] = {}
        self.members: dict[str, int] = {}
        self.sessions: dict[tuple[int, str], Session] = {}
        self.connections: set[Connection] = set()
        self.outcomes: dict[tuple[str, Delivery], AcknowledgeType] = {}
        self.delays = True
        self.is_down: set[int] = set()
        self.stalled_until_ms = dict.fromkeys(NODES, 0)
        self.lost_answers: defaultdict[int, int] = defaultdict(int)
        self.refusals: defaultdict[int, deque[tuple[ErrorCode, bool]]] = defaultdict(deque)
        self._rng = rng
        self._on_outcome = on_outcome
        self.topic_ids = 0
        self._changed = asyncio.Event()

    # Topics and records

    def create(self, name: str, partitions: int) -> None:
        """Create a topic; one of this name is deleted."""
        self.topic_ids += 1
        self.topics[name] = Topic(
            name,
            UUID(int=self.topic_ids),
            [Partition(NODES[number % len(NODES)]) for number in range(partitions)],
        )
        self._wake()

    def delete(self, name: str) -> None:
        self.topics.pop(name, None)
        self._wake()

    def produce(self, name: str, number: int, count: int, codec: int = 0, skipped: int = 0) -> None:
        """Append a batch whose values are its offsets as text.

        :param skipped: offsets before it without a record: of a marker, and of what was compacted
        """
        partition = self.topics[name].partitions[number]
        if skipped:
            at = len(partition.offsets)
            marker = record_batch.Marker(True, 0)
            data = record_batch.end_transaction_marker(1, 0, marker, 1)
            partition.batches.append((at, at.to_bytes(8, "big") + data[8:]))
            partition.offsets += [Offset() for _ in range(skipped)]
        first = len(partition.offsets)
        values = [(None, b"%d" % offset) for offset in range(first, first + count)]
        data = record_batch.build(values, timestamp_ms=1, codec=codec, base_offset=first)
        partition.batches.append((first + count - 1, data))
        partition.records.update(range(first, first + count))
        partition.offsets += [Offset() for _ in range(count)]
        self._wake()

    def partition(self, topic_id: UUID, number: int) -> Partition | None:
        """Return a partition; None if its topic was deleted."""
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic.partitions[number]
        return None

    def at(self, place: Place) -> Offset | None:
        """Return the state of an offset; None if its topic was deleted."""
        self._expire()
        partition = self.partition(place[0], place[1])
        return None if partition is None else partition.offsets[place[2]]

    def each(self) -> Iterator[tuple[Place, Offset]]:
        """Yield all offsets."""
        self._expire()
        for topic in self.topics.values():
            for number, partition in enumerate(topic.partitions):
                for at, offset in enumerate(partition.offsets):
                    yield (topic.topic_id, number, at), offset

    def held_by(self, member_id: str) -> set[Place]:
        return {
            place
            for place, offset in self.each()
            if offset.lock is not None and offset.lock.member_id == member_id
        }

    # Locks

    def _expire(self) -> None:
        now_ms = self.loop.now_ms()
        for topic in self.topics.values():
            for partition in topic.partitions:
                self._unlock(partition, lambda lock: lock.until_ms <= now_ms)

    def _unlock(self, partition: Partition, is_lost: Callable[[Lock], bool]) -> None:
        for offset in partition.offsets:
            if offset.lock is not None and is_lost(offset.lock):
                self._give_back(offset)

    def _give_back(self, offset: Offset, *, uncounted: bool = False) -> None:
        offset.lock = None
        offset.count -= uncounted
        if offset.count >= DELIVERIES:
            offset.ended_by = "delivery limit"
        self._wake()

    # Faults

    def cut(self, node_id: int) -> None:
        """Break the connections to a broker."""
        for connection in list(self.connections):
            if connection.node_id == node_id:
                connection.disconnect()

    def kill(self, node_id: int) -> None:
        """End a broker, until :meth:`heal`."""
        self.is_down.add(node_id)
        self.cut(node_id)

    def stall(self, node_id: int, ms: int) -> None:
        """Have a broker serve nothing for a while."""
        self.stalled_until_ms[node_id] = self.loop.now_ms() + ms

    def lose_answer(self, node_id: int) -> None:
        """Have a broker serve its next request of a share session, and break the connection."""
        self.lost_answers[node_id] += 1

    def refuse(self, node_id: int, code: ErrorCode, *, is_of_request: bool) -> None:
        """Have a broker refuse its next ShareAcknowledge."""
        self.refusals[node_id].append((code, is_of_request))

    def lose_sessions(self, node_id: int) -> None:
        """Have a broker forget its share sessions, and unlock what they hold."""
        for key in list(self.sessions):
            if key[0] == node_id:
                self._end_session(key)

    def move_leader(self, name: str, number: int) -> None:
        """Move a partition to the other broker, which knows of no locks."""
        if topic := self.topics.get(name):
            partition = topic.partitions[number]
            partition.leader = NODES[partition.leader == NODES[0]]
            self._unlock(partition, lambda _: True)
            self._wake()

    def heal(self) -> None:
        self.is_down.clear()
        self.lost_answers.clear()
        self.refusals.clear()
        self.stalled_until_ms = dict.fromkeys(NODES, 0)

    @property
    def is_well(self) -> bool:
        """True if nothing is wrong, and nothing is going to happen."""
        is_stalled = self.loop.now_ms() < max(self.stalled_until_ms.values())
        troubles = (*self.lost_answers.values(), *self.refusals.values())
        return not (is_stalled or self.is_down or any(troubles) or self.loop.plans)

    # Connections

    async def open(self, host: str, port: int, **_: Any) -> Connection:
        """Stand for :meth:`headrace.client.connection.Connection.open`."""
        await self.travel()
        node_id = int(host.removeprefix("node"))
        if node_id in self.is_down:
            raise ConnectionFailed(f"no broker answers at {host}")
        connection = Connection(self, node_id)
        self.connections.add(connection)
        return connection

    def disconnected(self, connection: Connection) -> None:
        self.connections.discard(connection)
        for key, session in list(self.sessions.items()):
            if session.connection is connection:
                self._end_session(key)

    def _end_session(self, key: tuple[int, str]) -> None:
        node_id, member_id = key
        del self.sessions[key]
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node_id:
                    self._unlock(partition, lambda lock: lock.member_id == member_id)

    async def travel(self) -> None:
        await asyncio.sleep(self._rng.choice((0, 0.001, 0.004)))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def serve(self, connection: Connection, request: Any) -> Any:
        node_id = connection.node_id
        while (stalled_ms := self.stalled_until_ms[node_id] - self.loop.now_ms()) > 0:
            await asyncio.sleep(stalled_ms / 1000)
        name = type(request).__name__
        response = await getattr(self, f"_{name}")(connection, request)
        if self.lost_answers[node_id] and name in ("ShareFetchRequest", "ShareAcknowledgeRequest"):
            self.lost_answers[node_id] -= 1
            connection.disconnect()
        return response

    # Requests

    async def _MetadataRequest(self, _: Connection, request: Any) -> Any:
        names = [*self.topics] if request.topics is None else [t.name for t in request.topics]
        return SimpleNamespace(
            brokers=[
                SimpleNamespace(node_id=node_id, host=f"node{node_id}", port=1, rack=None)
                for node_id in NODES
            ],
            topics=[self._metadata(name) for name in names],
            cluster_id="c",
            controller_id=NODES[0],
            error_code=0,
        )

    def _metadata(self, name: str) -> Any:
        topic = self.topics.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return SimpleNamespace(name=name, error_code=code)
        return SimpleNamespace(
            name=name,
            topic_id=topic.topic_id,
            error_code=0,
            partitions=[
                SimpleNamespace(partition_index=number, leader_id=partition.leader)
                for number, partition in enumerate(topic.partitions)
            ],
            is_internal=False,
        )

    async def _FindCoordinatorRequest(self, _: Connection, request: Any) -> Any:
        coordinators = [
            SimpleNamespace(key=key, node_id=NODES[0], host=f"node{NODES[0]}", port=1, error_code=0)
            for key in request.coordinator_keys
        ]
        return SimpleNamespace(coordinators=coordinators, error_code=0)

    async def _DescribeConfigsRequest(self, _: Connection, request: Any) -> Any:
        backoff = SimpleNamespace(
            name="share.release.backoff.ms",
            value="0",
            config_source=5,
            is_sensitive=False,
            read_only=False,
            synonyms=(),
        )
        results = [
            SimpleNamespace(
                resource_name=resource.resource_name,
                error_code=0,
                error_message=None,
                configs=[backoff] if self.delays else [],
            )
            for resource in request.resources
        ]
        return SimpleNamespace(results=results)

    async def _ShareGroupHeartbeatRequest(self, _: Connection, request: Any) -> Any:
        member_id = request.member_id
        code, epoch = 0, self.members.get(member_id)
        if request.member_epoch == -1:
            self.members.pop(member_id, None)
        elif request.member_epoch == 0 or request.member_epoch == epoch:
            epoch = self.members[member_id] = (epoch or 0) + (request.member_epoch == 0)
        else:
            code = ErrorCode.UNKNOWN_MEMBER_ID if epoch is None else ErrorCode.FENCED_MEMBER_EPOCH
        assigned = [
            SimpleNamespace(topic_id=topic.topic_id, partitions=range(len(topic.partitions)))
            for topic in self.topics.values()
        ]
        return SimpleNamespace(
            error_code=code,
            error_message=None,
            member_epoch=epoch or 0,
            heartbeat_interval_ms=1000,
            assignment=SimpleNamespace(topic_partitions=assigned),
        )

    def _turn(self, connection: Connection, request: Any) -> Session | ErrorCode:
        """Return the session of a request, and advance its epoch."""
        key = (connection.node_id, request.member_id)
        epoch = request.share_session_epoch
        if epoch == 0:
            self.sessions[key] = Session(1, connection)
            return self.sessions[key]
        session = self.sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == -1:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch += 1
        return session

    async def _ShareFetchRequest(self, connection: Connection, request: Any) -> Any:
        session = self._turn(connection, request)
        response = SimpleNamespace(
            error_code=0,
            error_message=None,
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[],
        )
        if isinstance(session, ErrorCode):
            response.error_code = session
            return response
        for topic in request.topics:
            session.partitions |= {(topic.topic_id, p.partition_index) for p in topic.partitions}
        for topic in request.forgotten_topics_data:
            session.partitions -= {(topic.topic_id, p) for p in topic.partitions}
        until_ms = self.loop.now_ms() + request.max_wait_ms
        while (
            connection.is_open
            and self.sessions.get((connection.node_id, request.member_id)) is session
        ):
            response.responses = self._acquire(connection.node_id, session, request)
            left_ms = until_ms - self.loop.now_ms()
            if response.responses or left_ms <= 0:
                break
            try:
                async with asyncio.timeout(min(left_ms, LOCK_MS / 3) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return response

    def _acquire(self, node_id: int, session: Session, request: Any) -> list[Any]:
        self._expire()
        left = request.max_records
        takes_batches = request.share_acquire_mode == AcquireMode.BATCH_OPTIMIZED
        responses = []
        for topic_id, number in sorted(session.partitions):
            partition = self.partition(topic_id, number)
            code = 0
            acquired: list[tuple[int, int]] = []
            data = b""
            if partition is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif partition.leader != node_id:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                begin = 0
                for last, batch in partition.batches:
                    taken: list[tuple[int, int]] = []
                    for at in range(begin, last + 1):
                        has_room = left > 0 or (takes_batches and taken)
                        if has_room and self._is_available(partition.offsets[at]):
                            taken.append((at, self._lock(partition.offsets[at], request)))
                            left -= 1
                    if taken:
                        acquired += taken
                        data += batch
                    begin = last + 1
                    if acquired and len(data) >= request.max_bytes:
                        break
            if code or acquired:
                part = _fetched(number, code, acquired, data)
                responses.append(SimpleNamespace(topic_id=topic_id, partitions=[part]))
        return responses

    def _is_available(self, offset: Offset) -> bool:
        is_due = offset.available_at_ms <= self.loop.now_ms()
        return is_due and offset.lock is None and offset.ended_by is None

    def _lock(self, offset: Offset, request: Any) -> int:
        """Lock an offset, and return its delivery count."""
        offset.count += 1
        offset.lock = Lock(request.member_id, self.loop.now_ms() + LOCK_MS)
        return offset.count

    async def _ShareAcknowledgeRequest(self, connection: Connection, request: Any) -> Any:
        self._expire()
        response = SimpleNamespace(error_code=0, error_message=None, responses=[])
        is_last = request.share_session_epoch == -1
        refusals = self.refusals[connection.node_id]
        code, is_of_request = refusals.popleft() if refusals and not is_last else (0, False)
        session = code if is_of_request else self._turn(connection, request)
        if not isinstance(session, Session):
            response.error_code = session
            return response
        for topic in request.topics:
            parts = [
                SimpleNamespace(
                    partition_index=part.partition_index,
                    error_code=code or self._acknowledge(connection, request, topic.topic_id, part),
                    error_message=None,
                )
                for part in topic.partitions
            ]
            response.responses.append(SimpleNamespace(topic_id=topic.topic_id, partitions=parts))
        if is_last:
            self._end_session((connection.node_id, request.member_id))
        return response

    def _acknowledge(self, connection: Connection, request: Any, topic_id: UUID, part: Any) -> int:
        number = part.partition_index
        partition = self.partition(topic_id, number)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if partition.leader != connection.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        outcomes = [
            (at, AcknowledgeType(batch.acknowledge_types[0]))
            for batch in part.acknowledgement_batches
            for at in range(batch.first_offset, batch.last_offset + 1)
        ]
        for at, _ in outcomes:
            lock = partition.offsets[at].lock
            if lock is None or lock.member_id != request.member_id:
                return ErrorCode.INVALID_RECORD_STATE
        for at, kind in outcomes:
            self._end((topic_id, number, at), partition.offsets[at], kind, request)
        return 0

    def _end(self, place: Place, offset: Offset, kind: AcknowledgeType, request: Any) -> None:
        delivery = place, offset.count
        assert offset.lock is not None
        if kind is RENEW:
            offset.lock.until_ms = self.loop.now_ms() + LOCK_MS
        elif kind is RELEASE:
            offset.available_at_ms = self.loop.now_ms() + request.release_delay_ms
            self._give_back(offset, uncounted=request.uncounted_release)
        else:
            offset.lock, offset.ended_by = None, kind
        if kind is not RENEW and not getattr(request, "uncounted_release", False):
            self.outcomes[request.member_id, delivery] = kind
        self._on_outcome(request.member_id, delivery, kind)


def _fetched(number: int, code: int, acquired: list[tuple[int, int]], data: bytes) -> Any:
    """Return a partition of a ShareFetch response.

    :param acquired: (offset, delivery count)
    """
    ranges: list[Any] = []
    for at, count in acquired:
        if ranges and ranges[-1].last_offset == at - 1 and ranges[-1].delivery_count == count:
            ranges[-1].last_offset = at
        else:
            ranges.append(SimpleNamespace(first_offset=at, last_offset=at, delivery_count=count))
    return SimpleNamespace(
        partition_index=number,
        error_code=code,
        error_message=None,
        acknowledge_error_code=0,
        acquired_records=ranges,
        records=data or None,
    )


def on_jumping_loop(brokers: Brokers, patches: pytest.MonkeyPatch) -> None:
    """Have share consumers use these brokers, their event loop, and its clock."""
    for module in (consumer, range_consumer):
        patches.setattr(module, "time", brokers.loop)
    patches.setattr(connections.Connection, "open", brokers.open)
    asyncio.set_event_loop(brokers.loop)


class Connection:
    """Stands for :class:`headrace.client.connection.Connection`. Requests are served in order."""

    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self.node_id = node_id
        self.is_open = True
        self.address = f"node{node_id}:1"
        self._brokers = brokers
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Future[Any]] = set()
        self.serving: set[asyncio.Task[None]] = set()

    def version(self, request_type: type[Message]) -> int:
        _, highest = connections._SUPPORTED[request_type.__name__]
        return highest

    async def ask(self, request: Message, *, timeout_ms: int = 30_000) -> Any:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} was closed")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        task = asyncio.create_task(self._serve(request, answer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            self.disconnect()
            raise ConnectionFailed(f"{self.address} did not answer") from None
        finally:
            self._waiting.discard(answer)

    async def _serve(self, request: Any, answer: asyncio.Future[Any]) -> None:
        async with self._turn:
            await self._brokers.travel()
            if not self.is_open:
                return
            try:
                response = await self._brokers.serve(self, request)
            except Exception as error:  # of the model
                answer.set_exception(error)
                return
            await self._brokers.travel()
            if self.is_open and not answer.done():
                answer.set_result(response)

    def disconnect(self) -> None:
        """End the connection; both sides notice."""
        if self.is_open:
            self.is_open = False
            for answer in self._waiting:
                if not answer.done():
                    answer.set_exception(ConnectionFailed(f"{self.address} closed the connection"))
            self._brokers.disconnected(self)

    async def close(self) -> None:
        self.disconnect()
