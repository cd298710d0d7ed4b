"""The link to the next records: short for any number of partitions, and without gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from starlette.requests import Request

from headrace import Broker
from headrace.client.cluster import Cluster
from headrace.web.limits import MAX_URL_BYTES
from headrace.web.page import url
from headrace.web.records import FoundRecords, Query, find_records
from headrace.web.requests import BadRequest, more_url, records_query
from tests.clients.confluent import create_topic

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


def _query(link: str) -> Query:
    return records_query(Request({"type": "http", "query_string": link.partition("?")[2].encode()}))


async def _page(servers: str, link: str) -> tuple[list[str], str]:
    query = _query(link)
    async with Cluster(servers) as cluster:
        found = await find_records(cluster, query)
    link = more_url(query, "auto", found)
    assert bool(link) != found.complete
    assert not found.problems
    return [one.record.key.decode() for one in found.records if one.record.key], link


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"start": "earliest", "limit": 200}, KEYS),
        ({"start": "time", "time": 1, "limit": 200}, KEYS),
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
    query = _query(url("/records", topic="wide", start="earliest", value=text))
    assert query.filter.value == text
    positions = dict.fromkeys(range(200), 10**11)
    link = more_url(query, "auto", FoundRecords([], positions, 200, 0, [], range(1000)))
    assert _query(link).positions == positions
    assert len(url("/login", back=link)) < MAX_URL_BYTES


@pytest.mark.parametrize("text", ["x" * 2040, "€" * 230, "%" * 680])
def test_a_filter_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="too long"):
        _query(url("/records", topic="wide", key=text))
