"""The HTTP ports of a worker: ``/health`` and ``/metrics``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from headrace.broker.metrics.server import MAX_SCRAPE_CONNECTIONS
from headrace.broker.metrics.text import MetricsPage
from headrace.cli.errors import Failure, one_line_error
from headrace.cli.options import Address
from headrace.client.workers import COUNTERS, GAUGES
from headrace.http.hosts import Hosts
from headrace.http.messages import Request, Response
from headrace.http.server import HttpServer
from headrace.metric_family import CONTENT_TYPE, labels
from headrace.net.open_ports import warn_if_open
from headrace.worker.reporter import task_state
from headrace.worker.worker import Worker

_HINT = "This is a port of a headrace worker: /health, /metrics"


@asynccontextmanager
async def open_port(worker: Worker, at: Address) -> AsyncIterator[int]:
    """Have a port that tells of a worker, on both pages, to whoever reaches it; yield its number.

    :param at: port 0 picks a free port
    :raises Failure: the address is in use or cannot be bound
    """
    server = HttpServer(
        partial(_answer, worker),
        Hosts([at.host]),
        max_connections=MAX_SCRAPE_CONNECTIONS,
        max_requests=MAX_SCRAPE_CONNECTIONS // 2,
    )
    try:
        await server.start(*at)
    except OSError as error:
        raise Failure(f"cannot listen on {at}: {one_line_error(error)}") from error
    warn_if_open("the port of the worker's health and metrics", at.host, login=False)
    try:
        yield server.port
    finally:
        await server.close()


async def _answer(worker: Worker, request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        return Response.plain(405, _HINT, (b"allow", b"GET, HEAD"))
    path = request.target.partition(b"?")[0]
    if path == b"/health":
        status, body = health(worker)
        return Response(status, body, ((b"content-type", b"application/json"),))
    if path == b"/metrics":
        return Response(200, metrics(worker), ((b"content-type", CONTENT_TYPE.encode()),))
    return Response.plain(404, _HINT)


def health(worker: Worker) -> tuple[int, bytes]:
    """Return 200 while each task is a member of its group, else 503; and why, as JSON."""
    problems = {
        runner.task.name: runner.problem for runner in worker.runners if runner.problem is not None
    }
    state = {
        "status": "ok" if not problems else "unavailable",
        "worker": worker.name,
        "problems": problems,
        "paused": [
            runner.task.name for runner in worker.runners if runner.breaker_state != "closed"
        ],
    }
    return 503 if problems else 200, json.dumps(state).encode() + b"\n"


def metrics(worker: Worker) -> bytes:
    """Return the metrics of a worker in the text format of Prometheus."""
    page = MetricsPage()
    tasks = [
        (runner, task_state(runner), labels(task=runner.task.name, group=runner.task.group))
        for runner in worker.runners
    ]
    for name, meaning in {**COUNTERS, **GAUGES}.items():
        suffix = "_total" if name in COUNTERS else ""
        page.family(f"headrace_worker_{name}{suffix}", meaning)
        for _, state, label in tasks:
            page.sample(getattr(state, name), label)
    page.family("headrace_worker_busy_seconds_total", "sum of the times for which slots were busy")
    for runner, _, label in tasks:
        page.sample(round(runner.meter.busy_s, 3), label)
    page.family("headrace_worker_in_group", "1 while the task is a member of its group")
    for runner, _, label in tasks:
        page.sample(int(runner.problem is None), label)
    page.family(
        "headrace_worker_breaker",
        "1 for the state of the circuit breaker: closed, open (the task pauses) or probing",
    )
    for _, state, label in tasks:
        page.sample(1, f'{label[:-1]},state="{state.breaker}"}}')
    page.family(
        "headrace_worker_start_delay_seconds",
        "from the sending of a record, or the time for which it was sent, to its first start",
        "histogram",
    )
    for runner, _, label in tasks:
        page.histogram(runner.meter.started_after, label)
    page.family(
        "headrace_worker_duration_seconds", "the time for which functions have run", "histogram"
    )
    for runner, _, label in tasks:
        page.histogram(runner.meter.durations, label)
    return page.text()
