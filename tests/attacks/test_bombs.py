"""Record batches that are much larger than their bytes, beside an honest producer.

The broker opens one of them at a time in its thread, and holds at most 3 records of 32 MiB.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD
from headrace.protocol.limits import MAX_OPENED_RECORDS
from headrace.protocol.primitives import varint
from tests.attacks.harness import MIB, watching
from tests.bombs import (
    batch_of,
    broken_streams,
    compressed,
    count_bomb,
    liars,
    numbered_records,
    record,
    size_bomb,
)
from tests.support import HeadraceProcess, unique
from tests.wire_client import Connection, connection

pytestmark = [pytest.mark.broker, pytest.mark.alone]

LIST_OFFSETS = 2
MAX_TIMESTAMP = -3
GROWTH_BYTES = 150 * MIB
P99_MS = 300
"""A stall of the event loop takes seconds. On a quiet machine the p99 is below 100 ms."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceProcess]:
    process = HeadraceProcess(
        tmp_path_factory.mktemp("bombs"),
        {"log.cleaner.backoff.ms": "200", "offsets.topic.num.partitions": "1"},
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()


def produced(client: Connection, topic: str, data: bytes) -> Any:
    """Produce a batch (v8) and return the answer for its partition."""
    answer = client.ask(
        0,
        8,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
    )
    return answer.responses[0].partition_responses[0]


def offset(client: Connection, topic: str, *timestamps: int) -> tuple[str, int, int]:
    """Look up timestamps in one request; return the error, the offset and the timestamp of the only
    answer.
    """
    answer = client.ask(
        LIST_OFFSETS,
        7,
        replica_id=-1,
        topics=[
            {
                "name": topic,
                "partitions": [{"partition_index": 0, "timestamp": one} for one in timestamps],
            }
        ],
    )
    ((found,),) = (one.partitions for one in answer.topics)
    return found.error_code.name, found.offset, found.timestamp


def million(codec: int, now_ms: int) -> bytes:
    """Return a batch with as many tiny records as are opened, all of one time."""
    return count_bomb(codec, MAX_OPENED_RECORDS, base_timestamp=now_ms, max_timestamp=now_ms)


@pytest.mark.slow
def test_look_ups_in_stored_bombs(broker: HeadraceProcess) -> None:
    """One look-up took 2.1 GB and 3 s of the event loop, or 16 s; ten in one request 21 s. Kafka
    refuses such a request, too.
    """
    topic, now_ms = unique("stored"), int(time.time() * 1000)
    times = {"base_timestamp": now_ms, "max_timestamp": now_ms}
    large = (record(number, value=bytes(30 * MIB)) for number in range(8))
    stored = [
        size_bomb(ZSTD, 1 << 30, **times),
        size_bomb(GZIP, 400 * MIB, **times),
        size_bomb(LZ4, 100 * MIB, **times),
        size_bomb(SNAPPY, 10 * MIB, **times),
        count_bomb(ZSTD, 2_000_000, **times),
        million(ZSTD, now_ms),
        batch_of(compressed(ZSTD, large), 8, ZSTD, **times),
    ]
    with connection(broker.bootstrap_servers) as client:
        for number, data in enumerate(stored):
            client.create_topic(f"{topic}-{number}")
            answer = produced(client, f"{topic}-{number}", data)
            assert answer.error_code == 0, "plain topics open no batch"
        with watching(broker) as watch:
            for number in range(len(stored)):
                one = f"{topic}-{number}"
                assert offset(client, one, now_ms) == ("none", 0, now_ms)
                assert offset(client, one, MAX_TIMESTAMP) == ("none", 0, now_ms)
                assert offset(client, one, *[now_ms] * 10) == ("invalid_request", -1, -1)
    assert watch.grown_bytes < GROWTH_BYTES, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_a_batch_is_opened_once_for_many_look_ups(broker: HeadraceProcess) -> None:
    """The largest batch that is opened: a second look-up is as quick as in any other."""
    topic, now_ms = unique("once"), int(time.time() * 1000)
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic)
        produced(client, topic, million(ZSTD, now_ms))
        with watching(broker) as watch:
            started = time.perf_counter()
            assert offset(client, topic, now_ms) == ("none", 0, now_ms)
            first_s = time.perf_counter() - started
            started = time.perf_counter()
            for earlier_ms in range(100):
                assert offset(client, topic, now_ms - earlier_ms) == ("none", 0, now_ms)
            again_s = time.perf_counter() - started
    assert again_s < first_s + 1, "100 look-ups open nothing"
    assert watch.grown_bytes < 20 * MIB, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_headers_that_lie_about_the_largest_timestamp(broker: HeadraceProcess) -> None:
    """The look-up opens every batch that may have a late enough record."""
    topic, now_ms = unique("lying"), int(time.time() * 1000)
    two = compressed(ZSTD, [record(0), record(1)])
    lying = batch_of(two, 2, ZSTD, base_timestamp=now_ms, max_timestamp=now_ms + 10)
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic)
        for _ in range(5000):
            assert client.produce(topic, lying)[0] == 0
        with watching(broker) as watch:
            for number in range(9):
                assert offset(client, topic, now_ms + 1 + number) == ("none", -1, -1)
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_bombs_for_a_compacted_topic(broker: HeadraceProcess) -> None:
    """Each was opened whole on the event loop, to see that its records have keys."""
    topic, now_ms = unique("compacted"), int(time.time() * 1000)
    times = {"base_timestamp": now_ms, "max_timestamp": now_ms}
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic, cleanup_policy="compact")
        with watching(broker) as watch:
            for data in (
                size_bomb(ZSTD, 1 << 30, **times),
                size_bomb(GZIP, 400 * MIB, **times),
                size_bomb(LZ4, 100 * MIB, **times),
                count_bomb(ZSTD, 2_000_000, **times),
            ):
                assert produced(client, topic, data).error_code.name == "message_too_large"
            keyless = batch_of(
                compressed(ZSTD, numbered_records(200_000, None)), 200_000, ZSTD, **times
            )
            refused = produced(client, topic, keyless)
            assert (refused.error_code.name, len(refused.record_errors)) == ("invalid_record", 1000)
            honest = compressed(ZSTD, (record(number) for number in range(20_000)))
            large = batch_of(honest, 20_000, ZSTD, **times)
            assert produced(client, topic, large).error_code == 0
    assert watch.grown_bytes < GROWTH_BYTES, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_large_gzip_batches_for_a_compacted_topic(broker: HeadraceProcess) -> None:
    """They are within the limits, so that they are opened whole: 200 MiB each."""
    topic, now_ms = unique("gzip"), int(time.time() * 1000)
    megabytes = (record(number, b"%d" % number, bytes(MIB)) for number in range(200))
    payload = compressed(GZIP, megabytes)
    data = batch_of(payload, 200, GZIP, base_timestamp=now_ms, max_timestamp=now_ms)
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic, cleanup_policy="compact")
        with watching(broker) as watch:
            for _ in range(3):
                assert produced(client, topic, data).error_code == 0
    assert watch.grown_bytes < 20 * MIB, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_look_ups_in_many_stored_bombs(broker: HeadraceProcess) -> None:
    """Each look-up read a batch of a million records to its end: 19 s for all of them."""
    now_ms = int(time.time() * 1000)
    topics = [unique("many") for _ in range(20)]
    with connection(broker.bootstrap_servers) as client:
        for topic in topics:
            client.create_topic(topic)
            assert produced(client, topic, million(ZSTD, now_ms)).error_code == 0
        started = time.perf_counter()
        for topic in topics:
            assert offset(client, topic, now_ms) == ("none", 0, now_ms)
        assert time.perf_counter() - started < 10


@pytest.mark.slow
def test_bombs_from_the_future(broker: HeadraceProcess) -> None:
    """Each was opened whole to name the records with a wrong timestamp."""
    topic, late_ms = unique("future"), int(time.time() * 1000) + 10**9
    times = {"base_timestamp": late_ms, "max_timestamp": late_ms}
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic)
        with watching(broker) as watch:
            for data in (size_bomb(ZSTD, 1 << 30, **times), count_bomb(GZIP, 2_000_000, **times)):
                assert produced(client, topic, data).error_code.name == "message_too_large"
            many = compressed(GZIP, numbered_records(200_000))
            refused = produced(client, topic, batch_of(many, 200_000, GZIP, **times))
            assert refused.error_code.name == "invalid_timestamp"
            assert len(refused.record_errors) == 1000
    assert watch.grown_bytes < GROWTH_BYTES, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_bombs_for_an_internal_topic(broker: HeadraceProcess) -> None:
    topic = "__consumer_offsets"
    with (
        connection(broker.bootstrap_servers) as client,
        connection(broker.bootstrap_servers, client_id="__admin_client") as admin,
    ):
        client.create_topic(topic)
        produced(admin, topic, size_bomb(ZSTD, MIB))  # loads the coordinator
        with watching(broker) as watch:
            assert produced(client, topic, size_bomb(ZSTD, MIB)).error_code.name == (
                "invalid_topic_exception"
            )
            for data in (size_bomb(ZSTD, 1 << 30), count_bomb(ZSTD, 2_000_000)):
                assert produced(admin, topic, data).error_code.name == "message_too_large"
            many = compressed(ZSTD, numbered_records(500_000))
            refused = produced(admin, topic, batch_of(many, 500_000, ZSTD))
            assert (refused.error_code.name, len(refused.record_errors)) == ("invalid_record", 1000)
    assert watch.grown_bytes < GROWTH_BYTES, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_liars_are_refused_where_batches_are_opened(broker: HeadraceProcess, codec: int) -> None:
    """As by Kafka, which opens all batches. It accepts wrong lengths of records in compressed
    batches, and two wrong offsets in others; these are refused, too.
    """
    accepted = {
        "a header name that is not UTF-8",
        "a max timestamp that no record has",
        "a value of length -2",
        "bytes after the end",
        "cut by one byte",
    }
    topic = unique("liars")
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic, cleanup_policy="compact")
        for lie, data in {**liars(codec), **(broken_streams(codec) if codec else {})}.items():
            name = produced(client, topic, data).error_code.name
            if lie == "2 billion records stated" or (codec and lie == "a record length of 2 GB"):
                assert name == "message_too_large"
            else:
                assert name == "invalid_record" or (lie in accepted and name == "none"), (lie, name)


@pytest.mark.slow
def test_the_cleaner_opens_bombs(broker: HeadraceProcess) -> None:
    """A topic gets its bombs before it is compacted."""
    topic, now_ms = unique("cleaned"), int(time.time() * 1000)
    times = {"base_timestamp": now_ms, "max_timestamp": now_ms}
    megabytes = (record(number, b"key", bytes(MIB)) for number in range(200))
    with connection(broker.bootstrap_servers) as client:
        client.create_topic(topic, segment_bytes=str(MIB), min_cleanable_dirty_ratio="0.01")
        for data in (
            batch_of(compressed(ZSTD, megabytes), 200, ZSTD, **times),
            batch_of(
                compressed(GZIP, (record(number, varint(number)) for number in range(300_000))),
                300_000,
                GZIP,
                **times,
            ),
        ):
            assert produced(client, topic, data).error_code == 0
        for _ in range(3):
            produced(client, topic, batch_of(record(0, b"key", bytes(900_000)), 1, **times))
        with watching(broker) as watch:
            client.ask(
                44,
                1,
                resources=[
                    {
                        "resource_type": 2,
                        "resource_name": topic,
                        "configs": [
                            {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
                        ],
                    }
                ],
            )
            deadline = time.monotonic() + 60
            while not any(topic in line and "compacted" in line for line in broker.output):
                assert time.monotonic() < deadline, broker.output[-5:]
                time.sleep(0.1)
    assert watch.grown_bytes < GROWTH_BYTES, watch
    assert watch.honest.p99_ms < P99_MS, watch


@pytest.mark.slow
def test_a_start_opens_no_bomb(tmp_path: Path) -> None:
    """Neither does it rebuild indexes from the records, nor after a kill."""
    process = HeadraceProcess(tmp_path)
    process.start()
    now_ms = int(time.time() * 1000)
    with connection(process.bootstrap_servers) as client:
        client.create_topic("t")
        for data in (size_bomb(ZSTD, 1 << 30), million(ZSTD, now_ms)):
            assert produced(client, "t", data).error_code == 0
    process.kill()
    for index in (*tmp_path.glob("t-0/*.index"), *tmp_path.glob("t-0/*.timeindex")):
        index.unlink()
    started = time.perf_counter()
    process.start()
    try:
        with connection(process.bootstrap_servers) as client, watching(process) as watch:
            assert offset(client, "t", -1) == ("none", 1 + MAX_OPENED_RECORDS, -1)
        assert time.perf_counter() - started < 10
        assert watch.peak_bytes < 120 * MIB, watch
    finally:
        process.stop()
