"""The link to the next records: short for any number of partitions, and without gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from confluent_kafka import Producer

from headrace import Broker
from headrace.client.config import ClientConfig, read_config
from headrace.web.access import Access
from headrace.web.errors import BadRequest
from headrace.web.observer import Observer
from headrace.web.record_views import next_link, records
from headrace.web.records import FoundRecords, Query
from headrace.web.requests import MAX_URL_BYTES, url
from headrace.web.schemas import parsed
from headrace.web.site import Site, Visit
from headrace.web.views import Records
from tests.clients.confluent import create_topic
from tests.support import story

PARTITIONS = 1200
KEYS = tuple(f"{number}-{each}" for number in range(PARTITIONS) for each in range(1 + number % 3))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with a topic of many partitions, which have one to three records each."""
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "wide", PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
        for key in KEYS:
            number = int(key.partition("-")[0])
            # older in higher partitions, so that the order of time is not the one of partitions
            producer.produce("wide", b"v", key, number, timestamp=10**12 - number)
        assert producer.flush(60) == 0
        yield broker.bootstrap_servers


def _pages(servers: str, **parameters: object) -> Iterator[list[str]]:
    """Yield the keys of each page, by following the links from the first."""
    link = url("/records", topic="wide", **parameters)
    while link:
        assert len(link) < MAX_URL_BYTES // 2
        keys, link = asyncio.run(_page(servers, link))
        yield keys


def _visit(connections: ClientConfig, link: str) -> Visit:
    """Return the request for an address."""
    path, _, query = link.partition("?")
    observer = Observer(connections)
    observer.tried.set()  # it has seen no groups
    site = Site(connections, observer, Access({}), {})
    return Visit(site, path, dict(parse_qsl(query)))


async def _records(servers: str, link: str) -> Records:
    visit = _visit(read_config({"bootstrap.servers": servers}), link)
    async with visit.cluster:
        return await records(visit, **parsed(records, visit.query))


async def _page(servers: str, link: str) -> tuple[list[str], str]:
    page = await _records(servers, link)
    assert bool(page.next) != page.complete
    assert not page.warnings
    keys = [record.key.decode() for record in page.records if record.key]
    return keys, page.next or ""


def _next(link: str, query: Query, page: FoundRecords) -> str:
    """Return the address of the page after that of an address."""
    visit = _visit(read_config({"bootstrap.servers": "127.0.0.1:1"}), link)
    return next_link(visit, query, page) or ""


def _parameters(link: str) -> dict[str, Any]:
    return parsed(records, dict(parse_qsl(link.partition("?")[2])))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"start": "earliest", "limit": 200}, KEYS),
        ({"start": "time", "time": 10**9, "limit": 200}, KEYS),
        ({"start": "offset", "offset": 1}, [key for key in KEYS if not key.endswith("-0")]),
        ({"start": "earliest", "key": "-2"}, [key for key in KEYS if key.endswith("-2")]),
        ({"start": "earliest", "key": "1199-"}, ["1199-0", "1199-1", "1199-2"]),
    ],
)
def test_links_lead_to_every_record_once(
    servers: str, parameters: dict[str, object], expected: list[str]
) -> None:
    pages = list(_pages(servers, **parameters))
    assert sorted(key for page in pages for key in page) == sorted(expected)
    assert all(pages[:-1])  # none in between is empty: the scan goes on until it has found some


def test_a_link_of_all_positions_is_still_read(servers: str) -> None:
    positions = ",".join(f"{number}:{1 + number % 3}" for number in range(3, 300))
    pages = list(_pages(servers, start="positions", positions=f"1:1,2:1,{positions}"))
    assert sorted(key for page in pages for key in page) == ["1-1", "2-1", "2-2"]


def test_a_partition_that_is_left_out_of_a_link_is_finished(servers: str) -> None:
    pages = list(_pages(servers, start="earliest", rest=PARTITIONS - 2, positions="2:1"))
    last = [key for key in KEYS if key.startswith((f"{PARTITIONS - 2}-", f"{PARTITIONS - 1}-"))]
    assert sorted(key for page in pages for key in page) == sorted(["2-1", "2-2", *last])


@pytest.mark.parametrize("text", ["x" * 2000, "€" * 220, "%" * 660])
def test_the_link_and_that_to_log_in_are_served_with_any_filter_that_is_taken(text: str) -> None:
    first = url("/records", topic="wide", start="earliest", value=text, time="9" * 2000)
    assert _parameters(first)["value"] == text
    positions = dict.fromkeys(range(200), 10**11)
    page = FoundRecords([], positions, 200, 0, [], 1000)
    link = _next(first, Query("wide", start="earliest"), page)
    assert _parameters(link)["value"] == text
    assert _parameters(link)["positions"].count(",") == 199
    assert len(url("/login", back=link)) < MAX_URL_BYTES


@pytest.mark.parametrize("text", ["x" * 2040, "€" * 230, "%" * 680])
@story
async def test_a_filter_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"too long|of length"):
        await _records("127.0.0.1:1", url("/records", topic="wide", key=text))


def test_the_newest_records_have_a_next_page_if_the_budget_ended_them() -> None:
    first = url("/api/records", topic="t", limit=200)
    query = Query("t", start="latest", limit=200)
    link = _next(first, query, FoundRecords([], {0: 7}, None, 1, [], 1))
    assert link.startswith("/api/records?")
    following = _parameters(link)
    assert (following["start"], following["positions"]) == ("positions", "0:7")
    assert following["limit"] == 200
    assert _next(first, query, FoundRecords([], {}, None, 1, [], 1)) == ""
