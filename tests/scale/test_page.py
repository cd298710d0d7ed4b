"""The page with 1,000 groups of 100 partitions each and 10,000 partitions in all, under load: times
in a real browser, and the cost of `headrace serve --ui-port`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from tests.clients.confluent import create_topic
from tests.scale.test_exporter import GROUPS, PARTITIONS, TOPICS, fill
from tests.support import HeadraceProcess, wait_until
from tests.web.serving import browsing, client, served

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

ALL_PARTITIONS = 10_000
FIRST_VIEW_S, INTERACTION_S = 0.5, 0.2
IDLE_S, IDLE_SHARE, THROUGHPUT_SHARE = 10, 0.01, 0.9


@contextmanager
def load(bootstrap_servers: str) -> Iterator[None]:
    """Produce until the end of the block, some thousand records a second."""
    ended = threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
        number = 0
        while not ended.wait(0.05):
            for _ in range(100):
                number += 1
                producer.produce(f"t{number % TOPICS}", bytes(100), partition=number % PARTITIONS)
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def view_s(browser: Any, address: str) -> float:
    """Return the time until the browser has loaded a page and everything on it."""
    browser.get(address)
    return float(
        browser.execute_script(
            "return performance.getEntriesByType('navigation')[0].duration / 1000"
        )
    )


def test_times_of_views(tmp_path: Path) -> None:
    with (
        HeadraceProcess(tmp_path / "data") as server,
        served(tmp_path, "--bootstrap-server", server.bootstrap_servers) as page,
        browsing() as browser,
    ):
        servers = server.bootstrap_servers
        fill(servers)
        for number in range(TOPICS, ALL_PARTITIONS // PARTITIONS):
            create_topic(servers, f"t{number}", PARTITIONS)
        with client(page) as api, load(servers):
            wait_until(
                lambda: (
                    (seen := api.get("/api/overview").json()).get("ready")
                    and seen["totals"]["groups"] == GROUPS
                    and seen["totals"]["topics"] == ALL_PARTITIONS // PARTITIONS
                ),
                120,
                "the page to see everything",
                0.5,
            )
            took_ms = api.get("/api/overview").json()["took_ms"]
            first = [view_s(browser, page.base) for _ in range(4)]
            interactions = [
                view_s(browser, f"{page.base}{path}")
                for path in (
                    "/groups?page=7",
                    "/groups?filter=g99",
                    "/groups?sort=time",
                    "/topics?page=2",
                    "/group?id=g500",
                    "/topic?name=t5",
                    "/records?topic=t5&partition=3",
                )
                for _ in range(2)
            ]
        browser.get("about:blank")
    print(
        f"first view {statistics.median(first):.3f} s, interactions median "
        f"{statistics.median(interactions):.3f} s, slowest {max(interactions):.3f} s; a look takes "
        f"{took_ms / 1000:.2f} s"
    )
    assert statistics.median(first) <= FIRST_VIEW_S
    assert statistics.median(interactions) <= INTERACTION_S


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def throughput(bootstrap_servers: str, records: int = 30_000) -> float:
    """Return the records per second that one producer gets acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "queue.buffering.max.messages": 0})
    started_s = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce("t", bytes(1000), partition=number % 4)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1000:
            producer.poll(0)
    assert producer.flush(120) == 0
    return records / (time.monotonic() - started_s)


def test_cost_of_a_page_beside_a_broker(tmp_path: Path) -> None:
    def measured(options: tuple[str, ...], work: Callable[[Any, Any], Any]) -> Any:
        class WithPage(HeadraceProcess):
            command = (*HeadraceProcess.command, *options)

        folder = tmp_path / f"data{time.monotonic_ns()}"
        with WithPage(folder) as server:
            create_topic(server.bootstrap_servers, "t", 4)
            line = ""
            if options:
                line = wait_until(
                    lambda: next((one for one in server.output if "the page is at" in one), ""),
                    60,
                    "the page",
                )
            return work(server, line.split()[-1] if line else "")

    def idle(server: Any, address: str) -> float:
        process = psutil.Process(server.pid)
        time.sleep(3)  # the start is over
        before_s = cpu_s(process)
        time.sleep(IDLE_S)
        return (cpu_s(process) - before_s) / IDLE_S

    def busy(server: Any, address: str) -> tuple[float, float]:
        """Return the throughput without and with an open page; the best of six each."""
        rates: dict[str, list[float]] = {"about:blank": [], address: []}
        with browsing() as browser:
            throughput(server.bootstrap_servers, 10_000)
            for _ in range(6):  # alternately, as other programs use the machine, too
                for where, found in rates.items():
                    browser.get(where)
                    found.append(throughput(server.bootstrap_servers))
            browser.get("about:blank")
        return max(rates["about:blank"]), max(rates[address])

    alone, beside = measured((), idle), measured(("--ui-port", "0"), idle)
    print(f"an idle broker uses {alone:.2%} of a core, with a page {beside:.2%}")
    assert beside <= alone + IDLE_SHARE
    without, with_page = measured(("--ui-port", "0"), busy)
    print(f"produce {without:,.0f} records/s, with a page open {with_page:,.0f}")
    assert with_page >= THROUGHPUT_SHARE * without
