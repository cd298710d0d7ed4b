"""Produce requests with batches that must be opened and are too large for the event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace.log.segment import Segment
from headrace.protocol.compression import NONE, ZSTD
from headrace.protocol.limits import LARGE_BATCH_BYTES
from headrace.protocol.record_batch import build, has_right_crc, header_at, headers
from tests.support import HeadraceProcess, unique
from tests.wire_client import Connection, batch, connection

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000)
LARGE = 3000
"""More records than a batch has that is opened on the event loop."""


@pytest.fixture(scope="module")
def broker() -> Iterator[HeadraceProcess]:
    process = HeadraceProcess()
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def client(broker: HeadraceProcess) -> Iterator[Connection]:
    with connection(broker.bootstrap_servers) as opened:
        yield opened


def large(codec: int = NONE, key: bytes | None = b"key", **fields: int) -> bytes:
    values = [(b"key", b"value")] * (LARGE - 1) + [(key, b"value")]
    return build(values, timestamp_ms=NOW_MS, codec=codec, **fields)


def send(client: Connection, topic: str, *batches: bytes, acks: int = -1, version: int = 8) -> Any:
    """Send batches, the first one for partition 0, the next for 1, and so on."""
    data = [{"index": index, "records": one} for index, one in enumerate(batches)]
    return client.send_message(
        0, version, acks=acks, timeout=30_000, topic_data=[{"name": topic, "partition_data": data}]
    )


def produced(client: Connection, topic: str, *batches: bytes) -> list[tuple[str, int]]:
    """Produce batches; return error and base offset of each partition."""
    answer = client.receive_message(send(client, topic, *batches))
    return [
        (one.error_code.name, one.base_offset) for one in answer.responses[0].partition_responses
    ]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_partitions_are_answered_in_their_order(client: Connection, codec: int) -> None:
    topic = unique("order")
    client.create_topic(topic, 5, cleanup_policy="compact")
    small = batch([b"v"], key=b"k")
    for number in range(2):
        assert produced(client, topic, small, large(codec), small, large(codec, None), small) == [
            ("none", number),
            ("none", LARGE * number),
            ("none", number),
            ("invalid_record", -1),
            ("none", number),
        ]


def test_requests_of_a_connection_are_served_in_their_order(client: Connection) -> None:
    """Also those that have a template."""
    topic = unique("turns")
    client.create_topic(topic, cleanup_policy="compact")
    small = batch([b"v"], key=b"k")
    sent = [send(client, topic, one) for one in (small, small, large(), small, large(ZSTD), small)]
    found = [
        client.receive_message(one).responses[0].partition_responses[0].base_offset for one in sent
    ]
    assert found == [0, 1, 2, 2 + LARGE, 3 + LARGE, 3 + 2 * LARGE]


def test_the_records_are_kept_while_other_requests_arrive(
    broker: HeadraceProcess, client: Connection
) -> None:
    """All connections receive into one buffer."""
    topic, other = unique("kept"), unique("other")
    client.create_topic(topic, cleanup_policy="compact")
    client.create_topic(other)
    stop = threading.Event()

    def fill_the_buffer() -> None:
        with connection(broker.bootstrap_servers) as second:
            while not stop.is_set():
                second.produce(other, batch([b"\xff" * 60_000]))

    thread = threading.Thread(target=fill_the_buffer)
    thread.start()
    try:
        for number in range(20):
            assert produced(client, topic, large()) == [("none", LARGE * number)]
    finally:
        stop.set()
        thread.join()
    offset = 0
    while offset < 20 * LARGE:
        answer = client.receive_message(client.send_fetch(topic, offset, 0))
        data = bytes(answer.responses[0].partitions[0].records)
        for position, header in headers(data):
            assert has_right_crc(memoryview(data)[position:], header)
            assert header_at(data, position).record_count == LARGE
            offset = header.last_offset + 1


def test_without_acknowledgements(client: Connection) -> None:
    topic = unique("silent")
    client.create_topic(topic, cleanup_policy="compact")
    send(client, topic, large(), acks=0)
    assert produced(client, topic, large()) == [("none", LARGE)]
    send(client, topic, large(key=None), acks=0)
    assert client.receive() is None, "a failure closes the connection"


def test_sequences_of_an_idempotent_producer(client: Connection) -> None:
    topic = unique("sequence")
    client.create_topic(topic, cleanup_policy="compact")
    fields = {"producer_id": 4_000_001, "producer_epoch": 0}
    first = large(base_sequence=0, **fields)
    assert produced(client, topic, first) == [("none", 0)]
    assert produced(client, topic, first) == [("none", 0)], "a duplicate"
    assert produced(client, topic, large(base_sequence=LARGE, **fields)) == [("none", LARGE)]
    assert produced(client, topic, large(base_sequence=1, **fields))[0][0] == (
        "out_of_order_sequence_number"
    )


def test_a_topic_that_is_deleted_meanwhile(broker: HeadraceProcess, client: Connection) -> None:
    with connection(broker.bootstrap_servers) as second:
        for _ in range(10):
            topic = unique("deleted")
            client.create_topic(topic, cleanup_policy="compact")
            sent = send(client, topic, large(ZSTD))
            second.ask(20, 4, topic_names=[topic], timeout=30_000)
            answer = client.receive_message(sent).responses[0].partition_responses[0]
            assert answer.error_code.name in ("none", "unknown_topic_or_partition")


def test_others_are_served_while_a_batch_is_written_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer of another client comes between two pieces; a small batch for the same partition
    comes after the large one.
    """
    started, served, order = threading.Event(), threading.Event(), []
    value = bytes(LARGE_BATCH_BYTES)
    stage = Segment.stage

    def slowly(self: Segment, data: memoryview) -> Iterator[None]:
        for _ in stage(self, data):
            started.set()
            while not served.is_set():
                yield
            yield
        order.append("large")

    monkeypatch.setattr(Segment, "stage", slowly)
    with headrace.Broker(config={"message.max.bytes": 2 * LARGE_BATCH_BYTES}) as broker:
        first, second, third = (connection(broker.bootstrap_servers) for _ in range(3))
        with first as large_client, second as small_client, third as other:
            topic = unique("pieces")
            large_client.create_topic(topic, 1)
            waiting = send(large_client, topic, batch([value]))
            assert started.wait(30)
            behind = send(small_client, topic, batch([b"small"]))
            assert other.api_versions()
            assert order == []
            served.set()
            answers = [
                client.receive_message(sent).responses[0].partition_responses[0].base_offset
                for client, sent in ((large_client, waiting), (small_client, behind))
            ]
            assert answers == [0, 1]
