"""The watchdog of the event loop: it counts delays, and names what held the loop."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.broker.loop_watch import IMPORTS, UNKNOWN, LoopWatch
from headrace.groups.coordinator import GroupCoordinator
from headrace.log_lines import LIMITER
from headrace.net.metrics import LoopMetrics
from headrace.topics.topic_logs import TopicLogs
from tests.support import story
from tests.wire_client import batch, connection

HOLD_S = 0.4


def metric(page: str, name: str) -> float:
    (line,) = (line for line in page.splitlines() if line.startswith(f"{name} "))
    return float(line.rsplit(" ", 1)[1])


def scrape(broker: Any) -> str:
    with urllib.request.urlopen(broker.metrics_url) as response:
        return str(response.read().decode())


def test_a_request_that_holds_the_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slow(self: GroupCoordinator, *filters: object) -> list[Any]:
        time.sleep(HOLD_S)
        return []

    monkeypatch.setattr(GroupCoordinator, "list", slow)
    with caplog.at_level(logging.WARNING), headrace.Broker(metrics_port=0) as broker:
        time.sleep(0.3)
        with connection(broker.bootstrap_servers, client_id="the client") as client:
            client.ask(16, 5)
        time.sleep(0.3)
        page = scrape(broker)
    assert 'headrace_loop_held_ms_total{by="ListGroups"}' in page
    assert metric(page, "headrace_loop_delay_max_ms") > 0.5 * HOLD_S * 1000
    assert metric(page, "headrace_loop_delay_ms_count") >= 3
    assert any(
        "the event loop was held for" in line and "by ListGroups of the client" in line
        for line in caplog.messages
    )


def test_a_timer_that_holds_the_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hold(*_: object) -> None:
        time.sleep(HOLD_S)  # noqa: ASYNC251

    monkeypatch.setattr(TopicLogs, "_apply_retention", hold)
    config = {"log.retention.check.interval.ms": "100"}
    with caplog.at_level(logging.WARNING), headrace.Broker(config=config) as broker:
        with connection(broker.bootstrap_servers) as client:
            client.create_topic("t")
            client.produce("t", batch([b"a"]))
        time.sleep(1.5)
    assert any("TopicLogs._retain" in line for line in caplog.messages), caplog.messages


def test_an_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import sys, headrace.broker.loop_watch as w; holder = w.holder_of(sys._getframe())"
    (tmp_path / "looks_while_it_is_imported.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("looks_while_it_is_imported").holder == IMPORTS


@story
async def test_the_cycle_collector_is_named(caplog: pytest.LogCaptureFixture) -> None:
    metrics = LoopMetrics()
    caplog.set_level(logging.INFO, "headrace.loop")
    watch = LoopWatch(metrics)
    watch.start()
    await asyncio.sleep(0.15)
    watch._collects("start", {})
    time.sleep(HOLD_S)  # noqa: ASYNC251
    watch._collects("stop", {})
    await asyncio.sleep(0.3)
    watch.close()
    assert set(metrics.held_ms) == {"cycle collector"}
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_lines_about_an_unknown_holder_name_no_cause(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(LoopMetrics())
    with caplog.at_level(logging.INFO, "headrace.loop"):
        LIMITER.clear()
        for _ in range(3):
            watch._held(UNKNOWN, 150)
        LIMITER.report()
    assert caplog.messages[-1].startswith("2 more lines are left out: the event loop stood still")
