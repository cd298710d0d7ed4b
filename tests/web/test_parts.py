"""The parts of the page that need no cluster: texts, notes, pictures, access, limits."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest

from headrace.cli.main import command_of, parsed
from headrace.client.cluster import Cluster
from headrace.client.config import read_config
from headrace.client.errors import ClientError
from headrace.client.groups import GroupMember
from headrace.client.lag.model import GroupLag, PartitionLag, group_lag
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.watch import Course, LagRates
from headrace.client.lag.work import STUCK_S, GroupWork, Standstills
from headrace.client.partition_reader import ReadBudget
from headrace.client.share_state import SharePartitionState, Span
from headrace.http.failed_logins import FAILED_LOGIN_DELAY_S, MAX_FAILED_LOGINS
from headrace.http.messages import Request
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import (
    TRANSACTIONAL_BIT,
    Marker,
    Record,
    build,
    end_transaction_marker,
)
from headrace.web import observation, texts
from headrace.web.access import (
    FIRST_LOGIN_S,
    MAX_SESSIONS,
    SESSION_IDLE_S,
    SESSION_S,
    Access,
    Sessions,
    basic_or_bearer,
)
from headrace.web.actions import ACTIONS, Action
from headrace.web.app import VIEWS
from headrace.web.lists import listed, page_of
from headrace.web.observation import (
    HISTORY_POINTS,
    LATE_FOR_MS,
    OLDER_STEP_MS,
    RECENT_POINTS,
    Histories,
    InFlightLooks,
    Observation,
    notes,
)
from headrace.web.observer import LETTERS_OVER_MS, WINDOW_MS, Observer, pause_s
from headrace.web.openapi import document
from headrace.web.plans import MAX_PLANS, PLAN_S, Plan, Plans
from headrace.web.record_views import standing
from headrace.web.records import Filter, Query, Shelf, page_budget
from headrace.web.requests import PageRequest
from headrace.web.site import Site
from headrace.web.views import Change, GroupSummary, Page, Point, Standing
from tests.clients.confluent import PATIENCE_S
from tests.support import ROOT, story
from tests.vocabulary import misnamed
from tests.web.serving import browsing_site, searched

TEMPLATES = (ROOT / "src/headrace/web/templates").glob("*.html")


@pytest.mark.parametrize(
    "line",
    [line for file in TEMPLATES for line in re.findall("headrace [^<\n]+", file.read_text())],
)
def test_the_commands_that_the_page_teaches_can_be_pasted(line: str) -> None:
    _, *words = re.sub(r"\{\{.*?\}\}", "word:1", line).split()
    parsed(*command_of(words))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (0, "0"),
        (3.21, "3.2"),
        (3.0, "3"),
        (42.4, "42"),
        (12_345.6, "12,346"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert texts.number(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(None, "unknown"), (0, "0 s"), (3210, "3.2 s"), (47_000, "47 s"), (61_000, "1m 01s")],
)
def test_durations_have_two_units(milliseconds: int | None, text: str) -> None:
    assert texts.duration(milliseconds) == text


def test_values_are_text_json_or_hex_and_cut() -> None:
    assert texts.rendered(None, "auto", 10) == ("", "null", False)
    assert texts.rendered(b' {"a":1}', "auto", 100) == (' {"a":1}', "json", False)
    assert texts.rendered(b'{"a":1}', "text", 100) == ('{"a":1}', "text", False)
    assert texts.rendered(b"7", "auto", 100) == ("7", "text", False)
    assert texts.rendered(b"\xff", "auto", 100)[1] == "hex"
    assert texts.rendered(b"\x1b[2J\0", "text", 100)[0] == "\\x1b[2J\\x00"
    assert texts.rendered("ä".encode() * 1000, "text", 10) == ("ä" * 10, "text", True)
    assert texts.short(b"a\nb", 10) == "a b"
    assert texts.short(b"\xff\x00", 10) == "0x ff 00"


def _group(**changes: Any) -> GroupSummary:
    group = GroupSummary("g", "share", "Stable", 2, 10, 5000, 0.0, 1.0, -1.0)
    return msgspec.structs.replace(group, **changes)


def _notes(*groups: GroupSummary, **more: Any) -> list[tuple[str, str | None, str]]:
    found = notes({group.group_id: group for group in groups}, **{"letters": {}, **more})
    return [(note.kind, note.group_id, note.text) for note in found]


def test_notes_say_what_is_wrong() -> None:
    growing = _group(done_per_s=1.0, produced_per_s=2.0)
    ((kind, _, text),) = _notes(growing)
    assert kind == "growing"
    assert text == "finishes 1 of 2 records a second; 10 records behind, the oldest 5.0 s old"
    assert _notes(_group()) == _notes(_group(lag=0)) == _notes(_group(lag=None)) == []
    assert _notes(_group(lag=0), letters={"g": ("dlq", 3, 60_000)}) == [
        ("letters", "g", "3 records dead-lettered in the last 1m 00s")
    ]
    ((kind, _, text),) = _notes(_group(lag=0), late={"g": 7})
    assert (kind, text.partition(":")[0]) == (
        "late",
        "7 records acknowledged after the end of the lock, and delivered again",
    )


def test_notes_rank_by_severity_and_activity_and_fold_groups_without_members() -> None:
    groups = [
        _group(group_id="quiet", lag=0, done_per_s=0.1),
        _group(group_id="busy", lag=0, done_per_s=500.0),
        *(_group(group_id=f"old-{n}", member_count=0, time_lag_ms=n * 1000) for n in range(150)),
    ]
    letters = dict.fromkeys(("quiet", "busy"), ("dlq", 1, 60000))
    found = _notes(*groups, letters=letters, stuck=[("quiet", "orders-2: nothing finished")])
    assert [(kind, group_id) for kind, group_id, _ in found] == [
        ("stuck", "quiet"),
        ("letters", "busy"),
        ("letters", "quiet"),
        ("idle", None),
    ]
    assert found[-1][2] == "150 groups behind without members, the oldest record 2m 29s old"
    assert _notes(_group(member_count=0))[0][:2] == ("idle", "g")


def _lag(*partitions: PartitionLag) -> GroupLag:
    members = [GroupMember("m-1", "packer-1", "/10.0.0.7")]
    return group_lag("packers", "share", "Stable", members, partitions)


def test_a_partition_is_stuck_until_something_in_it_is_finished() -> None:
    standstills = Standstills()

    def stuck(now_s: float, done: int, position: int = 5) -> dict[str, dict[TopicPartition, float]]:
        standstills.begin(now_s)
        standing = PartitionLag("orders", 2, position, 9, delivery_complete_count=done)
        moving = PartitionLag("orders", 1, int(now_s), 9)
        standstills.add([_lag(standing, moving)])
        return standstills.end()

    assert stuck(0, 0) == {}
    assert stuck(STUCK_S - 1, 0) == {}
    assert stuck(STUCK_S, 0) == {"packers": {("orders", 2): STUCK_S}}
    assert stuck(STUCK_S + 1, 1) == {}
    assert stuck(2 * STUCK_S, 0) == {}  # a count may be too small for a moment
    assert stuck(2 * STUCK_S + 1, 0) == {"packers": {("orders", 2): STUCK_S}}
    assert stuck(2 * STUCK_S + 2, 0, position=0) == {}  # it was set back
    standstills.begin(9 * STUCK_S)  # a snapshot that fails forgets nothing
    assert list(stuck(9 * STUCK_S, 0, position=0)["packers"]) == [("orders", 2)]
    standstills.begin(10 * STUCK_S)
    standstills.add([replace(_lag(PartitionLag("orders", 2, 0, 9)), members=())])
    assert standstills.end() == {}


def test_nothing_is_told_of_a_partition_whose_finished_records_are_unknown() -> None:
    standstills = Standstills()

    def is_stuck(now_s: float, done: int | None, position: int | None = 5) -> bool:
        standstills.begin(now_s)
        lag = PartitionLag("orders", 2, position, 9, delivery_complete_count=done)
        standstills.add([_lag(lag)])
        return bool(standstills.end())

    assert not is_stuck(0, None)
    assert not is_stuck(STUCK_S, 1)
    assert not is_stuck(2 * STUCK_S, None)
    assert not is_stuck(2 * STUCK_S + 1, 2)  # it went on meanwhile
    assert not is_stuck(3 * STUCK_S, None)
    assert is_stuck(3 * STUCK_S + 1, 2)  # it did not
    assert not is_stuck(3 * STUCK_S + 2, None, position=None)  # it has not begun
    assert is_stuck(4 * STUCK_S + 2, None, position=None)


@story
async def test_an_end_that_is_missing_once_is_no_burst_of_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {("dlq.packers", number): 1000 for number in range(2)}
    work = GroupWork(Cluster("127.0.0.1:1"))

    async def queues(_: object) -> tuple[dict[str, str], list[str]]:
        return {"packers": "dlq.packers"}, []

    async def answer(*_: object) -> Mapping[TopicPartition, int]:
        return ends

    monkeypatch.setattr("headrace.client.lag.work.queues_of_groups", queues)
    monkeypatch.setattr(PartitionLeaders, "learn", answer)
    monkeypatch.setattr(PartitionLeaders, "partitions", lambda *_: [0, 1])
    monkeypatch.setattr(PartitionLeaders, "offsets", answer)

    async def look(now_s: float) -> float | None:
        work.begin(now_s)
        assert await work.end() == []
        return work.letters_per_s("packers")

    assert await look(0) is None
    end = ends.pop(("dlq.packers", 1))
    assert await look(1) is None
    ends["dlq.packers", 1] = end
    assert await look(2) is None
    ends["dlq.packers", 1] += 3
    assert await look(3) == 3


@story
async def test_the_note_of_a_stuck_partition_names_who_holds_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, late = ("orders", 2), 0

    async def states(*_: Any) -> Mapping[Any, SharePartitionState]:
        spans = (Span(5, 7, "locked", 2, "m-1", 1000),)
        return {key: SharePartitionState(5, 9, spans, 8, 0, 0, late)}

    monkeypatch.setattr("headrace.web.observation.share_states", states)
    looks, cluster = InFlightLooks(), Any
    group = _lag(PartitionLag("orders", 2, 5, 9))
    stuck = {"packers": {key: 17 * 60.0}}

    async def look(now_ms: int) -> list[tuple[str, str]]:
        return await looks.look(
            cast(Cluster, cluster), {"packers": group}, {"packers": [key]}, stuck, now_ms
        )

    assert await look(0) == [
        ("packers", "orders-2: nothing finished for 17m 00s; packer-1 holds 3 records")
    ]
    assert looks.late == {}
    late = 4
    await look(1000)
    assert looks.late == {"packers": 4}
    await look(1000 + LATE_FOR_MS)
    assert looks.late == {}


@story
async def test_counts_of_late_acknowledgements_end_with_their_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, late = ("orders", 0), 0

    async def states(*_: Any) -> Mapping[Any, SharePartitionState]:
        return {key: SharePartitionState(5, 9, (), 8, 0, 0, late)}

    monkeypatch.setattr("headrace.web.observation.share_states", states)
    looks, group = InFlightLooks(), _lag(PartitionLag("orders", 0, 5, 9))

    async def look(group_id: str, now_ms: int) -> None:
        groups = {group_id: replace(group, group_id=group_id)}
        await looks.look(cast(Cluster, Any), groups, {group_id: [key]}, [], now_ms)

    await look("first", 0)
    late = 4
    await look("first", 1000)
    assert looks.late == {"first": 4}
    await look("second", 2000)
    assert looks.late == {}
    await look("first", 3000)  # another group of this name
    assert looks.late == {}


@story
async def test_late_acknowledgements_are_those_since_the_last_look_at_their_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = ("orders", 0), ("orders", 1)
    late = {first: 3, second: 5}

    async def states(_: Any, __: str, keys: list[Any], *___: Any) -> Mapping[Any, Any]:
        return {key: SharePartitionState(5, 9, (), 8, 0, 0, late[key]) for key in keys}

    monkeypatch.setattr("headrace.web.observation.share_states", states)
    looks, group = InFlightLooks(), _lag(PartitionLag("orders", 0, 5, 9))

    async def look(*partitions: Any) -> dict[str, int]:
        stuck = {"packers": {first: 60.0}}
        groups, keys = {"packers": group}, {"packers": partitions}
        await looks.look(cast(Cluster, Any), groups, keys, stuck, 1000)
        return looks.late

    assert await look(first, second) == {}
    assert await look() == {}  # the stuck one alone
    assert await look(second) == {}
    late[second] += 2
    assert await look() == {}
    assert await look(second) == {"packers": 2}


def test_histories_are_bounded_and_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "HISTORY_POINTS", 3)
    monkeypatch.setattr(observation, "MAX_HISTORIES", 2)
    histories = Histories()
    for n in range(5):
        histories.add({name: Point(n, n, None, None, None) for name in "abc"})
    assert [point.lag for point in histories.of("a")] == [2, 3, 4]
    assert histories.of("c") == []
    histories.add({"c": Point(9, 9, None, None, None)})
    assert histories.of("a") == []
    assert len(histories.of("c")) == 1


def test_a_history_of_half_an_hour_has_older_points_further_apart() -> None:
    histories, times_ms = Histories(), range(0, 3_600_000, 2000)
    for time_ms in times_ms:
        histories.add({"a": Point(time_ms, 1)}, after_gap=time_ms == 2_400_000)
    points = histories.of("a")
    kept_ms = [point.time_ms for point in points]
    assert len(points) <= HISTORY_POINTS
    assert kept_ms[-1] - kept_ms[0] >= 30 * 60 * 1000
    assert kept_ms[-RECENT_POINTS:] == [*times_ms[-RECENT_POINTS:]]
    assert max(later - sooner for sooner, later in pairwise(kept_ms)) == OLDER_STEP_MS
    assert Point(2_400_000) in points


def test_a_history_tells_the_times_without_points() -> None:
    histories = Histories()
    for n in range(100):
        histories.add({"a": Point(n, n)}, after_gap=n == 50)
    assert histories.of("a")[49:52] == [Point(49, 49), Point(50), Point(50, 50)]
    thinned = histories.of("a", 20)
    assert len(thinned) <= 22
    assert (thinned[-1], Point(50) in thinned) == (Point(99, 99), True)


def test_ends_have_the_window_of_the_rates_of_groups() -> None:
    ends, rates = Course(LETTERS_OVER_MS), LagRates(WINDOW_MS)
    for now_ms in range(0, 100_000, 7_000):
        total = now_ms // 10 if now_ms < 70_000 else 7_000
        ends.add(now_ms, total)
        rates.begin(now_ms)
        rates.add([_lag(PartitionLag("orders", 0, 0, total, end_offset=total))])
        (group,) = rates.end()
        assert group.lag.produced_per_s == ends.rate(WINDOW_MS), now_ms


def test_a_listing_has_pages_orders_and_filters() -> None:
    groups = [_group(group_id=f"g{n:03}", lag=None if n == 5 else n) for n in range(120)]
    by_lag = listed(groups, "group_id", "lag")
    page = page_of(by_lag, 1, 50)
    assert [group.lag for group in page.rows[:2]] == [119, 118]
    assert (page.count, page.page, page.page_count) == (120, 1, 3)
    eternal = [_group(group_id="a", seconds_to_zero=9.0), _group(group_id="b")]
    assert [group.group_id for group in listed(eternal, "group_id", "seconds_to_zero")] == [
        "b",
        "a",
    ]
    page = page_of(by_lag, 99, 50)
    assert (page.rows[-1].lag, page.page) == (None, 3)
    assert page_of([], 1, 50) == Page([], 0, 1, 1)
    by_name = listed(groups, "group_id", "group_id", "G01")
    assert [group.group_id for group in by_name][:2] == ["g010", "g011"]


def test_records_are_searched_within_a_batch() -> None:
    batch = build(
        [(b"k%d" % n, b"Value %d" % n) for n in range(10)], timestamp_ms=1, base_offset=100
    )
    data = bytes(batch)

    def page(data: bytes, position: int, query: Query) -> tuple[int, Shelf]:
        shelf = Shelf(query, page_budget())
        return searched(shelf, data, position, 110), shelf

    position, shelf = page(data, 103, Query("t", limit=50))
    assert [record.offset for record in shelf.selected] == [*range(103, 110)]
    assert (position, shelf.scanned, shelf.problems) == (110, 7, {})
    # The records before the place cost nothing.
    shelf = Shelf(Query("t", limit=50), ReadBudget(10_000, 7, 60))
    searched(shelf, data, 103, 110)
    assert shelf.scanned == 7
    asked = Query("t", start="offset", limit=1, filter=Filter(value="value 5"))
    position, shelf = page(data, 100, asked)
    assert ([record.offset for record in shelf.selected], position) == ([105], 106)
    position, shelf = page(data[:70] + bytes(len(data) - 70), 100, asked)
    assert (position, shelf.selected, len(shelf.problems)) == (110, [], 1)


def test_a_committed_transaction_after_an_aborted_one_of_its_producer_is_shown() -> None:
    def transaction(base_offset: int, value: bytes, *, commit: bool) -> bytes:
        batch = build(
            [(None, value)],
            timestamp_ms=1,
            base_offset=base_offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            attributes=TRANSACTIONAL_BIT,
        )
        marker = bytearray(end_transaction_marker(7, 0, Marker(commit, 0), 1))
        struct.pack_into(">q", marker, 0, base_offset + 1)
        return batch + marker

    data = transaction(0, b"aborted", commit=False) + transaction(2, b"committed", commit=True)
    asked = Query("t", start="earliest", read_committed=True)
    shelf = Shelf(asked, page_budget())
    searched(shelf, data, 0, 4, ((7, 0),))
    assert [record.value for record in shelf.selected] == [b"committed"]
    assert not shelf.problems


def test_a_filter_compares_without_case() -> None:
    record = Record(1, 1, b"Key", None, (("Trace", b"ABC"),))
    assert Filter(key="kEY").selects(record)
    assert not Filter(value="x").selects(record)
    assert Filter(header="trace").selects(record)
    assert Filter(header="trace=ab").selects(record)
    assert not Filter(header="trace=x").selects(record)
    assert Filter(header="trace==ABC").selects(record)
    for other in ("ab", "BC", "abc", ""):
        assert not Filter(header=f"trace=={other}").selects(record)


def test_a_filter_finds_letters_that_are_not_ascii() -> None:
    content = "Übergabe an Čapek".encode()
    record = Record(1, 1, content, content, (("Größe", content),))
    for part in ("Übergabe", "ÜBERGABE", "Čapek"):
        assert Filter(part, part, f"Größe={part}").selects(record)


def test_where_a_record_stands() -> None:
    spans = (Span(5, 6, "locked", 1, "m", 1000),)
    state = SharePartitionState(5, 3, spans, 7, 0, 0, 0)
    assert standing("g", state, 4).kind == "finished"
    assert standing("g", state, 6) == Standing("g", "locked", spans[0])
    assert standing("g", state, 7).kind == "ahead"
    assert standing("g", replace(state, is_cut=True), 7).kind == "unknown"
    assert standing("g", replace(state, spans=None), 6).kind == "unknown"
    assert standing("g", None, 6).kind == "unknown"


def test_looks_take_a_bounded_share_of_the_time() -> None:
    assert pause_s(0.1, attended=True) == pytest.approx(1.9)
    assert pause_s(3, attended=True) == pytest.approx(27)
    assert pause_s(3, attended=False) == pytest.approx(147)


# Access -------------------------------------------------------------------------------------------


def test_credentials_admit_users_and_the_token() -> None:
    request = PageRequest(Request("GET", b"/", [], b"", "127.0.0.1"))
    both = Access({"ann": "pw", "bob": "pw", "token": "tok"})

    def admitted(name: str, secret: str) -> str | None:
        return both.admitted(request, name, secret)

    assert (admitted("ann", "pw"), admitted("bob", "pw")) == ("ann", "bob")
    assert admitted("", "tok") == admitted("token", "tok") == "token"
    for wrong in (("eve", "pw"), ("ann", ""), ("ann", "tok"), ("", "pw"), ("", "")):
        assert admitted(*wrong) is None
    assert Access({}).admitted(request, "", "") is None


def test_authorization_headers() -> None:
    assert basic_or_bearer("Bearer abc") == ("", "abc")
    assert basic_or_bearer("Basic YW5uOnB3") == ("ann", "pw")
    for wrong in ("", "Basic", "Basic !!", "Basic YW5u", "Bearer ", "Digest x"):
        assert basic_or_bearer(wrong) is None


def test_logins_end_and_are_bounded() -> None:
    now_s = 0.0
    sessions = Sessions(lambda: now_s)
    ids = [sessions.begin(f"u{n}") for n in range(MAX_SESSIONS + 1)]
    assert sessions.get(ids[0]) is None
    found = sessions.get(ids[-1])
    assert found is not None
    assert found.user == f"u{MAX_SESSIONS}"
    while now_s < SESSION_S:
        assert sessions.get(ids[-1]) is not None
        now_s += SESSION_IDLE_S // 2
    now_s = SESSION_S
    assert sessions.get(ids[-1]) is None
    assert sessions.get("") is None


def test_plans_are_confirmed_once_by_their_user_and_in_time() -> None:
    now_s = 0.0
    plans = Plans(lambda: now_s)
    ran: list[int] = []

    async def execute() -> str:
        ran.append(1)
        return "done"

    plan = Plan("Do x", [Change("a", "b", "c")], execute, action="x")
    plan_id = plans.keep("ann", plan)
    assert plans.take("bob", plan_id) is None
    assert plans.take("ann", plan_id) is plan
    assert plans.take("ann", plan_id) is None
    late = plans.keep("ann", plan)
    now_s = PLAN_S
    assert plans.take("ann", late) is None
    first = plans.keep("ann", plan)
    for _ in range(MAX_PLANS):
        plans.keep("bob", plan)
    assert plans.take("ann", first) is None
    assert asyncio.run(plans.execute("ann", "10.0.0.7", plan)) == "done"
    assert len(ran) == 1


@story
async def test_odd_requests_are_refused_and_answers_protected() -> None:
    async with _site() as (_, client):
        answer = await client.get("/api")
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "strict-transport-security" not in answer.headers
        for method, path, status in (
            ("TRACE", "/", 405),
            ("GET", "/" + "x" * 9000, 414),
            ("GET", "/nothing", 404),
            ("GET", "/groups/", 404),
            ("GET", "/logout", 405),
            ("POST", "/groups", 405),
            ("POST", "/api/nothing", 404),
            ("GET", "/static/", 404),
        ):
            answer = await client.request(method, path)
            assert answer.status_code == status, path
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert ("allow" in answer.headers) == (status == 405), path
        assert (await client.post("/groups")).headers["allow"] == "GET, HEAD"
        assert (await client.get("/logout")).headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"partiton": 1}, "Object contains unknown field `partiton`."),
        ({"topic": ["orders"]}, "topic: Expected `str`, got `array`."),
        ({"topic": {}}, "topic: Expected `str`, got `object`."),
    ],
)
@story
async def test_fields_of_an_action_that_it_would_not_understand_are_refused(
    fields: dict[str, object], error: str
) -> None:
    async with _site() as (_, client):
        asked = {"group_id": "packers", "to": "latest", **fields, "dry_run": False}
        answer = await client.post("/api/actions/reset-offsets", json=asked, headers=RIGHT)
        assert (answer.status_code, answer.json()) == (400, {"error": error})
        answer = await client.post("/api/actions/x/reset-offsets", json={}, headers=RIGHT)
        assert answer.status_code == 404


@story
async def test_a_page_that_fails_says_so_and_the_log_has_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _site() as (_, client):
        monkeypatch.setattr("headrace.web.page.Response", None)
        answer = await client.get("/api")
        assert (answer.status_code, answer.text) == (
            500,
            "The page has failed; its log has the reason.\n",
        )
    assert "cannot serve /api" in caplog.text


def test_line_breaks_of_a_form_are_those_that_were_typed() -> None:
    body = b"value=a%0D%0Ab%0D%0A&headers=%250D%250A%0D"
    request = PageRequest(Request("POST", b"/action/produce", [], body, "127.0.0.1"))
    assert request.form() == {"value": "a\nb\n", "headers": "%0D%0A\r"}


@pytest.mark.parametrize(
    "back", ["//evil.example/", "/\\evil.example", "https://evil.example/", ""]
)
@story
async def test_a_login_leads_to_this_site_only(back: str) -> None:
    async with _site() as (_, client):
        for address, location in ((back, "/"), ("/a\n\rb: c?d=é", "/a%0A%0Db:%20c?d=%C3%A9")):
            answer = await client.post("/login", data={"password": "right", "back": address})
            assert (answer.status_code, answer.headers["location"]) == (303, location)


@story
async def test_the_printed_address_logs_in_once() -> None:
    async with _site(login_to_view=True) as (site, client):
        code = site.access.first_login()
        for wrong in ("", "x", code[:-1]):
            assert (await client.get(f"/login?once={wrong}")).status_code == 401
        assert site.access.failed_logins.total == 3
        answer = await client.get(f"/login?once={code}&back=//evil.example/")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "Log out" in (await client.get("/api")).text
        client.cookies.clear()
        answer = await client.get(f"/login?once={code}")
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
        assert "This address was used before" in answer.text


def test_the_printed_address_logs_in_for_some_minutes() -> None:
    now_s, request = 0.0, PageRequest(Request("GET", b"/", [], b"", "127.0.0.1"))
    access = Access({"token": "right"}, clock_s=lambda: now_s)
    code = access.first_login()
    now_s = FIRST_LOGIN_S
    assert access.admitted_first(request, code) is None
    code = access.first_login()
    now_s += FIRST_LOGIN_S - 1
    assert access.admitted_first(request, code) == "token"
    assert access.admitted_first(request, "") is None


@asynccontextmanager
async def _site(*, is_secure: bool = False, login_to_view: bool = False) -> AsyncIterator[Any]:
    """Yield a site with a token and a user, and a client of its page."""
    connections = read_config({"bootstrap.servers": "127.0.0.1:1"})
    observer = Observer(connections)
    observer.observation = Observation(1000, 5, "the-cluster-id", 3)
    observer.problem = "no broker answers at the-host"
    site = Site(
        connections,
        observer,
        Access(
            {"ann": "right", "token": "right"}, login_to_view=login_to_view, is_secure=is_secure
        ),
        {},
    )
    async with browsing_site(site, "https" if is_secure else "http") as client:
        yield site, client


RIGHT = {"Authorization": "Bearer right"}


@story
async def test_the_right_token_and_password_are_never_locked_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[float] = []

    async def sleep(delay_s: float) -> None:
        late.append(delay_s)

    monkeypatch.setattr("headrace.http.failed_logins.asyncio.sleep", sleep)
    began_s = time.monotonic()
    async with _site() as (site, client):
        for _ in range(MAX_FAILED_LOGINS + 5):
            await client.get("/api/overview", headers={"Authorization": "Bearer wrong"})
        assert late == [FAILED_LOGIN_DELAY_S] * 5  # one for each request
        for _ in range(MAX_FAILED_LOGINS + 5):
            form = {"name": "ann", "password": "wrong"}
            assert (await client.post("/login", data=form)).status_code == 401
        late.clear()
        answer = await client.post("/api/actions/nothing", json={}, headers=RIGHT)
        assert answer.status_code == 404  # the token is right, and there is no such action
        form = {"name": "ann", "password": "right"}
        assert (await client.post("/login", data=form)).status_code == 303
        assert late == []
        assert site.access.failed_logins.total == 2 * MAX_FAILED_LOGINS + 10
        assert (await client.get("/api/overview")).json()[
            "failed_login_count"
        ] == site.access.failed_logins.total
    lines = [line for line in caplog.messages if line.startswith("wrong password or token from")]
    assert len(lines) <= 1 + time.monotonic() - began_s  # one for an address and a second


@story
async def test_logins_and_actions_are_logged_with_the_visitors_address(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "headrace.ui")

    async def execute() -> str:
        return "it is done"

    async def fail() -> str:
        raise ClientError("it is refused")

    async def good(_: Any) -> Plan:
        return Plan("Do x\n", [], execute)

    async def bad(_: Any) -> Plan:
        return Plan("Do x\n", [], fail)

    async with _site() as (site, client):
        for made in (good, bad):
            monkeypatch.setitem(ACTIONS, made.__name__, Action(made.__name__, "", made))
        await client.post("/login", data={"name": "ann", "password": "right"})
        csrf = site.access.sessions.get(client.cookies["headrace_session"]).csrf
        assert (await client.post("/logout", data={"csrf": csrf})).status_code == 303
        for action in ("good", "bad"):
            await client.post(f"/api/actions/{action}", json={"dry_run": False}, headers=RIGHT)
    assert [line for line in caplog.messages if line.startswith("User ")] == [
        "User ann has logged in from host 127.0.0.1",
        "User ann has logged out from host 127.0.0.1",
        r"User token has begun good from host 127.0.0.1: Do x\n",
        r"User token has done good from host 127.0.0.1: Do x\n: it is done",
        r"User token has begun bad from host 127.0.0.1: Do x\n",
        r"User token has failed in bad from host 127.0.0.1: Do x\n: it is refused",
    ]


@story
async def test_actions_take_json_of_the_same_origin() -> None:
    async with _site() as (_, client):
        address = "/api/actions/nothing"
        body = b'{"topic": "t"}'
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = await client.post(
                address, content=body, headers={**RIGHT, "content-type": kind}
            )
            assert answer.status_code == 415
        for foreign in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await client.post(address, json={}, headers={**RIGHT, **foreign})
            assert answer.status_code == 400
            assert "another site" in answer.json()["error"]
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        answer = await client.post(address, json={}, headers={**RIGHT, **own})
        assert answer.status_code == 404


@story
async def test_each_challenge_has_a_line() -> None:
    async with _site(login_to_view=True) as (_, client):
        for answer in (
            await client.get("/api/overview"),
            await client.post("/api/actions/nothing", json={}),
        ):
            assert answer.status_code == 401
            assert answer.headers.get_list("www-authenticate") == [
                'Basic realm="headrace", charset="UTF-8"',
                "Bearer",
            ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("POST", "/groups"),
        ("GET", "/login"),
        ("POST", "/login"),
        ("GET", "/nothing?part=x"),
        ("POST", "/action/produce"),
        ("POST", "/logout"),
        ("GET", "/static/x/nothing.js"),
    ],
)
@story
async def test_visitors_without_a_login_learn_nothing_of_the_cluster(
    method: str, path: str
) -> None:
    async with _site(login_to_view=True) as (_, client):
        hidden = await client.request(method, path)
        assert "the-cluster-id" not in hidden.text
        assert "3 brokers" not in hidden.text
        assert "the-host" not in hidden.text
        shown = await client.request("GET", "/nothing", headers=RIGHT)
        assert "the-cluster-id" in shown.text


@story
async def test_a_page_whose_login_has_ended_leads_to_the_login_as_a_whole() -> None:
    async with _site(login_to_view=True) as (_, client):
        part = await client.get("/groups?part=x&filter=a")
        assert (part.status_code, part.text, part.headers["hx-refresh"]) == (401, "", "true")
        assert "www-authenticate" not in part.headers  # the browser would ask for a password
        sought = await client.get("/api/search?name=a", headers={"X-Requested-With": "fetch"})
        assert (sought.status_code, "www-authenticate" in sought.headers) == (401, False)
        whole = await client.get("/groups?filter=a")
        assert whole.headers["location"] == "/login?back=%2Fgroups%3Ffilter%3Da"


@pytest.mark.parametrize("login_to_view", [False, True])
@story
async def test_a_login_is_valid_behind_a_proxy_with_a_login_of_its_own(
    login_to_view: bool,
) -> None:
    proxy = {"Authorization": "Basic cHJveHk6cHc="}
    async with _site(login_to_view=login_to_view) as (site, client):
        await client.get("/api", headers=proxy)
        assert site.access.failed_logins.total == login_to_view
        await client.post("/login", data={"name": "ann", "password": "right"}, headers=proxy)
        failed = site.access.failed_logins.total
        for address in ("/api", "/api/overview", "/?part=x"):
            assert (await client.get(address, headers=proxy)).status_code == 200
        assert "Log out" in (await client.get("/api", headers=proxy)).text
        assert site.access.failed_logins.total == failed


@story
async def test_with_tls_browsers_are_bound_to_it() -> None:
    async with _site(is_secure=True) as (_, client):
        answer = await client.post("/login", data={"password": "right"})
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-headrace_session=")
        assert "Secure" in cookie
        assert "Path=/" in cookie
        assert "Domain" not in cookie
        assert "Log out" in (await client.get("/nothing")).text


def test_a_login_ends_when_its_user_does_nothing() -> None:
    now_s = 0.0
    sessions = Sessions(lambda: now_s)
    session_id = sessions.begin("ann")
    now_s = SESSION_IDLE_S - 1
    assert sessions.get(session_id) is not None
    now_s += SESSION_IDLE_S - 1
    assert sessions.get(session_id, is_use=False) is not None  # a page that refreshes itself
    now_s += 1
    assert sessions.get(session_id) is None


def test_batches_of_an_unknown_format_do_not_end_the_search() -> None:
    old = bytearray(struct.pack(">qi", 0, 49) + bytes(49))
    shelf = Shelf(Query("t", start="earliest", limit=5), page_budget())
    assert searched(shelf, bytes(old), 0, 10) > 0
    assert (shelf.selected, len(shelf.problems)) == ([], 1)


@story
async def test_the_part_that_is_swapped_says_that_the_numbers_are_old() -> None:
    read = read_config({"bootstrap.servers": "127.0.0.1:1"})
    observer = Observer(read)
    observer.observation = Observation(1000, 5, "id", 1)
    async with browsing_site(Site(read, observer, Access({}), {})) as client:
        fresh = (await client.get("/?part=x")).text
        assert ">live<" in fresh
        assert "banner" not in fresh
        observer.problem = "no <broker> answers"
        for address in ("/?part=x", "/"):
            stale = (await client.get(address)).text
            assert ">live<" not in stale
            assert 'class="stale"' in stale
            assert "the numbers are" in stale
            assert stale.count("no &lt;broker&gt; answers") == 1
        shown = (await client.get("/api")).text
        assert "answers" in shown
        observer.problem, observer._overdue_s = None, 0
        assert "no answer" in (await client.get("/?part=x")).text
        assert observer.stale_ms(61_000) == 60_000
        refused = await client.get("/topic?topic=t")
        assert (refused.status_code, 'http-equiv="refresh"' in refused.text) == (502, True)


def test_a_cluster_that_does_not_answer_does_not_delay_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        read = read_config({"bootstrap.servers": f"127.0.0.1:{port}"})
        observer = Observer(replace(read, connect_timeout_ms=600_000, request_timeout_ms=600_000))
        observer.start()
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1), "a request"
            closing = threading.Thread(target=observer.close, daemon=True)
            closing.start()
            closing.join(PATIENCE_S)
            assert not closing.is_alive()


def test_fields_are_named_by_what_they_hold() -> None:
    kinds = {"integer": 1, "number": 1.0, "array": []}

    def example(schema: Mapping[str, Any]) -> object:
        types = [choice.get("type") for choice in schema.get("anyOf", [schema])]
        return next((kind for name, kind in kinds.items() if name in types), None)

    described = document(VIEWS)
    for schema in described["components"]["schemas"].values():
        fields = {name: example(of) for name, of in schema.get("properties", {}).items()}
        assert misnamed(fields) == [], schema["title"]
