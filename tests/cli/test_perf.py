"""`headrace perf` against the broker under test: its behaviour and output, not its numbers."""

from __future__ import annotations

import json
import re
import signal
from argparse import ArgumentTypeError

import pytest
from confluent_kafka import Message

from headrace.cli.perf.produce import throughput
from headrace.cli.perf.report import Latencies
from tests.cli.command import run, start
from tests.clients.confluent import consumer, create_topic, produce, share_from_earliest, take

TOTAL = re.compile(
    r"(\d+) (?:steady state )?records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), [\d.]+ "
    r"ms avg latency, "
    r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, "
    "fetch.time.ms"
)
ROW = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, ){2}([\d.]+, ){3}(\d+), \d+")


@pytest.fixture
def where(bootstrap_servers: str, topic_name: str) -> list[str]:
    """The option of a topic with two partitions."""
    create_topic(bootstrap_servers, topic_name, 2)
    return ["--bootstrap-server", bootstrap_servers, "--topic", topic_name]


def perf(*arguments: str) -> tuple[int, list[str], list[str]]:
    status, output, errors = run("perf", *arguments)
    return status, output.decode().splitlines(), errors


def values(bootstrap_servers: str, topic: str, group_id: str, count: int) -> list[Message]:
    with consumer(bootstrap_servers, group_id) as reader:
        reader.subscribe([topic])
        return [message.value() for message in take(reader, count)]


def test_monotonic_payloads_at_a_fraction_of_a_record_per_second(
    where: list[str], bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    options = "--num-records 3 --payload-monotonic --throughput 0.8 --json"
    status, output, errors = perf("produce", *where, *options.split())
    assert (status, errors) == (0, [])
    told = json.loads(output[0])
    assert told["records"] == 3
    assert told["seconds"] >= 2.5  # two waits of 1.25 s
    assert sorted(values(bootstrap_servers, topic_name, group_id, 3)) == [b"0", b"1", b"2"]


def test_the_lines_are_those_of_kafkas_tool(where: list[str]) -> None:
    options = (
        "--num-records 600 --record-size 10 --warmup-records 200 --throughput 500 "
        "--reporting-interval 300 --command-property acks=all linger.ms=0"
    )
    status, output, errors = perf("produce", *where, *options.split())
    assert (status, errors) == (0, [])
    assert output[0].startswith("Warmup first 200 records.")
    assert "In steady state." in output
    assert any(
        re.fullmatch(r"\d+ records sent, .* ms avg latency, [\d.]+ ms max latency\.", line)
        for line in output
    )
    total, steady = (TOTAL.fullmatch(line) for line in output[-2:])
    assert total and steady
    assert (total[1], steady[1]) == ("600", "400")
    assert float(total[2]) <= 510


def test_payloads_from_a_file(
    where: list[str], bootstrap_servers: str, topic_name: str, group_id: str, tmp_path: object
) -> None:
    path = f"{tmp_path}/payloads"
    with open(path, "w", encoding="utf-8") as file:
        file.write("één;twee")
    status, _, errors = perf(
        "produce", *where, "--num-records", "40", "--payload-file", path, "--payload-delimiter", ";"
    )
    assert (status, errors) == (0, [])
    assert set(values(bootstrap_servers, topic_name, group_id, 40)) == {"één".encode(), b"twee"}


def test_a_refused_record_is_a_failure(where: list[str], topic_name: str) -> None:
    options = "--num-records 2 --record-size 1500000 --command-property message.max.bytes=4000000"
    status, _, errors = perf("produce", *where, *options.split())
    assert status == 1
    assert len(errors) == 1
    assert f"a record for topic '{topic_name}' was refused: " in errors[0]


def test_members_share_the_records(
    where: list[str], bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [b"x" * 100] * 2000)
    options = (
        f"--group {group_id} --num-records 2000 --threads 2 --show-consumer-stats --timeout 30000"
    )
    status, output, errors = perf("share-consume", *where, *options.split())
    assert (status, errors) == (0, [])
    assert output[0] == HEADER
    shares = [
        re.fullmatch(
            rf"Share consumer {n} having client id .* consumption metrics- (.*)", output[n]
        )
        for n in (1, 2)
    ]
    rows = [ROW.fullmatch(share[1]) for share in shares if share]
    total = ROW.fullmatch(output[3])
    assert total and len(rows) == 2 and all(rows)
    assert total[3] == "2000"
    assert sum(int(row[3]) for row in rows if row) == 2000
    # They were accepted: nothing is left.
    status, output, errors = perf(
        "share-consume",
        *where,
        *f"--group {group_id} --num-records 1 --timeout 3000 --json".split(),
    )
    assert status == 1
    assert "no record came for 3000 ms: 0 of 1 were read" in errors[-1]
    assert json.loads(output[0])["data.consumed.in.nMsg"] == 0


def test_interrupted_it_reports_what_it_did(
    where: list[str], bootstrap_servers: str, topic_name: str
) -> None:
    options = "--num-records 100000 --record-size 10 --throughput 200 --reporting-interval 200"
    producing = start("perf", "produce", *where, *options.split())
    assert producing.stdout is not None
    assert b"records sent" in producing.stdout.readline()
    producing.send_signal(signal.SIGINT)
    output, errors = producing.communicate(timeout=30)
    assert (producing.returncode, errors) == (130, b"")
    assert TOTAL.fullmatch(output.decode().splitlines()[-1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "--payload-monotonic", "--num-records", "1"],
        ["share-consume", "--num-records", "1"],
    ],
)
def test_a_missing_topic_and_an_unreachable_broker_are_failures(
    arguments: list[str], bootstrap_servers: str, topic_name: str
) -> None:
    status, output, (line,) = perf(
        *arguments, "--bootstrap-server", bootstrap_servers, "--topic", topic_name
    )
    assert (status, output) == (1, [])
    assert line.endswith(
        f"topic '{topic_name}' does not exist: create it first, or correct its name"
    )
    status, output, (line,) = perf(
        *arguments, "--bootstrap-server", "127.0.0.1:1", "--topic", topic_name
    )
    assert (status, output) == (1, [])
    assert "no broker answers at 127.0.0.1:1: " in line and "Connection refused" in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("produce", "--topic"),
        ("produce --topic t --num-records 1", "--payload-monotonic"),
        (
            "produce --topic t --num-records 1 --record-size 0",
            "not a whole number above 0",
        ),
        (
            "produce --topic t --num-records 1 --record-size 1 --throughput 0",
            "is not a rate",
        ),
        (
            "produce --topic t --num-records 1 --payload-file /no/such",
            "/no/such",
        ),
        (
            "produce --topic t --num-records 1 --record-size 1 --command-property a.b=1",
            "a.b",
        ),
        ("share-consume --topic t", "--num-records"),
        ("share-consume --topic t --num-records 1 --threads x", "--threads"),
    ],
)
def test_bad_usage_is_said_in_one_line(arguments: str, complaint: str) -> None:
    status, output, errors = perf(*arguments.split())
    assert (status, output, len(errors)) == (2, [], 1)
    assert complaint in errors[0]


def test_a_record_that_librdkafka_refuses_is_said_in_one_line(where: list[str]) -> None:
    options = "--num-records 1 --record-size 2000000"
    status, output, (line,) = perf("produce", *where, *options.split())
    assert (status, output) == (1, [])
    assert "was refused: " in line and "Message size too large" in line


def test_rates() -> None:
    assert [throughput(text) for text in ("-1", "0.25", "1000")] == [-1.0, 0.25, 1000.0]
    for text in ("0", "-2", "x", "inf", "nan"):
        with pytest.raises(ArgumentTypeError):
            throughput(text)


def test_latencies_are_counted_to_a_tenth_of_a_millisecond() -> None:
    latencies = Latencies(started_s=10.0)
    for n in range(1000):
        latencies.add((n + 0.51) / 10_000, 1 << 20)
    assert latencies.average_ms == pytest.approx(49.95)
    assert latencies.max_ms == 99.9
    assert latencies.centiles_ms() == [50.0, 95.0, 99.0, 99.9]
    assert latencies.rate(15.0) == (200.0, 200.0)
    assert (
        Latencies(0.0)
        .total(1.0)
        .startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), 0.00 ms avg")
    )
