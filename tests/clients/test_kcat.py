"""kcat, which is librdkafka on the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.clients.confluent import PATIENCE_S, create_topic
from tests.clients.test_go_and_node_clients import CODECS, stored_codecs
from tests.clients.toolchains import run
from tests.support import unique, wait_until
from tests.wire_client import connection

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("kcat") is None, reason="kcat is not installed (`scripts/need kcat` does)"
    ),
]

DESCRIBE_LOG_DIRS = 35
LINES = [f"key {i % 10}:{i} " + "a lazy dog and one more " * 20 for i in range(500)]


def kcat(bootstrap_servers: str, *arguments: str, lines: list[str] | None = None) -> list[str]:
    """Run kcat with `lines` as its input and return its output."""
    text = None if lines is None else "\n".join(lines)
    command = ["kcat", "-b", bootstrap_servers, *arguments]
    return run(command, PATIENCE_S, input=text).splitlines()


def size_on_disk(bootstrap_servers: str, topic: str) -> int:
    """Return the size of partition 0 in bytes."""
    with connection(bootstrap_servers) as wire:
        wanted = [{"topic": topic, "partitions": [0]}]
        response = wire.ask(DESCRIBE_LOG_DIRS, 4, topics=wanted)
    ((partition,),) = (topic.partitions for topic in response.results[0].topics)
    return int(partition.partition_size)


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_compressed_and_come_back(
    bootstrap_servers: str, topic_name: str, codec: str
) -> None:
    """An older librdkafka compresses only if the broker names old versions of Produce."""
    create_topic(bootstrap_servers, topic_name)
    options = ["-z", codec, "-K:", "-H", "h=1", "-X", "linger.ms=200", "-X", "acks=all"]
    options += ["-X", "enable.idempotence=true"]
    kcat(bootstrap_servers, "-P", "-t", topic_name, *options, lines=LINES)
    assert stored_codecs(bootstrap_servers, topic_name) == [codec]
    plain = sum(len(line) for line in LINES)
    size = size_on_disk(bootstrap_servers, topic_name)
    assert size > plain if codec == "none" else size < plain / 5
    shown = kcat(bootstrap_servers, "-C", "-t", topic_name, "-e", "-q", "-f", "%h|%k:%s\n")
    assert shown == [f"h=1|{line}" for line in LINES]


def test_a_transaction(bootstrap_servers: str, topic_name: str) -> None:
    """kcat writes its whole input in one transaction."""
    create_topic(bootstrap_servers, topic_name)
    options = ["-X", f"transactional.id={unique('transactions')}"]
    kcat(bootstrap_servers, "-P", "-t", topic_name, *options, lines=["a", "b"])
    committed = ["-X", "isolation.level=read_committed"]
    shown = kcat(bootstrap_servers, "-C", "-t", topic_name, "-e", "-q", *committed)
    assert shown == ["a", "b"]
    # the marker of the transaction has an offset, too
    assert kcat(bootstrap_servers, "-Q", "-t", f"{topic_name}:0:-1") == [
        f"{topic_name} [0] offset 3"
    ]


def test_metadata_and_offsets(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=3)
    (described,) = kcat(bootstrap_servers, "-L", "-J", "-t", topic_name)
    (topic,) = json.loads(described)["topics"]
    assert [one["partition"] for one in topic["partitions"]] == [0, 1, 2]
    kcat(bootstrap_servers, "-P", "-t", topic_name, "-p", "1", lines=["a", "b", "c"])
    shown = kcat(bootstrap_servers, "-C", "-t", topic_name, "-p", "1", "-o", "-2", "-e", "-q")
    assert shown == ["b", "c"]
    assert kcat(bootstrap_servers, "-Q", "-t", f"{topic_name}:1:-2") == [
        f"{topic_name} [1] offset 0"
    ]


class Member:
    """A group member: kcat, which reports each assignment on its standard error."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        options = ["-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300", "-u"]
        self.process = subprocess.Popen(
            ["kcat", "-b", bootstrap_servers, *options, "-G", group_id, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.values: list[str] = []
        self.partitions = 0
        for read in (self._read_values, self._read_assignments):
            threading.Thread(target=read, daemon=True).start()

    def _read_values(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.values.append(line.rstrip("\n"))

    def _read_assignments(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "rebalanced" in line:
                self.partitions = line.count("[") if "assigned:" in line else 0

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def members() -> Iterator[list[Member]]:
    started: list[Member] = []
    yield started
    for member in started:
        if member.process.poll() is None:
            member.leave()


def test_group(
    bootstrap_servers: str, topic_name: str, group_id: str, members: list[Member]
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    for partition in "01":
        kcat(bootstrap_servers, "-P", "-t", topic_name, "-p", partition, lines=["a", "b"])
    first = Member(bootstrap_servers, group_id, topic_name)
    members.append(first)
    wait_until(lambda: sorted(first.values) == ["a", "a", "b", "b"], PATIENCE_S, "all records")
    second = Member(bootstrap_servers, group_id, topic_name)
    members.append(second)
    wait_until(lambda: first.partitions == second.partitions == 1, PATIENCE_S, "one each")
    first.leave()
    wait_until(lambda: second.partitions == 2, PATIENCE_S, "the second member to take over")
    kcat(bootstrap_servers, "-P", "-t", topic_name, "-p", "0", lines=["c"])
    # what the first member has committed does not come again
    wait_until(lambda: second.values, PATIENCE_S, "the new record")
    assert second.values == ["c"]
