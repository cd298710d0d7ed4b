"""Commits that come in one turn of the event loop: written together, answered each for itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.coordinators.hashing import internal_partition
from headrace.coordinators.waiting import Waiting
from headrace.groups.records import OffsetCommit
from headrace.log import segment
from headrace.outcome import Outcome
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode, StorageError
from headrace.protocol.time_slices import run_now
from tests.handler_client import ask
from tests.support import story, story_in

OFFSET_COMMIT, VERSION = 8, 9
PARTITIONS = 3
GROUPS = [f"group-{n}" for n in range(12)]
UNKNOWN, NONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE


@asynccontextmanager
async def running(data_dir: Path | None = None, **configs: str) -> AsyncIterator[Broker]:
    """A broker with the topic ``t``."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    broker = Broker(Config({"offsets.topic.num.partitions": str(PARTITIONS), **given}), data_dir)
    broker.start()
    if "t" not in broker.catalog.topics:
        broker.catalog.create_topic("t", 2)
    try:
        yield broker
    finally:
        broker.close()


def on_broker(**configs: str) -> Callable[..., Callable[..., None]]:
    """Run an async test on its own loop with a broker, its first argument."""
    return story_in(partial(running, **configs))


def commit(
    broker: Broker, group_id: str, offset: int, *, generation: int = -1
) -> asyncio.Future[Any]:
    """Commit in partition 0, and in one that does not exist; the future of the codes, or of the
    failure.
    """
    told, _ = begin_commit(broker, group_id, offset, generation=generation)
    return told


def begin_commit(
    broker: Broker, group_id: str, offset: int, *, generation: int = -1
) -> tuple[asyncio.Future[Any], Waiting]:
    """Begin a commit as a connection does, and return what :func:`commit` does, and what waits."""
    steps = ask(
        broker,
        OFFSET_COMMIT,
        VERSION,
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": index, "committed_offset": offset} for index in (0, 7)
                ],
            }
        ],
    )
    told = asyncio.get_running_loop().create_future()

    def done(came: Any) -> None:
        told.set_result(came if isinstance(came, Exception) else codes(came))

    return told, Waiting(steps, steps.send(None), done, None)


def codes(response: Any) -> list[ErrorCode]:
    return [one.error_code for topic in response.topics for one in topic.partitions]


def committed(broker: Broker) -> dict[str, int]:
    return {
        group_id: broker.coordinators.groups.offsets.committed.of_group(group_id)["t"][0].offset
        for group_id in broker.coordinators.groups.offsets.committed
    }


def written(broker: Broker) -> Iterator[list[tuple[str, int]]]:
    """Yield group ids and offsets of each batch of the internal topic."""
    topic = broker.catalog.topics["__consumer_offsets"]
    for partition in range(PARTITIONS):
        log = broker.topic_logs.log(topic, partition)
        assert log is not None
        data = log.read(0, 1 << 20)
        assert isinstance(data, bytes)
        for position, _ in record_batch.headers(data):
            said = []
            for record in record_batch.records(data[position:]):
                decoded = broker.coordinators.groups.decode(record.key or b"", record.value)
                assert isinstance(decoded, OffsetCommit)
                assert decoded.value is not None
                said.append((decoded.group_id, decoded.value.offset))
            yield said


@story
async def test_one_batch_for_each_partition_and_an_answer_for_each_client(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        told = [commit(broker, group_id, n) for n, group_id in enumerate(GROUPS)]
        told.append(commit(broker, "nobody", 1, generation=5))
        assert committed(broker) == {}  # nothing is decided before the turn ends
        assert await asyncio.gather(*told) == [[NONE, UNKNOWN]] * 12 + [
            [ErrorCode.GROUP_ID_NOT_FOUND, UNKNOWN]
        ]
        places = {internal_partition(group_id, PARTITIONS) for group_id in GROUPS}
        batches = list(written(broker))
        assert len(batches) == len(places) == PARTITIONS
        assert (
            dict(itertools.chain.from_iterable(batches))
            == committed(broker)
            == {group_id: n for n, group_id in enumerate(GROUPS)}
        )

    async with running(tmp_path) as broker:
        assert committed(broker) == {group_id: n for n, group_id in enumerate(GROUPS)}


@on_broker()
async def test_the_later_of_two_commits_of_a_turn_counts(broker: Broker) -> None:
    await asyncio.gather(commit(broker, "g", 5), commit(broker, "g", 3))
    assert committed(broker) == {"g": 3}
    assert list(written(broker)) == [[("g", 5), ("g", 3)]]


@on_broker()
async def test_a_commit_of_a_closed_connection_is_written(broker: Broker) -> None:
    told, waiting = begin_commit(broker, "g", 4)
    waiting.cancel()
    await commit(broker, "h", 1)
    assert committed(broker) == {"g": 4, "h": 1}
    assert not told.done()


@on_broker()
async def test_a_topic_that_is_deleted_before_the_turn_ends_gets_no_offsets(broker: Broker) -> None:
    told = commit(broker, "g", 4)
    run_now(broker.topic_deletions.delete([broker.catalog.topics["t"]]))
    assert await told == [UNKNOWN, UNKNOWN]
    assert committed(broker) == {}


@on_broker()
async def test_a_commit_that_fails_does_not_affect_others(broker: Broker) -> None:
    def undecided(now_ms: int, wall_ms: int) -> Outcome[Any, None]:
        raise ZeroDivisionError

    def tell(_: object) -> None:
        raise ConnectionError

    broker.coordinators.group_runtime.write(
        "g", lambda now_ms, wall_ms: Outcome(None)
    ).waiter = tell
    told = [
        commit(broker, "g", 1),
        asyncio.ensure_future(broker.coordinators.group_runtime.write("g", undecided)),
        commit(broker, "h", 2),
    ]
    first, failure, last = await asyncio.gather(*told, return_exceptions=True)
    assert isinstance(failure, ZeroDivisionError)
    assert first == last == [NONE, UNKNOWN]
    assert committed(broker) == {"g": 1, "h": 2}


@story
async def test_a_disk_that_refuses_one_partition_fails_only_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = segment.pwritev
    refused = internal_partition(GROUPS[5], PARTITIONS)

    def refuse(fd: int, buffers: Any, position: int) -> int:
        if GROUPS[5].encode() in b"".join(map(bytes, buffers)):
            raise OSError(28, "No space left on device")
        return real(fd, buffers, position)

    async with running(tmp_path) as broker:
        monkeypatch.setattr(segment, "pwritev", refuse)
        told = await asyncio.gather(
            *(commit(broker, group_id, n) for n, group_id in enumerate(GROUPS))
        )
        failed = {
            group_id
            for group_id, one in zip(GROUPS, told, strict=True)
            if isinstance(one, StorageError)
        }
        assert failed == {GROUPS[5]}  # those of its partition were tried again alone
        assert all(one == [NONE, UNKNOWN] for one in told if not isinstance(one, StorageError))
        assert len([g for g in GROUPS if internal_partition(g, PARTITIONS) == refused]) > 1
        monkeypatch.setattr(segment, "pwritev", real)
        assert committed(broker) == {group_id: n for n, group_id in enumerate(GROUPS) if n != 5}
        before = committed(broker)
    async with running(tmp_path) as broker:
        assert committed(broker) == before


@on_broker(log_flush_interval_messages="1")
async def test_answers_wait_for_the_flush_that_the_config_requires(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = asyncio.Event()
    rounds = []

    async def durable() -> None:
        rounds.append(len(broker.topic_logs.flusher._due))
        await flushed.wait()

    monkeypatch.setattr(broker.topic_logs.flusher, "pending_flush", durable)
    told = [commit(broker, group_id, 1) for group_id in GROUPS]
    while not rounds:
        await asyncio.sleep(0)
    assert rounds == [PARTITIONS]  # one fsync for all
    assert not any(one.done() for one in told)
    flushed.set()
    assert await asyncio.gather(*told) == [[NONE, UNKNOWN]] * 12


@on_broker(log_flush_interval_messages="1")
async def test_an_fsync_that_fails_acknowledges_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def durable() -> None:
        raise StorageError("cannot flush: [Errno 5] Input/output error")

    monkeypatch.setattr(broker.topic_logs.flusher, "pending_flush", durable)
    told = await asyncio.gather(*(commit(broker, group_id, 1) for group_id in GROUPS))
    assert all(isinstance(one, StorageError) for one in told)
