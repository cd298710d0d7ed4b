"""A trace that begins where a call is sent goes on in the worker: each attempt has a span."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from headrace.client.tracing import Tracing
from headrace.worker.app import App
from headrace.worker.outcomes import Retry
from tests.support import story, unique


@story
async def test_spans_of_functions_belong_to_the_trace_of_the_sender(bootstrap_servers: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    app = App(bootstrap_servers, tracing=Tracing(tracer_provider=provider))
    done = asyncio.Event()
    attempts: list[int] = []

    @app.task(name=unique("pack"), retry=Retry(3, first=0.1))
    async def pack(number: int) -> None:
        attempts.append(number)
        with tracer.start_as_current_span("work"):
            if len(attempts) == 1:
                raise ValueError("no box")

    @app.task(name=unique("ship"), at_most_once=True)
    def ship(number: int) -> None:  # in a thread
        with tracer.start_as_current_span("work in a thread"):
            loop.call_soon_threadsafe(done.set)

    loop = asyncio.get_running_loop()
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    with tracer.start_as_current_span("request"):
        await pack.send(1)
    while len(attempts) < 2:
        await asyncio.sleep(0.05)
    with tracer.start_as_current_span("another request"):
        await ship.send(1)
    await done.wait()
    worker.stop()
    await running
    await asyncio.to_thread(app.close)

    spans = exporter.get_finished_spans()
    request, sent = named(spans, "request"), named(spans, f"send {pack.topics[0]}")
    first, second = (span for span in spans if span.name == f"process {pack.topics[0]}")
    assert sent.parent is not None and request.context is not None
    assert sent.parent.span_id == request.context.span_id
    for attempt in (first, second):
        assert attempt.parent is not None and sent.context is not None
        assert attempt.parent.span_id == sent.context.span_id
    assert [event.name for event in first.events] == ["exception"]
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is not StatusCode.ERROR
    assert [(span.attributes or {})["headrace.outcome"] for span in (first, second)] == [
        "release",
        "accept",
    ]
    work = [span.parent.span_id for span in spans if span.name == "work" and span.parent]
    assert work == [attempt.context.span_id for attempt in (first, second) if attempt.context]
    in_thread, process = named(spans, "work in a thread"), named(spans, f"process {ship.topics[0]}")
    assert in_thread.parent is not None and process.context is not None
    assert in_thread.parent.span_id == process.context.span_id
    assert trace.get_current_span() is trace.INVALID_SPAN


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    (span,) = (span for span in spans if span.name == name)
    return span
