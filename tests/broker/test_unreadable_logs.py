"""Logs whose files cannot be read: requests about many partitions fail for those alone."""

from __future__ import annotations

import errno
import os
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

import headrace
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import headers
from tests.clients.confluent import create_topic, set_configs
from tests.wire_client import Connection, batch, connection, decode

pytestmark = pytest.mark.broker

UNREADABLE = ErrorCode.KAFKA_STORAGE_ERROR
LEAVE, JOIN = -1, 0
GROUP, MEMBER = "g", "WAEGm4nMTeuZ6jBDjB0T4A"
NOW_MS, HOUR_MS = int(time.time() * 1000), 3_600_000


def make_unreadable(data_dir: Path, partition: str) -> None:
    """Put something else in the place of a log's file."""
    path = data_dir / partition / f"{0:020}.log"
    path.rename(path.with_suffix(".moved"))
    path.mkdir()


def share_heartbeat(client: Connection, epoch: int) -> int:
    beat = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch}
    return int(client.ask(76, 1, **beat, subscribed_topic_names=["bad", "good"]).error_code)


def alter_share_offsets(client: Connection) -> None:
    partitions = [{"partition_index": 0, "start_offset": 1}]
    topics = [{"topic_name": name, "partitions": partitions} for name in ("bad", "good")]
    altered = client.ask(91, 0, group_id=GROUP, topics=topics)
    assert not altered.error_code, altered


def ready(data_dir: Path) -> None:
    """Leave two topics with three records each, and a share group that has begun with both."""
    with headrace.Broker(data_dir) as broker, connection(broker.bootstrap_servers) as client:
        for name in ("bad", "good"):
            create_topic(broker.bootstrap_servers, name)
            assert client.produce(name, batch([b"a", b"b", b"c"])) == (0, 0)
        assert share_heartbeat(client, JOIN) == 0
        assert share_heartbeat(client, LEAVE) == 0
        alter_share_offsets(client)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[headrace.Broker]:
    ready(tmp_path)
    make_unreadable(tmp_path, "bad-0")
    with headrace.Broker(tmp_path, metrics_port=0) as broker:
        yield broker


@pytest.fixture
def client(broker: headrace.Broker) -> Iterator[Connection]:
    with connection(broker.bootstrap_servers) as client:
        yield client


def test_log_dirs(client: Connection) -> None:
    (found,) = client.ask(35, 4, topics=None).results
    assert found.error_code == 0
    sizes = {topic.name: topic.partitions[0].partition_size for topic in found.topics}
    assert sizes["bad"] == -1
    assert sizes["good"] == len(batch([b"a", b"b", b"c"]))


def test_a_data_directory_whose_disk_does_not_answer(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Any) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "statvfs", fails)
    response = client.ask(35, 4, topics=None)
    (found,) = response.results
    assert (response.error_code, found.error_code) == (0, UNREADABLE)
    assert not found.topics


def test_share_group_offsets(client: Connection) -> None:
    (group,) = client.ask(90, 1, groups=[{"group_id": GROUP, "topics": None}]).groups
    assert group.error_code == 0
    found = {
        topic.topic_name: (one.error_code, one.start_offset, one.lag)
        for topic in group.topics
        for one in topic.partitions
    }
    assert found == {"bad": (UNREADABLE, -1, -1), "good": (0, 1, 2)}


def test_metrics(broker: headrace.Broker) -> None:
    with urllib.request.urlopen(broker.metrics_url, timeout=10) as page:
        text = page.read().decode()
    assert 'kafka_log_log_logendoffset{topic="good",partition="0"} 3' in text
    assert 'topic="bad"' not in text
    assert 'headrace_scrape_left_out{what="partitions"} 1' in text


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[headrace.Broker]:
    """A broker with two topics of two batches, of an hour ago and of now. The length of the second
    one of the topic ``bad`` is damaged.
    """
    with headrace.Broker(tmp_path) as broker, connection(broker.bootstrap_servers) as client:
        for name in ("bad", "good"):
            create_topic(broker.bootstrap_servers, name)
            for time_ms in (NOW_MS - HOUR_MS, NOW_MS):
                assert client.produce(name, batch([b"a"], timestamp_ms=time_ms))[0] == 0
        with (tmp_path / "bad-0" / f"{0:020}.log").open("r+b") as file:
            file.seek(len(batch([b"a"])) + 8)
            file.write(bytes(4))
        yield broker


def search(client: Connection, timestamp_ms: int) -> dict[str, tuple[int, int]]:
    """Return error and offset of a search by timestamp in both topics."""
    asked = [{"partition_index": 0, "timestamp": timestamp_ms}]
    topics = [{"name": name, "partitions": asked} for name in ("bad", "good")]
    response = client.ask(2, 3, replica_id=-1, topics=topics)
    return {
        topic.name: (topic.partitions[0].error_code, topic.partitions[0].offset)
        for topic in response.topics
    }


def test_searches_by_timestamp(damaged: headrace.Broker) -> None:
    with connection(damaged.bootstrap_servers) as client:
        assert search(client, NOW_MS - HOUR_MS) == {"bad": (0, 0), "good": (0, 0)}
        assert search(client, NOW_MS) == {"bad": (UNREADABLE, -1), "good": (0, 1)}


def test_the_start_of_a_share_group_by_time(damaged: headrace.Broker) -> None:
    where = damaged.bootstrap_servers
    by_time = {"share_auto_offset_reset": "by_duration:PT30M"}
    set_configs(where, ResourceType.GROUP, GROUP, **by_time)
    with connection(where) as client:
        assert share_heartbeat(client, JOIN) == 0
        ids = {topic.name: topic.topic_id for topic in client.ask(3, 12, topics=None).topics}
        partitions = [{"partition_index": 0}]
        topics = [{"topic_id": ids[one], "partitions": partitions} for one in ("bad", "good")]
        fetched = client.ask(
            78,
            1,
            group_id=GROUP,
            member_id=MEMBER,
            max_records=10,
            batch_size=10,
            max_bytes=1000,
            topics=topics,
        )
        found = {one.topic_id: one.partitions[0] for one in fetched.responses}
        assert found[ids["bad"]].error_code == UNREADABLE
        assert found[ids["good"]].error_code == 0
        assert [one.first_offset for one in found[ids["good"]].acquired_records] == [1]


class BadSectors:
    """Makes the end of a file unreadable, as on a real disk: what is before it is read, and then
    nothing.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path, first: int) -> None:
        self._file, self._first = str(file), first
        self._pread, self._preadv = os.pread, os.preadv
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def _readable(self, fd: int, size: int, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}") != self._file:
            return size
        if position >= self._first:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return min(size, self._first - position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return self._pread(fd, self._readable(fd, size, position), position)

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int) -> int:
        (buffer,) = buffers
        size = self._readable(fd, len(buffer), position)
        return self._preadv(fd, (buffer[:size],), position)


def fetch(
    servers: str, offsets: Mapping[str, int], max_bytes: int = 1 << 20
) -> dict[str, tuple[int, list[int]]] | None:
    """Return the error and the offsets of the batches of each topic; None if the connection was
    closed.
    """
    topics = [
        {
            "topic": name,
            "partitions": [
                {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
            ],
        }
        for name, offset in offsets.items()
    ]
    with connection(servers) as client:
        sent = client.send_message(
            1, 4, replica_id=-1, max_wait=0, min_bytes=1, max_bytes=1 << 20, topics=topics
        )
        received = client.receive()
    if received is None:
        return None
    response = decode(sent[0], sent[1], received)
    return {
        topic.topic: (one.error_code, [header.base_offset for _, header in headers(one.records)])
        for topic in response.responses
        for one in topic.partitions
    }


@pytest.mark.parametrize("readable", [0, 50_000])
def test_a_fetch_of_what_the_disk_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readable: int
) -> None:
    """It closes the connection once: the response has begun. Then its partition has an error, and
    what is before it, and other partitions, can be read.
    """
    large = batch([bytes(100_000)])
    with headrace.Broker(tmp_path) as broker, connection(broker.bootstrap_servers) as client:
        where = broker.bootstrap_servers
        for name in ("bad", "good"):
            create_topic(where, name)
            for _ in range(3):
                assert client.produce(name, large)[0] == 0
        file = tmp_path / "bad-0" / f"{0:020}.log"
        BadSectors(monkeypatch, file, 2 * len(large) + readable)
        assert fetch(where, {"bad": 0, "good": 0}) is None
        good = (0, [0, 1, 2])
        assert fetch(where, {"bad": 0, "good": 0}) == {"bad": (0, [0]), "good": good}
        assert fetch(where, {"good": 0, "bad": 1}) == {"bad": (0, []), "good": good}
        assert fetch(where, {"bad": 1, "good": 0}) == {"bad": (0, [1]), "good": good}
        for _ in range(2):
            assert fetch(where, {"bad": 2, "good": 0}) == {"bad": (UNREADABLE, []), "good": good}


def test_a_fetch_up_to_what_the_disk_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = batch([bytes(100_000)])
    with headrace.Broker(tmp_path) as broker, connection(broker.bootstrap_servers) as client:
        where = broker.bootstrap_servers
        create_topic(where, "bad")
        for _ in range(3):
            assert client.produce("bad", large)[0] == 0
        BadSectors(monkeypatch, tmp_path / "bad-0" / f"{0:020}.log", 2 * len(large))
        limit = 2 * len(large) + 1000
        answers = [fetch(where, {"bad": 0}, max_bytes=limit) for _ in range(2)]
        assert answers == [{"bad": (0, [0])}, {"bad": (0, [0])}]
        assert fetch(where, {"bad": 1}, max_bytes=limit) == {"bad": (0, [1])}
        assert fetch(where, {"bad": 2}, max_bytes=limit) == {"bad": (UNREADABLE, [])}
