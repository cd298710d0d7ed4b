"""A broker whose disk fails to flush one log: clients of that log get KAFKA_STORAGE_ERROR, others
go on, and a restart brings the log back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

import headrace
from headrace.protocol.errors import ErrorCode
from tests.clients.confluent import create_topic, set_configs
from tests.wire_client import Connection, batch, connection

OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
LATEST = -1


class FailingDisk:
    """A replacement of ``os.fsync`` that fails once for a file in the directory of a log, then
    succeeds as the kernel does.
    """

    def __init__(self) -> None:
        self.directory = ""
        self._fsync = os.fsync

    def __call__(self, fd: int) -> None:
        if self.directory and f"/{self.directory}-" in os.readlink(f"/proc/self/fd/{fd}"):
            self.directory = ""
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    disk = FailingDisk()
    monkeypatch.setattr(os, "fsync", disk)
    return disk


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[headrace.Broker]:
    with headrace.Broker(tmp_path, {"log.flush.interval.messages": 1}) as broker:
        yield broker


def produce(client: Connection, topic: str) -> int:
    """Produce in a version that the broker may serve from a template."""
    records = {"index": 0, "records": batch([b"x"])}
    topics = [{"name": topic, "partition_data": [records]}]
    response = client.ask(0, 7, acks=-1, timeout=30_000, topic_data=topics)
    return response.responses[0].partition_responses[0].error_code


def fetching(topic: str, offset: int, wait_ms: int) -> dict[str, Any]:
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }


def fetched(response: Any) -> int:
    return response.responses[0].partitions[0].error_code


def latest(client: Connection, topic: str) -> tuple[int, int]:
    asked = {"partition_index": 0, "timestamp": LATEST}
    topics = [{"name": topic, "partitions": [asked]}]
    response = client.ask(2, 3, replica_id=-1, topics=topics)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


def commit(client: Connection, group_id: str, topic: str) -> int:
    asked = {"partition_index": 0, "committed_offset": 1}
    response = client.ask(
        8, 2, group_id=group_id, member_id="", topics=[{"name": topic, "partitions": [asked]}]
    )
    return response.topics[0].partitions[0].error_code


def test_requests_for_an_offline_log_fail_and_others_succeed(
    tmp_path: Path, broker: headrace.Broker, disk: FailingDisk
) -> None:
    where = broker.bootstrap_servers
    bad, good = create_topic(where, "bad"), create_topic(where, "good")
    with connection(where) as client, connection(where) as reader:
        assert client.produce(bad, batch([b"a"])) == (0, 0)
        assert client.produce(good, batch([b"a"])) == (0, 0)
        waiting = reader.send_message(1, 4, **fetching(bad, 1, 60_000) | {"min_bytes": 1 << 20})
        assert not reader.has_response(0.1)
        disk.directory = bad
        assert client.produce(bad, batch([b"b"]))[0] == OFFLINE
        assert fetched(reader.receive_message(waiting)) == OFFLINE
        for _ in range(3):
            assert client.produce(bad, batch([b"b"]))[0] == OFFLINE
        assert fetched(client.ask(1, 4, **fetching(bad, 0, 60_000))) == OFFLINE
        assert latest(client, bad)[0] == OFFLINE
        assert client.produce(good, batch([b"b"])) == (0, 1)
        assert latest(client, good) == (0, 2)
    broker.stop()
    with headrace.Broker(tmp_path) as again, connection(again.bootstrap_servers) as client:
        code, end_offset = latest(client, bad)
        assert code == 0
        assert client.produce(bad, batch([b"c"])) == (0, end_offset)
        assert fetched(client.ask(1, 4, **fetching(bad, 0, 0))) == 0


def test_a_log_whose_disk_fails_again_after_the_restart(
    tmp_path: Path, broker: headrace.Broker, disk: FailingDisk
) -> None:
    bad = create_topic(broker.bootstrap_servers, "bad")
    with connection(broker.bootstrap_servers) as client:
        disk.directory = bad
        assert client.produce(bad, batch([b"a"]))[0] == OFFLINE
    broker.stop()
    disk.directory = bad
    with headrace.Broker(tmp_path) as again, connection(again.bootstrap_servers) as client:
        for _ in range(2):
            assert latest(client, bad)[0] == OFFLINE
            assert client.produce(bad, batch([b"b"]))[0] == OFFLINE
    with headrace.Broker(tmp_path) as last, connection(last.bootstrap_servers) as client:
        assert client.produce(bad, batch([b"c"]))[0] == 0


def test_coordinators_whose_log_is_offline_refuse_to_write(
    tmp_path: Path, broker: headrace.Broker, disk: FailingDisk
) -> None:
    topic = create_topic(broker.bootstrap_servers, "topic")
    with connection(broker.bootstrap_servers) as client:
        assert commit(client, "group", topic) == 0
        disk.directory = "__consumer_offsets"
        refused = [commit(client, "group", topic) for _ in range(4)]
        assert refused == [ErrorCode.NOT_COORDINATOR] * 4, "as in Kafka, so that clients try again"
        assert client.produce(topic, batch([b"a"])) == (0, 0)
    broker.stop()
    with headrace.Broker(tmp_path) as again, connection(again.bootstrap_servers) as client:
        assert commit(client, "group", topic) == 0


def test_groups_are_deleted_beside_one_whose_log_is_offline(
    broker: headrace.Broker, disk: FailingDisk
) -> None:
    topic = create_topic(broker.bootstrap_servers, "topic")
    with connection(broker.bootstrap_servers) as client:
        assert [commit(client, group, topic) for group in ("a", "b", "c")] == [0, 0, 0]
        disk.directory = "__consumer_offsets"
        assert commit(client, "b", topic) == ErrorCode.NOT_COORDINATOR
        deleted = client.ask(42, 2, groups_names=["a", "b", "c"])
        codes = {one.group_id: one.error_code for one in deleted.results}
        assert codes == {"a": 0, "b": ErrorCode.NOT_COORDINATOR, "c": 0}


def test_a_request_served_before_waits_for_the_disk_once_the_topic_is_flushed(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """A template of a request is not used under another flush setting."""
    with headrace.Broker(tmp_path) as broker, connection(broker.bootstrap_servers) as client:
        topic = create_topic(broker.bootstrap_servers, "topic")
        assert [produce(client, topic) for _ in range(3)] == [0] * 3
        set_configs(broker.bootstrap_servers, ResourceType.TOPIC, topic, flush_messages="1")
        assert [produce(client, topic) for _ in range(3)] == [0] * 3
        disk.directory = topic
        assert [produce(client, topic) for _ in range(3)] == [OFFLINE] * 3
