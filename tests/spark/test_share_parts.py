"""Parts of the share source that need no broker and no JVM."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import Acknowledgement, AcknowledgeType, AcquiredRange
from headrace.spark import SourceError, driver_server
from headrace.spark.driver_server import Address, DriverServer
from headrace.spark.share.executor import split
from headrace.spark.share.options import ShareOptions
from headrace.spark.share.outcomes import deliver, one_for_each_offset, outcome_runs, requested
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
    tasks = split(ranges, records_per_task, "a receipt")
    total = sum(r.count for r in ranges)
    sizes = [sum(r.end - r.start for r in task.value) for task in tasks]
    assert all(1 <= size <= records_per_task for size in sizes)
    assert len(tasks) == -(-total // records_per_task)
    work = [
        (r.partition, offset, r.delivery_count)
        for task in tasks
        for r in task.value
        for offset in range(r.start, r.end)
    ]
    assert sorted(work) == sorted(
        (r.partition, offset, r.delivery_count)
        for r in ranges
        for offset in range(r.first_offset, r.last_offset + 1)
    )


ACCEPT, RELEASE, REJECT = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)


def test_rows_become_runs_and_those_without_an_outcome_are_left_out() -> None:
    columns = {
        "topic": ["t"] * 8,
        "partition": pa.array([0, 0, 0, 0, 0, 1, 0, 0], pa.int32()),
        "offset": [5, 3, 4, 8, 9, 3, 4, 6],
        "outcome": ["accept", "accept", "accept", "accept", None, "reject", "accept", "accept"],
        "receipt": ["h:1/a", "h:1/a", "h:1/a", "h:1/a", None, "h:1/a", "h:1/a", "h:2/b"],
    }
    assert sorted(outcome_runs(pa.RecordBatch.from_pydict(columns))) == [
        ("h:1/a", "t", 0, 3, 5, "accept", "", 0),
        ("h:1/a", "t", 0, 8, 8, "accept", "", 0),
        ("h:1/a", "t", 1, 3, 3, "reject", "", 0),
        ("h:2/b", "t", 0, 6, 6, "accept", "", 0),
    ]
    columns["reason"] = [None, None, None, None, None, "no order", None, "b"]
    columns["delay"] = pa.array([0, 0, 5, None, 0, 0, 0, 0], pa.int32())
    assert sorted(outcome_runs(pa.RecordBatch.from_pydict(columns))) == [
        ("h:1/a", "t", 0, 3, 5, "accept", "", 0),
        ("h:1/a", "t", 0, 4, 4, "accept", "", 5),
        ("h:1/a", "t", 0, 8, 8, "accept", "", 0),
        ("h:1/a", "t", 1, 3, 3, "reject", "no order", 0),
        ("h:2/b", "t", 0, 6, 6, "accept", "b", 0),
    ]


def test_an_offset_with_several_outcomes_gets_one() -> None:
    outcomes = [
        Acknowledgement("t", 0, 0, 9, ACCEPT),
        Acknowledgement("t", 0, 4, 6, RELEASE),
        Acknowledgement("t", 0, 6, 7, REJECT),
        Acknowledgement("t", 1, 0, 0, ACCEPT),
        Acknowledgement("t", 1, 1, 1, REJECT, reason="a"),
        Acknowledgement("t", 1, 2, 2, REJECT, reason="b"),
    ]
    assert one_for_each_offset(outcomes) == [
        Acknowledgement("t", 0, 6, 7, REJECT),
        Acknowledgement("t", 1, 1, 1, REJECT, reason="a"),
        Acknowledgement("t", 1, 2, 2, REJECT, reason="b"),
        Acknowledgement("t", 0, 4, 5, RELEASE),
        Acknowledgement("t", 0, 0, 3, ACCEPT),
        Acknowledgement("t", 0, 8, 9, ACCEPT),
        Acknowledgement("t", 1, 0, 0, ACCEPT),
    ]


def test_options_are_read_whatever_their_case() -> None:
    given_options = {
        **REQUIRED,
        "INCLUDEHEADERS": "TRUE",
        "RecordsPerTask": "7",
        "defaultOutcome": "release",
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
        self.applied: list[Acknowledgement] = []
        self.server = DriverServer(self.answer, 1000)

    async def answer(self, request: Any) -> dict[str, Any]:
        outcomes = requested(request)
        self.applied += outcomes
        return {
            "counts": {
                "accepted": sum(min(o.last_offset, 9) - o.first_offset + 1 for o in outcomes)
            }
        }


ALL = [Acknowledgement("t", 0, 0, 9, ACCEPT)]


@story
async def test_only_the_user_reaches_a_reader_and_only_with_the_token() -> None:
    reader = Reader()
    address = await reader.server.listen_on_host()
    folder = str(Path(address.place).parent)
    assert [os.stat(path).st_mode & 0o777 for path in (address.place, folder)] == [0o600, 0o700]

    def guess_token() -> bytes:
        body = json.dumps([["t", 0, 0, 9, 1]]).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address.place)
            guess = "0" * len(address.token)
            connection.sendall(guess.encode() + body + b"\n")
            return connection.recv(100)

    assert await asyncio.to_thread(guess_token) == b""
    assert reader.applied == []
    assert (await asyncio.to_thread(deliver, {str(address): ALL})).accepted == 10
    assert reader.applied == ALL
    reader.server.close()
    with pytest.raises(FileNotFoundError):
        os.stat(folder)


@story
async def test_receipts_name_the_readers() -> None:
    first, second = Reader(), Reader()
    receipts = [str(await reader.server.listen_at("127.0.0.1")) for reader in (first, second)]
    gone = str(Address(f"127.0.0.1:{unused_port()}", "0" * 32))
    one = {offset: Acknowledgement("t", 0, offset, offset, ACCEPT) for offset in range(4)}
    outcomes = {receipts[0]: [one[0], one[2]], receipts[1]: [one[1]], gone: [one[3]]}
    assert (await asyncio.to_thread(deliver, outcomes)).accepted == 3
    assert (first.applied, second.applied) == ([one[0], one[2]], [one[1]])
    with pytest.raises(SourceError, match="'x', which is no receipt"):
        await asyncio.to_thread(deliver, {"x": ALL})
    first.server.close()
    second.server.close()


@story
async def test_strangers_keep_nobody_out_and_send_no_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest stranger ends. Requests of strangers are not received, nor are larger ones."""
    monkeypatch.setattr(driver_server, "MAX_STRANGERS", 3)
    reader = Reader()
    address = await reader.server.listen_at("127.0.0.1")
    host, port = address.place.split(":")
    streams = [await asyncio.open_connection(host, port) for _ in range(3)]
    assert (await asyncio.to_thread(deliver, {str(address): ALL})).accepted == 10
    assert await streams[0][0].read() == b""
    streams[1][1].write(b"0" * 32)
    assert await streams[1][0].read() == b"", "closed before its body"
    streams[2][1].write(address.token.encode() + b"[" * 1001)
    assert await streams[2][0].read() == b"", "too large"
    for _, writer in streams:
        writer.close()
    reader.server.close()


@story
async def test_an_answer_is_not_received_if_it_is_too_large() -> None:
    """The receipt of a row that is not of kafka-share may lead to anybody."""

    async def claim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(2 << 20))
        with suppress(ConnectionError):
            await reader.read()  # the request, up to the end of the connection
        writer.close()

    server = await asyncio.start_server(claim, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    receipt = str(Address(f"127.0.0.1:{port}", "0" * 32))
    with pytest.raises(SourceError, match="it is not the query that holds these records"):
        await asyncio.wait_for(asyncio.to_thread(deliver, {receipt: ALL}), 20)
    server.close()


@pytest.mark.parametrize("spark_folder", ["", "a folder of Spark", "x" * 100])
@story
async def test_the_socket_is_in_a_folder_that_spark_removes_if_its_path_is_short(
    monkeypatch: pytest.MonkeyPatch, spark_folder: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        long, folder = f"{temporary}/{'y' * 100}", f"{temporary}/{spark_folder}"
        os.makedirs(long)
        os.makedirs(folder, exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", long)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/elsewhere" if spark_folder else "")
        reader = Reader()
        address = await reader.server.listen_on_host()
        is_short = spark_folder == "a folder of Spark"
        assert str(Path(address.place).parent.parent) == (folder if is_short else "/tmp")
        assert (await asyncio.to_thread(deliver, {str(address): ALL})).accepted == 10
        reader.server.close()
        assert os.listdir(long) == []


@pytest.mark.parametrize("place", ["10.0.0.7:4711", "a.b:1", "[fe80::1]:4711", "/t/s"])
def test_a_receipt_is_text(place: str) -> None:
    address = Address(place, "ab" * 16)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "x", "host/ab", ":1/ab", "host:1/", "host:x/ab"])
def test_other_text_is_no_receipt(text: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        Address.parse(text)


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port
