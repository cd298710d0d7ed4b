"""Reading of ranges of offsets, compared with librdkafka's consumer."""

from __future__ import annotations

import gc
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.client import AuthenticationFailed, ConnectionFailed
from headrace.client.fetch import fetch
from headrace.client.frames import Frames
from headrace.protocol.record_batch import CorruptBatch
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.reader import fetcher
from headrace.spark.reader.columns import HEADERS_TYPE
from headrace.spark.reader.fetcher import Piece
from headrace.spark.reader.log_reader import (
    LogReader,
    read,
)
from headrace.spark.reader.ranges import OffsetRange, ReadError, ReadOptions
from tests.clients.confluent import PATIENCE_S, admin, create_topic, produce
from tests.support import RUN_SEED, HeadraceProcess

Row = tuple[Any, ...]
PARTITIONS = 3

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
ARROW_SCHEMA_WITH_HEADERS = ARROW_SCHEMA.append(pa.field("headers", HEADERS_TYPE))


def librdkafka(bootstrap_servers: str, topic: str, isolation_level: str) -> list[Row]:
    """Return all records of a topic, as librdkafka reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    rows, ended, deadline = [], 0, time.monotonic() + PATIENCE_S
    while ended < PARTITIONS:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            if message.error():
                ended += 1
                continue
            kind, timestamp = message.timestamp()
            headers = message.headers()
            rows.append(
                (
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    timestamp * 1000,
                    kind - 1,
                )
                + (None if headers is None else [{"key": k, "value": v} for k, v in headers],)
            )
    consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def ours(bootstrap_servers: str, ranges: Sequence[OffsetRange], **options: Any) -> list[Row]:
    rows: list[Row] = []
    reached: dict[int, int] = {}
    for part in read(
        KafkaOptions(bootstrap_servers),
        ranges,
        ReadOptions(headers=True, **options),
    ):
        assert part.schema.equals(ARROW_SCHEMA_WITH_HEADERS)
        names = ("partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
        columns = {name: part.column(name) for name in names}
        columns["timestamp"] = columns["timestamp"].cast("int64")
        found = list(zip(*(column.to_pylist() for column in columns.values()), strict=True))
        assert found[0][1] > reached.get(found[0][0], -1), "offsets of a partition ascend"
        reached[found[0][0]] = found[-1][1]
        rows += found
    return sorted(rows, key=lambda row: row[:2])


def whole(bootstrap_servers: str, topic: str) -> list[OffsetRange]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, p), PATIENCE_S)[1]
        for p in range(PARTITIONS)
    ]
    consumer.close()
    return [OffsetRange(topic, partition, 0, end) for partition, end in enumerate(ends)]


@pytest.fixture(scope="module")
def mixture(bootstrap_servers: str) -> str:
    """Create a topic with records of every kind, all codecs, and transactions."""
    seed = RUN_SEED
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic = create_topic(bootstrap_servers, f"mixture-{seed}-{time.time_ns()}", PARTITIONS)

    def some(most: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, most))

    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        config = {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 20,
        }
        plain, transactional = (
            Producer(config),
            Producer({**config, "transactional.id": f"{topic}-{codec}"}),
        )
        transactional.init_transactions(PATIENCE_S)
        for _ in range(6):
            producer = chance.choice((plain, transactional))
            if producer is transactional:
                producer.begin_transaction()
            for _ in range(chance.choice((1, 1, 40, 300))):
                headers = [
                    (chance.choice(("a", "é", "x" * 80)), some(90))
                    for _ in range(chance.choice((0, 0, 1, 3)))
                ]
                producer.produce(
                    topic,
                    some(chance.choice((20, 2000))),
                    some(10),
                    chance.randrange(PARTITIONS),
                    headers=headers,
                )
            if producer is plain:
                assert producer.flush(PATIENCE_S) == 0
            elif chance.random() < 0.5:
                producer.commit_transaction(PATIENCE_S)
            else:
                assert producer.flush(PATIENCE_S) == 0
                producer.abort_transaction(PATIENCE_S)
    return topic


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_the_same_records_as_librdkafka(
    bootstrap_servers: str, mixture: str, isolation_level: str
) -> None:
    expected = librdkafka(bootstrap_servers, mixture, isolation_level)
    committed = isolation_level == "read_committed"
    assert (
        ours(bootstrap_servers, whole(bootstrap_servers, mixture), read_committed=committed)
        == expected
    )


def test_a_small_buffer_and_many_ranges(bootstrap_servers: str, mixture: str) -> None:
    ranges, chosen = [], []
    expected = librdkafka(bootstrap_servers, mixture, "read_uncommitted")
    for partition in whole(bootstrap_servers, mixture):
        for start in range(0, partition.end - 3, 50):
            ranges.append(partition._replace(start=start, end=start + 3))
    chosen = [
        row
        for row in expected
        if row[1] % 50 < 3 and any(row[0] == r.partition and row[1] < r.end for r in ranges)
    ]
    assert ours(bootstrap_servers, ranges[::-1], buffer_bytes=1) == chosen


def test_the_caller_chooses_the_partition(bootstrap_servers: str, mixture: str) -> None:
    ranges = whole(bootstrap_servers, mixture)
    expected = librdkafka(bootstrap_servers, mixture, "read_uncommitted")
    with LogReader(KafkaOptions(bootstrap_servers), ranges, ReadOptions(buffer_bytes=1)) as reader:
        for partition in (2, 0, 1):
            found: list[int] = []
            while (part := reader.next((mixture, partition))) is not None:
                assert part.schema.equals(ARROW_SCHEMA)
                found += part.column("offset").to_pylist()
            assert found == [row[1] for row in expected if row[0] == partition]
        assert reader.next((mixture, 0)) is None


def test_fetched_bytes_are_freed_at_the_end(bootstrap_servers: str, mixture: str) -> None:
    """Drivers read single records in every micro-batch, and the garbage collector runs rarely."""

    def held() -> bool:
        return any(type(thing) is Piece for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        with LogReader(
            KafkaOptions(bootstrap_servers), whole(bootstrap_servers, mixture)
        ) as reader:
            assert reader.next((mixture, 0)) is not None
            assert held()
        assert not held()
    finally:
        gc.enable()


def test_deleted_records_fail_or_are_skipped(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"%d" % i for i in range(10)])
    at = TopicPartition(topic_name, 0, 4)
    admin(bootstrap_servers).delete_records([at])[at].result(PATIENCE_S)
    everything = [OffsetRange(topic_name, 0, 0, 10)]
    with pytest.raises(
        ReadError, match=rf"offset 0 of {topic_name}-0 is not available: its log starts at 4"
    ):
        ours(bootstrap_servers, everything)
    assert [row[1] for row in ours(bootstrap_servers, everything, skip_lost=True)] == list(
        range(4, 10)
    )
    beyond = [OffsetRange(topic_name, 0, 8, 30)]
    assert [row[1] for row in ours(bootstrap_servers, beyond, skip_lost=True)] == [8, 9]


def test_an_error_names_the_missing_record(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"one"])
    with pytest.raises(
        ReadError,
        match=rf"no record of {topic_name}-0 from offset 1 on within 1000 ms: its log ends at 1",
    ):
        ours(bootstrap_servers, [OffsetRange(topic_name, 0, 0, 2)], timeout_ms=1_000)
    with pytest.raises(ReadError, match=rf"^{topic_name}-0 is to be read from offset 1 on, but"):
        ours(bootstrap_servers, [OffsetRange(topic_name, 0, 0, 2)])
    with pytest.raises(ReadError, match=f"topic '{topic_name}' has no partition 9"):
        ours(bootstrap_servers, [OffsetRange(topic_name, 9, 0, 1)])
    with pytest.raises(ReadError, match="topic 'missing' does not exist"):
        ours(bootstrap_servers, [OffsetRange("missing", 0, 0, 1)])
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic_name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic_name, b"two")
    assert producer.flush(PATIENCE_S) == 0
    with pytest.raises(ReadError, match="a transaction that began before it is still open"):
        ours(
            bootstrap_servers,
            [OffsetRange(topic_name, 0, 0, 2)],
            timeout_ms=1_000,
            read_committed=True,
        )
    producer.abort_transaction(PATIENCE_S)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (CorruptBatch("no magic"), "{} has record batches that are corrupt, from offset 0 on: no"),
        (AuthenticationFailed("check sasl.password"), "reading {} from offset 0 on: check sasl"),
        (ConnectionFailed("no broker answers"), "no record of {} from offset 0 on within 500 ms"),
        (KeyError("epoch"), "reading {} from offset 0 on failed: KeyError('epoch')"),
    ],
)
def test_each_failure_names_topic_partition_and_offset(
    bootstrap_servers: str,
    topic_name: str,
    failure: Exception,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise failure

    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"one"])
    monkeypatch.setattr("headrace.spark.reader.fetcher.Batches.find", fail)
    with pytest.raises(ReadError, match=re.escape(text.format(f"{topic_name}-0"))):
        ours(bootstrap_servers, [OffsetRange(topic_name, 0, 0, 1)], timeout_ms=500)


@pytest.mark.parametrize("where", ["receiving", "opening"])
def test_missing_memory_is_told_at_once(
    bootstrap_servers: str, topic_name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_buffer = Frames.get_buffer

    def no_memory(frames: Frames | bytes, sizehint: int = 0) -> memoryview:
        if isinstance(frames, Frames) and frames._filled < len(frames._buffer):
            return get_buffer(frames, sizehint)
        raise MemoryError

    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"x" * 200_000])
    place = (
        "client.frames.Frames.get_buffer"
        if where == "receiving"
        else "spark.reader.fetcher.Batches.find"
    )
    monkeypatch.setattr(f"headrace.{place}", no_memory)
    with pytest.raises(MemoryError):
        ours(bootstrap_servers, [OffsetRange(topic_name, 0, 0, 1)])


def test_reading_continues_after_a_restart_of_the_broker(tmp_path: Path, topic_name: str) -> None:
    with HeadraceProcess(tmp_path / "data") as server:
        create_topic(server.bootstrap_servers, topic_name)
        produce(server.bootstrap_servers, topic_name, [b"x" * 1000] * 500, batch_num_messages=10)
        ranges = [OffsetRange(topic_name, 0, 0, 500)]
        with LogReader(
            KafkaOptions(server.bootstrap_servers), ranges, ReadOptions(buffer_bytes=1)
        ) as reader:
            parts = iter(reader)
            count = next(parts).num_rows
            assert count < 250
            server.stop()
            server.start()
            assert count + sum(part.num_rows for part in parts) == 500


@pytest.mark.parametrize("skip_lost", [False, True])
def test_a_leader_that_does_not_know_its_end_yet_is_asked_again(
    bootstrap_servers: str, topic_name: str, monkeypatch: pytest.MonkeyPatch, skip_lost: bool
) -> None:
    """The high watermark of a new leader may lie behind, and its ListOffsets is not answered."""
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"%d" % i for i in range(10)])
    behind = [0, 0, 5]

    async def fetched(*given: Any, **more: Any) -> Any:
        answers = await fetch(*given, **more)
        if not behind:
            return answers
        high_watermark = behind.pop()
        return {
            key: replace(answer, records=b"", high_watermark=high_watermark)
            for key, answer in answers.items()
        }

    async def unanswered(*_: Any, **more: Any) -> Any:
        raise ConnectionFailed("OFFSET_NOT_AVAILABLE")

    monkeypatch.setattr(fetcher, "_ABSENT_S", 0.0)
    monkeypatch.setattr(fetcher, "fetch", fetched)
    monkeypatch.setattr(fetcher, "list_offsets", unanswered)
    rows = ours(bootstrap_servers, [OffsetRange(topic_name, 0, 5, 10)], skip_lost=skip_lost)
    assert [row[1] for row in rows] == [5, 6, 7, 8, 9]
    assert not behind


def test_nothing_is_read_of_a_topic_that_was_created_again(
    bootstrap_servers: str, topic_name: str
) -> None:
    def create(value: bytes) -> None:
        create_topic(bootstrap_servers, topic_name)
        produce(bootstrap_servers, topic_name, [value * 1000] * 500, batch_num_messages=10)

    create(b"1")
    kafka, ranges = KafkaOptions(bootstrap_servers), [OffsetRange(topic_name, 0, 0, 500)]
    with (
        LogReader(kafka, ranges, ReadOptions(buffer_bytes=1)) as failing,
        LogReader(kafka, ranges, ReadOptions(buffer_bytes=1, skip_lost=True)) as skipping,
    ):
        for reader in (failing, skipping):
            part = reader.next((topic_name, 0))
            assert part is not None
            assert part.num_rows < 250
        admin(bootstrap_servers).delete_topics([topic_name])[topic_name].result(PATIENCE_S)
        create(b"2")
        with pytest.raises(ReadError, match=f"^topic '{topic_name}' was deleted and created again"):
            list(failing)
        values = {value for part in skipping for value in part.column("value").to_pylist()}
        assert values <= {b"1" * 1000}
