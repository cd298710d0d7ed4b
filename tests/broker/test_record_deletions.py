"""DeleteRecords of many partitions: the event loop does not wait for the disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.net import call
from tests.wire_client import Connection, batch, connection

PARTITIONS = 50


def asked(offset: int, *partitions: int) -> dict[str, Any]:
    chosen = partitions or range(PARTITIONS)
    rows = [{"partition_index": p, "offset": offset} for p in chosen]
    return {"topics": [{"name": "t", "partitions": rows}], "timeout": 30_000}


def filled(client: Connection) -> None:
    client.create_topic("t", PARTITIONS)
    for partition in range(PARTITIONS):
        for _ in range(3):
            assert client.produce("t", batch([b"a"]), partition=partition)[0] == 0


def low_watermarks(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (int(one.partition_index), int(one.low_watermark), int(one.error_code))
        for one in answer.topics[0].partitions
    ]


def test_others_are_served_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forcing, may_force = threading.Event(), threading.Event()
    forced: set[str] = set()
    fsync = os.fsync

    def slow(fd: int) -> None:
        forced.add(threading.current_thread().name)
        forcing.set()
        assert may_force.wait(20)
        fsync(fd)

    with (
        headrace.Broker(data_dir=tmp_path) as broker,
        connection(broker.bootstrap_servers) as client,
        connection(broker.bootstrap_servers) as other,
    ):
        filled(client)
        monkeypatch.setattr(os, "fsync", slow)
        sent = client.send_message(21, 2, **asked(2))
        assert forcing.wait(10)
        assert other.produce("t", batch([b"b"]), partition=1) == (0, 3)
        repeated = other.send_message(21, 2, **asked(1, 0, 0))
        assert not client.has_response(0.1), "the answer waits for the disk"
        may_force.set()
        assert low_watermarks(client.receive_message(sent)) == [
            (p, 2, 0) for p in range(PARTITIONS)
        ]
        assert low_watermarks(other.receive_message(repeated)) == [(0, 2, 0)] * 2
        assert all(name.startswith(("headrace-disk", "headrace-log")) for name in forced), forced
        monkeypatch.setattr(os, "fsync", fsync)
    with (
        headrace.Broker(data_dir=tmp_path) as broker,
        connection(broker.bootstrap_servers) as client,
    ):
        answer = client.ask(21, 2, **asked(0))
        assert low_watermarks(answer) == [(p, 2, 0) for p in range(PARTITIONS)]


def test_a_client_that_goes_away_leaves_memory_and_disk_agreed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forcing, may_force = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(fd: int) -> None:
        forcing.set()
        assert may_force.wait(20)
        fsync(fd)

    with headrace.Broker(data_dir=tmp_path) as broker:
        with connection(broker.bootstrap_servers) as client:
            filled(client)
            monkeypatch.setattr(os, "fsync", slow)
            client.send_message(21, 2, **asked(2, 0))
            assert forcing.wait(10)
        monkeypatch.setattr(os, "fsync", fsync)
        may_force.set()
        with connection(broker.bootstrap_servers) as client:
            assert low_watermarks(client.ask(21, 2, **asked(1, 0))) == [(0, 2, 0)]


def test_errors_keep_their_places(tmp_path: Path) -> None:
    with (
        headrace.Broker(data_dir=tmp_path) as broker,
        connection(broker.bootstrap_servers) as client,
    ):
        filled(client)
        rows = [(0, 1), (99, 1), (1, 4), (2, -1), (3, 0), (4, 2), (4, 1)]
        answer = client.ask(
            21,
            2,
            topics=[
                {
                    "name": "t",
                    "partitions": [{"partition_index": p, "offset": o} for p, o in rows],
                },
            ],
            timeout=30_000,
        )
        assert low_watermarks(answer) == [
            (0, 1, 0),
            (99, -1, 3),
            (1, -1, 1),
            (2, 3, 0),
            (3, 0, 0),
            (4, 2, 0),
            (4, 2, 0),
        ]


def test_a_produce_to_many_new_partitions_lets_others_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "SLICE_S", 0.0)
    with (
        headrace.Broker(data_dir=tmp_path) as broker,
        connection(broker.bootstrap_servers) as client,
        connection(broker.bootstrap_servers) as other,
    ):
        client.create_topic("t", PARTITIONS)
        other.create_topic("noise")
        sent = client.send_message(
            0,
            9,
            acks=-1,
            timeout=30_000,
            topic_data=[
                {
                    "name": "t",
                    "partition_data": [
                        {"index": p, "records": batch([b"value-%d" % p])}
                        for p in reversed(range(PARTITIONS))
                    ],
                }
            ],
        )
        # These are received into the same buffer while the first request is being served.
        for _ in range(20):
            assert other.produce("noise", batch([b"x" * 10_000]))[0] == 0
        answers = client.receive_message(sent).responses[0].partition_responses
        assert [(int(one.index), int(one.error_code)) for one in answers] == [
            (p, 0) for p in reversed(range(PARTITIONS))
        ]
        for p in range(PARTITIONS):
            response = client.receive_to(client.send_fetch("t", 0, 0, p))
            assert b"value-%d" % p in response
