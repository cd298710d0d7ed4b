"""A driver that is killed at any step of a micro-batch, and the micro-batch that is replayed.

Spark's side is a small machine: offset log, commit log, and the calls of the source in their order.
The readers, their servers, `acknowledge` and the sink are the real ones. The share
group is a list of records.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from headrace.client import Acknowledgement, AcknowledgeType, AcquiredRange
from headrace.client.loop_thread import LoopThread
from headrace.client.share.spans import Span
from headrace.protocol.partitions import TopicPartition
from headrace.spark import SourceError, acknowledge, driver_server
from headrace.spark.driver_server import Address, DriverServer
from headrace.spark.pyspark_capabilities import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    stream_reader,
)
from headrace.spark.share import source
from headrace.spark.share.acquisitions import COUNTED
from headrace.spark.share.options import ShareOptions
from headrace.spark.share.outcomes import OutcomeWriter, deliver, requested
from headrace.spark.share.source import ShareStreamReader
from headrace.spark.share.suspects import Position, Suspects

BATCH = 2
RECORDS = 3
COLUMNS = ["topic", "partition", "offset", "receipt"]
OPTIONS = ShareOptions.parse(
    {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "g", "subscribe": "t"}, is_source=True
)
OUTCOMES = StructType([StructField(name, StringType()) for name in COLUMNS])
"""The columns of the sink's rows, whose types do not matter here."""


@dataclass
class Group:
    """A share group over one partition.

    :param loop: where its members serve
    :param old_receipt: of a reader that has ended, or ends when it is asked
    :ivar free: offsets that may be acquired
    """

    loop: LoopThread
    old_receipt: str
    free: list[int] = field(default_factory=lambda: list(range(RECORDS)))
    accepted: set[int] = field(default_factory=set)
    members: list[Member] = field(default_factory=list)


class Member:
    """Stands for the :class:`ShareMember` of a reader, and for its acquisitions."""

    def __init__(self, group: Group) -> None:
        self.id = secrets.token_hex(4)
        self.receipt = ""
        self.counts = dict.fromkeys(COUNTED, 0)
        self.held: list[int] = []
        self.has_joined = False
        self.acquisitions = self
        self.suspects = Suspects()
        self.run = group.loop.run
        self._group = group
        self._server = DriverServer(self._take_outcomes, 1000)
        group.members.append(self)

    def join(self) -> None:
        if not self.has_joined:
            self.receipt = str(self._group.loop.run(self._server.listen_on_host()))
            self.has_joined = True

    async def _take_outcomes(self, request: Any) -> dict[str, Any]:
        outcomes = requested(request)
        offsets = {n for o in outcomes for n in range(o.first_offset, o.last_offset + 1)}
        return {"counts": {"accepted": self.accept(offsets)}}

    def accept(self, offsets: Iterable[int]) -> int:
        done = set(offsets) & set(self.held)
        self.held = [n for n in self.held if n not in done]
        self._group.accepted |= done
        return len(done)

    async def acquire(self, *, unless_finished: bool) -> list[AcquiredRange]:
        assert self.has_joined
        taken, self._group.free = self._group.free[:BATCH], self._group.free[BATCH:]
        self.held += taken
        return [AcquiredRange("t", 0, n, n, 1) for n in taken]

    async def acknowledge(self, ranges: Sequence[AcquiredRange], outcome: AcknowledgeType) -> None:
        assert outcome is AcknowledgeType.ACCEPT
        self.accept(r.first_offset for r in ranges)

    async def stop_at_current_end(self) -> None:
        assert self.has_joined

    async def suspect(
        self, count: int, spans: dict[TopicPartition, Span], alone: Sequence[Position]
    ) -> None:
        """Check that these are the records of the last micro-batch."""
        ((first, last),) = spans.values()
        assert count == last - first + 1
        assert spans == {("t", 0): (first, last)}

    def lag(self) -> dict[str, dict[str, int]]:
        return {}

    def close(self) -> None:
        """End, and release what is held."""
        self._group.loop.run(self._stop())
        self._group.free = sorted(self._group.free + self.held)
        self.held = []

    async def _stop(self) -> None:
        self._server.close()


class Killed(Exception):
    """The driver is dead."""


class Batch(NamedTuple):
    """The rows of a micro-batch, as far as `acknowledge` needs a DataFrame."""

    columns: list[str]
    rows: list[list[Any]]

    def select(self, *columns: str) -> Batch:
        places = [self.columns.index(name) for name in columns]
        return Batch(list(columns), [[row[place] for place in places] for row in self.rows])

    def arrow(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            pa.schema([(name, _TYPES[name]) for name in self.columns]),
        )

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> Batch:
        batches = list(function(iter([self.arrow()])))
        rows = [list(row.values()) for batch in batches for row in batch.to_pylist()]
        return Batch(schema.split(), rows)

    def collect(self) -> list[list[Any]]:
        return self.rows


_TYPES = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "receipt": pa.string(),
}


@dataclass
class Query:
    """A query's checkpoint, and how Spark runs it.

    :param others: micro-batches, by number, for which the share source is not asked: their rows
        are of another source, or of a timer
    :ivar delivered: the offsets of each micro-batch that reached the sink, with the run's number
    """

    group: Group
    available_now: bool
    acknowledges: str
    others: tuple[int, ...] = ()
    offsets: list[dict[str, Any]] = field(default_factory=list)
    commits: int = 0
    delivered: list[tuple[int, list[int]]] = field(default_factory=list)
    runs: int = 0

    def run(self, step_of_kill: int | None = None) -> int:
        """Run to the end of the records, or to a step; return the number of steps.

        :raises Killed: the step is reached
        """
        steps = itertools.count()
        self.runs += 1

        def here() -> None:
            if next(steps) == step_of_kill:
                raise Killed

        reader: Any = stream_reader(ShareStreamReader(OPTIONS, secrets.token_hex(8)))
        if HAS_ADMISSION_CONTROL:
            if self.available_now:
                reader.prepareForTriggerAvailableNow()
            reader.getDefaultReadLimit()
        elif self.offsets:
            reader.partitions(self.offsets[-1], self.offsets[-1])
        here()
        if len(self.offsets) > self.commits:
            self._batch(reader, here)
        while True:
            number = len(self.offsets)
            start = self.offsets[-1] if self.offsets else reader.initialOffset()
            if number in self.others:
                end = start
            else:
                limit = [start, ReadAllAvailable()] if HAS_ADMISSION_CONTROL else []
                end = reader.latestOffset(*limit)
                here()  # acquired
                if end == start:
                    reader.stop()
                    return next(steps)
            self.offsets.append(end)
            here()  # planned
            self._batch(reader, here)

    def _batch(self, reader: Any, here: Callable[[], None]) -> None:
        number = len(self.offsets) - 1
        start = self.offsets[number - 1] if number else reader.initialOffset()
        end = self.offsets[number]
        tasks = [] if start == end else reader.partitions(start, end)
        here()  # divided
        rows = [["t", 0, r.start, task.receipt] for task in tasks for r in task.value]
        offsets = [row[2] for row in rows]
        if number in self.others:  # a row from state, whose record was accepted long ago
            rows.append(["t", 0, RECORDS, self.group.old_receipt])
        batch = Batch(COLUMNS, rows)
        assert not set(offsets) & self.group.accepted, "accepted before"
        self.delivered.append((self.runs, offsets))
        here()  # sunk
        if self.acknowledges == "foreachBatch":
            assert acknowledge(cast(DataFrame, batch)).accepted == len(offsets)
        elif self.acknowledges == "sink":
            writer = OutcomeWriter(OUTCOMES)
            writer.commit([writer.write(iter([batch.arrow()]))], number)
        here()  # acknowledged
        self.commits += 1
        here()  # committed
        reader.commit(end)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    running = LoopThread("members")
    yield running
    running.close()


@pytest.fixture(params=["gone", "ending"])
def old_receipt(request: pytest.FixtureRequest, loop: LoopThread) -> Iterator[Callable[[], str]]:
    """Return a function that returns the receipt of an earlier reader: it refuses connections, or
    takes one more, and ends before it answers.
    """
    with socket.socket() as reserved, tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        reserved.bind(("127.0.0.1", 0))  # and does not listen
        port: int = reserved.getsockname()[1]
        numbers = itertools.count()

        def make() -> str:
            if request.param == "gone":
                return str(Address(f"127.0.0.1:{port}", "0" * 32))
            path = f"{folder}/{next(numbers)}"
            loop.run(_listen_once(path))
            return str(Address(path, "0" * 32))

        yield make


async def _listen_once(path: str) -> None:
    async def end(connection: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server.close()
        await connection.read(1)
        answers.close()

    server = await asyncio.start_unix_server(end, path)


@pytest.fixture
def group(
    loop: LoopThread, old_receipt: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Group]]:
    """Return a function that makes a group."""
    groups: list[Group] = []

    def make() -> Group:
        groups.append(Group(loop, old_receipt()))
        return groups[-1]

    monkeypatch.setattr(source, "ShareMember", lambda options: Member(groups[-1]))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    yield make
    for member in itertools.chain.from_iterable(made.members for made in groups):
        member.close()


@pytest.mark.parametrize("others", [(), (0,), (1,)])
@pytest.mark.parametrize("acknowledges", ["foreachBatch", "sink", "defaultOutcome"])
@pytest.mark.parametrize("trigger", ["availableNow", "processingTime"])
def test_a_driver_killed_at_any_step(
    group: Callable[[], Group], trigger: str, acknowledges: str, others: tuple[int, ...]
) -> None:
    """The restarted query acknowledges all records, and none is delivered after that."""

    def query() -> Query:
        return Query(group(), trigger == "availableNow", acknowledges, others)

    steps = query().run()
    assert steps >= 12
    for step in range(steps):
        killed = query()
        with pytest.raises(Killed):
            killed.run(step)
        for member in killed.group.members:
            member.close()
        is_replayed = len(killed.offsets) > killed.commits
        killed.run()
        assert killed.group.accepted == set(range(RECORDS)), f"killed at step {step}"
        after = [offsets for run, offsets in killed.delivered if run == 2]
        if is_replayed:
            assert after[0] == [], f"killed at step {step}"


def test_an_empty_micro_batch_is_acknowledged_without_a_reader() -> None:
    done = acknowledge(cast(DataFrame, Batch(COLUMNS, [])))
    assert (done.accepted, done.released, done.rejected) == (0, 0, 0)


def test_a_receipt_of_an_earlier_reader_is_no_receipt_of_its_successor(
    group: Callable[[], Group], caplog: pytest.LogCaptureFixture
) -> None:
    """Rows with it, which a query's state may hold, do not stop the query for ever."""
    running = group()
    member = Member(running)
    member.join()
    member.run(member.acquire(unless_finished=False))
    outcomes = [Acknowledgement("t", 0, 0, 1, AcknowledgeType.ACCEPT)]
    assert deliver({running.old_receipt: outcomes}).accepted == 0
    assert "outcomes of t-0 from offset 0 on are not applied" in caplog.text

    same_place = Address.parse(member.receipt)._replace(token="0" * 32)
    with pytest.raises(SourceError, match="it is not the query that holds these records"):
        deliver({str(same_place): outcomes})
    assert member.held == [0, 1]
    assert deliver({member.receipt: outcomes}).accepted == 2


class Answers:
    """The writing side of a connection."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("waits_for", ["token", "body"])
def test_a_reader_that_stood_still_answers_what_has_arrived_meanwhile(
    waits_for: str,
) -> None:
    """The time is over, and the bytes are there: the event loop receives, and then cancels."""
    asyncio.run(_stand_still(waits_for))


async def _stand_still(waits_for: str) -> None:
    async def answer(request: Any) -> dict[str, Any]:
        return {"counts": {"accepted": 7}}

    server = DriverServer(answer, 1000)
    address = await server.listen_at("127.0.0.1")
    request = address.token.encode() + driver_server.line([])
    before = {"token": 0, "body": len(address.token)}[waits_for]
    connection, answers = asyncio.StreamReader(), Answers()
    serving = asyncio.create_task(server._serve(connection, cast(Any, answers)))
    connection.feed_data(request[:before])
    for _ in range(10):
        await asyncio.sleep(0)  # it waits for the rest

    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.call_soon(connection.feed_data, request[before:])
    loop.time = lambda: clock() + 2 * driver_server.TIMEOUT_S  # type: ignore[method-assign]
    await serving
    assert answers.sent == driver_server.line({"counts": {"accepted": 7}})
    assert answers.closed.is_set()
    server.close()
