"""Traces and metrics of OpenTelemetry: produce → each delivery → its outcome.

It needs ``headrace[otel]``, and an SDK that exports. Names and attributes follow OpenTelemetry's
semantic conventions for messaging and Kafka; others begin with ``headrace.``. The context is in the
headers of records, in ``traceparent`` with the default propagator. A dead letter with a copy of its
record has the same context, and so has a redriven record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain
from typing import Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from .records import Record, UnreadableBatch, decode_lists
from .share.types import Acknowledgement, AcknowledgeType, Acquired

MAX_OPEN_DELIVERIES = 10_000
"""The limit of deliveries of a member with an open span. Further deliveries get no span."""
MAX_LINKS = 100
"""The limit of links of one span."""

_SYSTEM = {"messaging.system": "kafka"}
_OUTCOMES = {
    AcknowledgeType.GAP: "gap",
    AcknowledgeType.ACCEPT: "accept",
    AcknowledgeType.RELEASE: "release",
    AcknowledgeType.REJECT: "reject",
}
_LOST = "lost"

RecordHeaders = Sequence[tuple[str, bytes | None]]
Place = tuple[str, int, int]
"""(topic, partition, offset)"""


class _HeaderGetter(Getter[RecordHeaders]):
    """Reads a context from the headers of a record; the last header with a name counts."""

    def get(self, carrier: RecordHeaders, key: str) -> list[str] | None:
        found = [value for name, value in carrier if name.lower() == key.lower()]
        if not found or found[-1] is None:
            return None
        return [found[-1].decode(errors="replace")]

    def keys(self, carrier: RecordHeaders) -> list[str]:
        return [name for name, _ in carrier]


class _HeaderSetter(Setter[list[tuple[str, Any]]]):
    """Writes a context to the headers of a record, and replaces an earlier one."""

    def set(self, carrier: list[tuple[str, Any]], key: str, value: str) -> None:
        carrier[:] = [one for one in carrier if one[0].lower() != key.lower()]
        carrier.append((key, value.encode()))


_GETTER, _SETTER = _HeaderGetter(), _HeaderSetter()


class Tracing:
    """The tracer and the meters of a process, for producers and share consumers.

    ::

        tracing = Tracing()
        tracing.produce(producer, "orders", b"four chairs", headers=[("shop", b"7")])

        async with RangeConsumer(servers, "workers", ["orders"], tracing=tracing) as consumer:
            acquired = await consumer.acquire()
            for record in …:
                with consumer.processing("orders", partition, record.offset):
                    …                                  # spans here are children of the delivery

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
        headers: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        on_delivery: Callable[[Any, Any], object] | None = None,
        **more: Any,
    ) -> None:
        """Produce a record in a span that ends when it is acknowledged.

        :param producer: a ``confluent_kafka.Producer``
        :param on_delivery: called with the error or None, and the message
        :param more: further arguments of ``producer.produce``
        """
        about = {
            **_SYSTEM,
            "messaging.operation.name": "send",
            "messaging.destination.name": topic,
        }
        began_s = time.monotonic()
        span = self.tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes={**about, "messaging.operation.type": "send", **_key(key)},
        )
        carried = list(headers.items() if isinstance(headers, Mapping) else headers)
        propagate.inject(carried, trace.set_span_in_context(span), _SETTER)

        def delivered(error: Any, message: Any) -> None:
            described = dict(about)
            if error is not None:
                described["error.type"] = error.name()
                span.set_attribute("error.type", error.name())
                span.set_status(Status(StatusCode.ERROR, error.str()))
            else:
                span.set_attributes(_place(message.partition(), message.offset()))
            self.sent.add(1, described)
            self.operation_s.record(time.monotonic() - began_s, described)
            span.end()
            if on_delivery is not None:
                on_delivery(error, message)

        try:
            producer.produce(topic, value, key, headers=carried, on_delivery=delivered, **more)
        except BaseException as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
            span.end()
            raise

    def member(self, group_id: str, client_id: str) -> MemberTracing:
        """Return the traces of a member of a share group."""
        return MemberTracing(self, group_id, client_id)


class MemberTracing:
    """The spans of the deliveries to one member, from the acquisition to the outcome."""

    def __init__(self, tracing: Tracing, group_id: str, client_id: str) -> None:
        self._tracing = tracing
        self._about = {**_SYSTEM, "messaging.consumer.group.name": group_id}
        self._client = {"messaging.client.id": client_id}
        self._open: dict[Place, tuple[Span, float]] = {}
        """Place → its span, and when it began."""

    def acquired(self, acquired: Acquired, waited_s: float) -> None:
        """Begin the spans of the records that were acquired.

        :param waited_s: the duration of the call
        """
        by_place = acquired.ranges_by_partition()
        links: list[Link] = []
        for place, ranges in by_place.items():
            count = sum(one.count for one in ranges)
            self._tracing.consumed.add(count, self._described("acquire", place[0]))
            with suppress(UnreadableBatch):  # the reader of the records reports it
                data = acquired.data.get(place, b"")
                for record in chain.from_iterable(decode_lists(data, ranges)):
                    context = propagate.extract(record.headers, Context(), _GETTER)
                    creation = trace.get_current_span(context).get_span_context()
                    if creation.is_valid and len(links) < MAX_LINKS:
                        links.append(Link(creation))
                    self._begin(record, context)
        if not by_place:
            return
        topics = sorted({topic for topic, _ in by_place})
        name = topics[0] if len(topics) == 1 else ""
        described = self._described("acquire", name)
        self._tracing.operation_s.record(waited_s, described)
        end_ns = time.time_ns()
        span = self._tracing.tracer.start_span(
            f"acquire {name}".rstrip(),
            kind=SpanKind.CLIENT,
            links=links,
            start_time=end_ns - int(waited_s * 1e9),
            attributes={
                **described,
                **self._client,
                "messaging.operation.type": "receive",
                "messaging.batch.message_count": sum(one.count for one in acquired.ranges),
            },
        )
        span.end(end_ns)

    def _begin(self, record: Record, context: Context) -> None:
        at = (record.topic, record.partition, record.offset)
        self._end(at, _LOST)  # it was delivered before, and its lock has expired
        if len(self._open) >= MAX_OPEN_DELIVERIES:
            return
        span = self._tracing.tracer.start_span(
            f"process {record.topic}",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes={
                **self._described("process", record.topic),
                **self._client,
                **_place(record.partition, record.offset),
                **_key(record.key),
                "messaging.operation.type": "process",
                "headrace.delivery_count": record.delivery_count,
            },
        )
        self._open[at] = (span, time.monotonic())

    def acknowledged(
        self,
        sent: Sequence[Acknowledgement],
        accepted: Sequence[Acknowledgement],
        took_s: float,
    ) -> None:
        """End the spans of the records that have an outcome.

        :param sent: all acknowledgements; those that are not accepted lost their records
        :param took_s: the duration of the call
        """
        for kind, outcomes in ((None, accepted), (_LOST, sent)):
            for one in outcomes:
                if one.type is AcknowledgeType.RENEW:
                    continue
                for offset in range(one.first_offset, one.last_offset + 1):
                    self._end((one.topic, one.partition, offset), kind or _OUTCOMES[one.type])
        for one in accepted:
            if one.type is not AcknowledgeType.RENEW:
                described = {**self._about, "messaging.destination.name": one.topic}
                described["headrace.outcome"] = _OUTCOMES[one.type]
                self._tracing.settled.add(one.last_offset - one.first_offset + 1, described)
        topics = {one.topic for one in sent}
        if topics:
            name = topics.pop() if len(topics) == 1 else ""
            self._tracing.operation_s.record(took_s, self._described("acknowledge", name))

    def closed(self) -> None:
        """End the other spans: the broker releases their records."""
        for at in list(self._open):
            self._end(at, _OUTCOMES[AcknowledgeType.RELEASE])

    def processing(self, at: Place) -> AbstractContextManager[object]:
        """Return a context in which the span of a delivery is the current one."""
        found = self._open.get(at)
        if found is None:
            return nullcontext()
        return trace.use_span(found[0], end_on_exit=False)

    def _end(self, at: Place, outcome: str) -> None:
        found = self._open.pop(at, None)
        if found is None:
            return
        span, began_s = found
        described = {**self._described("process", at[0]), "headrace.outcome": outcome}
        span.set_attribute("headrace.outcome", outcome)
        if outcome in ("reject", _LOST):
            described["error.type"] = outcome
            span.set_attribute("error.type", outcome)
            text = "rejected" if outcome == "reject" else "the acquisition lock was lost"
            span.set_status(Status(StatusCode.ERROR, text))
        self._tracing.process_s.record(time.monotonic() - began_s, described)
        span.end()

    def _described(self, operation: str, topic: str) -> dict[str, str]:
        described = {**self._about, "messaging.operation.name": operation}
        if topic:
            described["messaging.destination.name"] = topic
        return described


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
