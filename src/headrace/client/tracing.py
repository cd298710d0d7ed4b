"""Traces and metrics of OpenTelemetry: produce → each delivery → its outcome.

It needs ``headrace[otel]``, and an SDK that exports. Names and attributes follow OpenTelemetry's
semantic conventions for messaging and Kafka; others begin with ``headrace.``. The context is in the
headers of records, in ``traceparent`` with the default propagator. A dead letter with a copy of its
record has the same context, and so has a redriven record.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from .records import Record

MAX_OPEN_DELIVERIES = 10_000
"""The limit of deliveries of a member with an open span. Further deliveries get no span."""

LOST = "lost"

Headers = Iterable[tuple[str, Any]]


def context_of(headers: Headers) -> Context:
    """Return the context that the headers of a record carry; the last one of a name counts."""
    names = {name.lower(): name for name in propagate.get_global_textmap().fields}
    carrier = {
        names[name.lower()]: value.decode(errors="replace")
        for name, value in headers
        if value is not None and name.lower() in names
    }
    return propagate.extract(carrier, Context())


def with_context(headers: Headers, span: Span) -> list[tuple[str, Any]]:
    """Return headers that carry the context of a span, and none of an earlier one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    names = {name.lower() for name in carrier}
    others = [(name, value) for name, value in headers if name.lower() not in names]
    return others + [(name, value.encode()) for name, value in carrier.items()]


class Tracing:
    """The tracer and the meters of a process, for producers and share consumers.

    ::

        tracing = Tracing()
        tracing.produce(producer, "orders", b"four chairs", headers=[("shop", b"7")])

        async with ShareConsumer(conf, ["orders"], tracing=tracing) as queue:
            async for record in queue:
                with queue.processing(record):
                    …                                  # spans here are children of the delivery
                await queue.accept(record)

    :param tracer_provider: None for the global one
    :param meter_provider: None for the global one
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.tracer = trace.get_tracer("headrace", tracer_provider=tracer_provider)
        meter = metrics.get_meter("headrace", meter_provider=meter_provider)
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self.settled = meter.create_counter("headrace.client.settled.messages", "{message}")
        self.operation_s = meter.create_histogram("messaging.client.operation.duration", "s")
        self.process_s = meter.create_histogram("messaging.process.duration", "s")

    def produce(
        self,
        producer: Any,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Mapping[str, Any] | Headers = (),
        on_delivery: Callable[[Any, Any], object] | None = None,
        **more: Any,
    ) -> None:
        """Produce a record in a span that ends when it is acknowledged.

        :param producer: a ``confluent_kafka.Producer``
        :param on_delivery: called with the error or None, and the message
        :param more: further arguments of ``producer.produce``
        """
        described = _described("send", topic, {})
        began_s = time.monotonic()
        span = self.tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes={**described, "messaging.operation.type": "send", **_key(key)},
        )
        carried = with_context(headers.items() if isinstance(headers, Mapping) else headers, span)

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                described["error.type"] = error.name()
                _fail(span, error.name(), error.str())
            else:
                span.set_attributes(_place(message.partition(), message.offset()))
            self.sent.add(1, described)
            self.operation_s.record(time.monotonic() - began_s, described)
            span.end()
            if on_delivery is not None:
                on_delivery(error, message)

        try:
            producer.produce(topic, value, key, headers=carried, on_delivery=delivered, **more)
        except BufferError:  # nothing is sent yet: callers wait, and call again
            raise
        except BaseException as error:
            _fail(span, type(error).__qualname__, str(error))
            span.end()
            raise

    def member(self, group_id: str, client_id: str) -> MemberTracing:
        """Return the traces of a member of a share group."""
        return MemberTracing(self, group_id, client_id)


class MemberTracing:
    """The spans of the deliveries to one member, from the hand-out of a record to its outcome."""

    def __init__(self, tracing: Tracing, group_id: str, client_id: str) -> None:
        self._tracing = tracing
        self._group = {"messaging.consumer.group.name": group_id}
        self._client = {"messaging.client.id": client_id}
        self._open: dict[int, tuple[Span, float, dict[str, str]]] = {}
        """The id of a record, which is held → its span, when it began, and what it is about."""

    def delivered(self, records: Sequence[Record]) -> None:
        """Begin the spans of records that are handed out."""
        for topic, number in Counter(record.topic for record in records).items():
            self._tracing.consumed.add(number, _described("poll", topic, self._group))
        for record in records[: max(MAX_OPEN_DELIVERIES - len(self._open), 0)]:
            described = _described("process", record.topic, self._group)
            span = self._tracing.tracer.start_span(
                f"process {record.topic}",
                context=context_of(record.headers),
                kind=SpanKind.CONSUMER,
                attributes={
                    **described,
                    **self._client,
                    **_place(record.partition, record.offset),
                    **_key(record.key),
                    "messaging.operation.type": "process",
                    "headrace.delivery_count": record.delivery_count,
                },
            )
            self._open[id(record)] = span, time.monotonic(), described

    def ended(
        self, records: Iterable[Record], failed: Container[Record], outcome: str, took_s: float
    ) -> None:
        """End the spans of the records that have an outcome.

        :param failed: those of them whose outcomes the broker has not accepted
        :param took_s: the duration of the call
        """
        settled: Counter[str] = Counter()
        for record in records:
            if record in failed:
                self._end(id(record), LOST)
            else:
                settled[record.topic] += 1
                self._end(id(record), outcome)
        for topic, number in settled.items():
            described = _described(outcome, topic, self._group)
            self._tracing.settled.add(number, {**described, "headrace.outcome": outcome})
            self._tracing.operation_s.record(took_s, described)

    def lost(self, records: Iterable[Record]) -> None:
        """End the spans of records whose locks were lost."""
        for record in records:
            self._end(id(record), LOST)

    def closed(self) -> None:
        """End the other spans: the broker releases their records."""
        for record_id in reversed(tuple(self._open)):
            self._end(record_id, "release")

    def processing(self, record: Record) -> AbstractContextManager[object]:
        """Return a context in which the span of a delivery is the current one."""
        delivery = self._open.get(id(record))
        return nullcontext() if delivery is None else trace.use_span(delivery[0], end_on_exit=False)

    def _end(self, record_id: int, outcome: str) -> None:
        if record_id not in self._open:
            return
        span, began_s, described = self._open.pop(record_id)
        described["headrace.outcome"] = outcome
        span.set_attribute("headrace.outcome", outcome)
        if outcome in ("reject", LOST):
            described["error.type"] = outcome
            text = "rejected" if outcome == "reject" else "the acquisition lock was lost"
            _fail(span, outcome, text)
        self._tracing.process_s.record(time.monotonic() - began_s, described)
        span.end()


def _described(operation: str, topic: str, more: Mapping[str, str]) -> dict[str, str]:
    return {
        "messaging.system": "kafka",
        **more,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }


def _fail(span: Span, error_type: str, text: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, text))


def _place(partition: int, offset: int) -> dict[str, Any]:
    return {
        "messaging.destination.partition.id": str(partition),
        "messaging.kafka.offset": offset,
    }


def _key(key: str | bytes | None) -> dict[str, str]:
    if key is None:
        return {}
    text = key if isinstance(key, str) else key.decode(errors="replace")
    return {"messaging.kafka.message.key": text}
