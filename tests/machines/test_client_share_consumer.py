"""A share consumer whose brokers are a model in memory."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client.errors import ClientError, RequestRefused
from headrace.client.records import Record
from headrace.client.share.consumer import OutcomesFailed, ShareConsumer, Undecodable
from headrace.client.share.range_consumer import RangeConsumer
from headrace.client.share.types import Acknowledgement, AcknowledgeType
from headrace.protocol.errors import ErrorCode

from .share_brokers import Brokers, Connection, JumpingLoop, on_jumping_loop

CONF = {"bootstrap.servers": "node1:1,node2:1", "group.id": "g", "socket.timeout.ms": 5000}
LIMIT_S = 600


def story(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test with brokers, which have the topic ``orders`` of two partitions. Each has
    another leader.
    """

    @functools.wraps(play)
    def run(**fixtures: Any) -> None:
        patches, loop = pytest.MonkeyPatch(), JumpingLoop()
        brokers = Brokers(loop, random.Random(0))
        on_jumping_loop(brokers, patches)
        brokers.create("orders", 2)
        try:
            loop.run_until_complete(asyncio.wait_for(play(brokers, **fixtures), LIMIT_S))
        finally:
            patches.undo()
            asyncio.set_event_loop(None)
            loop.close()
        assert not loop.failures

    _, *fixtures = inspect.signature(play).parameters.values()
    run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
    return run


def consumer(**options: Any) -> ShareConsumer:
    return ShareConsumer(CONF, ["orders"], **options)


@story
async def test_a_poll_rests_in_its_last_millisecond(brokers: Brokers) -> None:
    """It would look again and again for records, and nothing else would run."""
    async with consumer() as queue:
        for node_id in (1, 2):
            brokers.stall(node_id, 1000)
        for timeout in (0, 0.0005):
            assert await queue.poll(timeout=timeout) == []


@story
async def test_a_close_that_is_cancelled_closes_the_connections(brokers: Brokers) -> None:
    """A connection that stays open keeps the locks of its share session."""
    for turns in range(1, 30):
        queue = consumer()
        await queue.open()
        closing = asyncio.create_task(queue.close())
        brokers.loop.after(turns, closing.cancel)
        await asyncio.wait([closing])
        assert not brokers.connections


@story
async def test_records_that_were_lost_before_a_poll_has_taken_them(brokers: Brokers) -> None:
    """Another member may have them: this one does not hand them out."""
    async with consumer() as queue:
        brokers.produce("orders", 0, 3)
        polling = asyncio.create_task(queue.poll())
        await asyncio.sleep(0)
        polling.cancel()
        await asyncio.sleep(1)
        assert len(brokers.held_by(queue._ranges.member_id)) == 3
        brokers.cut(1)
        await asyncio.sleep(2)  # the next renewal tells it
        assert [record.delivery_count for record in await queue.poll()] == [2, 2, 2]


def refuse(value: bytes) -> int:
    raise ValueError("it is not a number")


async def undecodable(queue: ShareConsumer) -> Record:
    with pytest.raises(Undecodable) as error:
        await queue.poll()
    return error.value.record


@story
async def test_records_that_do_not_decode_count_in_bytes(brokers: Brokers) -> None:
    options = {"value": refuse, "on_undecodable": "raise", "max_held_bytes": 3}
    async with consumer(**options) as queue:
        brokers.produce("orders", 0, 9)
        records = [await undecodable(queue) for _ in range(3)]
        assert await queue.poll() == []
        await queue.accept(records)
        assert (await undecodable(queue)).offset == 3


@story
async def test_records_that_do_not_decode_are_rejected_together(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serve, requests = brokers.serve, Counter[str]()

    async def counted(connection: Connection, request: Any) -> Any:
        requests[type(request).__name__] += 1
        return await serve(connection, request)

    monkeypatch.setattr(brokers, "serve", counted)
    async with consumer(value=refuse) as queue:
        brokers.produce("orders", 0, 100)
        assert await queue.poll() == []
        assert set(brokers.outcomes.values()) == {AcknowledgeType.REJECT}
        assert len(brokers.outcomes) == 100
        assert requests["ShareAcknowledgeRequest"] == 1
    assert len(caplog.messages) <= 1  # none if another test has just logged such a line


@story
async def test_a_record_that_is_lost_before_it_is_raised(brokers: Brokers) -> None:
    """Its caller has never seen it: neither is its loss told, nor is it raised."""
    lost: list[Record] = []
    options = {"value": refuse, "on_undecodable": "raise", "on_lock_lost": lost.extend}
    async with consumer(**options) as queue:
        brokers.produce("orders", 0, 2)
        first = await undecodable(queue)
        brokers.cut(1)
        await asyncio.sleep(2)
        assert lost == [first]
        assert [(await undecodable(queue)).delivery_count for _ in range(2)] == [2, 2]


@story
async def test_a_record_that_is_named_twice_is_ended_once(brokers: Brokers) -> None:
    async with consumer() as queue:
        brokers.produce("orders", 0, 3)
        first, second, third = await queue.poll()
        await queue.renew([first, first, third])
        await queue.accept([first, second, first])
        await queue.release([third, third], delay=1)
        with pytest.raises(OutcomesFailed, match="1 of 1 outcomes failed"):
            await queue.accept([first, first])


@pytest.mark.parametrize(
    "code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]
)
@story
async def test_a_broker_that_refuses_outcomes_says_nothing_about_those_of_another(
    brokers: Brokers, code: ErrorCode
) -> None:
    async with RangeConsumer("node1:1,node2:1", "g", ["orders"]) as member:
        outcomes: list[Acknowledgement] = []
        for number in (0, 1):
            brokers.produce("orders", number, 1)
            (run,) = (await member.acquire()).ranges
            ends = run.first_offset, run.last_offset
            outcomes.append(
                Acknowledgement("orders", number, *ends, AcknowledgeType.ACCEPT, run.topic_id)
            )
        brokers.refuse(1, code, is_of_request=True)
        assert await member.acknowledge(outcomes) == outcomes[1:]
        assert not member.held()


@story
async def test_an_error_after_records_were_acquired_does_not_keep_them_from_the_caller(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are locked. The next call raises the error."""
    brokers.move_leader("orders", 1)
    async with consumer() as queue:
        await queue.poll(timeout=0)  # a session with both partitions
        brokers.produce("orders", 0, 3)
        brokers.move_leader("orders", 1)

        async def refuse_metadata(_: object) -> None:
            raise RequestRefused("topics", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        monkeypatch.setattr(queue._ranges.cluster, "metadata", refuse_metadata)
        records: list[Record] = []
        refusals = 0
        for _ in range(4):
            try:
                records += await queue.poll(timeout=0.1)
            except RequestRefused:
                refusals += 1
        assert len(records) == 3
        assert refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda queue, _: queue.poll(timeout=None), "timeout is None, not seconds or a timedelta"),
        (lambda queue, _: queue.poll(timeout=float("nan")), "timeout is nan, not from 0 to inf"),
        (lambda queue, _: queue.poll("5"), "max_records is '5', not a whole number from 1"),
        (lambda queue, _: queue.poll(0), "max_records is 0, not a whole number from 1"),
        (lambda queue, _: queue.poll(2.5), "max_records is 2.5, not a whole number"),
        (lambda queue, record: queue.release(record, delay=None), "delay is None, not seconds"),
        (lambda queue, record: queue.release(record, delay=1e6), "not from 0 to 86400 seconds"),
        (lambda queue, _: queue.accept(None), "NoneType is not a record: pass what poll"),
        (lambda queue, record: queue.accept([record, 5]), "int is not a record: pass what poll"),
    ],
)
@story
async def test_arguments_of_another_type(
    brokers: Brokers, call: Callable[[ShareConsumer, Record], Any], message: str
) -> None:
    async with consumer() as queue:
        brokers.produce("orders", 0, 1)
        (record,) = await queue.poll()
        with pytest.raises(ClientError, match=message):
            await call(queue, record)
        await queue.accept(record)


@story
async def test_partitions_of_another_type(brokers: Brokers) -> None:
    async with consumer() as queue:
        for partitions, name in (("orders", "'o'"), ([5], "5"), ([("orders", "0")], "'0'")):
            for call in (queue.pause, queue.resume):
                with pytest.raises(ClientError, match=f"{name}.* is not a partition: give them as"):
                    call(partitions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conf": None}, "conf is of type NoneType, not a dict of settings"),
        ({"conf": [("sasl.password", "secret")]}, "conf is of type list, not a dict of settings"),
        ({"topics": None}, "no topic given: name one"),
        ({"topics": [5]}, "a topic is 5, not a name"),
        ({"start": [1]}, "start is .1., not 'earliest', 'latest', or seconds ago"),
        ({"on_lock_lost": 5}, "on_lock_lost is 5, not a function of records"),
        ({"max_held_records": None}, "max_held_records is None, not a whole number"),
        ({"max_held_bytes": 0.5}, "max_held_bytes is 0.5, not a whole number"),
    ],
)
def test_options_of_another_type(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        ShareConsumer(**{"conf": CONF, "topics": ["orders"], **options})


@pytest.mark.parametrize("is_accepting", [False, True])
@story
async def test_records_that_are_lost_together_are_logged_in_one_line(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, is_accepting: bool
) -> None:
    brokers.move_leader("orders", 1)
    caplog.set_level(logging.INFO, "headrace.client")
    async with consumer() as queue:
        records: list[Record] = []
        for number in (0, 1):
            brokers.produce("orders", number, 2)
            records += await queue.poll()
        caplog.clear()
        if is_accepting:
            brokers.lose_answer(1)
            with pytest.raises(OutcomesFailed):
                await queue.accept(records[0])
        else:
            brokers.cut(1)
            await asyncio.sleep(2)
        assert len(await queue.poll()) == 3 + (not is_accepting)
    line, last_line = caplog.messages
    assert last_line.endswith("in order again")
    assert line.startswith(
        "share group g: 4 records of orders-0, orders-1 are not held here any more, and are "
        "delivered again to some member: "
    )
    assert line.count("node1:1") == 1


@story
async def test_the_trouble_with_a_broker_ends_when_others_lead_its_partitions(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.client")
    async with consumer() as queue:
        brokers.kill(2)
        brokers.topics["orders"].partitions[1].leader = -1
        assert await queue.poll(timeout=5) == []
        (line,) = caplog.messages
        assert line.startswith("share session of group g with broker 2: ")
        brokers.move_leader("orders", 1)
        brokers.produce("orders", 1, 1)
        assert len(await queue.poll()) == 1
        assert caplog.messages[1].endswith("in order again")
        brokers.cut(1)
        await asyncio.sleep(2)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


@pytest.mark.parametrize("delays", [False, True])
@story
async def test_a_delayed_release_that_is_cancelled_goes_on(brokers: Brokers, delays: bool) -> None:
    """The record would be renewed for ever: its caller believes to have released it."""
    brokers.delays = delays
    async with consumer() as queue:
        brokers.produce("orders", 0, 1)
        (record,) = await queue.poll()
        releasing = asyncio.create_task(queue.release(record, delay=2))
        await asyncio.sleep(0)
        releasing.cancel()
        assert await queue.poll() == []
        assert [record.delivery_count for record in await queue.poll(timeout=5)] == [2]


@story
async def test_slow_tasks_that_share_a_consumer_hold_what_they_process(brokers: Brokers) -> None:
    """They end together, so that the time between two polls tells nothing about the work."""
    brokers.produce("orders", 0, 1000)

    async def work() -> None:
        while records := await queue.poll(max_records=1):
            await asyncio.sleep(1)
            await queue.accept(records)

    async with consumer() as queue:
        tasks = [asyncio.create_task(work()) for _ in range(10)]
        for _ in range(20):
            await asyncio.sleep(0.5)
            assert queue.held <= 10
        for task in tasks:
            task.cancel()


@story
async def test_a_consumer_that_needs_little_time_for_its_records_takes_batches(
    brokers: Brokers,
) -> None:
    brokers.move_leader("orders", 1)
    async with consumer() as queue:
        for _ in range(2):
            brokers.produce("orders", 0, 1000)
        for held in (100, 900):
            await asyncio.sleep(0.05)
            records = await queue.poll(100)
            assert queue.held == held
            await queue.accept(records)
