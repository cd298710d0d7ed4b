"""A driver that is killed at any step of a micro-batch, and the micro-batch that is replayed.

Spark's side is a small machine: offset log, commit log, and the calls of the source in their order.
The readers, their servers of outcomes, `acknowledge` and the sink are the real ones. The share
group is a list of records.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from headrace.client import AcquiredRange
from headrace.spark import SourceError, acknowledge, token_server
from headrace.spark.event_loop_thread import EventLoopThread
from headrace.spark.pyspark_capabilities import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    stream_reader,
)
from headrace.spark.share import outcome_server, source
from headrace.spark.share.acquisitions import Counts
from headrace.spark.share.options import ShareOptions
from headrace.spark.share.outcome_server import (
    OutcomeServer,
    Registration,
    RegistrationFile,
    deliver,
)
from headrace.spark.share.outcome_spans import OutcomeSpan
from headrace.spark.share.outcomes import OutcomeWriter
from headrace.spark.share.receipt import Receipt
from headrace.spark.share.source import ShareStreamReader

BATCH = 2
RECORDS = 3
POSITION = ["topic", "partition", "offset"]
OPTIONS = ShareOptions.parse(
    {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "g", "subscribe": "t"}, is_source=True
)
OUTCOMES = StructType([StructField(name, StringType()) for name in (*POSITION, "receipt")])
"""The columns of the sink's rows, whose types do not matter here."""


@dataclass
class Group:
    """A share group over one partition.

    :param loop: where its members serve
    :param old_receipt: of a reader that has ended, and whose port is nobody's
    :ivar free: offsets that may be acquired
    """

    loop: EventLoopThread
    old_receipt: str
    free: list[int] = field(default_factory=lambda: list(range(RECORDS)))
    accepted: set[int] = field(default_factory=set)
    members: list[Member] = field(default_factory=list)


class Member:
    """Stands for the :class:`ShareMember` of a reader."""

    def __init__(self, group: Group, options: ShareOptions) -> None:
        self.id = secrets.token_hex(4)
        self.receipt: str | None = None
        self.counts = Counts()
        self.held: list[int] = []
        self.has_joined = False
        self._group = group
        self._server = OutcomeServer(self.apply, self.count_held)
        group.loop.submit(self._listen(options.include_receipt)).result()
        group.members.append(self)

    async def _listen(self, include_receipt: bool) -> None:
        if include_receipt:
            self.receipt = str(await self._server.start_with_receipt("127.0.0.1"))
        else:
            await self._server.start("b:1", "g")

    def join(self) -> None:
        self.has_joined = True

    async def apply(self, outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
        wanted = {n for o in outcomes for n in range(o.first_offset, o.last_offset + 1)}
        return {"accept": self.accept(wanted)}

    def count_held(self, outcomes: Sequence[OutcomeSpan]) -> int:
        return len(self.held)

    def accept(self, offsets: Iterable[int]) -> int:
        done = set(offsets) & set(self.held)
        self.held = [n for n in self.held if n not in done]
        self._group.accepted |= done
        return len(done)

    def acquire(self) -> list[AcquiredRange]:
        assert self.has_joined
        taken, self._group.free = self._group.free[:BATCH], self._group.free[BATCH:]
        self.held += taken
        return [AcquiredRange("t", 0, n, n, 1) for n in taken]

    acquire_unless_finished = acquire

    def acknowledge_rest(self, ranges: Sequence[AcquiredRange]) -> None:
        self.accept(r.first_offset for r in ranges)

    def stop_at_current_end(self) -> None:
        assert self.has_joined

    def lag(self) -> dict[str, dict[str, int]]:
        return {}

    def close(self) -> None:
        """End, and release what is held."""
        self._group.loop.submit(self._stop()).result()
        self._group.free = sorted(self._group.free + self.held)
        self.held = []

    def kill(self) -> None:
        """End as SIGKILL ends: the registration stays."""
        if self._server._file is not None:
            self._server._file.unlock()
            self._server._file = None
        self.close()

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
    receipts: bool
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

        options = replace(OPTIONS, include_receipt=self.receipts)
        reader: Any = stream_reader(ShareStreamReader(options), ReadAllAvailable())
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
        columns = [*POSITION, "receipt"] if self.receipts else POSITION
        rows = [
            ["t", 0, first, *([task.receipt] if self.receipts else [])]
            for task in tasks
            for _, _, first, _, _ in task.value
        ]
        offsets = [row[2] for row in rows]
        if number in self.others:  # a row from state, whose record was accepted long ago
            rows.append(["t", 0, RECORDS, *([self.group.old_receipt] * self.receipts)])
        batch = Batch(columns, rows)
        assert not set(offsets) & self.group.accepted, "accepted before"
        self.delivered.append((self.runs, offsets))
        here()  # sunk
        if self.acknowledges == "foreachBatch":
            found = acknowledge(cast(DataFrame, batch)).accepted
            assert found == len(offsets)
        elif self.acknowledges == "sink":
            writer = OutcomeWriter(OPTIONS, OUTCOMES)
            writer.commit([writer.write(iter([batch.arrow()]))], number)
        here()  # acknowledged
        self.commits += 1
        here()  # committed
        reader.commit(end)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Group]]:
    """Return a function that makes a group; its readers register in one directory."""
    groups: list[Group] = []
    loop = EventLoopThread("members")
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))  # and does not listen: it refuses connections
    old_receipt = str(Receipt("127.0.0.1", reserved.getsockname()[1], "0" * 32))

    def make() -> Group:
        groups.append(Group(loop, old_receipt))
        return groups[-1]

    monkeypatch.setattr(outcome_server, "registry", lambda: tmp_path)
    monkeypatch.setattr(outcome_server, "_link_registry", lambda path: None)
    monkeypatch.setattr(source, "ShareMember", lambda options: Member(groups[-1], options))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    yield make
    for member in itertools.chain.from_iterable(one.members for one in groups):
        member.kill()
    loop.stop(5)
    reserved.close()


@contextmanager
def ending_reader(group: Group, directory: Path) -> Iterator[None]:
    """Register a reader that takes one more connection, and ends before it answers."""
    servers: list[asyncio.Server] = []

    async def end(connection: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        servers[0].close()
        await connection.read(1)
        answers.close()

    async def listen() -> None:
        servers.append(await asyncio.start_unix_server(end, path))

    async def close() -> None:
        servers[0].close()

    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        path = f"{folder}/s"
        group.loop.submit(listen()).result()
        file = RegistrationFile(directory, Registration("b:1", "g", path, "0" * 32))
        yield
        group.loop.submit(close()).result()
        file.unlock()


@pytest.mark.parametrize("earlier_reader", ["gone", "ending"])
@pytest.mark.parametrize("others", [(), (0,), (1,)])
@pytest.mark.parametrize("found_by", ["registration", "receipt"])
@pytest.mark.parametrize("acknowledges", ["foreachBatch", "sink", "outcome.default"])
@pytest.mark.parametrize("trigger", ["availableNow", "processingTime"])
def test_a_driver_killed_at_any_step(
    group: Callable[[], Group],
    tmp_path: Path,
    trigger: str,
    acknowledges: str,
    found_by: str,
    others: tuple[int, ...],
    earlier_reader: str,
) -> None:
    """The restarted query acknowledges all records, and none is delivered after that.

    :param earlier_reader: the registration of the first run's reader leads nowhere, or to a process
        that ends when it is asked
    """

    def query() -> Query:
        now, receipts = trigger == "availableNow", found_by == "receipt"
        return Query(group(), now, acknowledges, receipts, others)

    steps = query().run()
    assert steps >= 12
    for step in range(steps):
        killed = query()
        with pytest.raises(Killed):
            killed.run(step)
        for member in killed.group.members:
            member.kill()
        is_replayed = len(killed.offsets) > killed.commits
        is_ending = earlier_reader == "ending"
        with ending_reader(killed.group, tmp_path) if is_ending else nullcontext():
            killed.run()
        assert killed.group.accepted == set(range(RECORDS)), f"killed at step {step}"
        after = [offsets for run, offsets in killed.delivered if run == 2]
        if is_replayed:
            assert after[0] == [], f"killed at step {step}"


def test_an_empty_micro_batch_is_acknowledged_while_an_earlier_reader_ends(
    group: Callable[[], Group], tmp_path: Path
) -> None:
    with ending_reader(group(), tmp_path):
        done = acknowledge(cast(DataFrame, Batch(POSITION, [])))
    assert (done.accepted, done.released, done.rejected) == (0, 0, 0)


def test_readers_that_end_do_not_fail_the_outcomes_of_another(
    group: Callable[[], Group], tmp_path: Path
) -> None:
    running = group()
    member = Member(running, OPTIONS)
    member.join()
    member.acquire()
    outcomes = [OutcomeSpan("t", 0, "accept", 0, 1)]
    with ending_reader(running, tmp_path), ending_reader(running, tmp_path):
        assert deliver(outcomes)["accept"] == 2
    member.kill()
    with (
        ending_reader(running, tmp_path),
        pytest.raises(SourceError, match="no kafka-share query runs"),
    ):
        deliver(outcomes)


def test_what_a_killed_reader_has_left_is_not_asked(
    group: Callable[[], Group], tmp_path: Path
) -> None:
    running = group()
    member = Member(running, OPTIONS)
    member.join()
    member.acquire()
    (found,) = outcome_server._registered(None, None)
    RegistrationFile(tmp_path, replace(found, path=str(tmp_path / "s"))).unlock()
    assert deliver([OutcomeSpan("t", 0, "accept", 0, 1)])["accept"] == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_records_that_no_reader_of_several_groups_holds_are_not_counted(
    group: Callable[[], Group],
) -> None:
    """The queries run: it would be wrong to say that there is none."""
    running = group()
    members = [Member(running, replace(OPTIONS, group_id=name)) for name in ("g", "h")]
    assert deliver([OutcomeSpan("t", 0, "accept", 0, 1)])["accept"] == 0
    members[1].join()
    members[1].acquire()
    assert deliver([OutcomeSpan("t", 0, "accept", 0, 1)])["accept"] == 2


def test_a_receipt_of_an_earlier_reader_is_no_receipt_of_its_successor(
    group: Callable[[], Group], caplog: pytest.LogCaptureFixture
) -> None:
    """Rows with it, which a query's state may hold, do not stop the query for ever."""
    running = group()
    member = Member(running, replace(OPTIONS, include_receipt=True))
    member.join()
    member.acquire()
    outcomes = [OutcomeSpan("t", 0, "accept", 0, 1, running.old_receipt)]
    assert deliver(outcomes) == {"accept": 0, "release": 0, "reject": 0}
    assert "outcomes of t-0 from offset 0 on are not applied" in caplog.text

    same_port = Receipt.parse(member.receipt or "")._replace(token="0" * 32)
    outcomes = [OutcomeSpan("t", 0, "accept", 0, 1, str(same_port))]
    with pytest.raises(SourceError, match="it is not the query that holds these records"):
        deliver(outcomes)
    assert member.held == [0, 1]


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


@pytest.mark.parametrize("waits_for", ["token", "size", "body"])
def test_a_reader_that_stood_still_answers_what_has_arrived_meanwhile(
    waits_for: str,
) -> None:
    """The time is over, and the bytes are there: the event loop receives, and then cancels."""
    asyncio.run(_stand_still(waits_for))


async def _stand_still(waits_for: str) -> None:
    async def apply(outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
        return {"accept": 7}

    server = OutcomeServer(apply, len)
    receipt = await server.start_with_receipt("127.0.0.1")
    frame = token_server.frame({"apply": True, "outcomes": []})
    request = receipt.token.encode() + frame
    before = {"token": 0, "size": len(receipt.token), "body": len(receipt.token) + 4}[waits_for]
    connection, answers = asyncio.StreamReader(), Answers()
    serving = asyncio.create_task(server._server._serve(connection, cast(Any, answers)))
    connection.feed_data(request[:before])
    for _ in range(10):
        await asyncio.sleep(0)  # it waits for the rest

    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.call_soon(connection.feed_data, request[before:])
    loop.time = lambda: clock() + 2 * token_server.TIMEOUT_S  # type: ignore[method-assign]
    await serving
    assert answers.sent == token_server.frame({"counts": {"accept": 7}})
    assert answers.closed.is_set()
    server.close()
