"""Traces and metrics of OpenTelemetry, from the producer to the outcome of each delivery."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headrace import Record, ShareConsumer
from headrace.client import tracing
from headrace.client.dead_letters.letters import LetterFilter
from headrace.client.dead_letters.redrive import Redrive, RedriveOptions
from headrace.client.tracing import Tracing
from tests.cli.command import ENVIRONMENT
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    set_configs,
    share_from_earliest,
    take,
)
from tests.support import unique


class Recorded:
    """A :class:`Tracing` whose spans and metrics stay in memory.

    :ivar tracing: to pass to clients
    """

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.provider = provider
        self.tracing = Tracing(provider, MeterProvider([self._reader]))

    def spans(self, prefix: str) -> list[ReadableSpan]:
        """Return the ended spans whose name begins so, by their start."""
        found = [one for one in self._exporter.get_finished_spans() if one.name.startswith(prefix)]
        return sorted(found, key=lambda one: one.start_time or 0)

    def counts(self, name: str, label: str) -> Counter[object]:
        """Return the number of measurements of a metric by the value of a label."""
        counts: Counter[object] = Counter()
        data: Any = self._reader.get_metrics_data()
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points if metric.name == name else ():
                        number = getattr(point, "count", None) or getattr(point, "value", 0)
                        counts[point.attributes.get(label)] += number
        return counts


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def produce(recorded: Recorded, servers: str, topic: str, *values: bytes, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for value in values:
        recorded.tracing.produce(producer, topic, value, b"k", **more)
    assert producer.flush(PATIENCE_S) == 0


def deliver(
    recorded: Recorded, servers: str, group_id: str, topic: str, *outcomes: str
) -> list[int]:
    """Take a record for each outcome, in a span of its processing; return the offsets."""

    async def work() -> list[int]:
        offsets: list[int] = []
        conf = {"bootstrap.servers": servers, "group.id": group_id, "client.id": "packer"}
        async with ShareConsumer(conf, [topic], tracing=recorded.tracing) as queue:
            for outcome in outcomes:
                record = await anext(queue)
                with (
                    queue.processing(record),
                    recorded.provider.get_tracer("test").start_as_current_span("work"),
                ):
                    offsets.append(record.offset)
                await getattr(queue, outcome)(record)
        return offsets

    return asyncio.run(work())


def test_a_record_from_the_producer_to_each_outcome(
    recorded: Recorded, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    share_from_earliest(bootstrap_servers, group_id)
    reported: list[object] = []
    produce(
        recorded,
        bootstrap_servers,
        topic_name,
        b"x",
        headers={"shop": "7"},
        on_delivery=lambda error, message: reported.append((error, message.offset())),
    )
    assert reported == [(None, 0)]
    offsets = deliver(recorded, bootstrap_servers, group_id, topic_name, "release", "accept")
    assert offsets == [0, 0]
    (sent,) = recorded.spans("send ")
    first, second = recorded.spans("process ")
    assert (sent.name, sent.kind) == (f"send {topic_name}", SpanKind.PRODUCER)
    assert sent.attributes is not None and sent.context is not None
    assert dict(sent.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic_name,
        "messaging.kafka.message.key": "k",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    for span, count, outcome in ((first, 1, "release"), (second, 2, "accept")):
        assert (span.name, span.kind) == (f"process {topic_name}", SpanKind.CONSUMER)
        assert span.parent is not None and span.parent.span_id == sent.context.span_id
        assert span.context is not None and span.context.trace_id == sent.context.trace_id
        assert span.attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic_name,
            "messaging.consumer.group.name": group_id,
            "messaging.client.id": "packer",
            "messaging.kafka.message.key": "k",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 0,
            "headrace.delivery_count": count,
            "headrace.outcome": outcome,
        }
    works = [one.parent and one.parent.span_id for one in recorded.spans("work")]
    assert works == [one.context and one.context.span_id for one in (first, second)]
    by_topic = "messaging.destination.name"
    assert recorded.counts("messaging.client.sent.messages", by_topic) == {topic_name: 1}
    assert recorded.counts("messaging.client.consumed.messages", by_topic) == {topic_name: 2}
    for name in ("headrace.client.settled.messages", "messaging.process.duration"):
        assert recorded.counts(name, "headrace.outcome") == {"accept": 1, "release": 1}
    assert recorded.counts("messaging.client.operation.duration", "messaging.operation.name") == {
        "send": 1,
        "release": 1,
        "accept": 1,
    }


def test_the_context_is_kept_into_the_dead_letter_queue_and_back(
    recorded: Recorded, bootstrap_servers: str, topic_name: str, group_id: str, target: str
) -> None:
    """Apache Kafka copies no headers into letters: there the context is in the source only, and a
    redrive finds it if the letter has no copy of the record.
    """
    is_copied = target == "headrace"
    create_topic(bootstrap_servers, topic_name)
    queue = create_topic(
        bootstrap_servers, unique("dlq.t"), errors_deadletterqueue_group_enable="true"
    )
    share_from_earliest(bootstrap_servers, group_id)
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        group_id,
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable=str(is_copied).lower(),
    )
    produce(recorded, bootstrap_servers, topic_name, b"x")
    deliver(recorded, bootstrap_servers, group_id, topic_name, "reject")
    with consumer(bootstrap_servers, unique("g")) as reader:
        reader.subscribe([queue])
        (letter,) = take(reader, 1)
    (sent,) = recorded.spans("send ")
    assert sent.context is not None
    trace_id, span_id = f"{sent.context.trace_id:032x}", f"{sent.context.span_id:016x}"
    carried = dict(letter.headers() or ()).get("traceparent")
    assert (carried is not None) == is_copied
    assert carried is None or carried.decode().startswith(f"00-{trace_id}-{span_id}-")
    config = {"bootstrap.servers": bootstrap_servers}
    redrive = Redrive(config, queue, LetterFilter(), RedriveOptions())
    assert redrive.run(threading.Event()).total == 1
    deliver(recorded, bootstrap_servers, group_id, topic_name, "accept")
    rejected, accepted = recorded.spans("process ")
    assert rejected.status.status_code is StatusCode.ERROR
    assert rejected.attributes and rejected.attributes["error.type"] == "reject"
    assert accepted.status.status_code is StatusCode.UNSET
    for span in (rejected, accepted):
        assert span.context is not None and span.context.trace_id == sent.context.trace_id


def test_a_refused_record(recorded: Recorded, bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name, max_message_bytes="1000")
    produce(recorded, bootstrap_servers, topic_name, bytes(2000))
    (span,) = recorded.spans("send ")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes and span.attributes["error.type"] == "MSG_SIZE_TOO_LARGE"
    assert recorded.counts("messaging.client.sent.messages", "error.type") == {
        "MSG_SIZE_TOO_LARGE": 1
    }


def test_a_record_that_waits_for_room_in_the_queue_has_not_failed(recorded: Recorded) -> None:
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 1, "log_level": 2}
    )
    recorded.tracing.produce(producer, "t", b"1")
    for _ in range(3):
        with pytest.raises(BufferError):
            recorded.tracing.produce(producer, "t", b"2")
    assert recorded.spans("send ") == []
    producer.purge()
    producer.flush(PATIENCE_S)
    assert len(recorded.spans("send ")) == 1


def record(offset: int, delivery_count: int = 1) -> Record:
    return Record("t", 0, offset, None, b"x", (), 0, "CreateTime", delivery_count)


def outcomes(recorded: Recorded) -> list[tuple[object, object]]:
    """Return the offset and the outcome of each ended delivery."""
    found = [one.attributes or {} for one in recorded.spans("process ")]
    return [(one["messaging.kafka.offset"], one["headrace.outcome"]) for one in found]


def test_lost_locks_and_the_end_of_a_member(recorded: Recorded) -> None:
    member = recorded.tracing.member("g", "c")
    accepted, refused, lost, held = records = [record(offset) for offset in range(4)]
    member.delivered(records)
    member.ended([accepted, refused], {refused}, "accept", 0.1)
    member.lost([lost])
    assert outcomes(recorded) == [(0, "accept"), (1, "lost"), (2, "lost")]
    again = record(2, delivery_count=2)
    member.delivered([again])
    member.ended([lost], {lost}, "accept", 0.1)
    assert len(outcomes(recorded)) == 3
    member.closed()
    assert sorted(outcomes(recorded)[3:]) == [(2, "release"), (3, "release")]
    assert held.offset == 3


def test_open_deliveries_have_a_limit(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_OPEN_DELIVERIES", 3)
    member = recorded.tracing.member("g", "c")
    records = [record(offset) for offset in range(9)]
    member.delivered(records[:4])
    member.delivered(records[4:])
    member.ended(records, (), "accept", 0.1)
    assert outcomes(recorded) == [(0, "accept"), (1, "accept"), (2, "accept")]
    label = "messaging.destination.name"
    assert recorded.counts("messaging.client.consumed.messages", label) == {"t": 9}
    assert recorded.counts("headrace.client.settled.messages", label) == {"t": 9}


def test_without_tracing_nothing_of_it_is_imported() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None; import headrace.client; "
        "conf = {'bootstrap.servers': '127.0.0.1:9', 'group.id': 'g'}; "
        "queue = headrace.client.ShareConsumer(conf, ['t']); "
        "queue.processing(None).__enter__(); "
        "assert not [one for one in sys.modules if one.startswith('opentelemetry.')]"
    )
    subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, check=True)
