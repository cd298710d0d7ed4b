"""The cost of ``headrace serve --ui`` for its broker.

    python -m bench.page                 without groups, and with 1,000 groups × 100 partitions
    python -m bench.page --groups 0      without groups only

Measured is the CPU time (user and system) of an idle broker without a page, with one that nobody
looks at, and with one that a client polls as a browser does; and the throughput of a librdkafka
producer while it is polled, beside that while the page's process stands still. Both take turns on
one broker, and the first two turns are not counted; the values are medians.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.clients import librdkafka_produce
from bench.spark_lag import fill
from tests.support import HeadraceProcess, wait_until

IDLE_S = 30.0
"""The time that an idle broker is watched; a page that nobody looks at looks every 15 s."""
SETTLE_S = 3.0
POLL_S = 2.0
"""The time between two polls of a browser."""
PAIRS = 5
RECORDS, RECORD_BYTES = 400_000, 1024
GROUPS = 1_000
TOPIC = "bench"


class IdleCosts(NamedTuple):
    """The CPU of an idle broker, as parts of one core.

    :param alone: without a page
    :param beside: the broker's, with a page that nobody looks at
    :param page: that of the page's process
    """

    alone: float
    beside: float
    page: float


class OpenCosts(NamedTuple):
    """The costs of an open page.

    :param broker: the CPU of the broker, which is idle otherwise, as a part of one core
    :param page: that of the page's process
    :param without: MiB/s of a producer in the turns without a page
    :param looked_at: MiB/s in the turns with an open page
    """

    broker: float
    page: float
    without: list[float]
    looked_at: list[float]

    @property
    def ratio(self) -> float:
        """The median throughput with an open page beside that without one."""
        return median(self.looked_at) / median(self.without)


class Broker(HeadraceProcess):
    """A broker with a page."""

    command = (*HeadraceProcess.command, "--ui=--listen 127.0.0.1:0")

    @property
    def page(self) -> psutil.Process:
        """The page's process."""
        (process,) = psutil.Process(self.pid).children()
        return process

    @property
    def page_address(self) -> str:
        """The address of the page."""
        return wait_until(self._printed, 60, "the page")

    def _printed(self) -> str:
        lines = (line for line in self.output if line.startswith("the page is at "))
        return next(lines, "").removeprefix("the page is at ").rstrip("/")


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process so far."""
    user, system, *_ = process.cpu_times()
    return float(user + system)


def idle(idle_s: float = IDLE_S) -> IdleCosts:
    """Measure idle brokers, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        with HeadraceProcess(Path(folder) / "alone") as alone:
            (of_alone,) = _idle([psutil.Process(alone.pid)], idle_s)
        with Broker(Path(folder) / "beside") as beside:
            assert beside.page_address
            of_beside, of_page = _idle([psutil.Process(beside.pid), beside.page], idle_s)
    return IdleCosts(of_alone, of_beside, of_page)


def _idle(processes: Sequence[psutil.Process], idle_s: float) -> list[float]:
    time.sleep(SETTLE_S)
    before = [cpu_s(one) for one in processes]
    time.sleep(idle_s)
    return [(cpu_s(one) - used) / idle_s for one, used in zip(processes, before, strict=True)]


def poll(address: str, ended: threading.Event) -> int:
    """Ask for the overview, and every two seconds for its part, as a browser does.

    :returns: the number of polls
    """
    polls = 0
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as browser:
        part = _part_url(browser.get("/").text)
        while not ended.wait(POLL_S):
            polls += 1
            answer = browser.get(part)
            if answer.status_code == 200:
                part = _part_url(answer.text)
    return polls


def _part_url(text: str) -> str:
    return text.partition('hx-get="')[2].partition('"')[0].replace("&amp;", "&")


@contextmanager
def open_page(broker: Broker) -> Iterator[None]:
    """Look at the page during the block; its process stands still before and after."""
    broker.page.send_signal(signal.SIGCONT)
    ended = threading.Event()
    thread = threading.Thread(target=poll, args=(broker.page_address, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        broker.page.send_signal(signal.SIGSTOP)


def opened(
    groups: int, records: int = RECORDS, pairs: int = PAIRS, watched_s: float = IDLE_S
) -> OpenCosts:
    """Measure an open page.

    :param groups: consumer groups of 100 partitions each on the broker
    """
    without: list[float] = []
    looked_at: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "data") as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
        if groups:
            fill(servers, groups)
        _wait_until_seen(broker, groups)
        page = broker.page
        with open_page(broker):
            of_broker, of_page = _idle([psutil.Process(broker.pid), page], watched_s)
        try:
            for turn in range(pairs + 1):
                rates = [_rate(servers, records)]
                with open_page(broker):
                    rates.append(_rate(servers, records))
                if turn:
                    without.append(rates[0])
                    looked_at.append(rates[1])
        finally:
            page.send_signal(signal.SIGCONT)
    return OpenCosts(of_broker, of_page, without, looked_at)


def _rate(servers: str, records: int) -> float:
    return librdkafka_produce(servers, TOPIC, records, RECORD_BYTES)


def _wait_until_seen(broker: Broker, groups: int) -> None:
    with httpx.Client(base_url=broker.page_address, trust_env=False, timeout=60) as browser:

        def seen() -> bool:
            answer = browser.get("/api/overview").json()
            return "totals" in answer and bool(answer["totals"]["group_count"] == groups)

        wait_until(seen, 120, "the page to see all groups", 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, help="measure with so many groups only")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--records", type=int, default=RECORDS)
    options = parser.parse_args()
    rest = idle()
    print(
        f"an idle broker: {rest.alone:.2%} of a core alone, {rest.beside:.2%} with a page, whose "
        f"process takes {rest.page:.2%}"
    )
    for groups in (0, GROUPS) if options.groups is None else (options.groups,):
        costs = opened(groups, options.records, options.pairs)
        runs = ", ".join(
            f"{a:.0f} / {b:.0f}" for a, b in zip(costs.without, costs.looked_at, strict=True)
        )
        print(
            f"{groups:,} groups, an open page: {costs.broker:.2%} of a core for the broker, "
            f"{costs.page:.2%} for the page; produce {costs.ratio:.2f}× ({runs} MiB/s)"
        )


if __name__ == "__main__":
    main()
