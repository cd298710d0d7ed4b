"""Templates of Produce requests: a request that is served by template has the same answer as one
that is read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

import crc32c
import pytest
from confluent_kafka.admin import ResourceType

from headrace import Broker
from headrace.log.partition_log import PartitionLog
from headrace.net.session import MAX_PRODUCE_TEMPLATES
from headrace.protocol.errors import ErrorCode
from headrace.protocol.request_templates import MAX_PREFIX_LENGTHS, RequestTemplates
from tests.clients.confluent import admin, consumer, create_topic, set_configs, take
from tests.support import unique, wait_until
from tests.wire_client import Connection, batch, connection, with_byte_changed

pytestmark = pytest.mark.broker

PRODUCE, METADATA, LATEST = 0, 3, 13
VERSIONS = {"aiokafka": 7, "old": 8, "kafka-python": 9, "librdkafka": 10, "Java": LATEST}
ATTRIBUTES_LOW_BYTE = 22


@pytest.fixture(params=VERSIONS.values(), ids=VERSIONS.keys())
def version(request: pytest.FixtureRequest) -> int:
    """A version of Produce that clients use: with topic names or ids, with and without tagged
    fields.
    """
    number: int = request.param
    return number


class Topic(NamedTuple):
    """A topic, and the version of the requests that produce to it."""

    name: str
    topic_id: UUID
    version: int

    @property
    def named(self) -> dict[str, Any]:
        return {"topic_id": self.topic_id} if self.version >= LATEST else {"name": self.name}


def find(client: Connection, name: str, version: int = LATEST) -> Topic:
    def topic_id() -> UUID | None:
        (found,) = client.ask(
            METADATA,
            12,
            topics=[{"topic_id": UUID(int=0), "name": name}],
            allow_auto_topic_creation=False,
        ).topics
        return found.topic_id

    found = wait_until(topic_id, 10, f"the broker to know {name}")  # Kafka: a little later
    return Topic(name, UUID(str(found)), version)


def send(
    client: Connection, topic: Topic, records: bytes | None, partition: int = 0, acks: int = -1
) -> tuple[int, int, int]:
    data = {**topic.named, "partition_data": [{"index": partition, "records": records}]}
    return client.send_message(PRODUCE, topic.version, acks=acks, timeout=30_000, topic_data=[data])


def produce(client: Connection, topic: Topic, records: bytes | None, partition: int = 0) -> Any:
    """Return the response for the partition; None when the connection is closed instead."""
    sent = send(client, topic, records, partition)
    try:
        answer = client.receive_message(sent)
    except (AssertionError, ConnectionError):
        return None
    assert {name: getattr(answer.responses[0], name) for name in topic.named} == topic.named
    (one,) = answer.responses[0].partition_responses
    assert one.index == partition
    return one


def new_topic(bootstrap_servers: str, partitions: int = 1) -> str:
    """Create a topic, and wait until the broker leads its partitions."""
    name = create_topic(bootstrap_servers, unique("again"), partitions)
    with connection(bootstrap_servers) as client:
        found = find(client, name)
        for partition in range(partitions):
            has_leader(client, found, partition)
    return name


def has_leader(client: Connection, topic: Topic, partition: int = 0) -> None:
    """Wait until a bad batch is refused for the batch, not for a missing leader."""
    wrong = with_byte_changed(batch([b"x"]), 64)
    wait_until(
        lambda: produce(client, topic, wrong, partition).error_code == ErrorCode.CORRUPT_MESSAGE,
        10,
        "a leader",
    )


@contextmanager
def used(
    bootstrap_servers: str, topic: str, version: int = LATEST
) -> Iterator[tuple[Connection, Topic]]:
    """Open a connection and produce to the first partition."""
    with connection(bootstrap_servers) as client:
        found = find(client, topic, version)
        for _ in range(2):
            assert produce(client, found, batch([b"before"])).error_code == ErrorCode.NONE
        yield client, found


def test_records_follow_each_other_in_each_partition(bootstrap_servers: str, version: int) -> None:
    name = new_topic(bootstrap_servers, 3)
    with connection(bootstrap_servers) as client:
        found = find(client, name, version)
        for n in range(30):
            one = produce(client, found, batch([b"%d" % n, b"and"]), n % 3)
            assert (one.error_code, one.base_offset, one.log_start_offset) == (
                ErrorCode.NONE,
                n // 3 * 2,
                0,
            )
            assert one.log_append_time is None
    with consumer(bootstrap_servers, unique("group"), auto_offset_reset="earliest") as source:
        source.subscribe([name])
        read = [message for message in take(source, 60) if message.value() != b"and"]
    expected = {(n % 3, n // 3 * 2, b"%d" % n) for n in range(30)}
    assert {
        (message.partition(), message.offset(), message.value()) for message in read
    } == expected


def test_pipelined_requests_are_answered_in_order(bootstrap_servers: str, version: int) -> None:
    name = new_topic(bootstrap_servers)
    with used(bootstrap_servers, name, version) as (client, found):
        sent = [send(client, found, batch([b"%d" % n])) for n in range(20)]
        answers = [client.receive_message(one).responses[0].partition_responses[0] for one in sent]
    assert [one.base_offset for one in answers] == list(range(2, 22))


def with_attributes(bits: int) -> bytes:
    """Return a batch with these attributes and the right checksum."""
    changed = bytearray(batch([b"x"]))
    changed[ATTRIBUTES_LOW_BYTE] = bits
    struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[21:])))
    return bytes(changed)


UNUSUAL = {
    "null": None,
    "nothing": b"",
    "a byte": b"\0",
    "half a header": batch([b"x"])[:40],
    "a batch cut short": batch([b"x"])[:-1],
    "a batch and a byte": batch([b"x"]) + b"\0",
    "two batches": batch([b"x"]) * 2,
    "a wrong checksum": with_byte_changed(batch([b"x"]), 64),
    "magic 1": batch([b"x"], magic=1),
    "a transactional batch": batch([b"x"], transactional=True),
    "a control batch": with_attributes(0x20),
    "an unknown codec": with_attributes(0x07),
    "append time": with_attributes(0x08),
    "a time in a year": batch([b"x"], timestamp_ms=4_000_000_000_000),
    "a producer without a sequence": batch([b"x"], producer_id=7, producer_epoch=0),
    "a batch that is too large": batch([b"x" * 1_100_000]),
}


def without_times(answer: Any) -> str:
    """Return the error message, in versions that have one, without the times in it."""
    return re.sub(r"\d{13,}", "…", getattr(answer, "error_message", None) or "")


@pytest.mark.parametrize("records", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_what_is_unusual_is_answered_as_the_first_time(
    bootstrap_servers: str, target: str, version: int, records: bytes | None
) -> None:
    if records is None and target == "kafka":
        pytest.skip("Apache Kafka never answers null records")
    name = new_topic(bootstrap_servers)
    with used(bootstrap_servers, name, version) as (client, found):
        with connection(bootstrap_servers) as other:
            first = produce(other, found, records)
        again = produce(client, found, records)
        if first is None:
            assert again is None
            return
        kept = int(not first.error_code)  # then a record was appended each time
        assert again.error_code == first.error_code
        assert without_times(again) == without_times(first)
        assert again.base_offset == first.base_offset + kept
        assert produce(client, found, batch([b"after"])).base_offset == 2 + 2 * kept


def test_a_batch_sent_again_is_not_written_again(bootstrap_servers: str, version: int) -> None:
    name = new_topic(bootstrap_servers)
    sequence = [
        batch([b"x", b"y"], producer_id=90_001, producer_epoch=0, base_sequence=n)
        for n in (0, 2, 4)
    ]
    with connection(bootstrap_servers) as client:
        found = find(client, name, version)
        offsets = [produce(client, found, sequence[n]).base_offset for n in (0, 0, 1, 1, 0, 2)]
        assert offsets == [0, 0, 2, 2, 0, 4]
        gap = batch([b"x"], producer_id=90_001, producer_epoch=0, base_sequence=99)
        assert produce(client, found, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_other_acks_are_heeded(bootstrap_servers: str, version: int) -> None:
    name = new_topic(bootstrap_servers)
    with used(bootstrap_servers, name, version) as (client, found):
        for _ in range(3):
            send(client, found, batch([b"unanswered"]), acks=0)
        one = (
            client.receive_message(send(client, found, batch([b"x"]), acks=1))
            .responses[0]
            .partition_responses[0]
        )
        assert one.base_offset == 5
        invalid = client.receive_message(send(client, found, batch([b"x"]), acks=2)).responses[0]
        assert invalid.partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_configs_that_change_count_at_once(bootstrap_servers: str, version: int) -> None:
    name = new_topic(bootstrap_servers)
    with used(bootstrap_servers, name, version) as (client, found):
        set_configs(
            bootstrap_servers, ResourceType.TOPIC, name, message_timestamp_type="LogAppendTime"
        )
        wait_until(
            lambda: produce(client, found, batch([b"x"])).log_append_time, 10, "an append time"
        )
        set_configs(
            bootstrap_servers, ResourceType.TOPIC, name, flush_messages="1", max_message_bytes="100"
        )
        wait_until(
            lambda: (
                produce(client, found, batch([b"x" * 200])).error_code
                == ErrorCode.MESSAGE_TOO_LARGE
            ),
            10,
            "a refusal",
        )
        assert produce(client, found, batch([b"x"])).error_code == ErrorCode.NONE


def test_a_topic_that_is_deleted_and_made_again(bootstrap_servers: str, version: int) -> None:
    name = new_topic(bootstrap_servers)
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= LATEST else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with used(bootstrap_servers, name, version) as (client, found):
        admin(bootstrap_servers).delete_topics([name])[name].result(30)
        wait_until(
            lambda: produce(client, found, batch([b"x"])).error_code == gone, 10, "the topic's end"
        )
        create_topic(bootstrap_servers, name)
        if version >= LATEST:
            assert produce(client, found, batch([b"x"])).error_code == gone
            found = find(client, name)
        wait_until(
            lambda: produce(client, found, batch([b"x"])).error_code == ErrorCode.NONE,
            10,
            "the new topic",
        )
        assert [produce(client, found, batch([b"x"])).base_offset for _ in range(2)] == [1, 2]


def test_a_failure_is_answered_and_the_connection_lives_on(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with Broker() as broker:
        name = create_topic(broker.bootstrap_servers, "again")
        with used(broker.bootstrap_servers, name, version) as (client, found):
            with monkeypatch.context() as patched:
                patched.setattr(PartitionLog, "append", lambda *_, **__: 1 // 0)
                assert (
                    produce(client, found, batch([b"x"])).error_code
                    == ErrorCode.UNKNOWN_SERVER_ERROR
                )
            assert produce(client, found, batch([b"x"])).base_offset == 2


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request of a connection but the first: whether it was served by template."""
    found: list[bool] = []
    try_serve = RequestTemplates.try_serve

    def counted(templates: RequestTemplates, frame: memoryview) -> bytes | None:
        answer: bytes | None = try_serve(templates, frame)
        found.append(answer is not None)
        assert len(templates) <= MAX_PRODUCE_TEMPLATES
        return answer

    monkeypatch.setattr(RequestTemplates, "try_serve", counted)
    return found


@pytest.mark.parametrize("version", range(3, LATEST + 1))
def test_from_which_version_on_there_are_templates(served: list[bool], version: int) -> None:
    """Without templates the tests of this file would show nothing about them."""
    with Broker() as broker:
        name = create_topic(broker.bootstrap_servers, "again")
        with used(broker.bootstrap_servers, name, version) as (client, found):
            assert produce(client, found, batch([b"x"])).error_code == ErrorCode.NONE
    assert served == [version >= 5] * 2


def test_what_a_connection_remembers_is_limited(served: list[bool]) -> None:
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "wide", MAX_PRODUCE_TEMPLATES + 10)
        with used(broker.bootstrap_servers, "wide") as (client, found):
            assert served == [True]
            for partition in (*range(MAX_PRODUCE_TEMPLATES + 10), 0, 0):
                assert produce(client, found, batch([b"x"]), partition).error_code == ErrorCode.NONE
    assert served[1] and served[-1], "a template that was discarded is made again"
    assert served.count(True) == 3


def test_prefixes_of_many_lengths_are_limited(served: list[bool]) -> None:
    names = ["n" * length for length in range(1, MAX_PREFIX_LENGTHS + 2)]
    with Broker() as broker:
        for name in names:
            create_topic(broker.bootstrap_servers, name)
        with connection(broker.bootstrap_servers) as client:
            topics = [find(client, name, VERSIONS["librdkafka"]) for name in names]
            for topic in (*topics[:-1], *topics[:-1], topics[-1], topics[0], topics[-1], topics[0]):
                assert produce(client, topic, batch([b"x"])).error_code == ErrorCode.NONE
    assert served[-12:] == [True] * 8 + [False, False, True, True]
