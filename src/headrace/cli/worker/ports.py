"""The HTTP ports of a worker: ``/health`` and ``/metrics``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from headrace.broker.limits import MAX_SCRAPE_CONNECTIONS
from headrace.broker.metrics.text import CONTENT_TYPE, MetricsPage, labels
from headrace.cli.errors import Failure, one_line_error
from headrace.cli.options import Address
from headrace.http.hosts import Hosts
from headrace.http.messages import Request, Response
from headrace.http.server import HttpServer
from headrace.open_ports import warn_if_open
from headrace.worker.breaker import BreakerState
from headrace.worker.runner import Runner
from headrace.worker.worker import Worker

_HINT = "This is a port of a headrace worker: /health, /metrics"
_FAMILIES: Sequence[tuple[str, str, Callable[[Runner], float]]] = (
    *(
        (f"{name}_total", meaning, lambda runner, name=name: runner.counts.get(name, 0))
        for name, meaning in (
            ("done", "records whose functions have returned"),
            ("failed", "attempts that have raised, and records that do not decode"),
            ("retried", "records that were given back to be tried again"),
            ("dead_letters", "records that became dead letters"),
            ("rejected", "records that could not be processed, and have no dead-letter queue"),
            ("expired", "records that were not processed, because they came too late"),
            ("late", "functions that have ended after their records were given up"),
        )
    ),
    (
        "busy_seconds_total",
        "sum of the times for which slots were busy",
        lambda runner: round(runner.meter.busy_s, 3),
    ),
    ("running", "records whose functions run", lambda runner: len(runner.running)),
    ("slots", "how many records are processed at once", lambda runner: runner.concurrency),
    (
        "occupancy",
        "busy share of the slots over the last 15 s",
        lambda runner: round(runner.meter.occupancy, 4),
    ),
    (
        "retries_waiting",
        "records that were given back, and are due later",
        lambda runner: runner.meter.waiting,
    ),
    (
        "in_group",
        "1 while the task is a member of its group",
        lambda runner: int(runner.problem is None),
    ),
)
"""(Name after headrace_worker_, meaning, value) of counters and gauges."""


class WorkerPorts:
    """Ports that tell of a worker. Each serves both addresses, to everybody who reaches it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._servers: list[HttpServer] = []

    async def open(self, at: Address) -> int:
        """Listen, and return the port.

        :param at: port 0 picks a free port
        :raises Failure: the address is in use or cannot be bound
        """
        server = HttpServer(
            self._answer,
            Hosts([at.host]),
            max_connections=MAX_SCRAPE_CONNECTIONS,
            max_requests=MAX_SCRAPE_CONNECTIONS // 2,
        )
        try:
            await server.start(*at)
        except OSError as error:
            raise Failure(f"cannot listen on {at}: {one_line_error(error)}") from error
        self._servers.append(server)
        warn_if_open("the port of the worker's health and metrics", at.host, login=False)
        return server.port

    async def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            await server.close()

    async def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response.plain(405, _HINT, (b"allow", b"GET, HEAD"))
        path = request.target.partition(b"?")[0]
        if path == b"/health":
            status, body = health(self._worker)
            return Response(status, body, ((b"content-type", b"application/json"),))
        if path == b"/metrics":
            return Response(200, metrics(self._worker), ((b"content-type", CONTENT_TYPE.encode()),))
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
            runner.task.name
            for runner in worker.runners
            if runner.breaker is not None
            and runner.breaker.state(time.monotonic()) is not BreakerState.CLOSED
        ],
    }
    return 503 if problems else 200, json.dumps(state).encode() + b"\n"


def metrics(worker: Worker) -> bytes:
    """Return the metrics of a worker in the text format of Prometheus."""
    page = MetricsPage()
    runners = [
        (runner, labels(task=runner.task.name, group=runner.task.group))
        for runner in worker.runners
    ]
    for name, meaning, value in _FAMILIES:
        page.family(f"headrace_worker_{name}", meaning)
        for runner, label in runners:
            page.sample(value(runner), label)
    page.family(
        "headrace_worker_breaker",
        "1 for the state of the circuit breaker: closed, open (the task pauses) or probing",
    )
    for runner, label in runners:
        if runner.breaker is not None:
            state = runner.breaker.state(time.monotonic())
            page.sample(1, f'{label[:-1]},state="{state.value}"}}')
    page.family(
        "headrace_worker_start_delay_seconds",
        "from the sending of a record, or the time for which it was sent, to its first start",
        "histogram",
    )
    for runner, label in runners:
        page.histogram(runner.meter.started_after, label)
    page.family(
        "headrace_worker_duration_seconds", "the time for which functions have run", "histogram"
    )
    for runner, label in runners:
        page.histogram(runner.meter.durations, label)
    return page.text()
