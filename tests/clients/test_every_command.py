"""Every command, as it is declared, against the broker under test: each form of its output, and its
ends: no broker, no rights, no reader, Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from headrace.blocking import ShareConsumer
from headrace.cli.commands import COMMANDS, load
from headrace.cli.main import main
from headrace.cli.nouns import Verb
from headrace.cli.output import title
from headrace.secure_broker import SecureBroker
from tests.cli.command import start
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.support import unique, wait_until, write_properties
from tests.vocabulary import misnamed

WORDS = {
    "acls add": "User:{new} --operation read --topic {topic}",
    "acls list": "",
    "acls remove": "User:{user}",
    "configs alter": "topic {topic} retention.ms=1000000000000 --delete segment.ms",
    "configs describe": "topic {topic} --all",
    "consume": "{topic} --exit",
    "dlq list": "",
    "dlq redrive": "{queue}",
    "dlq show": "{queue}",
    "groups delete": "{idle}",
    "groups delete-offsets": "{idle} --topic {topic}",
    "groups describe": "{group}",
    "groups list": "{group}",
    "groups members": "{group}",
    "groups offsets": "{group}",
    "groups reset": "{idle} --topic {topic} --to earliest",
    "groups set": "{group} share.auto.offset.reset=latest",
    "lag show": "{group} --partitions",
    "perf share-consume": "{topic} --group {new} --max 2 --idle 10s",
    "produce": "{topic}",
    "quotas list": "",
    "quotas remove": "producer_byte_rate --user {user}",
    "quotas set": "producer_byte_rate=1000000000 --user {user}",
    "top": "{group} --iterations 1",
    "topics alter": "{spare} --partitions 3",
    "topics create": "{new}",
    "topics delete": "{spare}",
    "topics describe": "{topic}",
    "topics list": "{topic}",
    "users add": "{user}",
    "users delete": "{user}",
    "users list": "{user}",
    "why": "{group} --over 0.1",
}
"""Command that asks a cluster → its arguments."""
FIELDS = {
    "configs describe": {"resource_type", "resource_name", "config", "value"},
    "consume": {"topic", "partition", "offset", "timestamp_ms", "key", "value"},
    "groups describe": {"group_id", "group_type", "group_state", "member_count", "coordinator"},
    "groups list": {"group_id", "group_type", "group_state", "protocol_type"},
    "groups members": {"group_id", "member_id", "client_id", "host", "assignment"},
    "groups offsets": {"group_id", "topic", "partition", "start_offset", "lag"},
    "lag show": {"group_id", "group_type", "topic", "lag", "held", "time_lag_ms"},
    "topics describe": {"topic", "partition_count", "replication_factor", "configs"},
    "topics list": {"topic", "partition_count", "is_internal", "topic_id"},
}
"""Command → some of its fields."""
_OFFSETS = {"groups reset": "{idle} --topic {topic} --to 1 --type consumer --yes"}
_SPARE = {"topics create": "{spare} --partitions 1"}
_USER = {"users add": "{user}"}
MAKERS = {
    "acls remove": {"acls add": "User:{user} --operation read --topic {topic}"},
    "groups delete": _OFFSETS,
    "groups delete-offsets": _OFFSETS,
    "groups reset": _OFFSETS,
    "quotas remove": {"quotas set": WORDS["quotas set"]},
    "topics alter": _SPARE,
    "topics delete": _SPARE,
    "users delete": _USER,
    "users list": _USER,
}
"""Command → the one that makes what it needs, and its arguments."""
SERVERS = {"serve", "ui", "exporter", "keda-scaler", "worker"}
ELSEWHERE = {
    *("backup", "restore", "verify", "recover"),  # of data directories: tests/cli, tests/faults
    *("context list", "context add", "context use", "context remove", "completion"),
    "lag history",  # a Spark job: tests/spark
}
BESIDES = {
    "consume": "2 records",
    "lag show": r"(1 group, 1 partition, 1 member, lag .+)?",
    "produce": "0 records were acknowledged",
    "top": r"(1 group, 1 partition, 1 member, lag .+)?",
    "dlq list": "there are no .*|",
    "dlq redrive": "no letters are pending|",
    "dlq show": "there are no such letters|",
}
"""Command → what it says on stderr, too."""


def verbs() -> dict[str, Verb]:
    """Return all commands that are declared."""
    declared: dict[str, Verb] = {}
    for name in COMMANDS:
        noun = load(name)
        if isinstance(noun, Verb):
            declared[name] = noun
        else:
            declared |= {f"{name} {verb}": noun.verbs[verb] for verb in noun.verbs}
    return declared


def options_of(verb: Verb) -> dict[str, Any]:
    """Return the options that a verb declares, and their choices."""
    parser = ArgumentParser()
    verb.declare(parser)
    return {name: action.choices for action in parser._actions for name in action.option_strings}


OPTIONS = {name: options_of(verb) for name, verb in verbs().items()}


def test_no_command_is_forgotten() -> None:
    assert OPTIONS.keys() == {*WORDS, *SERVERS, *ELSEWHERE}


@pytest.fixture(scope="module")
def world(bootstrap_servers: str) -> Iterator[dict[str, str]]:
    """A topic with records, one of which a member of a share group holds, and an empty queue."""
    topic = create_topic(bootstrap_servers, unique("listed"), retention_ms="1000000000000")
    produce(bootstrap_servers, topic, [b"one", b"two"])
    group, queue = unique("listed"), create_topic(bootstrap_servers, unique("dlq.listed"))
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": group}
    with ShareConsumer(conf, [topic], start="earliest") as member:
        wait_until(lambda: member.poll(1, 1.0), PATIENCE_S, "a record")
        yield {"topic": topic, "group": group, "queue": queue}


Words = Sequence[str]
NOTHING = dict.fromkeys(("topic", "group", "queue", "user", "idle", "spare"), "x")


class Cluster:
    """The broker under test, and the words that name it."""

    def __init__(self, where: Words, world: dict[str, str], capsys: Any, monkeypatch: Any) -> None:
        self._where = where
        self._world = world
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, name: str, *more: str, words: str | None = None) -> tuple[int, str, list[str]]:
        """Run a command; return its status, its output, and the lines on stderr."""
        typed = b"password\n" if name == "users add" else b""
        self._monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(typed)))
        names = {**self._world, "new": unique("new")}
        arguments = (WORDS[name] if words is None else words).format(**names)
        self._capsys.readouterr()
        status = main([*name.split(), *arguments.split(), *self._where, *more])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err.splitlines()


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
    bootstrap_servers: str,
    world: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    target: str,
) -> Cluster:
    where = ["-b", bootstrap_servers]
    name = request.node.callspec.params["name"]
    if name.startswith("acls") and target == "headrace":  # the broker of the tests has no ACLs
        secured: dict[str, str] = request.getfixturevalue("secured")
        file = write_properties(tmp_path / "client.properties", secured)
        where = ["-b", secured["bootstrap.servers"], "--command-config", str(file)]
    fresh = {**world, **{kind: unique(kind) for kind in ("idle", "spare", "user")}}
    cluster = Cluster(where, fresh, capsys, monkeypatch)
    for maker, words in MAKERS.get(name, {}).items():
        assert (target == "kafka" and maker == "acls add") or cluster.run(maker, words=words)[
            0
        ] == 0
    return cluster


@pytest.mark.parametrize("name", WORDS)
def test_forms(cluster: Cluster, name: str, target: str) -> None:
    options = OPTIONS[name]
    if name.startswith("acls") and target == "kafka":
        status, out, (line,) = cluster.run(name, *["--yes"] * ("--yes" in options))
        assert status == 1 and out.count("\n") in (0, 2) and "SECURITY_DISABLED" in line
        return
    printed: dict[str, str] = {}
    for form in reversed(options.get("--output") or ("table",)):
        # The last one makes the change that the others only show.
        is_last = form in ("table", "text")
        plan = ["--dry-run", "--yes"][is_last : is_last + 1]
        more = ["--output", form] if "--output" in options else []
        status, out, err = cluster.run(name, *more, *(word for word in plan if word in options))
        assert status == 0, err
        said = "\n".join(err)
        assert re.fullmatch(BESIDES.get(name, ""), said) or said.startswith("there are no "), said
        printed[form] = out
    if "json" not in printed:
        rows = list(map(json.loads, printed.get("jsonl", "").splitlines()))
    else:
        rows = json.loads(printed["json"])
        lines = list(map(json.loads, printed["jsonl"].splitlines()))
        assert len(rows) == len(lines)
        assert all(row.keys() == rows[0].keys() for row in [*rows, *lines])
    assert [wrong for row in rows for wrong in misnamed(row)] == []
    assert not rows or FIELDS.get(name, set()) <= rows[0].keys()
    assert rows or name not in FIELDS
    if rows and "table" in printed and name not in ("top", "why", "dlq redrive"):
        titles = {form: set(printed[form].split("\n")[0].split()) for form in ("table", "wide")}
        assert titles["table"] <= titles["wide"] == set(map(title, rows[0]))


@pytest.mark.parametrize("name", WORDS)
def test_without_a_broker_one_line_says_so(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Cluster(["-b", "127.0.0.1:1"], NOTHING, capsys, monkeypatch)
    options = OPTIONS[name]
    status, out, lines = nowhere.run(
        name, *["--yes"] * ("--yes" in options), *["--timeout=2"] * ("--timeout" in options)
    )
    assert (status, out) == (1, "")
    (line,) = lines
    assert line.startswith(f"headrace {name}: no broker answers at 127.0.0.1:1: Connection refused")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    """The words that connect a user without permissions."""
    with SecureBroker(users=("ann",)) as broker:
        folder = tmp_path_factory.mktemp("stranger")
        file = write_properties(folder / "ann.properties", broker.client_config("ann"))
        yield ["-b", broker.bootstrap_servers, "--command-config", str(file)]


@pytest.mark.parametrize("name", WORDS)
def test_without_rights_one_line_says_so(
    name: str,
    stranger: Words,
    target: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if target == "kafka":
        pytest.skip("Apache Kafka of the tests has no authorizer")
    cluster = Cluster(stranger, NOTHING, capsys, monkeypatch)
    status, out, lines = cluster.run(name, *["--yes"] * ("--yes" in OPTIONS[name]))
    assert (len(lines) <= 2 and "permission" in lines[0]) or "may not describe" in lines[0]
    assert status == 1 or "permission" not in lines[0] or "may be missing" in lines[0]
    assert out == "" or "refused" in out


@pytest.mark.parametrize("name", [name for name in WORDS if "--output" in OPTIONS[name]])
def test_the_end_of_the_reader_is_none_of_the_command(
    cluster: Cluster, name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("acls") and target == "kafka":
        pytest.skip("Apache Kafka of the tests has no authorizer")
    reader, writer = os.pipe()
    os.close(reader)
    more = ["--dry-run"] * ("--dry-run" in OPTIONS[name])
    with suppress(BrokenPipeError), open(writer, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        form = "jsonl" if name == "top" else "json"
        status, _, lines = cluster.run(name, *more, "-o", form)
    assert status == 1 and not any("Error" in line for line in lines), lines


@pytest.mark.parametrize("name", WORDS)
def test_ctrl_c_ends_a_command_that_waits_for_a_broker(name: str) -> None:
    names = {**NOTHING, "new": "x"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [*name.split(), *WORDS[name].format(**names).split(), "-b", where]
        words += ["--yes"] * ("--yes" in OPTIONS[name])
        running = start(*words, stdin=subprocess.PIPE)
        if name == "users add" and running.stdin is not None:
            running.stdin.write(b"password\n")
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1), "a request"
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == (0 if name == "top" else 130), err
    assert b"Traceback" not in err and err.count(b"\n") <= 1


def test_consume_ends_with_the_reader_of_its_output(
    world: dict[str, str], bootstrap_servers: str
) -> None:
    process = start("consume", world["topic"], "-b", bootstrap_servers)
    try:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"one\ntwo\n"
        process.stdout.close()  # no record comes whose write could fail
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()


@pytest.mark.parametrize("name", OPTIONS)
def test_typos(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    *noun, verb = name.split()
    assert main([*noun, f"{verb[:-1]}_{verb[-1]}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"did you mean {verb}?" in err and err.count("\n") == 1
    words = WORDS.get(name, "").split()
    assert main([*name.split(), *words, "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"headrace {name}: ") and err.count("\n") == 1
    assert f"see headrace {name} --help" in err
