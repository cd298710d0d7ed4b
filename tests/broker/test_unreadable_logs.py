"""Logs whose files cannot be read: requests about many partitions fail for those alone."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

import headrace
from headrace.errors import ErrorCode
from tests.clients.confluent import create_topic, set_configs
from tests.wire_client import Connection, batch, connection

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
