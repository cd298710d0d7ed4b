"""Attempts, delays and dead letters of tasks, on each target."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ResourceType

import headrace
from headrace import App, Delivery, Reject, Retry
from headrace.cli.main import main
from headrace.client.share.consumer import ShareConsumer
from headrace.protocol import dead_letters
from headrace.protocol.task_headers import DUE_MS
from headrace.worker import endings, runner
from headrace.worker.breaker import Breaker
from headrace.worker.runner import Runner
from headrace.worker.task import Task
from tests.clients.confluent import PATIENCE_S, create_topic, produce, set_configs
from tests.support import story, unique

QUICK = Retry(4, first=0.05, factor=1, jitter=0)


@pytest.fixture
def app(bootstrap_servers: str) -> Iterator[App]:
    with App(bootstrap_servers) as app:
        yield app


def new_task(app: App, **options: Any) -> Callable[[Callable[..., Any]], Task[..., Any]]:
    """Decorate a function as a task with a name of its own."""
    return app.task(name=unique("task"), **options)


@asynccontextmanager
async def working(app: App, task: Task[..., Any]) -> AsyncIterator[Runner]:
    """Have a worker process the records of a task within the block."""
    worker = app.worker([task.name], drain_timeout=5)
    run = asyncio.create_task(worker.run())
    try:
        yield worker.runners[0]
        assert not run.done(), run
    finally:
        worker.stop()
        await run


async def until(condition: Callable[[], object], what: object = "") -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        await asyncio.sleep(0.02)


def read(bootstrap_servers: str, topic: str, number: int) -> list[Any]:
    """Return the first records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": unique("reader"),
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 32 << 20,
        }
    )
    consumer.subscribe([topic])
    messages: list[Any] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(messages) < number and time.monotonic() < deadline_s:
        if (message := consumer.poll(0.5)) is not None and message.error() is None:
            messages.append(message)
    consumer.close()
    return messages


def length(bootstrap_servers: str, topic: str) -> int:
    """Return the number of records of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": unique("reader")})
    partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
    total = 0
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE_S)
        total += high - low
    consumer.close()
    return total


def make_group(bootstrap_servers: str, group_id: str, delivery_count_limit: int) -> None:
    """Make a group with a limit of its own."""
    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        group_id,
        share_auto_offset_reset="earliest",
        share_delivery_count_limit=str(delivery_count_limit),
    )


@story
async def test_attempts_are_exact_beyond_the_limit_of_deliveries(
    app: App, bootstrap_servers: str
) -> None:
    attempts: list[int] = []

    @new_task(app, retry=Retry(9, first=0.05, factor=1))
    async def task(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        raise ValueError(f"failure {delivery.attempt}")

    # Somebody else has made the group, with a limit of its own.
    make_group(bootstrap_servers, task.group, 3)
    async with working(app, task) as worker:
        await task.send()
        await until(lambda: worker.counts["dead_letters"], attempts)
    assert attempts == list(range(1, 10))
    (message,) = read(bootstrap_servers, str(task.dead_letters), 1)
    headers = dict(message.headers())
    assert headers[dead_letters.ATTEMPT] == b"9"
    assert headers[dead_letters.MESSAGE] == b"ValueError: failure 9"
    assert length(bootstrap_servers, str(task.dead_letters)) == 1


@story
async def test_a_worker_that_ends_in_a_records_last_delivery_does_not_end_the_record(
    app: App, bootstrap_servers: str
) -> None:
    """The delivery count limit would archive it: so no attempt is made in the last delivery."""
    attempts: list[int] = []

    @new_task(app, retry=QUICK)
    async def task(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)

    make_group(bootstrap_servers, task.group, 2)
    await task.send()
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": task.group}
    async with headrace.ShareConsumer(conf, task.topics) as queue:  # a worker that dies
        assert len(await queue.poll(1, PATIENCE_S)) == 1
    async with working(app, task) as worker:
        await until(lambda: attempts, dict(worker.counts))
        await until(lambda: worker.counts["accepted"] == 2)
    assert attempts == [2]
    assert length(bootstrap_servers, task.later) == 1


@story
async def test_a_record_whose_attempts_never_end_becomes_a_letter(
    app: App, bootstrap_servers: str
) -> None:
    attempts: list[int] = []

    @new_task(app, retry=0)
    async def task(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)

    make_group(bootstrap_servers, task.group, 2)
    await task.send()
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": task.group}
    async with headrace.ShareConsumer(conf, task.topics) as queue:
        assert len(await queue.poll(1, PATIENCE_S)) == 1
    async with working(app, task) as worker:
        await until(lambda: worker.counts["dead_letters"])
    assert attempts == []
    (message,) = read(bootstrap_servers, str(task.dead_letters), 1)
    assert b"none of 1 attempts has ended" in dict(message.headers())[dead_letters.MESSAGE]


@story
async def test_a_record_is_not_processed_before_its_time_and_its_attempts_are_exact(
    app: App, bootstrap_servers: str
) -> None:
    began: list[tuple[int, int, float]] = []

    @new_task(app, retry=QUICK)
    async def task(number: int, delivery: Delivery) -> None:
        began.append((number, delivery.attempt, time.time()))
        if delivery.attempt == 1:
            raise ValueError("once")

    async with working(app, task):
        sent_s = time.time()
        await task.send(1, delay=2)
        await task.send(2)
        await until(lambda: len(began) == 4, began)
    attempts = [(number, attempt) for number, attempt, _ in began]
    assert sorted(attempts) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert began[attempts.index((1, 1))][2] >= sent_s + 2
    assert length(bootstrap_servers, task.later) == 0


@story
async def test_a_long_delay_is_waited_for_in_a_topic_of_the_group(
    app: App, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HELD_S", 1.0)
    monkeypatch.setattr(endings, "HELD_S", 1.0)
    began: list[tuple[str, int, float]] = []

    @new_task(app, retry=QUICK)
    async def task(name: str, delivery: Delivery) -> None:
        began.append((name, delivery.attempt, time.time()))
        if name == "retried" and delivery.attempt == 1:
            raise Retry(after=3)

    async with working(app, task) as worker:
        await task.send("at once")
        await until(lambda: began)  # to join a group may take longer than the delays
        sent_s = time.time()
        await task.send("delayed", delay=4)
        await task.send("retried")
        await until(lambda: worker.counts["written_again"] == 2)
        await until(lambda: len(began) == 4, began)
        await until(lambda: worker.counts["accepted"] == 5)
    assert sorted((name, attempt) for name, attempt, _ in began) == [
        ("at once", 1),
        ("delayed", 1),
        ("retried", 1),
        ("retried", 2),
    ]
    times = {(name, attempt): at_s for name, attempt, at_s in began}
    assert times["delayed", 1] >= sent_s + 4
    assert times["retried", 2] >= times["retried", 1] + 3
    assert length(bootstrap_servers, task.later) == 2


@story
async def test_a_worker_that_stops_gives_back_what_waits_without_counting_an_attempt(
    app: App, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HELD_S", 60.0)
    began: list[tuple[int, float]] = []

    @new_task(app, retry=QUICK)
    async def task(delivery: Delivery) -> None:
        began.append((delivery.attempt, time.time()))

    sent_s = time.time()
    await task.send(delay=15)
    for _ in range(2):
        async with working(app, task) as worker:
            await until(lambda worker=worker: worker._waiting.attempts, began)  # type: ignore[misc]
    async with working(app, task):
        await until(lambda: began)
    ((attempt, at_s),) = began
    assert attempt == 1
    assert at_s >= sent_s + 15


@story
@pytest.mark.parametrize("at_most_once", [False, True])
async def test_what_waits_for_functions_that_hang_is_put_back_once_and_not_lost(
    app: App, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, at_most_once: bool
) -> None:
    monkeypatch.setattr(runner, "_STALLED_S", 0.05)
    deliveries = Counter[int]()
    may_end = asyncio.Event()

    @new_task(app, retry=0, concurrency=10, at_most_once=at_most_once)
    async def task(number: int, delivery: Delivery) -> None:
        deliveries[number] += delivery.record.delivery_count
        if number >= 500:
            await may_end.wait()

    make_group(bootstrap_servers, task.group, 3)
    release, released = ShareConsumer.release, Counter[int]()

    async def counted(queue: ShareConsumer, records: list[headrace.Record], **terms: Any) -> None:
        released.update(record.offset for record in records)
        await release(queue, records, **terms)

    monkeypatch.setattr(ShareConsumer, "release", counted)
    await task.send_many(range(500))  # so many are taken ahead
    async with working(app, task) as worker:
        await until(lambda: len(deliveries) == 500)
        await task.send_many(range(500, 1200))
        await until(lambda: released, dict(worker.counts))
        await asyncio.sleep(3)  # a record that is put back comes again
        may_end.set()
        await until(lambda: len(deliveries) == 1200, len(deliveries))
    assert set(released.values()) == {1}, released
    assert max(deliveries.values()) <= 2
    assert worker.counts["dead_letters"] == 0


@story
async def test_decisions_of_the_function(app: App, bootstrap_servers: str) -> None:
    attempts: list[tuple[str, int]] = []

    @new_task(app, retry=Retry(3, first=0.05, on=OSError, ignore=KeyError))
    async def task(how: str, delivery: Delivery) -> object:
        attempts.append((how, delivery.attempt))
        match how:
            case "raise reject":
                raise Reject("no such item")
            case "return reject":
                return Reject("no such item")
            case "raise retry" if delivery.attempt < 3:
                raise Retry(after=0.1)
            case "return retry" if delivery.attempt < 3:
                return Retry(after=0.1)
            case "ignore":
                raise KeyError(how)
            case "other":
                raise ValueError(how)
            case "return error":
                return ValueError("as a value")
        return None

    hows = ["raise reject", "return reject", "raise retry", "return retry", "ignore", "other"]
    hows.append("return error")
    async with working(app, task) as worker:
        for how in hows:
            await task.send(how)
        await until(lambda: worker.counts["accepted"] == len(hows), dict(worker.counts))
    assert sorted(attempts) == sorted(
        [(how, 1) for how in hows]
        + [(how, n) for how in ("raise retry", "return retry") for n in (2, 3)]
    )
    letters = read(bootstrap_servers, str(task.dead_letters), 3)
    reasons = sorted(dict(letter.headers())[dead_letters.MESSAGE] for letter in letters)
    assert reasons == [b"ValueError: other", b"no such item", b"no such item"]


@story
async def test_undecodable_and_expired_records(app: App, bootstrap_servers: str) -> None:
    numbers: list[int] = []

    @new_task(app, expires=0.5)
    async def task(number: int) -> None:
        numbers.append(number)

    await task.send(1)
    await task.send(2, expires=3600)
    produce(bootstrap_servers, task.topics[0], [b"no JSON"])
    await asyncio.sleep(0.6)  # the first one expires
    async with working(app, task) as worker:
        await until(lambda: worker.counts["accepted"] == 3, dict(worker.counts))
    assert numbers == [2]
    assert (worker.counts["expired"], worker.counts["failed"]) == (1, 1)
    (message,) = read(bootstrap_servers, str(task.dead_letters), 1)
    assert message.value() == b"no JSON"
    assert dict(message.headers())[dead_letters.EXCEPTION] == b"Undecodable"


@story
async def test_at_most_once_processes_a_record_once(app: App, bootstrap_servers: str) -> None:
    attempts: list[tuple[str, int]] = []

    @new_task(app, at_most_once=True, retry=5)
    async def task(how: str, delivery: Delivery) -> None:
        attempts.append((how, delivery.attempt))
        if how != "good":
            raise Retry(after=0) if how == "retry" else ValueError(how)

    async with working(app, task) as worker:
        await task.send("good")
        await task.send("bad")
        await task.send("retry")
        await until(lambda: worker.counts["dead_letters"] == 2, dict(worker.counts))
        await task.send("good", delay=1)
        await until(lambda: len(attempts) == 4, attempts)
    assert sorted(attempts) == [("bad", 1), ("good", 1), ("good", 1), ("retry", 1)]
    assert worker.counts["late"] == 0


@story
async def test_at_most_once_holds_for_a_record_that_is_written_again(
    app: App, bootstrap_servers: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HELD_S", 1.0)
    times: list[int] = []

    @new_task(app, at_most_once=True)
    async def task(number: int) -> None:
        times.append(number)

    async with working(app, task) as worker:
        await task.send(1, delay=3)
        await until(lambda: worker.counts["written_again"] == 1, dict(worker.counts))
    async with working(app, task):
        await task.send(2)
        await until(lambda: sorted(times) == [1, 2], times)
    # Apache Kafka counts the delivery to the first worker, if there was one: then once more.
    assert length(bootstrap_servers, task.later) == 1 or target == "kafka"


@story
async def test_records_too_large_to_be_written_again_leave_the_slots_to_others(
    app: App, bootstrap_servers: str
) -> None:
    numbers: list[int] = []

    @new_task(app, concurrency=2)
    async def task(number: int) -> None:
        numbers.append(number)

    async with working(app, task) as worker:
        await task.send(0)  # the topic is there
        assert task.envelope is not None
        due = (DUE_MS, b"%d" % ((time.time() + 3600) * 1000))
        large = b'{"number": 1}' + b" " * 3_000_000
        headers: list[Any] = [*task.envelope.headers, due]
        # The broker's limit is one of compressed batches.
        conf = {"compression.type": "gzip", "message.max.bytes": 20_000_000}
        producer = Producer({"bootstrap.servers": bootstrap_servers, **conf})
        for _ in range(4):
            producer.produce(task.name, large, headers=headers)
        assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
        await until(lambda: worker.counts["dead_letters"] == 4, dict(worker.counts))
        await task.send(2)
        await until(lambda: numbers == [0, 2], numbers)
    letters = read(bootstrap_servers, str(task.dead_letters), 4)
    reasons = {dict(letter.headers())[dead_letters.MESSAGE] for letter in letters}
    assert reasons == {
        b"too large to be written again: raise max.message.bytes of topic '%s', or set "
        b"compression.type" % task.later.encode()
    }


@story
async def test_without_a_queue_records_are_rejected(app: App, bootstrap_servers: str) -> None:
    @new_task(app, dead_letters=False, retry=0)
    async def task(number: int) -> None:
        raise ValueError(number)

    async with working(app, task) as worker:
        await task.send(1)
        await until(lambda: worker.counts["rejected"] == 1)
        await until(lambda: not worker._endings.is_busy)
    assert worker.counts["late"] == worker.counts["accepted"] == 0
    async with working(app, task) as worker:  # it does not come again
        await task.send(2)
        await until(lambda: worker.counts["rejected"] == 1)
        assert worker.counts["failed"] == 1


@story
async def test_a_letter_that_cannot_be_written_holds_its_record(
    app: App, bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    @new_task(app, retry=0)
    async def task(number: int) -> None:
        raise ValueError(number)

    queue = str(task.dead_letters)
    create_topic(bootstrap_servers, queue, max_message_bytes="10")
    async with working(app, task) as worker:
        for number in range(3):
            await task.send(number)
        await until(lambda: worker._endings.stuck == 3, dict(worker.counts))
        assert worker.counts["accepted"] == worker.counts["dead_letters"] == 0
        set_configs(bootstrap_servers, ResourceType.TOPIC, queue, max_message_bytes="100000")
        await until(lambda: worker.counts["accepted"] == 3, dict(worker.counts))
    lines = [line for line in caplog.messages if "the records stay" in line]
    assert len(lines) == 1
    assert length(bootstrap_servers, queue) == 3


@story
async def test_a_letter_of_a_large_record_goes_without_its_content(
    app: App, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers, unique("topic"), max_message_bytes="20000000")
    name = unique("task")

    async def fails(value: bytes) -> None:
        raise ValueError(len(value))

    fails.__name__ = name
    task = app.subscriber(topic, retry=0, dead_letters=f"dlq.{name}")(fails)
    create_topic(bootstrap_servers, str(task.dead_letters))
    produce(bootstrap_servers, topic, [b"x" * 10_000_000], **{"message.max.bytes": 20_000_000})
    async with working(app, task) as worker:
        await until(lambda: worker.counts["accepted"] == 1, dict(worker.counts))
    (message,) = read(bootstrap_servers, str(task.dead_letters), 1)
    assert message.value() is None
    assert dict(message.headers())[dead_letters.MESSAGE] == b"ValueError: 10000000"


@story
async def test_a_new_queue_takes_a_letter_of_ten_megabytes(
    app: App, bootstrap_servers: str
) -> None:
    topic = create_topic(bootstrap_servers, unique("topic"), max_message_bytes="20000000")
    name = unique("task")

    async def fails(value: bytes) -> None:
        raise ValueError(len(value))

    fails.__name__ = name
    task = app.subscriber(topic, retry=0, dead_letters=f"dlq.{name}")(fails)
    produce(bootstrap_servers, topic, [b"x" * 10_000_000], **{"message.max.bytes": 20_000_000})
    async with working(app, task) as worker:
        await until(lambda: worker.counts["accepted"] == 1, dict(worker.counts))
    (message,) = read(bootstrap_servers, str(task.dead_letters), 1)
    assert len(message.value()) == 10_000_000


@story
async def test_a_downstream_that_is_away_makes_no_dead_letters(
    app: App, bootstrap_servers: str
) -> None:
    """2,000 records, of which none succeeds for the first while."""
    is_away, done = True, set[int]()

    @new_task(
        app,
        retry=Retry(2, first=0.05, factor=1),
        breaker=Breaker(pause=0.2, max_pause=0.5),
    )
    async def task(number: int) -> None:
        if is_away:
            raise ConnectionError("the database is away")
        done.add(number)

    await task.send_many(range(2000))
    states = set[str]()
    async with working(app, task) as worker:
        breaker = worker.breaker
        deadline_s = time.monotonic() + 4
        while time.monotonic() < deadline_s or not states >= {"open", "probing"}:
            states.add(breaker.state(time.monotonic()))
            await asyncio.sleep(0.001)  # a probe takes about that long
        assert breaker.reason == "ConnectionError: the database is away"
        failed = worker.counts["failed"]
        is_away = False
        await until(lambda: len(done) == 2000, (len(done), dict(worker.counts)))
        await until(lambda: breaker.state(time.monotonic()) == "closed")
    assert worker.counts["dead_letters"] == 0
    assert failed < 400  # it has paused


@story
@pytest.mark.parametrize("decodes", [True, False])
async def test_records_in_front_that_always_fail_do_not_stop_the_others(
    app: App, bootstrap_servers: str, decodes: bool
) -> None:
    done = set[int]()

    @new_task(app, retry=0, concurrency=1, breaker=Breaker(pause=0.2, max_pause=0.4))
    async def task(number: int) -> None:
        if number < 10:
            raise ValueError("poison")
        done.add(number)

    if decodes:
        await task.send_many(range(10))
    else:
        produce(bootstrap_servers, task.topics[0], [b"no JSON"] * 10)
    await task.send_many(range(10, 30))
    async with working(app, task) as worker:
        await until(lambda: len(done) == 20, dict(worker.counts))
        await until(lambda: worker.counts["dead_letters"] == 10, dict(worker.counts))


def test_letters_are_shown_and_redriven_records_begin_anew(
    app: App, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    is_away, attempts = True, list[int]()

    @new_task(app, retry=Retry(5, first=0.05, factor=1), breaker=None)
    async def task(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if is_away:
            raise ValueError("\x1b[31mred\nsecond line")

    queue = str(task.dead_letters)
    make_group(bootstrap_servers, task.group, 3)

    async def fail() -> str:
        async with working(app, task) as worker:
            await task.send()
            await until(lambda: worker.counts["dead_letters"] == 1)
            await until(lambda: not worker._endings.is_busy)
            return worker._endings._worker

    async def succeed() -> None:
        async with working(app, task) as worker:
            await until(lambda: worker.counts["accepted"])

    def dlq(*arguments: str) -> str:
        assert main(["dlq", arguments[0], queue, *arguments[1:], "-b", bootstrap_servers]) == 0
        return capsys.readouterr().out

    name = asyncio.run(fail())
    shown = dlq("show")
    assert "\x1b" not in shown
    assert r"    ValueError: \x1b[31mred" in shown.splitlines()
    assert f"offset 0: ValueError in attempt 5, by worker {name}" in shown
    (row,) = json.loads(dlq("show", "-o", "json"))
    assert (row["attempt"], row["worker"], row["exception"]) == (5, name, "ValueError")
    assert row["traceback"].endswith("second line\n")
    assert row["source_topic"] == task.later  # it was written again after its deliveries
    is_away = False
    attempts.clear()
    dlq("redrive", "--yes")
    asyncio.run(succeed())
    assert attempts == [1]
    assert length(bootstrap_servers, queue) == 1  # the broker has written no second one


@story
async def test_records_that_wait_for_long_do_not_keep_others_behind_them_from_their_time(
    app: App, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More wait than the broker tracks at once."""
    for module in (runner, endings):
        monkeypatch.setattr(module, "HELD_S", 1.0)
    monkeypatch.setattr(runner, "_CARE_INTERVAL_S", 0.5)
    numbers: list[int] = []

    @new_task(app)
    async def task(number: int) -> None:
        numbers.append(number)

    set_configs(
        bootstrap_servers,
        ResourceType.GROUP,
        task.group,
        share_auto_offset_reset="earliest",
        share_partition_max_record_locks="100",
    )
    async with working(app, task) as worker:
        await asyncio.gather(*(task.send(number, delay=3600) for number in range(800)))
        await until(lambda: worker.counts["written_again"] >= 800, dict(worker.counts))
        await task.options(delay=3).send(-1)
        await until(lambda: numbers, dict(worker.counts))
        await until(lambda: worker.counts["written_again"] > 900)
    assert numbers == [-1]


@story
async def test_waiting_records_of_many_bytes_leave_room_for_others(
    app: App, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (runner, endings):
        monkeypatch.setattr(module, "HELD_S", 1.0)
    monkeypatch.setattr(runner, "_CARE_INTERVAL_S", 0.5)
    monkeypatch.setattr(runner, "_MAX_WAITING_BYTES", 50_000)
    texts: list[str] = []

    @new_task(app)
    async def task(text: str) -> None:
        texts.append(text)

    async with working(app, task) as worker:
        for _ in range(30):
            await task.send("x" * 10_000, delay=3600)
        await until(lambda: worker.counts["written_again"] > 40, dict(worker.counts))
        assert worker._waiting.size_bytes < 400_000
        await task.send("soon", delay=3)
        await task.send("now")
        await until(lambda: len(texts) == 2, texts)
    assert texts == ["now", "soon"]


@story
async def test_a_secured_broker_and_a_group_with_few_deliveries(secured: dict[str, str]) -> None:
    conf = {name: value for name, value in secured.items() if not name.startswith("ssl.truststore")}
    attempts: list[int] = []
    with App(conf) as app:

        @new_task(app, retry=Retry(12, first=0, factor=1))
        async def task(delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            raise ValueError(delivery.attempt)

        async with working(app, task) as worker:
            await task.send(delay=1)
            await until(lambda: worker.counts["accepted"] == 2, (attempts, dict(worker.counts)))
    assert attempts == list(range(1, 13))
    assert worker.counts["dead_letters"] == 1
