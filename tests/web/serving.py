"""`headrace ui` as a process, a browser that looks at it, and a cluster worth looking at."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.client import RangeConsumer
from headrace.client.cluster import Cluster
from headrace.client.fetch import AbortedTransaction, FetchedPartition
from headrace.client.partition_reader import PartitionReader
from headrace.client.share.types import Acknowledgement, AcknowledgeType
from headrace.client.workers import WORKERS_TOPIC, WorkerState, encode
from headrace.http.messages import Request
from headrace.web.app import App
from headrace.web.records import OPENING, Shelf
from headrace.web.site import Site
from tests.cli.command import start
from tests.clients.confluent import create_topic, produce, share_from_earliest
from tests.support import ROOT, unique
from tests.worker.test_states import TASK

TOKEN = "a-token-for-tests"
HOSTILE = b"<script>document.title='owned'</script><img src=x onerror=alert(1)>"
PICTURES = Path(os.environ.get("HEADRACE_PICTURES", str(ROOT / "out/pictures")))
"""The folder of the screenshots that tests make."""


def searched(
    shelf: Shelf,
    data: bytes,
    position: int,
    end: int,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> int:
    """Search the batches of a partition for a page; return where the search continues.

    :param end: where it ends
    """
    reader = PartitionReader(
        Cluster("127.0.0.1:1"), {("t", 0): position}, {("t", 0): end}, 1, opening=OPENING
    )
    shelf.take(reader, [(("t", 0), FetchedPartition(0, end, end, data, aborted))])
    return reader.positions.get(("t", 0), end)


CHROMIUM_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--window-size=1320,1000",
)


class Page(NamedTuple):
    """A page that is served.

    :param base: its address, without a slash at the end
    """

    base: str
    process: subprocess.Popen[bytes]


@contextmanager
def served(tmp_path: Path, *arguments: str, token: bool = True) -> Iterator[Page]:
    """Serve the page until the end of the block."""
    options = list(arguments)
    if token:
        file = tmp_path / "token"
        file.write_text(f"{TOKEN}\n")
        options += ["--token-file", str(file)]
    process = start("ui", "--listen", "127.0.0.1:0", *options)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline().decode()
        assert line.startswith("the page is at "), process.stderr.read().decode()
        yield Page(line.split()[-1].rstrip("/"), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


class InProcess(httpx.AsyncBaseTransport):
    """A transport to a page in this process, without its HTTP server."""

    def __init__(self, site: Site) -> None:
        self._app = App(site)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        asked = Request(
            request.method, request.url.raw_path, headers, await request.aread(), "127.0.0.1"
        )
        answer = await self._app.answer(asked)
        return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)


def browsing_site(site: Site, scheme: str = "http") -> httpx.AsyncClient:
    """Return a client of a page in this process."""
    return httpx.AsyncClient(transport=InProcess(site), base_url=f"{scheme}://localhost")


def client(page: Page, **options: Any) -> httpx.Client:
    """Return a client without proxies."""
    return httpx.Client(base_url=page.base, trust_env=False, timeout=60, **options)


def acting(page: Page) -> httpx.Client:
    """Return a client with the token."""
    return client(page, headers={"Authorization": f"Bearer {TOKEN}"})


def browser_missing() -> str | None:
    """Return why no browser can be driven here; None if one can."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
    return None


@contextmanager
def browsing(*more: str) -> Iterator[Any]:
    """Drive a browser until the end of the block."""
    missing = browser_missing()
    if missing is not None:
        pytest.skip(missing)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="headrace-browser-")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in (*CHROMIUM_OPTIONS, *more, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=Service(shutil.which("chromedriver") or "chromedriver")
    )
    try:
        driver.set_page_load_timeout(120)
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def show_whole(browser: Any, width: int) -> None:
    """Make the window as high as the page in it."""
    browser.set_window_size(width, 700)
    high = "return document.documentElement.scrollHeight + window.outerHeight - window.innerHeight"
    browser.set_window_size(width, min(browser.execute_script(high), 2400))


class World(NamedTuple):
    """A cluster worth looking at.

    :param member_id: of the member that holds records of ``group``
    """

    bootstrap_servers: str
    topic: str
    group: str
    consumers: str
    member_id: str


@contextmanager
def world(bootstrap_servers: str) -> Iterator[World]:
    """Make a topic with hostile records, a share group with a record in each state, and a consumer
    group without members.
    """
    topic = create_topic(bootstrap_servers, unique("orders"), 2)
    group = share_from_earliest(bootstrap_servers, unique("packers"))
    consumers = unique("billing")
    values = [HOSTILE, b'{"sku": "A-1", "count": 3}', b"\xff\x00\x01"]
    produce(bootstrap_servers, topic, values + [b"plain %d" % n for n in range(7)], partition=0)
    commit(bootstrap_servers, consumers, topic, 4)
    tell(bootstrap_servers, group, topic)
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    outcomes = [Acknowledgement(topic, 0, 2 * n, 2 * n, kind) for n, kind in enumerate(kinds)]
    with holding(
        bootstrap_servers, group, topic, 10, outcomes, client_id="<b>worker</b>"
    ) as member_id:
        yield World(bootstrap_servers, topic, group, consumers, member_id)


def tell(bootstrap_servers: str, group: str, topic: str) -> None:
    """Say what a worker says of itself."""
    evil, now_ms = HOSTILE.decode(), time.time_ns() // 1_000_000
    task = replace(
        TASK,
        task=f"{group}-task",
        group_id=group,
        topics=(topic,),
        dead_letter_queue=None,
        breaker="open",
        breaker_reason=f"ValueError: {evil}",
        records=(replace(TASK.records[0], topic=topic, since_ms=now_ms),),
        failures=(
            replace(TASK.failures[0], time_ms=now_ms, topic=topic, reason=f"ValueError: {evil}"),
        ),
    )
    state = WorkerState(unique("worker"), now_ms, False, (task,))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    producer.produce(WORKERS_TOPIC, encode(state), state.worker)
    assert producer.flush(60) == 0


@contextmanager
def holding(
    bootstrap_servers: str,
    group: str,
    topic: str,
    count: int,
    outcomes: Iterable[Acknowledgement] = (),
    client_id: str = "headrace",
) -> Iterator[str]:
    """Hold records of a share group until the end of the block; yield the id of the member.

    :param count: how many records to acquire
    :param outcomes: of some of them
    """
    held, ended = threading.Event(), threading.Event()
    member_ids: list[str] = []

    async def hold() -> None:
        cluster = Cluster(bootstrap_servers, client_id=client_id)
        async with RangeConsumer(cluster, group, [topic]) as member:
            acquired = 0
            while acquired < count:
                for one in (await member.acquire(max_wait_ms=1000)).ranges:
                    acquired += one.last_offset - one.first_offset + 1
            await member.acknowledge(outcomes)
            member_ids.append(member.member_id)
            held.set()
            while not ended.is_set():
                await asyncio.sleep(0.1)
                await member.renew()

    thread = threading.Thread(target=lambda: asyncio.run(hold()), daemon=True)
    thread.start()
    try:
        assert held.wait(60)
        yield member_ids[0]
    finally:
        ended.set()
        thread.join(30)


def commit(bootstrap_servers: str, group: str, topic: str, offset: int) -> str:
    """Commit an offset of partition 0 for a group without members, and return its id."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    return group


async def begin_sharing(bootstrap_servers: str, group: str, topic: str) -> None:
    """Make a share group that has begun with a topic, and has no members."""
    share_from_earliest(bootstrap_servers, group)
    async with RangeConsumer(bootstrap_servers, group, [topic]) as member:
        while not (await member.acquire(max_wait_ms=1000)).ranges:
            pass
