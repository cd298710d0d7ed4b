"""`headrace topics`, `configs`, `produce`, `consume` and `top`, beside Kafka's own tools."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.main import main
from headrace.protocol.record_batch import HEADER_BYTES, build, header_at, seal
from headrace.secure_broker import SecureBroker
from tests.cli.command import ENVIRONMENT, HEADRACE, start
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.peer import run_tool
from tests.support import unique, wait_until, write_properties
from tests.wire_client import connection

Ran = tuple[int, str, str]
"""Exit status, stdout, stderr."""
Headrace = Callable[..., str]
"""``headrace("topics list", stdin=b"", status=0)`` returns stdout, with stderr behind it after a
failure.
"""


def ran(command: str, *arguments: str, stdin: bytes = b"", env: Any = None) -> Ran:
    done = subprocess.run(
        [*HEADRACE, *command.split(), *arguments],
        input=stdin,
        capture_output=True,
        env=env or ENVIRONMENT,
        timeout=120,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def headrace(
    bootstrap_servers: str,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Headrace:
    """Run commands in this process, as starting one takes most of the time."""

    def call(command: str, *arguments: str, stdin: bytes = b"", status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(stdin)))
        capsysbinary.readouterr()
        words = [*command.split(), *arguments, "--bootstrap-server", bootstrap_servers]
        ended = main(words)
        said = capsysbinary.readouterr()
        assert ended == status, said
        return (said.out + said.err if status else said.out).decode()

    return call


@pytest.fixture
def tool(kafka_libs: Path, bootstrap_servers: str) -> Callable[..., str]:
    def run(tool_class: str, *args: str, stdin: str = "") -> str:
        done = run_tool(tool_class, "--bootstrap-server", bootstrap_servers, *args, stdin=stdin)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with three partitions; partition 0 has the records 0 to 9 of the times 1,000,000 ms,
    1,001,000 ms and so on.
    """
    from confluent_kafka import Producer

    name = create_topic(bootstrap_servers, unique("topic"), partitions=3, retention_ms="-1")
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(10):
        at_ms = 1_000_000 + 1_000 * number
        producer.produce(name, b"%d" % number, partition=0, timestamp=at_ms)
    assert producer.flush(PATIENCE_S) == 0
    return name


def lines(output: str) -> list[str]:
    return [line.rstrip() for line in output.splitlines() if line.strip()]


# Topics -------------------------------------------------------------------------------------------


def names(headrace: Headrace, *patterns: str) -> list[str]:
    """Return the names of topics."""
    return [row["topic"] for row in json.loads(headrace("topics list", *patterns, "-o", "json"))]


def test_the_life_of_a_topic(headrace: Headrace) -> None:
    name = unique("t")
    created = headrace("topics create", name, "--partitions", "2", "--config", "retention.ms=77")
    assert created.splitlines()[1].split() == [name, "created"]
    assert name in names(headrace)
    headrace("topics alter", name, "--partitions", "5", "--yes")
    (topic,) = json.loads(headrace("topics describe", name, "-o", "json"))
    assert (topic["partition_count"], topic["configs"]["retention.ms"]) == (5, "77")
    listed = headrace("topics describe", name, "--partitions", "-o", "jsonl").splitlines()
    assert [json.loads(line)["partition"] for line in listed] == [0, 1, 2, 3, 4]
    assert "would be deleted" in headrace("topics delete", name, "--dry-run")
    assert "Delete 1 topic with its records?" in headrace("topics delete", name, status=2)
    headrace("topics delete", name, "--yes")
    wait_until(lambda: name not in names(headrace), PATIENCE_S, "its deletion")
    complaint = headrace("topics describe", name, status=1)
    assert complaint.startswith(f"headrace topics describe: topic '{name}' does not exist")
    assert headrace("topics delete", name, "--if-exists") == ""


def test_many_topics_are_changed_together_or_not_at_all(headrace: Headrace) -> None:
    prefix = unique("many")
    headrace("topics create", f"{prefix}-b", "--partitions", "4")
    said = headrace("topics create", f"{prefix}-a", f"{prefix}-b", status=1)
    assert "TOPIC_ALREADY_EXISTS" in said
    assert names(headrace, f"{prefix}-.*") == [f"{prefix}-b"]
    headrace("topics create", f"{prefix}-a", f"{prefix}-b", "--if-not-exists", "--partitions", "2")
    said = headrace("topics alter", f"{prefix}-.*", "--partitions", "3", status=1)
    assert "INVALID_PARTITIONS" in said
    counts = {
        topic["topic"]: topic["partition_count"]
        for topic in json.loads(headrace("topics describe", f"{prefix}-.*", "-o", "json"))
    }
    assert counts == {f"{prefix}-a": 2, f"{prefix}-b": 4}


def test_of_many_topics_those_are_printed_that_were_created(headrace: Headrace) -> None:
    name = unique("one")
    said = headrace("topics create", f"{name}.x", f"{name}_x", f"{name}.y", status=1)
    *created, complaint = said.splitlines()[1:]
    assert [line.split() for line in created] == [[f"{name}.{x}", "created"] for x in "xy"]
    assert f"Topic '{name}_x' collides with existing topic" in complaint


def test_a_name_with_dots_is_no_pattern(headrace: Headrace) -> None:
    prefix = unique("dots")
    for name in (f"{prefix}.a", f"{prefix}-a"):
        headrace("topics create", name)
    headrace("topics delete", f"{prefix}.a", "--yes")
    wait_until(
        lambda: names(headrace, f"{prefix}.*") == [f"{prefix}-a"], PATIENCE_S, "the deletion"
    )


def test_configs_of_groups_and_brokers(headrace: Headrace, group_id: str) -> None:
    def configs(*words: str) -> list[dict[str, str]]:
        listed: list[dict[str, str]] = json.loads(
            headrace("configs describe", *words, "-o", "json")
        )
        return listed

    group = ("group", group_id)
    change = "share.auto.offset.reset=earliest"
    assert "would be set" in headrace("configs alter", *group, change, "--dry-run")
    assert configs(*group) == []
    headrace("configs alter", *group, change)
    (config,) = configs(*group)
    assert (config["config"], config["value"]) == ("share.auto.offset.reset", "earliest")
    assert group_id in [config["resource_name"] for config in configs("group")]
    deletion = (*group, "--delete", "share.auto.offset.reset")
    said = headrace("configs alter", *deletion, status=2)
    assert "Make these changes? There is no terminal to ask on: give --yes" in said
    assert "would be deleted" in headrace("groups set", *deletion[1:], "--dry-run")
    headrace("groups set", *deletion[1:], "--yes")
    assert configs(*group) == []
    said = headrace("configs alter", *group, "no=1", status=1)
    assert said.startswith("headrace configs alter: changing no of group") and said.count("\n") == 1
    assert "log.retention" in headrace("configs describe broker --all")
    assert "there is no broker 4711" in headrace("configs describe broker 4711", status=1)


# Records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "topics list",
        "configs describe topic",
        "lag show --groups-pattern {}",  # not of what other tests left in the cluster
        "groups list",
        "users list",
        "quotas list",
        "dlq list",
        "produce {}",
        "consume {} --exit",
        "consume {} --share-group s --idle 1ms",
    ],
)
def test_every_command_takes_the_file_of_a_java_client(
    headrace: Headrace, topic: str, tmp_path: Path, command: str
) -> None:
    path = java_properties(tmp_path)
    headrace(command.format(topic), "--command-config", path, stdin=b"x\n")


def test_a_measurement_of_a_share_group_takes_the_file_of_a_java_client(
    headrace: Headrace, topic: str, tmp_path: Path
) -> None:
    command = f"perf share-consume {topic} --group {unique('perf')} --max 1 -o jsonl"
    measured = json.loads(headrace(command, "--command-config", java_properties(tmp_path)))
    assert measured["record_count"] == 1


def java_properties(folder: Path) -> str:
    """Return a file of settings as managed clusters and programs in Java have them."""
    path = folder / "client.properties"
    path.write_text(
        "client.dns.lookup=use_all_dns_ips\nsession.timeout.ms=45000\nacks=all\n"
        "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
        "max.block.ms=1000\nauto.offset.reset=none\nenable.auto.commit=true\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor\n"
        "interceptor.classes=com.example.Interceptor\nschema.registry.url=https://example.com\n"
        "basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=A:B\n"
    )
    return str(path)


def test_json_keeps_everything(headrace: Headrace, bootstrap_servers: str) -> None:
    source, copy = (
        create_topic(bootstrap_servers, unique(name), partitions=2, retention_ms="-1")
        for name in ("source", "copy")
    )
    records = [
        {"key": "k", "value": "ü\n", "headers": [["h", "1"]], "timestamp_ms": 1000},
        {"key": None, "value": None, "headers": [["n", None]], "timestamp_ms": 2000},
        {"key": {"base64": "/w=="}, "value": {"base64": "gIE="}, "partition": 1},
        {"value": {"nested": [1, 2]}, "timestamp_ms": 4000},
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    headrace("produce", source, "--json", "--keep-partitions", stdin=text.encode())
    printed = headrace("consume", source, "--exit", "-o", "jsonl")
    headrace("produce", copy, "--json", "--keep-partitions", stdin=printed.encode())
    again = headrace("consume", copy, "--exit", "-o", "json")
    first, second, *_, third = (
        {**record, "topic": None}
        for record in sorted(json.loads(again), key=lambda record: record["timestamp_ms"])
    )
    assert [{**json.loads(line), "topic": None} for line in printed.splitlines()].count(first) == 1
    assert (first["key"], first["value"], first["headers"]) == ("k", "ü\n", [["h", "1"]])
    assert (second["value"], second["headers"]) == (None, [["n", None]])
    assert (third["key"], third["value"]) == ({"base64": "/w=="}, {"base64": "gIE="})
    assert third["partition"] == 1
    (parsed,) = json.loads(
        headrace("consume", copy, "--tail", "2", "--grep", "NESTED", "-o", "json", "--parse-json")
    )
    assert parsed["value"] == {"nested": [1, 2]}


def test_a_line_that_cannot_be_sent_is_named_and_those_before_it_are_acknowledged(
    headrace: Headrace, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers, unique("malformed"))
    (line,) = headrace(
        "produce", topic, "--json", stdin=b'{"value": "first"}\nno\n{"value": "b"}\n', status=1
    ).splitlines()
    assert line.startswith("headrace produce: line 2 of stdin: not JSON")
    assert line.endswith("; 1 record was acknowledged")
    assert headrace("consume", topic, "--exit") == "first\n"


def test_keys_headers_partitions_and_times(headrace: Headrace, topic: str) -> None:
    headrace(
        *("produce", topic, "-K", r"\t", "-H", "a=1", "-H", "b=", "-p", "2"),
        *("--timestamp", "1970-01-01T00:00:01Z"),
        stdin=b"k\tv\tw\n\tempty\n",
    )
    shown = headrace("consume", topic, "-p", "2", "--exit", "-f", "%p %o %T %h %k=%s|")
    assert shown == "2 0 1000 a=1,b= k=v\tw|2 1 1000 a=1,b= =empty|"
    assert "line 1 of stdin: it has no key separator" in headrace(
        "produce", topic, "-K", "::", stdin=b"k:v\n", status=1
    )
    assert "has no partition 3: it has 3" in headrace("produce", topic, "-p", "3", status=2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--exit", range(10)),
        ("--max 4", range(4)),
        ("--partition 0 --from 7 --exit", range(7, 10)),
        ("--from earliest --max 2", range(2)),
        ("--from -3 --exit", range(7, 10)),
        ("--from -300 --to 2", range(2)),
        ("--tail 4", range(6, 10)),
        ("-p 1 -p 2 --exit", range(0)),
        ("--from 1970-01-01T00:16:44Z --exit", range(4, 10)),
        ("--from 1970-01-01T00:16:44Z --to 1970-01-01T00:16:47.5Z", range(4, 8)),
        ("--from 1969-12-31T23:59:59.999Z --to latest", range(10)),
        ("--to 1969-12-31T23:59:59.999Z", range(0)),
        ("--from -1h --exit", range(0)),
        ("--idle 1500ms", range(10)),
        ("--from latest --exit", range(0)),
        ("--exit --grep [3-5]", range(3, 6)),
    ],
)
def test_offsets_times_and_ends(
    headrace: Headrace, topic: str, options: str, expected: range
) -> None:
    assert headrace("consume", topic, *options.split()).split() == [str(n) for n in expected]


def test_an_end_that_no_broker_sends_is_a_failure(
    headrace: Headrace, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr("headrace.client.partition_reader.PartitionReader.read", read)
    said = headrace("consume", topic, "--exit", status=1)
    assert "no broker sends the records up to the end" in said


def test_a_header_key_that_is_not_utf8(
    headrace: Headrace, bootstrap_servers: str, group_id: str
) -> None:
    topic = create_topic(bootstrap_servers, unique("odd"))
    produce(bootstrap_servers, topic, [b"x"] * 20)  # the interpreter skips checks after a few calls
    named = [[("h?", b"1")], [("h", b"2")]]
    batch = build([(None, b"odd"), (None, b"even")], timestamp_ms=10**12, headers=named)
    payload = batch[HEADER_BYTES:].replace(b"h?", b"h\xff")
    with connection(bootstrap_servers) as wire:
        wire.produce(topic, seal(header_at(batch), payload) + payload)
    assert headrace("consume", topic, "--exit").endswith("x\nodd\neven\n")
    shown = headrace("consume", topic, "--exit", "-f", r"%h\n").splitlines()
    assert shown[20:] == ["h\ufffd=1", "h=2"]
    words = ("--share-group", group_id, "--from", "earliest", "--max", "22", "-f", r"%h\n")
    assert headrace("consume", topic, *words).splitlines()[20:] == ["h\ufffd=1", "h=2"]


def test_files(headrace: Headrace, bootstrap_servers: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap_servers, unique("files"))
    (tmp_path / "lines").write_bytes(b"one\r\ntwo\n\nlast")
    (tmp_path / "image").write_bytes(bytes(range(256)))
    headrace("produce", topic, "--file", str(tmp_path / "lines"), "--header", "from=lines")
    headrace("produce", topic, "--whole", "--key", "i", "--file", str(tmp_path / "image"))
    *lines, last = map(json.loads, headrace("consume", topic, "--exit", "-o", "jsonl").splitlines())
    assert [line["value"] for line in lines] == ["one", "two", "", "last"]
    assert last["key"] == "i" and base64.b64decode(last["value"]["base64"]) == bytes(range(256))
    missing = ("--file", str(tmp_path / "lines"), str(tmp_path / "no"))
    said = headrace("produce", topic, *missing, status=2)
    reason = f"cannot read {tmp_path / 'no'}: No such file or directory"
    assert said == f"headrace produce: {reason}\n"
    assert headrace("consume", topic, "--exit", "-f", "%o") == "01234", "none was sent"


def test_several_topics(headrace: Headrace, bootstrap_servers: str) -> None:
    prefix = unique("several")
    for name in ("a", "b", "c"):
        produce(
            bootstrap_servers, create_topic(bootstrap_servers, f"{prefix}-{name}"), [name.encode()]
        )
    assert sorted(headrace("consume", f"^{prefix}-[ab]", "--exit").split()) == ["a", "b"]
    two = (f"{prefix}-a", f"{prefix}-c", "--exit")
    assert sorted(headrace("consume", *two).split()) == ["a", "c"]
    assert f"no topic matches '^{prefix}'" in headrace("consume", f"^{prefix}", status=1)


# Share groups -------------------------------------------------------------------------------------


def test_records_are_released_accepted_and_rejected(
    headrace: Headrace, bootstrap_servers: str, group_id: str
) -> None:
    topic = create_topic(bootstrap_servers, unique("queue"))
    produce(bootstrap_servers, topic, [b"one", b"two", b"three"])
    of_group = (topic, "--share-group", group_id)
    words = (*of_group, "-f", r"%o %d %s\n")
    released = headrace("consume", *words, "--from", "earliest", "--max", "3", "--outcome=release")
    assert released.splitlines() == ["0 1 one", "1 1 two", "2 1 three"]
    assert headrace("consume", *words, "--max", "1") == "0 2 one\n"
    # What was not asked for was not acquired: its delivery count is as it was.
    rejected = headrace("consume", *of_group, "--max", "2", "--outcome", "reject", "-o", "jsonl")
    assert [json.loads(line)["delivery_count"] for line in rejected.splitlines()] == [2, 2]
    assert headrace("consume", *words, "--idle", "2500ms") == ""


def offsets(output: bytes) -> list[int]:
    return [json.loads(line)["offset"] for line in output.splitlines()]


def test_a_member_of_a_share_group_acknowledges_what_it_showed_and_releases_the_rest(
    headrace: Headrace, bootstrap_servers: str, group_id: str
) -> None:
    """After a signal, and when the reader of its output has gone."""
    topic = create_topic(bootstrap_servers, unique("queue"))
    produce(bootstrap_servers, topic, [b"x" * 1000] * 3000)
    words = ("consume", topic, "--share-group", group_id, "-o", "jsonl")
    shown: list[int] = []
    for ending in (signal.SIGINT, signal.SIGTERM, None):
        running = start(*words, "--from", "earliest", "-b", bootstrap_servers)
        assert running.stdout is not None and running.stderr is not None
        first = running.stdout.readline()  # the pipe soon fills up, and holds it where it is
        if ending is not None:
            running.send_signal(ending)
            rest, err = running.communicate(timeout=PATIENCE_S)
            assert running.returncode == 128 + ending
            shown += offsets(first + rest)
            assert err.decode() == f"{len(offsets(first + rest))} records\n"
        else:
            running.stdout.close()
            assert running.wait(PATIENCE_S) == 1
            assert b"Traceback" not in running.stderr.read()
            running.stderr.close()
    shown += offsets(headrace(*words, "--idle", "2500ms").encode())
    assert sorted(shown) == list(range(3000))


# Failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["produce", "consume", "topics describe", "configs describe topic"]
)
def test_a_wrong_topic_is_one_line_and_is_not_created(
    headrace: Headrace, topic_name: str, command: str
) -> None:
    said = headrace(command, topic_name, stdin=b"x\n", status=1)
    (line,) = said.splitlines()
    complaint = f": topic '{topic_name}' does not exist: create it first, or correct its name"
    assert line.startswith(f"headrace {command.split()[0]}") and complaint in line
    assert topic_name not in names(headrace)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("topics describe {}x", "{}"),
        ("consume {}x --exit", "{}"),
        ("configs alter topic {} retention.mss=1", "retention.ms"),
        ("configs alter group g share.auto.offset.rest=latest", "share.auto.offset.reset"),
        ("topics create {}-2 --config retention.mss=1", "retention.ms"),
    ],
)
def test_what_was_meant_is_named(headrace: Headrace, topic: str, command: str, name: str) -> None:
    said = headrace(command.format(topic), status=1)
    assert said.endswith(f"; did you mean {name.format(topic)}?\n") and said.count("\n") == 1


def test_names_are_completed(
    bootstrap_servers: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def words(line: str) -> list[str]:
        monkeypatch.setenv("HEADRACE_LINE", line)
        assert main(["completion", "words"]) == 0
        return capsys.readouterr().out.split()

    where = f"-b {bootstrap_servers}"
    assert words(f"headrace topics describe {where} {topic[:-1]}") == [topic]
    assert words(f"headrace configs alter topic {where} {topic[:-1]}") == [topic]
    assert words(f"headrace configs alter topic {topic} {where} retention.b") == ["retention.bytes"]
    assert "share.auto.offset.reset" in words(f"headrace groups set g {where} share.")
    assert words("headrace topics describe -b 127.0.0.1:1 o") == []
    evil = "$(touch x)"
    target = ("--topic", topic, "--to", "latest", "--type", "consumer", "--yes", *where.split())
    for group_id in (evil, "plain"):
        assert main(["groups", "reset", group_id, *target]) == 0
    capsys.readouterr()
    offered = words(f"headrace groups describe {where} ")
    assert "plain" in offered and "$(touch" not in offered


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("topics create", ()),
        ("configs alter group", ("share.auto.offset.reset=earliest",)),
        ("quotas set --user", ("producer_byte_rate=1000",)),
        ("groups reset --all-topics --to earliest", ()),
        ("groups delete", ()),
    ],
)
def test_a_name_that_no_request_can_have_is_refused(
    headrace: Headrace, command: str, change: tuple[str, ...]
) -> None:
    longest = 32_767
    said = headrace(command, "é" * (longest // 2 + 1), *change, status=1).splitlines()[-1]
    assert said.startswith(f"headrace {command.split()[0]}")
    assert said.endswith(
        f"'{'é' * 40}... and 16344 more characters' is longer than {longest} bytes, the limit of a "
        "name or value in the Kafka protocol: give a shorter one"
    )


def test_the_longest_name_reaches_the_broker(headrace: Headrace) -> None:
    said = headrace("topics create", "a" * 32_767, status=1)
    assert said.startswith("headrace topics create: creating topic 'aaa")


def test_a_refused_record_is_one_line(headrace: Headrace, bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, unique("small"), max_message_bytes="100")
    (line,) = headrace("produce", topic, stdin=b"x" * 1000, status=1).splitlines()
    assert "was refused" in line and "0 records were acknowledged" in line


def test_ctrl_c_while_producing_leaves_whole_lines(
    headrace: Headrace, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    running = start(
        "produce",
        topic_name,
        "--bootstrap-server",
        bootstrap_servers,
        stdin=subprocess.PIPE,
    )
    assert running.stdin is not None
    running.stdin.write(b"one\ntwo\nhal")
    wait_until(
        lambda: headrace("consume", topic_name, "--exit").split() == ["one", "two"],
        PATIENCE_S,
        "both records",
        0.5,
    )
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert err.decode() == "headrace produce: interrupted; 2 records were acknowledged\n"


def test_ctrl_c_while_consuming(bootstrap_servers: str, topic: str) -> None:
    running = start("consume", topic, "--bootstrap-server", bootstrap_servers)
    assert running.stdout is not None
    assert running.stdout.readline() == b"0\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert err.decode() == "10 records\n"


@pytest.mark.parametrize("command", ["consume {} --exit", "topics list"])
def test_a_full_disk_is_one_line(bootstrap_servers: str, topic: str, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*HEADRACE, *command.format(topic).split(), "--bootstrap-server", bootstrap_servers],
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith(f"headrace {command.split()[0]}")
    assert last.endswith(": No space left on device")
    assert b"Traceback" not in done.stderr


# The live view ------------------------------------------------------------------------------------


def commit(headrace: Headrace, topic: str, group_id: str, offset: int) -> None:
    """Commit an offset in the partition 0."""
    target = ("--topic", f"{topic}:0", "--to", str(offset), "--type", "consumer", "--yes")
    headrace("groups reset", group_id, *target)


def test_top(headrace: Headrace, topic: str, group_id: str) -> None:
    commit(headrace, topic, group_id, 4)
    seen = headrace("top", group_id, "-o", "jsonl", "--iterations", "2", "--every", "0.1")
    first, second = (json.loads(line)["groups"][0] for line in seen.splitlines())
    assert (first["group_id"], first["lag"], first["member_count"]) == (group_id, 6, 0)
    assert first["done_per_s"] is None and second["done_per_s"] == 0
    assert second["produced_per_s"] == 0 and second["time_lag_ms"] > 0
    plain = headrace("top", group_id, "--iterations", "1")
    assert plain.splitlines()[0].split()[:3] == ["GROUP-ID", "LAG", "TIME-LAG"]
    assert plain.splitlines()[1].split()[0] == group_id


def test_top_on_a_terminal(
    bootstrap_servers: str, headrace: Headrace, topic: str, group_id: str
) -> None:
    commit(headrace, topic, group_id, 4)
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*HEADRACE, "top", "--bootstrap-server", bootstrap_servers],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, "TERM": "xterm", "LINES": "30", "COLUMNS": "200"},
    )
    os.close(theirs)

    def shown_until(text: str) -> None:
        shown = b""
        while text.encode() not in shown:
            shown += os.read(ours, 4096)

    shown_until("by lag")
    os.write(ours, b"s")
    shown_until("by time")
    os.write(ours, f"/{group_id}\r".encode())
    shown_until(f"/{group_id}")
    os.write(ours, b"\r")
    shown_until(f"{group_id}  Escape: all groups")
    shown_until(f"{topic} 0         6 ")
    os.write(ours, b"\x1b")
    shown_until("by time")
    os.write(ours, b"q")
    shown_until("\x1b[?1049l")  # the screen is as it was before
    _, err = running.communicate(timeout=PATIENCE_S)
    os.close(ours)
    assert (running.returncode, err) == (0, b"")


def test_top_ends_when_its_terminal_has_gone(bootstrap_servers: str) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*HEADRACE, "top", "--every", "0.2", "--bootstrap-server", bootstrap_servers],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    os.close(theirs)
    assert os.read(ours, 4096)
    os.close(ours)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, err) == (0, b"")


def test_top_ends_with_ctrl_c(bootstrap_servers: str, topic: str) -> None:
    running = start("top", "-o", "jsonl", "-b", bootstrap_servers)
    assert running.stdout is not None and running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, err) == (0, b"")


# Secured clusters ---------------------------------------------------------------------------------


def test_consuming_without_a_group_needs_no_permission_on_groups(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SecureBroker() as broker:
        admin = AdminClient(broker.client_config())
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(PATIENCE_S)
        producer = Producer(broker.client_config())
        producer.produce("t", b"one", partition=0)
        producer.produce("t", b"two", partition=1)
        assert producer.flush(PATIENCE_S) == 0
        broker.allow("alice", "READ", "TOPIC", "t")
        file = write_properties(tmp_path / "alice.properties", broker.client_config("alice"))
        where = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(file))
        asked = ("t", *where)
        status, out, err = ran("consume", *asked, "--exit")
        assert (status, sorted(out.split())) == (0, ["one", "two"]), err
        assert ran("consume", *asked, "--partition", "1", "--exit")[:2] == (0, "two\n")
        assert ran("consume", *asked, "--max", "2", "--read-committed")[0] == 0
        assert "is denied" not in caplog.text
        status, out, err = ran("consume", *asked, "--share-group", "g", "--idle", "10s")
        assert (status, out) == (1, "")
        assert "the user needs the permission DESCRIBE on group 'g'" in err
        assert err.count("\n") == 1
        file = write_properties(tmp_path / "bob.properties", broker.client_config("bob"))
        status, out, err = ran("consume", "t", *where[:3], str(file), "--exit")
        assert (status, out) == (1, "")
        assert "on topic 't'" in err


def test_one_command_config_for_all(
    secured: dict[str, str], topic_name: str, tmp_path: Path
) -> None:
    file = write_properties(tmp_path / "client.properties", secured)
    where = ("--bootstrap-server", secured["bootstrap.servers"], "--command-config", str(file))
    assert ran("topics create", topic_name, *where)[0] == 0
    assert ran("configs describe topic", topic_name, *where)[0] == 0
    assert ran("produce", topic_name, *where, stdin=b"one\ntwo\n")[0] == 0
    assert ran("consume", topic_name, "--exit", *where) == (0, "one\ntwo\n", "2 records\n")
    target = ("--topic", topic_name, "--to", "1", "--type", "consumer", "--yes", *where)
    status, out, err = ran("groups reset", f"{topic_name}-g", *target)
    assert status == 0, err
    status, out, _ = ran("top", "--iterations", "1", f"{topic_name}-g", "-o", "jsonl", *where)
    assert status == 0 and json.loads(out)["groups"][0]["lag"] == 1


def test_a_missing_permission_to_list_resources_is_named(tmp_path: Path, target: str) -> None:
    if target == "kafka":
        pytest.skip("Apache Kafka of the tests has no authorizer")
    with SecureBroker(users=("ann",)) as broker:
        config = broker.client_config("ann")
        file = write_properties(tmp_path / "client.properties", config)
        status, out, err = ran(
            "configs describe group",
            *("--bootstrap-server", config["bootstrap.servers"], "--command-config", str(file)),
        )
    assert (status, out) == (1, "")
    assert "the user needs the permission DESCRIBE_CONFIGS on the cluster" in err
    assert err.count("\n") == 1
