"""The view of tasks: sums, order, bounds, and texts that anybody may have written."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from headrace.client.config import read_config
from headrace.client.workers import MAX_FAILURES, MAX_RUNNING, SeenWorker, TaskState, WorkerState
from headrace.web.access import Access
from headrace.web.lists import MAX_FAILURES_OF_PAGE, MAX_RUNNING_OF_PAGE
from headrace.web.observation import Observation, notes
from headrace.web.observer import Observer
from headrace.web.site import Site
from headrace.web.views import GroupSummary
from tests.support import story
from tests.web.serving import HOSTILE, browsing_site
from tests.worker.test_states import NOW_MS, STATE, TASK

EVIL = HOSTILE.decode()
GROUP = GroupSummary("packers", "share", "Stable", 2, 17, 5000, 4.0, 4.0, None)


def seen(name: str, *tasks: TaskState, age_ms: int = 3000, is_stopping: bool = False) -> SeenWorker:
    state = WorkerState(name, NOW_MS - 60_000, is_stopping, tasks)
    return SeenWorker(state, NOW_MS - age_ms, 100, age_ms)


def site_with(*workers: SeenWorker, group: GroupSummary = GROUP) -> Site:
    read = read_config({"bootstrap.servers": "127.0.0.1:1"})
    observer = Observer(read)
    groups = {"packers": group}
    lines = notes(groups, {}, workers)
    observer.observation = Observation(NOW_MS, 5, "id", 1, groups, notes=lines, workers=workers)
    return Site(read, observer, Access({}), {})


PAUSED = replace(TASK, breaker="open", breaker_reason=f"ValueError: {EVIL}", occupancy=0.1)


@story
async def test_a_task_has_the_sums_of_its_workers() -> None:
    site = site_with(
        seen("one", TASK),
        seen("two", PAUSED, is_stopping=True),
        seen("three", TASK, age_ms=61_000),
    )
    async with browsing_site(site) as client:
        view = (await client.get("/api/tasks")).json()
        (task,) = view["tasks"]["rows"]
        assert (task["worker_count"], task["lag"], task["time_lag_ms"]) == (2, 17, 5000)
        assert (task["total"]["slots"], task["total"]["occupancy"]) == (20, 0.3)
        assert (task["total"]["done"], task["total"]["breaker"]) == (200, "open")
        assert [each["worker"] for each in view["running"]] == ["one", "two"]
        assert [each["failure"]["attempt"] for each in view["failures"]] == [2, 2]
        assert [worker["status"] for worker in view["workers"]] == ["working", "stopping", "gone"]
        assert (await client.get("/api/tasks?filter=PAC")).json()["tasks"]["count"] == 1
        assert (await client.get("/api/tasks?filter=other")).json()["tasks"]["count"] == 0
        (note,) = (await client.get("/api/overview")).json()["notes"]
        assert (note["kind"], note["group_id"]) == ("paused", "packers")
        page = (await client.get("/tasks")).text
        assert ">paused<" in page and "8 of 20" in page and ">30%<" in page
        assert "5.0 s" in page and "next try in 2.0 s" in page
        assert "/record?topic=pack&amp;partition=0&amp;offset=7" in page
        assert (await client.get("/api/openapi.json")).json()["paths"]["/api/tasks"]


@story
async def test_a_task_without_workers_and_a_cluster_without_tasks() -> None:
    async with browsing_site(site_with(seen("one", TASK, age_ms=61_000))) as client:
        page = (await client.get("/tasks")).text
        assert ">no workers<" in page and ">gone<" in page and "0 of 0" in page
        assert (await client.get("/api/tasks")).json()["running"] == []
    async with browsing_site(site_with()) as client:
        assert "headrace worker MODULE:APP" in (await client.get("/tasks")).text


@story
async def test_numbers_of_a_worker_that_was_killed_are_old() -> None:
    killed = seen("one", TASK, age_ms=40_000)
    async with browsing_site(site_with(killed)) as client:
        assert "<small>numbers of 40 s ago</small>" in (page := (await client.get("/tasks")).text)
        assert ">silent<" in page and ">working<" in page
        assert (await client.get("/api/tasks")).json()["workers"][0]["status"] == "silent"
    async with browsing_site(site_with(killed, seen("two", TASK))) as client:
        assert "<small>some numbers of 40 s ago</small>" in (await client.get("/tasks")).text
    async with browsing_site(site_with(seen("one", TASK, age_ms=30_000))) as client:
        assert "numbers of" not in (await client.get("/tasks")).text


@story
async def test_the_overview_does_not_contradict_itself() -> None:
    async def overview(done_per_s: float) -> str:
        group = msgspec.structs.replace(GROUP, done_per_s=done_per_s, seconds_to_zero=-1.0)
        async with browsing_site(site_with(group=group)) as client:
            return (await client.get("/")).text

    page = await overview(0.0)  # its worker was killed, but a minute is not over
    assert "Nothing: no partition has stood still for a minute, no group falls behind" in page
    assert ">nothing finished<" in page and ">falls behind<" not in page
    page = await overview(1.0)
    assert page.count(">falls behind<") == 2 and "Nothing:" not in page


@story
async def test_the_view_is_bounded_and_whoever_writes_the_topic_controls_no_page() -> None:
    evil = replace(
        PAUSED,
        task=EVIL,
        group_id=EVIL,
        topics=(EVIL,),
        dead_letter_queue=EVIL,
        run_in=EVIL,
        records=(replace(TASK.records[0], topic=EVIL, since_ms=2**53),) * MAX_RUNNING,
        failures=(replace(TASK.failures[0], reason=EVIL, fate=EVIL, time_ms=0),) * MAX_FAILURES,
    )
    workers = [seen(f"{EVIL}{n}", evil, replace(evil, task=f"{EVIL}{n}")) for n in range(100)]
    async with browsing_site(site_with(*workers)) as client:
        for address in ("/tasks", "/", "/tasks?part=x"):
            page = (await client.get(address)).text
            assert "<script>document" not in page and "<img" not in page, address
            assert "&lt;script&gt;" in page
        view = (await client.get("/api/tasks")).json()
        assert (
            view["tasks"]["count"],
            view["tasks"]["page_count"],
            len(view["tasks"]["rows"]),
        ) == (101, 3, 50)
        assert len(view["running"]) == MAX_RUNNING_OF_PAGE
        assert len(view["failures"]) == MAX_FAILURES_OF_PAGE
        rows = re.findall("<tr>", (await client.get("/tasks")).text)
        assert len(rows) <= 4 + 50 + MAX_RUNNING_OF_PAGE + MAX_FAILURES_OF_PAGE + 100
        assert STATE.worker not in page
