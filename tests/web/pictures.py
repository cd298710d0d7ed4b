"""The pictures of the documentation: ``python -m tests.web.pictures`` makes them anew, in a minute.

They show a small world at work: orders that two packers share, a slow consumer of bills, a report
that nobody writes any more, and a scanner that holds its records and finishes none; and, on a
broker of its own, the tasks of a shop.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from headrace.client import RangeConsumer
from headrace.client.cluster import Cluster
from headrace.client.share.types import Acknowledgement, AcknowledgeType, AcquireMode
from tests.cli.command import ENVIRONMENT, HEADRACE
from tests.clients.confluent import create_topic, share_from_earliest
from tests.support import ROOT, HeadraceProcess, wait_until
from tests.web.serving import Page, browsing, commit, served, show_whole

FOLDER = ROOT / "docs/pictures"
WATCHED_S = 60
"""The time for which the page watches before the pictures are made."""
BACKLOG, BACKLOG_MS = 6_000, 1_200_000
ORDERS_PER_S, SCANS_PER_S = 50, 7
_KINDS = (AcknowledgeType.ACCEPT,) * 17 + (AcknowledgeType.RELEASE,) * 2 + (AcknowledgeType.REJECT,)


class World:
    """The world at work, in threads, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Make topics and groups, and begin the work."""
        servers = self._servers
        create_topic(servers, "orders", 3)
        create_topic(servers, "scans", 2)
        create_topic(servers, "invoices")
        create_topic(servers, "dlq.packers", errors_deadletterqueue_group_enable="true")
        share_from_earliest(
            servers,
            "packers",
            errors_deadletterqueue_topic_name="dlq.packers",
            errors_deadletterqueue_copy_record_enable="true",
            share_release_backoff_ms="20000",
        )
        share_from_earliest(servers, "stuck-scanners")
        self._fill()
        commit(servers, "old-report", "orders", 0)
        for work in (self._produce, self._bill, *self._members()):
            thread = threading.Thread(target=work)
            thread.start()
            self._threads.append(thread)

    def end(self) -> None:
        """End the work."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _members(self) -> list[Callable[[], None]]:
        return [
            lambda: asyncio.run(self._pack("packers-worker-1")),
            lambda: asyncio.run(self._pack("packers-worker-2")),
            lambda: asyncio.run(self._hold()),
        ]

    def _fill(self) -> None:
        """Produce the records of the last twenty minutes."""
        producer = Producer({"bootstrap.servers": self._servers})
        begin_ms = int(time.time() * 1000) - BACKLOG_MS
        for number in range(BACKLOG):
            at_ms = begin_ms + number * BACKLOG_MS // BACKLOG
            self._one(producer, number, at_ms)
        assert producer.flush(60) == 0

    @staticmethod
    def _one(producer: Producer, number: int, at_ms: int) -> None:
        order = b'{"order": %d, "sku": "A-%d", "count": %d}' % (number, number % 40, number % 7 + 1)
        topic = "scans" if number % (ORDERS_PER_S + SCANS_PER_S) < SCANS_PER_S else "orders"
        producer.produce(topic, order, b"%d" % number, timestamp=at_ms)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        number = BACKLOG
        while not self._stop.wait(1 / (ORDERS_PER_S + SCANS_PER_S)):
            number += 1
            self._one(producer, number, int(time.time() * 1000))
            producer.poll(0)
        producer.flush(60)

    def _bill(self) -> None:
        """Consume half of the orders that come."""
        config = {
            "bootstrap.servers": self._servers,
            "group.id": "billing",
            "client.id": "billing-1",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(config)
        consumer.subscribe(["orders"])
        while not self._stop.wait(1 / ORDERS_PER_S):
            consumer.poll(1)
        consumer.close()

    async def _pack(self, client_id: str) -> None:
        """Finish most records one after the other, some out of order; release and reject a few."""
        chance = random.Random(client_id)
        async with RangeConsumer(
            Cluster(self._servers, client_id=client_id), "packers", ["orders"]
        ) as member:
            held: list[tuple[int, int]] = []
            while not self._stop.is_set():
                if len(held) < 60:
                    acquired = await member.acquire(max_records=40, mode=AcquireMode.RECORD_LIMIT)
                    for one in acquired.ranges:
                        offsets = range(one.first_offset, one.last_offset + 1)
                        held += [(one.partition, offset) for offset in offsets]
                chance.shuffle(held)
                done, held = held[:8], held[8:]
                await member.acknowledge(
                    Acknowledgement("orders", partition, offset, offset, chance.choice(_KINDS))
                    for partition, offset in done
                )
                await member.renew()
                await asyncio.sleep(0.4)

    async def _hold(self) -> None:
        async with RangeConsumer(
            Cluster(self._servers, client_id="scanner-1"), "stuck-scanners", ["scans"]
        ) as member:
            held = await member.acquire(max_records=200, mode=AcquireMode.RECORD_LIMIT)
            await member.acknowledge(
                Acknowledgement(*key, one.first_offset, one.first_offset, AcknowledgeType.ACCEPT)
                for one in held.ranges
                for key in [(one.topic, one.partition)]
            )
            while not self._stop.is_set():
                await asyncio.sleep(0.5)
                await member.renew()


SHOP = """
import asyncio, random
import headrace

app = headrace.App({servers!r})

@app.task(retry=8, timeout=60)
async def pack(order: int) -> None:
    await asyncio.sleep(random.uniform(0.5, 4))
    if random.random() < 0.04:
        raise ValueError(f"no box is large enough for order {{order}}")

@app.task(retry=3, concurrency=4)
async def send_mail(order: int) -> None:
    await asyncio.sleep(random.uniform(1, 3))
    if random.random() < 0.1:
        raise ConnectionError("mail.example.org does not answer")

@app.task(retry=5)
async def charge(order: int) -> None:
    await asyncio.sleep(0.1)
    raise TimeoutError("the bank has not answered in 5 s")

async def main() -> None:
    for order in range(10_000):
        await pack.send(order)
        await send_mail.send(order)
        await charge.send(order) if order % 5 == 0 else None
        await asyncio.sleep(0.4)

if __name__ == "__main__":
    asyncio.run(main())
"""


def picture_tasks() -> None:
    """Make the picture of tasks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        HeadraceProcess() as broker,
        served(Path(folder), "--bootstrap-server", broker.bootstrap_servers) as page,
        browsing() as browser,
        ExitStack() as stack,
    ):
        (Path(folder) / "shop.py").write_text(SHOP.format(servers=broker.bootstrap_servers))
        worker = (*HEADRACE, "worker", "shop:app")
        for words in ((HEADRACE[0], "shop.py"), worker, worker):
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=ENVIRONMENT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(WATCHED_S / 2)
        browser.get(f"{page.base}/tasks")
        wait_until(lambda: "charge pauses" in browser.page_source, 60, "a task that pauses", 0.5)
        show_whole(browser, 1320)
        assert browser.save_screenshot(str(FOLDER / "tasks.png"))
        print(FOLDER / "tasks.png")
        browser.get("about:blank")


def _is_shown(browser: Any, page: Page) -> bool:
    """Return whether the page of the group shows what is in flight."""
    browser.get(f"{page.base}/group?group_id=packers")
    return bool(browser.find_elements("css selector", ".flight svg"))


def main() -> None:
    """Make the pictures."""
    picture_tasks()
    with (
        tempfile.TemporaryDirectory() as folder,
        HeadraceProcess() as broker,
        served(Path(folder), "--bootstrap-server", broker.bootstrap_servers) as page,
        browsing() as browser,
    ):
        world = World(broker.bootstrap_servers)
        world.begin()
        try:
            wait_until(lambda: _is_shown(browser, page), 60, "the group", 1)
            time.sleep(WATCHED_S)  # it watches what it is shown
            for name, address, ready in (
                ("share-group", "/group?group_id=packers", "#given-back svg"),
                ("overview", "/", ".spark svg"),
            ):
                browser.get(page.base + address)
                wait_until(
                    lambda ready=ready: browser.find_elements("css selector", ready), 60, name
                )
                show_whole(browser, 1320)
                assert browser.save_screenshot(str(FOLDER / f"{name}.png"))
                print(FOLDER / f"{name}.png")
            browser.get("about:blank")
        finally:
            world.end()


if __name__ == "__main__":
    main()
