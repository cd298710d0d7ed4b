"""Functions that misbehave: what becomes of their records, and of the records of others."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

import headrace
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, RequestRefused
from headrace.client.share.consumer import ShareConsumer
from headrace.protocol.errors import ErrorCode
from headrace.worker import group
from headrace.worker.breaker import Breaker
from headrace.worker.task import Task
from tests.clients.confluent import consumer, share_from_earliest
from tests.support import story, unique

from . import functions
from .support import runner, until, working

RETRY = headrace.Retry(2, first=0.01, jitter=0)


def raise_it(error: BaseException) -> None:
    raise error


async def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


MISDEEDS: dict[str, Callable[[], Any]] = {
    "exits": lambda: sys.exit(3),
    "interrupts": lambda: raise_it(KeyboardInterrupt()),
    "ends its generator": lambda: raise_it(GeneratorExit()),
    "raises a BaseException": lambda: raise_it(BaseException("base")),
    "raises what has no text": lambda: raise_it(type("Mute", (Exception,), {"__str__": None})()),
    "stops an iteration": lambda: raise_it(StopIteration()),
    "cancels": lambda: raise_it(asyncio.CancelledError()),
}


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_whatever_a_function_raises_fails_its_own_record_only(
    bootstrap_servers: str, place: str
) -> None:
    app = headrace.App(bootstrap_servers)
    done: list[str] = []

    def process(misdeed: str) -> None:
        if misdeed in MISDEEDS:
            MISDEEDS[misdeed]()
        done.append(misdeed)

    async def process_on_the_loop(misdeed: str) -> None:
        process(misdeed)

    name = unique("misdeeds")
    task: Task[Any, Any] = app.task(name=name, retry=RETRY, concurrency=1, breaker=None)(
        process if place == "thread" else process_on_the_loop
    )

    @story
    async def run() -> None:
        await task.send_many([*MISDEEDS, *"abc"])
        async with working(app) as worker:
            counts = runner(worker, name).counts
            await until(lambda: len(done) == 3 and counts["dead_letters"] == len(MISDEEDS))

    run()
    assert sorted(done) == ["a", "b", "c"]


@story
async def test_a_cancelled_task_and_tasks_that_are_left_hurt_no_other_record(
    bootstrap_servers: str,
) -> None:
    app = headrace.App(bootstrap_servers)
    done: list[int] = []
    left: list[asyncio.Task[None]] = []
    name = unique("cancels")

    @app.task(name=name, partitions=1)
    async def process(number: int) -> None:
        if number < 2:
            await cancel_own_task()
        elif number == 2:
            left.append(asyncio.create_task(asyncio.sleep(3600)))
        else:
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
        done.append(number)

    await process.send_many(range(10))
    async with working(app) as worker:
        await until(lambda: set(done) >= set(range(10)))
        counts = runner(worker, name).counts
    # The function that has cancelled itself has returned all the same.
    assert not counts["failed"]
    assert sorted(done) == list(range(10))
    assert not left[0].done()


@story
async def test_what_a_function_sets_in_its_context_reaches_no_other(bootstrap_servers: str) -> None:
    app = headrace.App(bootstrap_servers)
    name, customer, seen = unique("context"), ContextVar[int | None]("customer"), []

    @app.task(name=name, concurrency=1)
    async def process(number: int) -> None:
        seen.append(customer.get(None))
        customer.set(number)

    await process.send_many(range(500))
    async with working(app):
        await until(lambda: len(seen) == 500)
    assert set(seen) == {None}


@pytest.mark.parametrize("kind", ["ends", "swallows", "thread"])
def test_a_function_that_takes_too_long_is_told_and_its_record_goes_on(
    bootstrap_servers: str,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.worker.runner._CANCEL_GRACE_S", 0.1)
    app = headrace.App(bootstrap_servers)
    name, attempts, may_end = unique("late"), [], threading.Event()

    async def on_the_loop(delivery: headrace.Delivery, text: str) -> None:
        attempts.append(delivery.attempt)
        while delivery.attempt == 1 and not may_end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if kind == "ends":
                    raise

    def in_a_thread(delivery: headrace.Delivery, text: str) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            may_end.wait(60)

    task: Task[Any, Any] = app.task(name=name, timeout=0.2, retry=RETRY, concurrency=2)(
        in_a_thread if kind == "thread" else on_the_loop
    )

    @story
    async def run() -> None:
        await task.send("x")
        async with working(app) as worker:
            one = runner(worker, name)
            await until(lambda: attempts == [1, 2] and one.counts["accepted"] == 1)
            # the slot of a function that goes on is busy
            assert len(one.running) == (kind != "ends")
            may_end.set()
            await until(lambda: not one.running)
            assert one.counts["late"] == (kind != "ends")

    run()
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert "attempt 1 of 2: TimedOut: not done in 0.2 s" in lines
    assert ("its record was given up: the result is not used" in lines) == (kind != "ends")


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_a_pause_does_not_wait_for_functions_that_began_before_it(
    bootstrap_servers: str, timeout: float | None
) -> None:
    app = headrace.App(bootstrap_servers)
    name, may_end, is_away, done = unique("probed"), threading.Event(), True, set[int]()

    @app.task(name=name, timeout=timeout, concurrency=3, breaker=Breaker(pause=0.1), retry=RETRY)
    def process(number: int) -> None:
        if number == 0:
            may_end.wait(60)
        elif is_away:
            raise OSError("away")
        done.add(number)

    @story
    async def run() -> None:
        nonlocal is_away
        await process.send(0)
        async with working(app) as worker:
            one = runner(worker, name)
            await until(lambda: one.running)
            await process.send_many(range(1, 31))
            await until(lambda: one.breaker_state != "closed")
            is_away = False
            await until(lambda: len(done) == 30)
            await until(lambda: one.breaker_state == "closed")
            may_end.set()

    run()


@story
async def test_what_waits_when_a_pause_begins_goes_back(bootstrap_servers: str) -> None:
    app = headrace.App(bootstrap_servers)
    name = unique("opens")

    @app.task(name=name, concurrency=1, breaker=Breaker(of=20, pause=3600))
    async def process(number: int) -> None:
        if number >= 500:  # so many are taken ahead
            raise OSError("away")

    await process.send_many(range(1000))
    async with working(app) as worker:
        one = runner(worker, name)
        await until(lambda: one.breaker_state == "open" and not one._slots)
        assert one.counts["failed"] == 11


@story
async def test_a_worker_joins_again_while_a_function_hangs(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = headrace.App(bootstrap_servers)
    name, may_end, done = unique("joins"), threading.Event(), list[int]()
    poll, problems = ShareConsumer.poll, list[ClientError]()

    @app.task(name=name, timeout=0.1, retry=0, concurrency=2)
    def process(number: int) -> None:
        if number == 0:
            may_end.wait(60)
        done.append(number)

    async def failing(queue: ShareConsumer, *args: Any) -> list[headrace.Record]:
        if problems:
            raise problems.pop()
        return await poll(queue, *args)

    monkeypatch.setattr(ShareConsumer, "poll", failing)
    await process.send(0)
    async with working(app) as worker:
        one = runner(worker, name)
        await until(lambda: one.counts["dead_letters"])
        for number in (1, 2):
            problems.append(ClientError("the group is gone"))
            await until(lambda: one.problem == "the group is gone")
            await process.send(number)
            await until(lambda: done[-1:] == [number])  # noqa: B023
            assert one.problem is None
        may_end.set()
    lines = [line for line in caplog.messages if "the group is gone" in line]
    assert lines == [f"task '{name}': the group is gone; it goes on in 1 s"] * 2


@pytest.mark.parametrize("place", ["loop", "thread", "process"])
def test_a_function_keeps_its_record_for_longer_than_a_lock(
    bootstrap_servers: str, place: str
) -> None:
    app = headrace.App(bootstrap_servers)
    name = share_from_earliest(
        bootstrap_servers, unique("long"), share_record_lock_duration_ms="2000"
    )
    sleep = functions.sleep_for.function

    async def sleep_on_the_loop(seconds: float) -> None:
        await asyncio.sleep(seconds)

    task: Task[Any, Any] = app.task(name=name, run_in=place)(
        sleep_on_the_loop if place == "loop" else sleep
    )

    @story
    async def run() -> None:
        async with working(app) as worker, working(app) as other:
            await task.send(5.0)
            counts = [runner(each, name).counts for each in (worker, other)]
            await until(lambda: sum(each["accepted"] for each in counts))
        assert sum(each["accepted"] for each in counts) == 1
        assert not any(each["late"] for each in counts)

    run()


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_function_that_forks_ends_its_record_once(bootstrap_servers: str, place: str) -> None:
    app = headrace.App(bootstrap_servers)
    name, done = unique("forks"), []

    def fork(number: int) -> None:
        if os.fork():
            done.append(number)

    async def fork_on_the_loop(number: int) -> None:
        fork(number)

    task: Task[Any, Any] = app.task(name=name)(fork if place == "thread" else fork_on_the_loop)

    @story
    async def run() -> None:
        await task.send_many(range(3))
        async with working(app) as worker:
            counts = runner(worker, name).counts
            await until(lambda: counts["accepted"] == 3)
            await task.send(3)
            await until(lambda: counts["accepted"] == 4)

    run()
    assert sorted(done) == [0, 1, 2, 3]


def process_app(bootstrap: str, task: Task[Any, Any], **options: Any) -> headrace.App:
    """Return an app with a task whose function is that of :mod:`tests.worker.functions`."""
    app = headrace.App(bootstrap)
    app.task(name=unique(task.name), run_in="process", **options)(task.function)
    return app


@story
async def test_records_of_a_process_that_dies_go_on_at_once(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The pause of the policy is for failures of the function.
    app = process_app(
        bootstrap_servers, functions.die_first, retry=headrace.Retry(3, first=3600), concurrency=1
    )
    ((name, task),) = app.tasks.items()
    await task.send("segv")
    async with working(app) as worker:
        counts = runner(worker, name).counts
        await until(lambda: counts["accepted"] == 1)
    assert counts["failed"] == 1
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert f"task '{name}': process " in lines
    assert "has ended: killed by SIGSEGV; another begins in 0.1 s" in lines
    assert "attempt 1 of 3: ProcessDied: its process has ended: killed by SIGSEGV" in lines


def test_a_timeout_ends_the_process_and_begins_when_there_is_one(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_IMPORT_S", "3")
    app = process_app(
        bootstrap_servers, functions.sleep_first, timeout=2, retry=RETRY, concurrency=1
    )
    ((name, task),) = app.tasks.items()

    @story
    async def run() -> None:
        await task.send("x")
        async with working(app) as worker:
            counts = runner(worker, name).counts
            await until(lambda: counts["accepted"] == 1)
            assert (counts["failed"], counts["late"]) == (1, 0)

    run()


@story
async def test_two_workers_share_the_partitions_of_a_task(bootstrap_servers: str) -> None:
    name, begun = unique("shared"), set[int]()
    apps = [headrace.App(bootstrap_servers) for _ in range(2)]
    for number, app in enumerate(apps):

        @app.task(name=name, partitions=2)
        async def process(call: int, worker: int = number) -> None:
            begun.add(worker)

    first, second = apps
    async with working(first) as worker:
        await first.tasks[name].send(0)
        await until(lambda: runner(worker, name).counts["accepted"])
        async with working(second):
            call = 0
            while len(begun) < 2:
                call += 1
                await first.tasks[name].options(key=f"{call}").send(call)
                await asyncio.sleep(0.1)


@story
async def test_the_configs_of_a_group_are_one_change_where_the_broker_knows_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown: set[str] = set()
    changes: list[list[str]] = []

    async def describe_configs(*_: Any, **__: Any) -> dict[str, list[Any]]:
        return {"pack": []}

    async def alter_configs(_: Any, __: Any, ___: str, configs: dict[str, str]) -> None:
        changes.append(list(configs))
        if unknown & configs.keys():
            raise RequestRefused("changing configs", ErrorCode.INVALID_CONFIG)

    monkeypatch.setattr(group, "describe_configs", describe_configs)
    monkeypatch.setattr(group, "alter_configs", alter_configs)
    app = headrace.App("127.0.0.1:1")

    @app.task()
    async def pack(number: int) -> None: ...

    async with Cluster("127.0.0.1:1") as cluster:
        await group._configure_group(cluster, pack, is_new=True)
        ((*names,),) = changes
        assert len(names) == 5
        unknown.add("errors.deadletterqueue.topic.name")
        await group._configure_group(cluster, pack, is_new=True)
        assert changes[1:] == [names, *([name] for name in names)]
        unknown.add("share.auto.offset.reset")
        with pytest.raises(RequestRefused):
            await group._configure_group(cluster, pack, is_new=True)


@story
async def test_two_tasks_in_one_group_are_refused(bootstrap_servers: str) -> None:
    group = unique("group")
    names = unique("first"), unique("second")
    apps = [headrace.App(bootstrap_servers) for _ in names]
    for app, name in zip(apps, names, strict=True):

        @app.task(name=name, group=group)
        async def process(number: int) -> None: ...

    first, second = apps
    async with working(first) as worker:
        await first.tasks[names[0]].send(1)
        await until(lambda: runner(worker, names[0]).counts["accepted"])
        with pytest.raises(ClientError) as caught:
            await second.worker().run()
        async with working(first):  # another worker of the same task
            pass
    assert str(caught.value) == (
        f"task '{names[1]}' and task '{names[0]}' of worker {worker.name} have one group, "
        f"'{group}', whose records go to either: give one another group, or stop that worker"
    )
    await second.worker().runners[0].prepare()  # the first one has ended


@story
async def test_a_group_of_another_type_is_refused(bootstrap_servers: str) -> None:
    app = headrace.App(bootstrap_servers)
    name = unique("task")

    @app.task(name=name)
    async def process(number: int) -> None: ...

    await process.send(1)
    with consumer(bootstrap_servers, name) as member:
        member.subscribe([name])
        while member.poll(0.1) is None:
            pass
        with pytest.raises(ClientError) as caught:
            await app.worker().run()
    assert str(caught.value) == (
        f"task '{name}' needs a share group, and '{name}' is a classic group: give the task "
        "another group"
    )
