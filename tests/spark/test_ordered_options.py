"""Options of `kafka-ordered`, and reports of tasks. Needs no broker and no JVM."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark import SourceError, driver_server
from headrace.spark.driver_server import exchange
from headrace.spark.ordered.options import Bound, OrderedOptions
from headrace.spark.ordered.progress import ReportServer, TaskCounts, send_report

READER = """
import time
from headrace.spark.ordered.options import OrderedOptions
from headrace.spark.ordered.source import OrderedStreamReader

given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "weather"}
reader = OrderedStreamReader(OrderedOptions.parse(given, streaming=True))
try:  # as Spark does it
    print(reader._report_server().next_batch().server.place, flush=True)
    while True:
        time.sleep(0.1)
finally:
    reader.stop()
"""

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "weather, flights"}


def parse(streaming: bool | None = True, **more: str) -> OrderedOptions:
    return OrderedOptions.parse(
        {**REQUIRED, **{name.replace("__", "."): value for name, value in more.items()}},
        streaming=streaming,
    )


def test_options_are_those_of_sparks_kafka_source() -> None:
    options = parse(
        startingOffsets='{"weather": {"0": 23, "1": -1}, "flights": {"0": -2, "1": 5}}',
        MAXOFFSETSPERTRIGGER="1000",
        maxTaskIdleMs="-1",
        failOnDataLoss="False",
        kafka__isolation__level="read_committed",
        kafka__group__id="dashboard",
    )
    assert options.subscription.topics == ("weather", "flights")
    assert options.start.offsets == {
        ("weather", 0): 23,
        ("weather", 1): -1,
        ("flights", 0): -2,
        ("flights", 1): 5,
    }
    assert (options.max_offsets, options.max_task_idle_ms, options.fail_on_data_loss) == (
        1000,
        -1,
        False,
    )
    assert options.reading.read_committed
    assert options.group_id == "dashboard"


def test_a_stream_begins_at_the_end_and_a_batch_at_the_start_unless_told_otherwise() -> None:
    assert parse(True).start == Bound("latest")
    assert parse(False).start == Bound("earliest")
    assert parse(False, endingTimestamp="7").end.timestamp_ms == 7
    assert parse(True).max_task_idle_ms == 0


@pytest.mark.parametrize(
    ("streaming", "wrong", "advice"),
    [
        (True, {"maxTaskIdleMs": "-2"}, "use a whole number from -1"),
        (True, {"startingOffsets": "first"}, "use earliest, latest, committed, or JSON such as"),
        (True, {"startingOffsets": "committed"}, "set the option kafka.group.id"),
        (True, {"startingOffsets": "{broken"}, "option startingOffsets cannot be parsed: use JSON"),
        (True, {"startingOffsets": '{"a": {"0": -3}}'}, "has -3 for a-0: use a number from -2"),
        (True, {"startingOffsets": "latest", "startingTimestamp": "7"}, "not both"),
        (True, {"kafka__isolation__level": "none"}, "use read_uncommitted or read_committed"),
        (
            True,
            {"kafka__enable__auto__commit": "true"},
            "remove the option kafka.enable.auto.commit",
        ),
        (True, {"minPartitions": "5"}, "remove the option minPartitions: it is for spark.read"),
        (
            False,
            {"maxOffsetsPerTrigger": "5"},
            "remove the option maxOffsetsPerTrigger: it is for spark.readStream",
        ),
        (False, {"endingOffsets": "earliest"}, "use latest, or JSON"),
        (False, {"endingOffsets": '{"a": {"0": -2}}'}, "has -2 for a-0: use a number from -1"),
        (None, {"maxTaskIdle": "5"}, "did you mean maxTaskIdleMs?"),
    ],
)
def test_invalid_options_have_advice(
    streaming: bool | None, wrong: dict[str, str], advice: str
) -> None:
    with pytest.raises(SourceError) as caught:
        parse(streaming, **wrong)
    assert advice in str(caught.value)


def test_reports_of_tasks_are_added_up_once() -> None:
    server = ReportServer("127.0.0.1:9092")
    try:
        first = server.next_batch()
        guess = first._replace(server=first.server._replace(token="0" * 32))
        send_report(first, 0, TaskCounts(10, 3, 1, 5000))
        send_report(first, 1, TaskCounts(5, 0, 0, 4000))
        send_report(first, 1, TaskCounts(5, 0, 0, 4000))  # the task ran again
        send_report(guess, 2, TaskCounts(99, 99, 99, 9))
        assert server.totals() == TaskCounts(15, 3, 1)
        second = server.next_batch()
        send_report(first, 0, TaskCounts(99, 99, 99, 9))  # too late
        send_report(second, 0, TaskCounts(1, 1, 1, 4500))
        assert server.totals() == TaskCounts(16, 4, 2)
        server.next_batch()
        assert server.stream_times_ms == {0: 5000, 1: 4000}
    finally:
        server.close()


@pytest.mark.parametrize("sent", [b"[" * 4000, b"[", b"\xff" * 32, b""])
def test_a_stranger_delays_no_report(sent: bytes) -> None:
    """Whatever it has sent, and though it stays connected."""
    server = ReportServer("127.0.0.1:9092")
    try:
        address = server.next_batch()
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(address.server.place)
            stranger.sendall(sent)
            send_report(address, 0, TaskCounts(10, 3, 1, 5000))
            assert server.totals() == TaskCounts(10, 3, 1)
    finally:
        server.close()


@pytest.mark.parametrize(
    "numbers", [[1, 0], [[]], [{}, {}], None, [1, [float("inf")] * 6], [1, []]]
)
def test_a_report_of_another_form_is_answered_and_not_added(numbers: object) -> None:
    server = ReportServer("127.0.0.1:9092")
    try:
        address = server.next_batch()
        assert b"error" in exchange(address.server, numbers)
        assert server.totals() == TaskCounts()
    finally:
        server.close()


def test_tasks_of_other_hosts_report_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_server, "own_address", lambda _: "0.0.0.0")
    server = ReportServer("broker.example.com:9092")
    try:
        address = server.next_batch()
        assert address.server.place.startswith("0.0.0.0:")
        send_report(address, 0, TaskCounts(10, 3, 1, 5000))
        assert server.totals() == TaskCounts(10, 3, 1)
    finally:
        server.close()


def test_a_report_that_cannot_be_delivered_is_dropped() -> None:
    server = ReportServer("127.0.0.1:9092")
    address = server.next_batch()
    server.close()
    assert not Path(address.server.place).parent.exists()
    send_report(address, 0, TaskCounts(1, 0, 0, 1))


def test_a_reader_that_spark_ends_leaves_no_socket() -> None:
    """Spark sends SIGTERM to the process of a query that is stopped."""
    with subprocess.Popen([sys.executable, "-c", READER], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            listens_at = Path(process.stdout.readline().decode().strip())
            assert listens_at.is_socket()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert not listens_at.parent.exists()
