"""The page with 1,000 groups of 100 partitions each and 10,000 partitions in all, under load: times
in a real browser, and the cost of `headrace serve --ui`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from headrace.client.share.types import Acknowledgement, AcknowledgeType
from tests.clients.confluent import create_topic, share_from_earliest
from tests.scale.test_exporter import GROUPS, PARTITIONS, RECORDS, TOPICS, fill
from tests.support import HeadraceProcess, wait_until
from tests.web.serving import browsing, client, holding, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ALL_PARTITIONS = 10_000
FIRST_VIEW_S, INTERACTION_S = 0.5, 0.2
PATHS = (
    "/groups?page=7",
    "/groups?filter=g99",
    "/groups?sort=time_lag_ms",
    "/topics?page=2",
    "/group?group_id=g500",
    "/group?group_id=sharers",
    "/topic?topic=t5",
    "/records?topic=t5&partition=3",
    "/records?topic=t5",
    "/record?topic=t1&partition=3&offset=3",
)
TURNS = 3
IDLE_S, IDLE_SHARE, OPEN_SHARE = 5, 0.01, 0.1


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


def interactions(browser: Any, base: str) -> dict[str, list[float]]:
    """Return the seconds of each interaction, some times each."""
    times: dict[str, list[float]] = {path: [] for path in PATHS}
    for _ in range(TURNS):
        for path, seconds in times.items():
            seconds.append(view_s(browser, f"{base}{path}"))
    return times


def shown(seconds: list[float]) -> str:
    """Return the median and the largest of some times as text."""
    return f"{statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s"


@pytest.mark.alone
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
        share_from_earliest(servers, "sharers")
        outcomes = [
            Acknowledgement("t1", partition, offset, offset, AcknowledgeType.ACCEPT)
            for partition in range(PARTITIONS)
            for offset in range(1, RECORDS, 2)
        ]
        with holding(servers, "sharers", "t1", PARTITIONS * RECORDS, outcomes), client(page) as api:
            wait_until(
                lambda: (
                    "totals" in (seen := api.get("/api/overview").json())
                    and seen["totals"]["group_count"] == GROUPS + 1
                    and seen["totals"]["topic_count"] == ALL_PARTITIONS // PARTITIONS
                ),
                120,
                "the page to see everything",
                0.5,
            )
            quiet = interactions(browser, page.base)
            with load(servers):
                took_ms = api.get("/api/overview").json()["took_ms"]
                first = [view_s(browser, page.base) for _ in range(4)]
                times = interactions(browser, page.base)
        browser.get("about:blank")
    for path, seconds in times.items():
        print(f"{path:32} {shown(seconds)} under load, {shown(quiet[path])} without")
    whole = [one for seconds in times.values() for one in seconds]
    print(
        f"first view {statistics.median(first):.3f} s, interactions median "
        f"{statistics.median(whole):.3f} s, slowest {max(whole):.3f} s; a look takes "
        f"{took_ms / 1000:.2f} s"
    )
    # The fastest of some turns: what slows the others down is the machine.
    assert min(first) <= FIRST_VIEW_S
    assert statistics.median(map(min, times.values())) <= INTERACTION_S


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def test_cost_of_a_page_beside_a_broker(tmp_path: Path) -> None:
    """An idle broker uses no more CPU with a page. Broker and page together use so little while a
    browser shows it that a producer keeps its throughput, which ``bench/page.py`` measures.
    """

    class WithPage(HeadraceProcess):
        command = (*HeadraceProcess.command, "--ui=--listen 127.0.0.1:0")

    def share(*pids: int) -> float:
        """Return the CPU that processes use, as a part of one core."""
        processes = [psutil.Process(pid) for pid in pids]
        time.sleep(3)  # the start is over
        before_s = sum(map(cpu_s, processes))
        time.sleep(IDLE_S)
        return (sum(map(cpu_s, processes)) - before_s) / IDLE_S

    with HeadraceProcess(tmp_path / "alone") as server:
        alone = share(server.pid)
    with WithPage(tmp_path / "beside") as server:
        address = wait_until(
            lambda: next((one for one in server.output if "the page is at" in one), ""),
            60,
            "the page",
        ).split()[-1]
        (page,) = psutil.Process(server.pid).children()
        beside = share(server.pid)
        with browsing() as browser:
            browser.get(address)
            opened = share(server.pid, page.pid)
            browser.get("about:blank")
    print(
        f"an idle broker uses {alone:.2%} of a core, with a page {beside:.2%}; both use "
        f"{opened:.2%} while a browser shows it"
    )
    assert beside <= alone + IDLE_SHARE
    assert opened <= OPEN_SHARE
