"""The cost of records on the page: reading is bounded by a budget, rendering by what is shown."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tracemalloc
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.client.config import read_config
from headrace.client.dead_letters.letters import parse_letter
from headrace.client.partition_reader import ReadBudget
from headrace.client.records import Record as DeliveredRecord
from headrace.protocol.compression import ZSTD
from headrace.protocol.dead_letters import (
    DELIVERY_COUNT,
    GROUP,
    HEADERS,
    MESSAGE,
    OFFSET,
    PARTITION,
    TOPIC,
    WORKER_HEADERS,
)
from headrace.protocol.record_batch import Record, build
from headrace.web import texts
from headrace.web.access import Access
from headrace.web.observer import Observer
from headrace.web.records import (
    MAX_KEPT_BYTES,
    MAX_OPENED_BYTES,
    MAX_READ_BYTES,
    MAX_SCANNED_RECORDS,
    MAX_SHOWN_HEADERS,
    SHOWN_VALUE_BYTES,
    Filter,
    FoundRecords,
    Query,
    Shelf,
    cut_record,
    page_budget,
)
from headrace.web.site import MAX_READS, Site
from tests.support import story
from tests.web.serving import browsing_site, searched

MIB = 1 << 20

# Rendering ----------------------------------------------------------------------------------------

MAX_CHARS = 200
CALLS_OF_CHAR, CALLS = 60, 2000
"""Calls of functions for each character that may be shown, and at all."""
BYTES_OF_CHAR = 400
"""Memory for each character that may be shown."""


def _cost(render: Callable[[], object]) -> tuple[int, int]:
    """Return the calls of functions, and the most memory, that a function takes."""
    calls = 0

    def called(*_: object) -> None:
        nonlocal calls
        calls += 1

    tracemalloc.start()
    sys.setprofile(called)
    try:
        render()
    finally:
        sys.setprofile(None)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return calls, peak_bytes


def _nested(depth: int, elements: int) -> bytes:
    return b"[" * depth + b",".join([b"1"] * elements) + b"]" * depth


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
VALUES = st.one_of(
    st.binary(max_size=5 * MAX_CHARS),
    st.text(max_size=2 * MAX_CHARS).map(lambda text: text.encode("utf-8", "replace")),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    st.builds(_nested, st.integers(0, 1000), st.integers(1, 1000)),
    st.builds(bytes.__mul__, st.binary(min_size=1, max_size=8), st.integers(1, 300_000)),
)


@given(VALUES, st.sampled_from(texts.FORMATS))
@example(_nested(900, 100), "auto")
@example(b"\x1b" * 4 * MAX_CHARS, "text")
@example(b"\xf0\x9f" * 300_000, "auto")
def test_rendering_costs_what_is_shown(data: bytes, form: str) -> None:
    texts.rendered(b"{}", "text", 10)  # a first call loads things
    calls, peak_bytes = _cost(lambda: texts.rendered(data, form, MAX_CHARS))
    assert calls <= CALLS + CALLS_OF_CHAR * MAX_CHARS
    assert peak_bytes <= 64 * 1024 + BYTES_OF_CHAR * MAX_CHARS
    shown, shown_form, is_cut = texts.rendered(data, form, MAX_CHARS)
    assert len(shown) <= (5 * MAX_CHARS // 4 + 80 if shown_form == "hex" else MAX_CHARS)
    assert is_cut or shown_form != "text" or len(shown) >= len(data.decode())
    calls, peak_bytes = _cost(lambda: texts.short(data, MAX_CHARS))
    assert calls <= CALLS + CALLS_OF_CHAR * MAX_CHARS
    assert peak_bytes <= 64 * 1024 + BYTES_OF_CHAR * MAX_CHARS


# Reading ------------------------------------------------------------------------------------------


def _patient() -> ReadBudget:
    """Return what one page may cost, in any time: machines may be busy."""
    return ReadBudget(MAX_READ_BYTES, MAX_SCANNED_RECORDS, math.inf)


def _batch(base_offset: int, value: bytes, number: int = 1) -> bytes:
    return bytes(
        build([(None, value)] * number, timestamp_ms=1, base_offset=base_offset, codec=ZSTD)
    )


def _page(
    data: bytes, end: int, budget: ReadBudget, query: Query | None = None
) -> tuple[int, Shelf]:
    query = query or Query("t", start="earliest", limit=200, filter=Filter(value="zzz"))
    shelf = Shelf(query, budget)
    return searched(shelf, data, 0, end), shelf


def test_a_page_ends_with_the_batch_that_spends_its_bytes() -> None:
    value = bytes(8 * MIB - 200)
    batches = [_batch(offset, value) for offset in range(20)]
    assert max(map(len, batches)) < 1000
    position, read = _page(b"".join(batches), 20, _patient())
    assert (position, read.scanned, read.problems) == (5, 5, {})
    assert MAX_READ_BYTES < 5 * 8 * MIB <= MAX_READ_BYTES + MAX_OPENED_BYTES


def test_a_page_ends_with_its_records_and_with_its_seconds() -> None:
    data = b"".join(_batch(offset, b"x", 10) for offset in range(0, 100, 10))
    position, read = _page(data, 100, ReadBudget(MIB, 25, 60))
    assert (position, read.scanned) == (25, 25)
    ticks = count()
    position, read = _page(data, 100, ReadBudget(MIB, 1000, 30, lambda: next(ticks)))
    assert 0 < position == read.scanned <= 30


def test_a_page_whose_seconds_went_by_while_the_broker_answered_advances() -> None:
    data = b"".join(_batch(offset, b"x", 10) for offset in range(0, 100, 10))
    for position in (0, 1):
        shelf = Shelf(Query("t"), ReadBudget(MIB, 1000, 0))
        assert searched(shelf, data, position, 100) == position + 1


def test_batches_that_cannot_be_opened_are_counted_and_passed() -> None:
    batches = [_batch(offset, bytes(9 * MIB)) for offset in range(20)]
    position, read = _page(b"".join(batches), 20, _patient())
    assert position == len(read.problems) == MAX_READ_BYTES // MAX_OPENED_BYTES


def test_of_a_value_only_what_is_shown_is_kept() -> None:
    data = b"".join(_batch(offset, b"v" * MIB) for offset in range(3))
    _, read = _page(data, 3, _patient(), Query("t", start="earliest"))
    assert [(len(each.value or b""), each.value_bytes, each.is_cut) for each in read.selected] == [
        (SHOWN_VALUE_BYTES, MIB, True)
    ] * 3
    many = Record(0, 0, b"k" * 100, None, tuple(("n" * 60, bytes(60)) for _ in range(100)))
    cut = cut_record(many, 1000)
    assert (cut.key, cut.value) == (many.key, None)
    assert sum(len(name) + len(content or b"") for name, content in cut.headers) <= 1000
    letter = many._replace(headers=(*many.headers, (OFFSET, b"7")))
    assert (OFFSET, b"7") in cut_record(letter, 1000).headers
    many = many._replace(headers=(("", None),) * 1000)
    assert len(cut_record(many, 1000).headers) == MAX_SHOWN_HEADERS


def test_a_letter_says_the_same_when_its_record_has_such_headers_itself() -> None:
    """A broker adds its headers at the end: whoever wrote the record may have written others."""
    forged = [(name, b"9") for name in (*HEADERS, *WORKER_HEADERS)] * 3
    own = [(TOPIC, b"orders"), (PARTITION, b"1"), (OFFSET, b"7"), (GROUP, b"packers")]
    headers = ((OFFSET, b"x" * 2000), *forged, *own, (DELIVERY_COUNT, b"5"), (MESSAGE, b"no"))
    cut = cut_record(Record(0, 0, b"k", b"v", headers), 1000)
    assert len(cut.headers) <= MAX_SHOWN_HEADERS
    letter = parse_letter(DeliveredRecord("dlq", 0, 0, None, None, cut.headers, 0, "", 0))
    assert letter is not None
    assert (letter.source, letter.source_offset, letter.group_id) == (("orders", 1), 7, "packers")
    assert (letter.delivery_count, letter.message, letter.worker) == (5, "no", None)


def test_a_page_ends_with_what_it_keeps() -> None:
    kept = 100_000
    data = _batch(0, bytes(kept), 50)
    query = Query("t", start="latest", limit=200, max_bytes=kept)
    shelf = Shelf(query, _patient())
    position = searched(shelf, data, 0, 50)
    assert len(shelf.selected) == position == -(-MAX_KEPT_BYTES // kept)


def test_a_stopped_page_ends_at_once() -> None:
    budget = page_budget()
    budget.stop()
    assert _page(_batch(0, b"x"), 1, budget)[1].scanned == 0


# Clients that go ----------------------------------------------------------------------------------


@story
async def test_few_requests_read_at_a_time_and_only_while_their_clients_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, answer = 0, asyncio.Event()

    async def find(*_: object) -> FoundRecords:
        nonlocal running
        running += 1
        try:
            await answer.wait()
            return FoundRecords([], {}, None, 0, [], 1)
        finally:
            running -= 1

    async def turn() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    monkeypatch.setattr("headrace.web.record_views.find_records", find)
    read = read_config({"bootstrap.servers": "127.0.0.1:1"})
    site = Site(read, Observer(read), Access({}), {})
    site.observer.tried.set()
    async with browsing_site(site) as client:

        def come() -> asyncio.Task[Any]:
            return asyncio.create_task(client.get("/api/records?topic=t"))

        leaving = [come() for _ in range(MAX_READS + 3)]
        await turn()
        staying = come()
        await turn()
        assert running == MAX_READS
        for each in leaving:
            each.cancel()
        await turn()
        assert running == 1
        answer.set()
        assert (await staying).json()["records"] == []
