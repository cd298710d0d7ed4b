"""`headrace console-share-consumer` against the broker under test."""

from __future__ import annotations

import json
import shlex
import signal
import socket

import pytest

from tests.cli.command import run, start
from tests.clients.confluent import PATIENCE_S, create_topic, produce, share_from_earliest

SHOW = [
    word
    for part in ("offset", "delivery")
    for word in ("--formatter-property", f"print.{part}=true")
]


@pytest.fixture
def queue(bootstrap_servers: str, topic_name: str, group_id: str) -> list[str]:
    """The options of a topic, and of a group that starts at its oldest record."""
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    return ["--bootstrap-server", bootstrap_servers, "--topic", topic_name, "--group", group_id]


def console(*arguments: str) -> tuple[int, list[str], list[str]]:
    status, output, errors = run("console-share-consumer", *arguments)
    return status, output.decode().splitlines(), errors


def test_records_are_released_accepted_and_rejected(
    queue: list[str], bootstrap_servers: str, topic_name: str
) -> None:
    produce(bootstrap_servers, topic_name, [b"one", b"two", b"three"])
    assert console(*queue, *SHOW, "--max-messages", "3", "--release") == (
        0,
        ["Offset:0\tDelivery:1\tone", "Offset:1\tDelivery:1\ttwo", "Offset:2\tDelivery:1\tthree"],
        ["Processed a total of 3 messages"],
    )
    assert console(*queue, *SHOW, "--max-messages", "1") == (
        0,
        ["Offset:0\tDelivery:2\tone"],
        ["Processed a total of 1 messages"],
    )
    # What was not asked for was not acquired: its delivery count is as it was.
    assert console(*queue, *SHOW, "--max-messages", "2", "--reject") == (
        0,
        ["Offset:1\tDelivery:2\ttwo", "Offset:2\tDelivery:2\tthree"],
        ["Processed a total of 2 messages"],
    )
    assert console(*queue, "--timeout-ms", "2500") == (0, [], ["Processed a total of 0 messages"])


def test_json_has_the_delivery_count(
    queue: list[str], bootstrap_servers: str, topic_name: str
) -> None:
    produce(bootstrap_servers, topic_name, [b"text", b"\xff"], compression_type="zstd")
    status, lines, _ = console(*queue, "--json", "--max-messages", "2")
    first, second = map(json.loads, lines)
    assert status == 0
    assert (first["topic"], first["offset"], first["deliveryCount"], first["value"]) == (
        topic_name,
        0,
        1,
        "text",
    )
    assert (second["offset"], second["valueBase64"]) == (1, "/w==")


def test_what_cannot_be_shown_ends_it_or_is_rejected(
    queue: list[str], bootstrap_servers: str, topic_name: str
) -> None:
    produce(bootstrap_servers, topic_name, [b"\0\0\0\1", b"no integer", b"\0\0\0\3"])
    integers = ["--value-deserializer", "org.apache.kafka.common.serialization.IntegerDeserializer"]
    status, lines, errors = console(*queue, *integers, "--max-messages", "3")
    assert (status, lines) == (1, ["1"])
    assert errors[0] == "Processed a total of 1 messages"
    assert f"cannot format {topic_name}-0 offset 1: 10 bytes, but type integer has 4" in errors[1]
    status, lines, errors = console(
        *queue, *integers, *SHOW, "--max-messages", "2", "--reject-message-on-error"
    )
    assert (status, lines) == (0, ["Offset:2\tDelivery:2\t3"])
    assert console(*queue, "--timeout-ms", "2500")[1] == []


def offsets(output: bytes) -> list[int]:
    return [json.loads(line)["offset"] for line in output.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_acknowledges_what_it_showed_and_releases_the_rest(
    queue: list[str], bootstrap_servers: str, topic_name: str, number: signal.Signals
) -> None:
    produce(bootstrap_servers, topic_name, [b"x" * 1000] * 3000)
    process = start("console-share-consumer", *queue, "--json")
    assert process.stdout is not None
    first = process.stdout.readline()  # the pipe soon fills up, and holds the command where it is
    process.send_signal(number)
    rest, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    shown = offsets(first + rest)
    assert 0 < len(shown) < 3000
    assert errors.decode().splitlines() == [f"Processed a total of {len(shown)} messages"]
    status, output, _ = run("console-share-consumer", *queue, "--json", "--timeout-ms", "2500")
    assert status == 0
    assert sorted(shown + offsets(output)) == list(range(3000))


def test_what_its_reader_did_not_take_is_released(
    queue: list[str], bootstrap_servers: str, topic_name: str
) -> None:
    # None fits in the pipe, so that each is shown only while its reader reads.
    produce(bootstrap_servers, topic_name, [b"x" * 100_000] * 20)
    process = start("console-share-consumer", *queue, "--json")
    assert process.stdout is not None
    seen = offsets(process.stdout.readline())
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    _, output, _ = run("console-share-consumer", *queue, "--json", "--timeout-ms", "2500")
    assert set(seen + offsets(output)) == set(range(20))


def test_a_new_group_that_begins_at_the_end_is_pointed_out(
    bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    where = ["--bootstrap-server", bootstrap_servers, "--topic", topic_name, "--group", group_id]
    status, _, errors = console(*where, "--from-beginning")
    assert status == 1
    assert "share.auto.offset.reset=latest" in errors[-1] and "--to-earliest" in errors[-1]
    status, _, errors = console(*where, "--timeout-ms", "100")
    assert status == 0
    assert "share.auto.offset.reset=latest" in errors[0]
    produce(bootstrap_servers, topic_name, [b"old"])
    command = shlex.split(errors[0].partition("first run: headrace ")[2])
    assert run(*command)[0] == 0
    assert console(*where, "--from-beginning", "--max-messages", "1")[:2] == (0, ["old"])


def test_a_missing_topic_is_a_failure(bootstrap_servers: str, topic_name: str) -> None:
    status, lines, errors = console("--bootstrap-server", bootstrap_servers, "--topic", topic_name)
    assert (status, lines) == (1, [])
    assert errors[-1] == (
        f"headrace console-share-consumer: topic '{topic_name}' does not exist: create it "
        f"first, or correct its name"
    )


def test_an_unreachable_broker_is_a_failure() -> None:
    status, _, errors = console("--bootstrap-server", "127.0.0.1:1", "--topic", "t")
    assert status == 1
    assert errors[-1] == (
        "headrace console-share-consumer: no broker answers at 127.0.0.1:1: Connection refused"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--topic"),
        (["--topic", "t", "--reject", "--release"], "not allowed with"),
        (["--topic", "t", "--formatter-property", "print.kex=true"], "print.kex"),
        (["--topic", "t", "--key-deserializer", "Foo"], "unknown deserializer Foo"),
        (["--topic", "t", "--command-property", "fetch.min.bytes=1"], "fetch.min.bytes"),
        (
            ["--topic", "t", "--command-property", "security.protocol=quic"],
            "security.protocol is 'quic'",
        ),
        (["--topic", "t", "--max-messages", "-1"], "--max-messages cannot be negative"),
        (["--topic", "t", "--bootstrap-server", "nowhere"], "HOST:PORT"),
        (["--topic", "t", "--formatter-config", "/no/such"], "/no/such"),
    ],
)
def test_bad_usage_is_said_in_one_line(arguments: list[str], complaint: str) -> None:
    status, lines, errors = console(*arguments)
    assert (status, lines, len(errors)) == (2, [], 1)
    assert complaint in errors[0]


def test_a_signal_before_the_broker_has_answered_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        running = start(
            "console-share-consumer", "--topic", "t", "--bootstrap-server", f"127.0.0.1:{port}"
        )
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1), "a request"
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert errors == b"Processed a total of 0 messages\n"
