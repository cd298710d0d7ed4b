"""What ``app.test()`` promises to the tests of applications."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import headrace
from headrace.client.errors import ClientError
from headrace.worker.app import App
from headrace.worker.task import Task
from tests.support import story, wait_until


@dataclass
class Order:
    number: int
    items: list[str]


def with_tasks(app: App, packed: list[object]) -> tuple[Task[..., Any], Task[..., Any]]:
    @app.task(retry=2, timeout=5)
    async def pack(order: Order, express: bool = False) -> None:
        if not order.items:
            raise headrace.Reject("nothing to pack")
        if order.number < 0:
            raise ValueError("a negative number")
        packed.append((order, express))

    @app.task(retry=0)
    def ship(number: int) -> None:
        packed.append(number)

    return pack, ship


def test_records_are_processed_when_they_are_sent() -> None:
    app, packed = App("127.0.0.1:1"), list[object]()
    pack, ship = with_tasks(app, packed)

    async def order() -> None:
        await pack.send(Order(1, ["chair"]), express=True)
        await pack.send(Order(2, []), delay=3600)
        await pack.send(Order(-3, ["lamp"]))

    with app.test() as trial:
        asyncio.run(order())
        ship.send_sync(7)
        assert packed == [(Order(1, ["chair"]), True), 7]
        assert [call["order"].number for call in trial.sent(pack)] == [1, 2, -3]
        assert trial.sent(ship) == [{"number": 7}]
        rejected, failed = trial.dead_letters(pack)
        assert (rejected.reason, rejected.attempts) == ("nothing to pack", 1)
        assert (failed.reason, failed.attempts) == ("ValueError: a negative number", 3)
        assert failed.arguments == {"order": Order(-3, ["lamp"])}
        assert trial.dead_letters(ship) == []


def test_functions_run_in_the_process_of_the_test_and_leave_no_threads() -> None:
    app, processes = App("127.0.0.1:1"), list[int]()

    @app.task(run_in="process")
    def compute(number: int) -> None:
        processes.append(os.getpid())

    with app.test():
        for number in range(3):
            compute.send_sync(number)
        asyncio.run(compute.send(3))
        assert processes == [os.getpid()] * 4
        wait_until(
            lambda: not any("compute" in thread.name for thread in threading.enumerate()),
            10,
            "the ends of threads",
        )


def test_async_functions_may_wait_for_calls_that_they_send() -> None:
    app, shipped = App("127.0.0.1:1"), list[int]()

    @app.task()
    async def order(number: int) -> None:
        pack.send_sync(number)

    @app.task()
    async def pack(number: int) -> None:
        ship.send_sync(number)

    @app.task()
    async def ship(number: int) -> None:
        shipped.append(number)

    with app.test() as trial:
        order.send_sync(1)
        asyncio.run(order.send(2))
        assert shipped == [1, 2]
        assert trial.dead_letters(order) == []


@story
async def test_a_worker_processes_records() -> None:
    app, packed = App("127.0.0.1:1"), list[object]()
    pack, ship = with_tasks(app, packed)
    async with app.test(worker=True) as trial:
        for number in (1, -3):
            await pack.send(Order(number, ["chair"]), delay=3600)
        await asyncio.to_thread(ship.send_sync, 7)
        await trial.drained(timeout=60)
        assert sorted(map(str, packed)) == sorted(map(str, [(Order(1, ["chair"]), False), 7]))
        (failed,) = trial.dead_letters(pack)
        assert (failed.reason, failed.attempts) == ("ValueError: a negative number", 3)
        assert trial.sent(ship) == [{"number": 7}]


def test_options_of_a_call_add_to_each_other() -> None:
    app = App("127.0.0.1:1")

    @app.task()
    def wait(delay: int) -> None: ...

    first = wait.options(key="k", headers=[("a", b"1")])
    record = first.options(headers=[("b", b"2")])._record((), {"delay": 5, "expires": 60})
    assert (record.key, record.value) == (b"k", b'{"delay":5}')  # the delay is the function's own
    names = [name for name, _ in record.headers]
    assert names == ["headrace-task", "headrace-envelope", "a", "b", "headrace-expires"]
    assert wait._record((5,), {}).key is None


def test_a_task_is_a_function() -> None:
    app, packed = App("127.0.0.1:1"), list[object]()
    pack, ship = with_tasks(app, packed)
    asyncio.run(pack(Order(1, ["chair"])))
    ship(2)
    assert packed == [(Order(1, ["chair"]), False), 2]


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    app = App("127.0.0.1:1")
    _, ship = with_tasks(app, [])
    with app.test():
        with pytest.raises(TypeError, match=r"ship\(\): missing a required argument: 'number'"):
            ship.send_sync()
        with pytest.raises(TypeError, match="unexpected keyword"):
            ship.send_sync(1, colour="red")
        with pytest.raises(TypeError, match="no form for an argument of type object"):
            ship.send_sync(object())


def test_tasks_that_cannot_be_are_refused() -> None:
    app = App("127.0.0.1:1")

    @app.task()
    def pack(number: int) -> None: ...

    with pytest.raises(ClientError, match="two tasks 'pack'"):

        @app.task(name="pack")
        def other(number: int) -> None: ...

    with pytest.raises(ClientError, match="have one group, 'pack'"):

        @app.subscriber("orders", group="pack")
        def read(order: bytes) -> None: ...

    with pytest.raises(ClientError, match="takes 2 arguments from a record"):

        @app.subscriber("orders")
        def read_two(order: bytes, key: bytes) -> None: ...

    with pytest.raises(ClientError, match=r"\*numbers cannot come from a record"):

        @app.task()
        def add(*numbers: int) -> None: ...

    with pytest.raises(ClientError, match=r"'a/b' names no topic"):

        @app.task(name="a/b")
        def slash() -> None: ...


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"retry": -1}, "retry is -1, not a whole number from 0"),
        ({"retry": "8"}, "retry is '8', not a whole number from 0"),
        ({"concurrency": 0}, "concurrency is 0, not a whole number from 1"),
        ({"concurrency": -3}, "concurrency is -3, not a whole number from 1"),
        ({"partitions": 0}, "partitions is 0, not a whole number from 1"),
        ({"breaker": 3}, "breaker is 3, not a headrace.worker.breaker.Breaker"),
        ({"retries": 8}, "there is no option retries: did you mean retry?"),
        ({"run_in": "proces"}, "run_in is 'proces'; an async function runs in 'loop'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ClientError, match=complaint):
        App("127.0.0.1:1").task(**options)(asyncio.sleep)


def test_a_decorator_without_its_parentheses_or_topics_is_refused() -> None:
    app = App("127.0.0.1:1")
    with pytest.raises(ClientError, match=r"write @app.task\(\), with parentheses"):

        @app.task
        def pack(number: int) -> None: ...

    with pytest.raises(ClientError, match="read: no topic given: name one"):

        @app.subscriber()
        def read(order: bytes) -> None: ...


@pytest.mark.broker
@pytest.mark.parametrize("is_closed", [True, False])
def test_an_app_goes_on_with_the_broker_of_another_test(is_closed: bool) -> None:
    app = App()
    _, ship = with_tasks(app, [])
    for number in range(2):
        with headrace.Broker() as broker:
            app.connect_to(broker.bootstrap_servers)
            ship.send_sync(number)
            if is_closed:
                app.close()
            assert len(broker.records("ship")) == 1
    app.close()
