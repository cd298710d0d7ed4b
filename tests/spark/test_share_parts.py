"""Parts of the share source that need no broker and no JVM."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import AcknowledgeType, AcquiredRange
from headrace.spark import SourceError, token_server
from headrace.spark.share import outcome_server
from headrace.spark.share.executor import split
from headrace.spark.share.options import ShareOptions
from headrace.spark.share.outcome_server import OutcomeServer, deliver
from headrace.spark.share.outcome_spans import OutcomeSpan, acknowledgements, spans
from headrace.spark.share.receipt import Receipt
from tests.support import story

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.group.id": "g", "subscribe": "a, b"}


@st.composite
def acquired_ranges(draw: st.DrawFn) -> list[AcquiredRange]:
    ranges = []
    for partition in range(draw(st.integers(1, 4))):
        offset = 0
        for gap, length in draw(
            st.lists(st.tuples(st.integers(0, 50), st.integers(1, 60)), max_size=5)
        ):
            offset += gap
            ranges.append(AcquiredRange("t", partition, offset, offset + length - 1, 1 + gap % 3))
            offset += length
    return draw(st.permutations(ranges))


@given(acquired_ranges(), st.integers(1, 100))
def test_tasks_hold_every_acquired_offset_once_and_no_more_than_asked(
    ranges: list[AcquiredRange], records_per_task: int
) -> None:
    tasks = split(ranges, records_per_task)
    total = sum(r.count for r in ranges)
    sizes = [sum(last - first + 1 for _, _, first, last, _ in task.value) for task in tasks]
    assert all(1 <= size <= records_per_task for size in sizes)
    assert len(tasks) == -(-total // records_per_task)
    work = [
        (p, offset, d)
        for task in tasks
        for _, p, first, last, d in task.value
        for offset in range(first, last + 1)
    ]
    assert sorted(work) == sorted(
        (r.partition, offset, r.delivery_count)
        for r in ranges
        for offset in range(r.first_offset, r.last_offset + 1)
    )


def test_rows_become_runs_and_those_without_an_outcome_are_left_out() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * 7,
            "partition": pa.array([0, 0, 0, 0, 0, 1, 0], pa.int32()),
            "offset": [5, 3, 4, 8, 9, 3, 4],
            "outcome": ["accept", "accept", "accept", "accept", None, "reject", "accept"],
        }
    )
    assert sorted(spans(batch)) == [
        ("t", 0, "accept", 3, 5, None),
        ("t", 0, "accept", 8, 8, None),
        ("t", 1, "reject", 3, 3, None),
    ]


def test_runs_are_of_one_receipt() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * 5,
            "partition": pa.array([0] * 5, pa.int32()),
            "offset": [0, 1, 2, 3, None],
            "receipt": ["h:1/a", "h:1/a", "h:2/b", None, "h:1/a"],
        }
    )
    assert list(spans(batch)) == [
        ("t", 0, "accept", 0, 1, "h:1/a"),
        ("t", 0, "accept", 2, 2, "h:2/b"),
        ("t", 0, "accept", 3, 3, None),
    ]


def test_an_offset_with_several_outcomes_gets_one() -> None:
    outcomes = [
        OutcomeSpan("t", 0, "accept", 0, 9),
        OutcomeSpan("t", 0, "release", 4, 6),
        OutcomeSpan("t", 0, "reject", 6, 7),
        OutcomeSpan("t", 1, "accept", 0, 0),
    ]
    assert [
        (found.partition, found.first_offset, found.last_offset, found.type.name)
        for found in acknowledgements(outcomes)
    ] == [
        (0, 6, 7, "REJECT"),
        (0, 4, 5, "RELEASE"),
        (0, 0, 3, "ACCEPT"),
        (0, 8, 9, "ACCEPT"),
        (1, 0, 0, "ACCEPT"),
    ]


def test_options_are_read_whatever_their_case() -> None:
    given_options = {
        **REQUIRED,
        "INCLUDEHEADERS": "TRUE",
        "RecordsPerTask": "7",
        "outcome.default": "release",
        "kafka.fetch.min.bytes": "5",
    }
    options = ShareOptions.parse(given_options, is_source=True)
    assert options.subscription.topics == ("a", "b")
    assert options.include_headers
    assert options.records_per_task == 7
    assert options.default_outcome is AcknowledgeType.RELEASE
    assert options.kafka.librdkafka == {"fetch.min.bytes": "5"}


def test_a_sink_takes_the_options_of_its_source() -> None:
    assert (
        ShareOptions.parse({**REQUIRED, "checkpointLocation": "x"}, is_source=False).group_id == "g"
    )
    assert (
        ShareOptions.parse(
            {k: v for k, v in REQUIRED.items() if k != "subscribe"}, is_source=False
        ).group_id
        == "g"
    )


class Reader:
    """A reader that holds offsets 0 to 9 of t-0."""

    def __init__(self) -> None:
        self.applied: list[OutcomeSpan] = []
        self.server = OutcomeServer(self.apply, self.count_held)

    async def apply(self, outcomes: Sequence[OutcomeSpan]) -> dict[str, int]:
        self.applied += (tuple(outcome) for outcome in outcomes)
        return {"accept": self.count_held(outcomes)}

    def count_held(self, outcomes: Sequence[OutcomeSpan]) -> int:
        return sum(
            min(last, 9) - first + 1 for topic, _, _, first, last, _ in outcomes if topic == "t"
        )


@pytest.fixture
def registrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outcome_server, "registry", lambda: tmp_path)
    return tmp_path


def test_outcomes_reach_the_reader_that_holds_the_records(registrations: Path) -> None:
    async def scenario() -> None:
        reader, idle = Reader(), Reader()
        idle.count_held = lambda outcomes: 0  # type: ignore[method-assign]
        idle.server = OutcomeServer(idle.apply, idle.count_held)
        await reader.server.start("b:1", "g")
        await idle.server.start("b:1", "another group")
        applied = await asyncio.to_thread(deliver, [OutcomeSpan("t", 0, "accept", 0, 9)])
        assert applied == {"accept": 10, "release": 0, "reject": 0}
        assert reader.applied == [OutcomeSpan("t", 0, "accept", 0, 9)]
        assert idle.applied == []
        reader.server.close()
        idle.server.close()

    asyncio.run(scenario())
    assert list(registrations.iterdir()) == []


@story
async def test_a_request_without_the_token_is_not_answered(registrations: Path) -> None:
    reader = Reader()
    await reader.server.start("b:1", "g")

    def guess_token() -> bytes:
        (path,) = registrations.glob("*.json")
        assert path.stat().st_mode & 0o077 == 0
        note = json.loads(path.read_text())
        served = Path(note["path"])
        assert (served.stat().st_mode & 0o777, served.parent.stat().st_mode & 0o777) == (
            0o600,
            0o700,
        )
        guess = "0" * len(note["token"])
        body = json.dumps({"apply": True, "outcomes": [["t", 0, "accept", 0, 9]]}).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(note["path"])
            connection.sendall(guess.encode() + len(body).to_bytes(4, "big") + body)
            return connection.recv(100)

    assert await asyncio.to_thread(guess_token) == b""
    assert reader.applied == []
    reader.server.close()


@story
async def test_receipts_name_the_readers_and_no_file_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome_server, "registry", lambda: None)
    first, second = Reader(), Reader()
    receipts = [
        str(await reader.server.start_with_receipt("127.0.0.1")) for reader in (first, second)
    ]
    gone = str(Receipt("127.0.0.1", unused_port(), "0" * 32))
    outcomes = [
        OutcomeSpan("t", 0, "accept", offset, offset, receipt)
        for offset, receipt in enumerate((*receipts, receipts[0], gone))
    ]
    assert (await asyncio.to_thread(deliver, outcomes))["accept"] == 3
    assert first.applied == [("t", 0, "accept", 0, 0, None), ("t", 0, "accept", 2, 2, None)]
    assert second.applied == [("t", 0, "accept", 1, 1, None)]
    assert (await asyncio.to_thread(deliver, outcomes[3:]))["accept"] == 0
    with pytest.raises(SourceError, match="needs the option includeReceipt"):
        await asyncio.to_thread(deliver, [OutcomeSpan("t", 0, "accept", 0, 9)])
    with pytest.raises(SourceError, match="'x', which is no receipt"):
        await asyncio.to_thread(deliver, [OutcomeSpan("t", 0, "accept", 0, 9, "x")])
    first.server.close()
    second.server.close()


@story
async def test_strangers_keep_nobody_out_and_send_no_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest stranger ends. Requests of strangers are not received."""
    monkeypatch.setattr(token_server, "MAX_STRANGERS", 3)
    reader = Reader()
    receipt = await reader.server.start_with_receipt("127.0.0.1")
    streams = [await asyncio.open_connection(receipt.host, receipt.port) for _ in range(3)]
    outcome = OutcomeSpan("t", 0, "accept", 0, 9, str(receipt))
    assert (await asyncio.to_thread(deliver, [outcome]))["accept"] == 10
    assert await streams[0][0].read() == b""
    streams[1][1].write(b"0" * 32 + b"\x3f\xff\xff\xff")
    assert await streams[1][0].read() == b"", "closed before its body"
    for _, writer in streams:
        writer.close()
    reader.server.close()


@story
async def test_a_long_folder_for_temporary_files_is_none_for_a_socket(
    registrations: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    reader = Reader()
    await reader.server.start("b:1", "g")
    assert (await asyncio.to_thread(deliver, [OutcomeSpan("t", 0, "accept", 0, 9)]))["accept"] == 10
    reader.server.close()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("host", ["10.0.0.7", "driver.example", "fe80::1"])
def test_a_receipt_is_text(host: str) -> None:
    receipt = Receipt(host, 4711, "ab" * 16)
    assert Receipt.parse(str(receipt)) == receipt


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def test_the_registration_of_a_killed_reader_is_removed(registrations: Path) -> None:
    """Its socket, too: Spark removes only its own folders."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(folder / "requests"))
    path = str(folder / "requests")
    left = {"bootstrap_servers": "b:1", "group_id": "g", "path": path, "token": "x"}
    (registrations / "left.json").write_text(json.dumps(left))
    with pytest.raises(SourceError, match="no kafka-share query"):
        deliver([OutcomeSpan("t", 0, "accept", 0, 9)])
    assert list(registrations.iterdir()) == []
    assert not folder.exists()
