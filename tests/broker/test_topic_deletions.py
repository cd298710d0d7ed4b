"""A deletion of topics that a crash has interrupted is completed by the next start, and one whose
client has gone goes on. It touches nothing else that happens meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.broker.metrics.page import MetricsScrape
from headrace.broker.metrics.text import MetricsPage
from headrace.coordinators.hashing import internal_partition
from headrace.groups.classic.member import MemberIdentity
from headrace.log.log_directory import Removals
from headrace.log.partition_log import PartitionLog
from headrace.net import call
from headrace.net.call import SLICED_ABOVE
from headrace.outcome import Outcome
from headrace.protocol import time_slices
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.internal_topics import TRANSACTION_STATE
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, build
from headrace.protocol.time_slices import run_now
from headrace.topics.catalog import Topic
from headrace.transactions.producer import NO_PRODUCER, Producer
from headrace.transactions.records import State
from tests.handler_client import ask
from tests.offset_commits import commit_record
from tests.support import story

DELETE_TOPICS, INCREMENTAL_ALTER_CONFIGS = 20, 44


def directories(data_dir: Path) -> list[str]:
    return sorted(name for name in os.listdir(data_dir) if name.startswith("t-"))


@pytest.mark.parametrize("again", [False, True], ids=["gone", "created again"])
def test_a_crash_after_the_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    async def delete() -> None:
        broker = Broker(Config(), tmp_path)
        broker.start()
        topic = broker.catalog.create_topic("t", 3)
        for partition in range(3):
            log = broker.topic_logs.log(topic, partition)
            assert log is not None
            broker.topic_logs.append(
                log, build([(None, b"a")], timestamp_ms=broker.clock.wall_ms())
            )
        monkeypatch.setattr(Removals, "add", lambda *_: None)
        run_now(broker.topic_deletions.delete([topic]))
        monkeypatch.undo()
        if again:
            broker.catalog.create_topic("t", 3)
        broker.close()

    async def start() -> None:
        broker = Broker(Config(), tmp_path)
        broker.start()
        assert len(broker.catalog.deleted_topics) == 1
        for _ in range(500):
            if not broker.catalog.deleted_topics:
                break
            await asyncio.sleep(0.01)
        assert not broker.catalog.deleted_topics
        assert not directories(tmp_path)
        broker.close()

    asyncio.run(delete())
    assert len(directories(tmp_path)) == 3
    asyncio.run(start())


def started(data_dir: Path) -> Broker:
    broker = Broker(Config(), data_dir)
    broker.start()
    return broker


def begin(broker: Broker, transactional_id: str, *topics: str) -> Producer:
    """Begin a transaction, with a record in partition 0 of each topic."""
    producer = broker.coordinators.transactions.init_producer_id(
        transactional_id, 60_000, NO_PRODUCER
    )
    assert isinstance(producer, Producer)
    for topic in topics:
        write(broker, transactional_id, producer, topic)
    return producer


def write(broker: Broker, transactional_id: str, producer: Producer, topic: str) -> None:
    transactions = broker.coordinators.transactions
    assert transactions.add_partitions(transactional_id, producer, [(topic, 0)]) is None
    record = build(
        [(None, b"a")],
        timestamp_ms=broker.clock.wall_ms(),
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
    )
    log = broker.topic_logs.partition(topic, 0)
    assert isinstance(log, PartitionLog)
    assert not isinstance(broker.topic_logs.append(log, record), Refusal)


def commit_offset(broker: Broker, transactional_id: str, producer: Producer, topic: Topic) -> None:
    """Commit offset 7 of partition 0 in a transaction, for the group ``g``."""
    transactions = broker.coordinators.transactions
    offsets = transactions.offsets_partition("g")
    assert transactions.add_partitions(transactional_id, producer, [offsets]) is None
    now_ms = broker.clock.wall_ms()
    commits = [commit_record("g", topic.name, topic.topic_id, 0, 7, wall_ms=now_ms)]
    outcome = broker.coordinators.groups.offsets.commit(
        "g", MemberIdentity(""), -1, commits, now_ms, transactional=True
    )
    assert broker.coordinators.group_runtime.write_now("g", outcome, producer) == ErrorCode.NONE


def commit(broker: Broker, transactional_id: str, producer: Producer) -> None:
    ended = broker.coordinators.transactions.end(
        transactional_id, producer, commit=True, client_version=0
    )
    assert ended == producer


def is_ended(broker: Broker, topic: str) -> bool:
    """Return True if no transaction is open in partition 0, which would hide all later records from
    read_committed readers.
    """
    log = broker.topic_logs.partition(topic, 0)
    assert isinstance(log, PartitionLog)
    return log.last_stable_offset == log.end_offset > 0


@story
async def test_transactions_go_on_while_a_topic_is_deleted(tmp_path: Path) -> None:
    broker = started(tmp_path)
    topic, _ = broker.catalog.create_topic("t", 1), broker.catalog.create_topic("u", 1)
    producers = {name: begin(broker, name, "t") for name in ("a", "b", "c")}
    steps = broker.topic_deletions.delete([topic])
    next(steps)  # the catalog
    next(steps)  # the transaction of a
    write(broker, "b", producers["b"], "u")
    commit(broker, "c", producers["c"])
    for _ in steps:
        pass
    commit(broker, "b", producers["b"])
    assert is_ended(broker, "u")
    ended = broker.coordinators.transactions.coordinator.transactions["c"]
    assert ended.state is State.COMPLETE_COMMIT
    broker.close()


@story
async def test_a_new_topic_of_the_same_name_is_written_to_while_the_old_one_is_deleted(
    tmp_path: Path,
) -> None:
    broker = started(tmp_path)
    begin(broker, "a")  # the coordinators are loaded
    assert not broker.coordinators.groups.groups
    topic = broker.catalog.create_topic("t", 1)
    steps = broker.topic_deletions.delete([topic])
    next(steps)  # the catalog
    new = broker.catalog.create_topic("t", 1)
    producer = begin(broker, "a", "t")
    commit_offset(broker, "a", producer, new)
    for _ in steps:
        pass
    commit(broker, "a", producer)
    assert is_ended(broker, "t")
    assert broker.coordinators.groups.offsets.committed.of_group("g")["t"][0].offset == 7
    broker.close()


@story
async def test_the_state_of_a_deleted_topic_is_deleted_beside_logs_that_are_offline(
    tmp_path: Path,
) -> None:
    broker = started(tmp_path)
    topic = broker.catalog.create_topic("t", 1)
    group_ids = [f"g{number}" for number in range(5)]
    for group_id in group_ids:
        offset = commit_record(group_id, "t", topic.topic_id, 0, 7, wall_ms=0)
        broker.coordinators.group_runtime.write_now(group_id, Outcome(None, (offset,)))
    begin(broker, "a", "t")
    transaction_log = TRANSACTION_STATE, internal_partition("a", 50)
    for place in (broker.coordinators.transactions.offsets_partition("g0"), transaction_log):
        log = broker.topic_logs.partition(*place)
        assert isinstance(log, PartitionLog)
        log.take_offline(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StorageError, match=f"{TRANSACTION_STATE}-.* is offline"):
        await ask(broker, DELETE_TOPICS, topics=[{"name": "t"}])
    assert list(broker.coordinators.groups.offsets.committed) == ["g0"]
    broker.close()
    broker = started(tmp_path)
    await eventually(lambda: not broker.catalog.deleted_topics)
    assert list(broker.coordinators.groups.offsets.committed) == []
    assert not broker.coordinators.transactions.coordinator.transactions["a"].partitions
    broker.close()


@story
async def test_a_topic_is_created_again_while_metrics_are_written(tmp_path: Path) -> None:
    partitions = 200
    broker = started(tmp_path)
    old = broker.catalog.create_topic("t", partitions)
    now_ms = broker.clock.wall_ms()
    commits = [
        commit_record("g", "t", old.topic_id, partition, 0, wall_ms=now_ms)
        for partition in range(partitions)
    ]
    outcome = broker.coordinators.groups.offsets.commit(
        "g", MemberIdentity(""), -1, commits, now_ms
    )
    broker.coordinators.group_runtime.write_now("g", outcome)

    class Page(MetricsPage):
        async def yield_to_loop(self) -> None:
            if broker.catalog.topics.get("t") is old:
                run_now(broker.topic_deletions.delete([old]))
                broker.catalog.create_topic("t", partitions)
                for partition in range(partitions):
                    log = broker.topic_logs.partition("t", partition)
                    assert isinstance(log, PartitionLog)
                    broker.topic_logs.append(log, build([(None, b"a")], timestamp_ms=now_ms))

    await MetricsScrape(broker, Page()).groups()
    assert broker.catalog.topics["t"] is not old
    broker.close()
    broker = started(tmp_path)
    for partition in range(partitions):
        log = broker.topic_logs.partition("t", partition)
        assert isinstance(log, PartitionLog)
        assert log.end_offset == 1
    broker.close()


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other requests be served after each step of a long one."""
    monkeypatch.setattr(time_slices, "SLICE_MS", 0)
    monkeypatch.setattr(call, "SLICE_S", 0.0)


@pytest.mark.usefixtures("short_slices")
@story
async def test_a_deletion_is_completed_although_its_client_is_gone(tmp_path: Path) -> None:
    broker = started(tmp_path)
    topic = broker.catalog.create_topic("t", 1)
    now_ms = broker.clock.wall_ms()
    for group_id in map(str, range(SLICED_ABOVE + 1)):
        commits = [commit_record(group_id, "t", topic.topic_id, 0, 7, wall_ms=now_ms)]
        outcome = broker.coordinators.groups.offsets.commit(
            group_id, MemberIdentity(""), -1, commits, now_ms
        )
        broker.coordinators.group_runtime.write_now(group_id, outcome)
    request = asyncio.ensure_future(ask(broker, DELETE_TOPICS, topics=[{"name": "t"}]))
    while "t" in broker.catalog.topics:
        await asyncio.sleep(0)
    request.cancel()
    committed = broker.coordinators.groups.offsets.committed
    assert list(committed)
    await eventually(lambda: not list(committed))
    await eventually(lambda: not broker.catalog.deleted_topics)
    broker.close()


@pytest.mark.usefixtures("short_slices")
@story
async def test_a_change_of_configs_is_applied_although_its_client_is_gone(tmp_path: Path) -> None:
    broker = started(tmp_path)
    names = [f"t{number}" for number in range(SLICED_ABOVE + 1)]
    logs = [broker.topic_logs.log(broker.catalog.create_topic(name, 1), 0) for name in names]
    change = {"name": "retention.bytes", "config_operation": 0, "value": "7"}
    resources = [{"resource_type": 2, "resource_name": name, "configs": [change]} for name in names]
    request = asyncio.ensure_future(
        ask(broker, INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False)
    )
    while not broker.catalog.configs("topic", names[-1]):
        await asyncio.sleep(0)
    request.cancel()
    await eventually(
        lambda: all(log is not None and log.config.retention_bytes == 7 for log in logs)
    )
    broker.close()


@pytest.mark.usefixtures("short_slices")
@story
async def test_nothing_is_written_after_the_broker_has_closed(tmp_path: Path) -> None:
    broker = started(tmp_path)
    steps = 0

    def work() -> Generator[None, None, None]:
        nonlocal steps
        while True:
            steps += 1
            yield

    waiting = asyncio.ensure_future(broker.slices.run_to_end(work()))
    while not steps:
        await asyncio.sleep(0)
    broker.close()
    taken = steps
    for _ in range(10):
        await asyncio.sleep(0)
    assert steps == taken
    assert waiting.cancelled()


async def eventually(is_true: Callable[[], bool]) -> None:
    for _ in range(500):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is not so after five seconds")
