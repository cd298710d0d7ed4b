"""The cost of a view: requests to the broker, rows and bytes. It follows what is on the page, not
the size of the cluster.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Producer

from headrace.client import Cluster
from headrace.client.config import read_config
from headrace.client.connection import Connection
from headrace.client.offsets import commit_offsets
from headrace.client.share.types import Acknowledgement, AcknowledgeType
from headrace.web.access import Access
from headrace.web.groups import MAX_SPANS_OF_PAGE
from headrace.web.lists import ROWS_OF_PAGE
from headrace.web.observation import PARTITIONS_OF_PAGE
from headrace.web.observer import Observer
from headrace.web.site import Site
from tests.clients.confluent import PATIENCE_S, create_topic, share_from_earliest
from tests.support import HeadraceProcess, story, unique
from tests.web.serving import browsing_site, holding

PARTITIONS, GROUPS, SPANS = 120, 70, 90
PAGES_OF_PARTITIONS = 3
"""50 partitions at a time, on a page and in a Fetch request."""
HEAD_BYTES, ROW_BYTES = 20_000, 3_000
"""The largest size of a page without rows, and of a row with its share of the pictures."""


class Crowd(NamedTuple):
    """A topic with many partitions, a share group and many consumer groups on it."""

    bootstrap_servers: str
    topic: str
    sharers: str
    consumers: str


@pytest.fixture(scope="module")
def crowd(headrace_server: HeadraceProcess) -> Iterator[Crowd]:
    """A crowd, whose share group holds all records, but for every second one of partition 0."""
    servers = headrace_server.bootstrap_servers
    topic = create_topic(servers, unique("wide"), PARTITIONS)
    sharers = share_from_earliest(servers, unique("sharers"))
    consumers = unique("consumers")
    producer = Producer({"bootstrap.servers": servers})
    for number in range(PARTITIONS):
        for _ in range(3 if number else SPANS):
            producer.produce(topic, b"x", partition=number)
    assert producer.flush(PATIENCE_S) == 0

    async def commit() -> None:
        async with Cluster(servers) as cluster:
            for group in (consumers, *(f"{consumers}-{number}" for number in range(GROUPS))):
                every = PARTITIONS if group == consumers else 1
                await commit_offsets(cluster, group, {(topic, one): 1 for one in range(every)})

    asyncio.run(commit())
    outcomes = [
        Acknowledgement(topic, 0, offset, offset, AcknowledgeType.ACCEPT)
        for offset in range(1, SPANS, 2)
    ]
    with holding(servers, sharers, topic, SPANS + 3 * (PARTITIONS - 1), outcomes):
        yield Crowd(servers, topic, sharers, consumers)


@dataclass
class Client:
    """A browser without windows, which counts what its views cost.

    :ivar asked: the requests to the broker since the last view began, by name
    """

    http: httpx.AsyncClient
    asked: Counter[str] = field(default_factory=Counter)

    async def view(self, address: str) -> str:
        """Return a page; :attr:`asked` has its requests then."""
        self.asked.clear()
        answer = await self.http.get(address)
        assert answer.status_code == 200, (address, answer.text)
        rows = answer.text.count("<tr")
        assert len(answer.content) <= HEAD_BYTES + ROW_BYTES * rows, address
        return answer.text

    async def part(self, page: str) -> str:
        """Return the part of a page that a browser asks for every two seconds."""
        self.asked.clear()
        address = page.partition('hx-get="')[2].partition('"')[0].replace("&amp;", "&")
        answer = await self.http.get(address)
        assert answer.status_code in (200, 204), answer.text
        assert "<html" not in answer.text
        return answer.text


@asynccontextmanager
async def looking(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """Serve the page in this process, and wait until it has seen the crowd."""
    options = read_config({"bootstrap.servers": crowd.bootstrap_servers})
    site = Site(options, Observer(options), Access({}), {})
    own_thread, exchange = threading.get_ident(), Connection.ask
    async with browsing_site(site) as http:
        client = Client(http)

        async def counted(self: Connection, payload: Any, **options: Any) -> Any:
            if threading.get_ident() == own_thread:  # the observer has a thread of its own
                client.asked[type(payload).__name__.removesuffix("Request")] += 1
            return await exchange(self, payload, **options)

        monkeypatch.setattr(Connection, "ask", counted)
        site.observer.start()
        try:
            seen = await asyncio.to_thread(site.observer.tried.wait, 60)
            assert seen
            yield client
        finally:
            await asyncio.to_thread(site.observer.close)
            await site.cluster.close()


@story
async def test_a_view_costs_what_is_on_it(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking(crowd, monkeypatch) as client:
        records = f"/records?topic={crowd.topic}"
        for address in (
            f"/group?group_id={crowd.sharers}",
            f"/group?group_id={crowd.consumers}",
            records,
        ):
            await client.view(address)  # opens connections, and finds the coordinators
        for address in ("/", "/groups?sort=time_lag_ms", "/topics", "/topics?internal=true"):
            page = await client.view(address)
            assert page.count("<tr") <= 2 * (ROWS_OF_PAGE + 1), address
            await client.part(page)
            assert client.asked == {}, address
        bounds = {"Metadata": 1, "ListOffsets": 2}
        # The third look-up asks what is left to read with read_committed.
        group = {**bounds, "ListOffsets": 3, "Fetch": 1}
        consumers = {**group, "DescribeGroups": 1, "OffsetFetch": 1}
        sharers = {**group, "ShareGroupDescribe": 1, "DescribeShareGroupOffsets": 2}
        topic = {**bounds, "DescribeTopicPartitions": 1}
        for address, wanted in (
            (f"/group?group_id={crowd.consumers}", consumers),
            (f"/group?group_id={crowd.sharers}", sharers),
            (f"/topic?topic={crowd.topic}", topic),
        ):
            page = await client.view(address)
            assert client.asked == {**wanted, "DescribeConfigs": 1}, address
            assert f"page 1 of {PAGES_OF_PARTITIONS}" in page
            await client.part(page)
            assert client.asked == wanted, address
        page = await client.view(records)
        assert client.asked == {**bounds, "DescribeShareGroupOffsets": 1, "Fetch": 1}
        assert page.count("<tr") == 1 + ROWS_OF_PAGE


@story
async def test_the_spans_of_a_page_are_bounded(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(crowd, monkeypatch) as client:
        most = MAX_SPANS_OF_PAGE // PARTITIONS_OF_PAGE
        assert most < SPANS
        page = await client.view(f"/group?group_id={crowd.sharers}")
        assert page.count('"first_offset":') == most + PARTITIONS_OF_PAGE - 1
        assert f"the first {most} runs of records" in page
        assert page.count("<tr") < 2 * PARTITIONS_OF_PAGE  # runs have rows when they are opened
        answer = await client.http.get("/api/group", params={"group_id": crowd.sharers})
        spans = [len(one["share"]["spans"]) for one in answer.json()["partitions"]["rows"]]
        assert spans == [most] + [1] * (PARTITIONS_OF_PAGE - 1)
        page = await client.view(f"/group?group_id={crowd.sharers}&page={PAGES_OF_PARTITIONS}")
        assert page.count('"first_offset":') == PARTITIONS % PARTITIONS_OF_PAGE
