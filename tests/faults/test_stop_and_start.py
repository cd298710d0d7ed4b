"""Stopping, starting again, and starting twice."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ResourceType

from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    produce,
    set_configs,
    take,
)
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique, wait_until
from tests.wire_client import Connection, connection

pytestmark = pytest.mark.broker


def test_sigterm_stops_within_five_seconds_in_the_middle_of_work(tmp_path: Path) -> None:
    server = HeadraceProcess(tmp_path / "data", COMMON_CONFIGS).start()
    topic = create_topic(server.bootstrap_servers, unique("topic"))
    produce(server.bootstrap_servers, topic, [b"a"])
    waiting = [Connection(server.bootstrap_servers) for _ in range(10)]
    for client in waiting:
        client.send_fetch(topic, 1, max_wait_ms=60_000)
    started = time.monotonic()
    assert server.stop(timeout_s=5) == 0
    assert time.monotonic() - started < 5
    for client in waiting:
        client.close()


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    group = unique("group")
    with HeadraceProcess(tmp_path / "data", COMMON_CONFIGS) as server:
        topic = create_topic(
            server.bootstrap_servers, unique("topic"), partitions=2, retention_ms="987654321"
        )
        set_configs(
            server.bootstrap_servers, ResourceType.GROUP, group, share_auto_offset_reset="earliest"
        )
        produce(server.bootstrap_servers, topic, [b"a", b"b", b"c"], partition=1)
        with consumer(server.bootstrap_servers, group) as source:
            source.commit(
                offsets=[TopicPartition(topic, 1, 2, metadata="note")], asynchronous=False
            )
        cluster_id = admin(server.bootstrap_servers).list_topics(timeout=PATIENCE_S).cluster_id
    with HeadraceProcess(tmp_path / "data", COMMON_CONFIGS) as server:
        client = admin(server.bootstrap_servers)
        metadata = client.list_topics(timeout=PATIENCE_S)
        assert metadata.cluster_id == cluster_id
        assert sorted(metadata.topics[topic].partitions) == [0, 1]
        with consumer(server.bootstrap_servers, group) as source:
            (committed,) = source.committed([TopicPartition(topic, 1)], timeout=PATIENCE_S)
            assert (committed.offset, committed.metadata) == (2, "note")
            source.assign([TopicPartition(topic, 1, 0)])
            assert [m.value() for m in take(source, 3)] == [b"a", b"b", b"c"]
        produce(server.bootstrap_servers, topic, [b"d"], partition=1)


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with HeadraceProcess(tmp_path / "data") as first:
        second = HeadraceProcess(tmp_path / "data")
        process = second.spawn()
        assert process.wait(PATIENCE_S) == 1
        wait_until(lambda: second.output, PATIENCE_S, "a word of explanation")
        (line,) = second.output
        assert str(first.pid) in line
        with connection(first.bootstrap_servers) as client:
            assert client.api_versions()


def test_a_directory_is_free_again_after_kill_9(tmp_path: Path) -> None:
    server = HeadraceProcess(tmp_path / "data").start()
    server.kill()
    server.start()
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--listen", "nonsense"], 2),
        (["--no-such-option"], 2),
        (["-c", "log.retention.hour=1", "--ephemeral"], 2),
        (["--listen", "127.0.0.1:{taken}", "--ephemeral"], 1),
    ],
)
def test_a_bad_start_says_why_in_one_line(arguments: list[str], status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*HeadraceProcess.command, *(a.format(taken=port) for a in arguments)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=HeadraceProcess.environment(),
        )
    assert done.returncode == status, done
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_an_unknown_config_names_the_nearest_known_one() -> None:
    done = subprocess.run(
        [*HeadraceProcess.command, "--ephemeral", "-c", "log.retention.hour=1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=HeadraceProcess.environment(),
    )
    assert "log.retention.hours" in done.stderr
