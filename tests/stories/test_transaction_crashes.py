"""A transaction ends in several logs: after a crash or with a full disk between any two appends it
is all or nothing.
"""

from __future__ import annotations

import errno
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.coordinators import share_state_recovery
from headrace.groups.classic.member import MemberIdentity
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.internal_topics import SHARE_GROUP_STATE
from headrace.protocol.record_batch import TRANSACTIONAL_BIT, build
from headrace.protocol.time_slices import run_now
from headrace.transactions.producer import NO_PRODUCER, Producer
from headrace.transactions.transaction import CONCURRENT_TRANSACTIONS
from tests.offset_commits import commit_record
from tests.support import story

CONFIG = {"offsets.topic.num.partitions": "2"}
TIMEOUT_MS = 60_000
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))
FULL = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")


class Crash(BaseException):
    """The end of the process, which no handler of errors sees."""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = int(time.time() * 1000)

    def __call__(self) -> int:
        return self.now_ms


def begun(data_dir: Path, clock: Clock | None = None) -> Broker:
    broker = Broker(Config(CONFIG), data_dir, **({} if clock is None else {"clock_ms": clock}))
    broker.start()
    for name, partitions in (("t", 2), ("u", 1)):
        if name not in broker.catalog.topics:
            broker.catalog.create_topic(name, partitions, {})
    return broker


def log_of(broker: Broker, topic: str, partition: int) -> PartitionLog:
    found = broker.topic_logs.partition(topic, partition)
    assert isinstance(found, PartitionLog)
    return found


def come(broker: Broker) -> Producer:
    told = broker.coordinators.transactions.init_producer_id("id", TIMEOUT_MS, NO_PRODUCER)
    assert isinstance(told, Producer), told
    return told


def open_transaction(broker: Broker, producer: Producer, version: int = 0) -> None:
    """Begin a transaction with two records in each partition and an offset of a group."""
    transactions = broker.coordinators.transactions
    assert transactions.add_partitions("id", producer, PARTITIONS, version) is None
    offsets = transactions.offsets_partition("g")
    assert transactions.add_partitions("id", producer, [offsets]) is None
    for one in PARTITIONS:
        data = build(
            [(None, b"a"), (None, b"b")],
            timestamp_ms=broker.clock.wall_ms(),
            attributes=TRANSACTIONAL_BIT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        assert not isinstance(broker.topic_logs.append(log_of(broker, *one), data), Refusal)
    topic = broker.catalog.topics["t"]
    now_ms = broker.clock.wall_ms()
    commits = [commit_record("g", "t", topic.topic_id, 0, 7, wall_ms=now_ms)]
    offsets = broker.coordinators.groups.offsets
    outcome = offsets.commit("g", MemberIdentity(""), -1, commits, now_ms, transactional=True)
    assert broker.coordinators.group_runtime.write_now("g", outcome, producer) == ErrorCode.NONE


def seen(broker: Broker) -> str:
    """Return what a reader of committed records sees in all partitions: everything, nothing, or
    that all is still open.
    """
    found = set()
    for one in (one for one in PARTITIONS if one[0] in broker.catalog.topics):
        log = log_of(broker, *one)
        if log.last_stable_offset == 0:
            found.add("open")
        else:
            assert log.last_stable_offset == log.end_offset, "the last stable offset is stuck"
            found.add("nothing" if log.aborted.overlapping(0, 2) else "everything")
    assert len(found) == 1, f"only a part of the transaction is seen: {found}"
    told = found.pop()
    pending = ("g", "t", 0) in broker.coordinators.groups.offsets.committed.pending
    assert pending == (told == "open")
    offset = broker.coordinators.groups.offsets.committed.of_group("g").get("t", {}).get(0)
    assert (offset is not None and offset.offset == 7) == (told == "everything")
    return told


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`fail(n)`: the n-th append from now on ends the process; `fail(n, FULL)`: it and all later
    ones are refused.
    """
    real, left = PartitionLog.append, [0, None]

    def append(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        if left[0] == 1:
            if left[1] is None:
                raise Crash
            return left[1]
        left[0] = max(0, left[0] - 1)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append", append)

    def arm(appends: int, refusal: Refusal | None = None) -> None:
        left[:] = appends, refusal

    return arm


def commit(broker: Broker, producer: Producer, version: int) -> object:
    return broker.coordinators.transactions.end("id", producer, commit=True, client_version=version)


def abort(broker: Broker, producer: Producer, version: int) -> object:
    return broker.coordinators.transactions.end(
        "id", producer, commit=False, client_version=version
    )


def another_comes(broker: Broker, producer: Producer, version: int) -> object:
    return broker.coordinators.transactions.init_producer_id("id", TIMEOUT_MS, NO_PRODUCER)


def time_runs_out(broker: Broker, producer: Producer, version: int) -> object:
    clock = broker.clock.now_ms
    assert isinstance(clock, Clock)
    clock.now_ms += TIMEOUT_MS + 1
    for transactional_id, outcome in broker.coordinators.transactions.coordinator.expire(
        clock.now_ms, clock.now_ms
    ):
        broker.coordinators.transactions.runtime.write_now(transactional_id, outcome)
    broker.coordinators.transactions.expire(clock.now_ms)
    return None


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("end", [commit, abort, another_comes, time_runs_out])
@story
async def test_a_crash_between_any_two_appends(
    tmp_path: Path, fail: Callable[..., None], end: Callable[..., object], version: int
) -> None:
    async def tried(appends: int) -> bool:
        """Return whether the transaction ended although the append of this number failed."""
        data_dir = tmp_path / str(uuid.uuid4())
        clock = Clock()
        broker = begun(data_dir, clock)
        producer = come(broker)
        open_transaction(broker, producer, version)
        assert seen(broker) == "open"
        fail(appends)
        try:
            told = end(broker, producer, version)
            finished = True
        except Crash:
            finished = False
        fail(0)
        shutil.copytree(data_dir, found := data_dir.with_suffix(".found"))  # as the process left it
        if finished:
            assert not isinstance(told, Refusal)
            assert seen(broker) == ("everything" if end is commit else "nothing")
        broker.close()
        (found / "lock").unlink(missing_ok=True)
        after = begun(found, clock)
        told_after = seen(after)
        decided = appends > 1
        assert told_after == (("everything" if end is commit else "nothing") if decided else "open")
        if end in (commit, abort) and (decided or version == 0):
            again = after.coordinators.transactions.end(
                "id", producer, commit=end is commit, client_version=version
            )
            # the client asks again, and is told that all is well
            assert isinstance(again, Producer), again
        fresh = come(after)
        assert fresh.producer_epoch > producer.producer_epoch
        assert seen(after) == (
            "everything" if end is commit and (decided or version == 0) else "nothing"
        )
        assert not after.coordinators.transactions.coordinator.prepared
        after.close()
        return finished

    appends = 1
    while not await tried(appends):
        appends += 1
    # the decision, a marker in each of four partitions, and that all is complete
    assert appends > 5


@pytest.mark.parametrize("end", [commit, abort])
@story
async def test_a_crash_at_the_start_that_completes_it(
    tmp_path: Path, fail: Callable[..., None], end: Callable[..., object]
) -> None:
    """However often a start dies, between any appends, the next one continues."""

    def left_behind(data_dir: Path) -> Path:
        """Copy the files as a process that dies now would leave them."""
        found = tmp_path / str(uuid.uuid4())
        shutil.copytree(data_dir, found)
        (found / "lock").unlink(missing_ok=True)
        return found

    def started(data_dir: Path, appends: int) -> bool:
        """Return whether a start completed although the append of this number failed."""
        broker = Broker(Config(CONFIG), data_dir)
        fail(appends)
        try:
            broker.start()
        except Crash:
            return False
        finally:
            fail(0)
        broker.close()
        return True

    async def decided(crash: int) -> Path:
        broker = begun(tmp_path / str(uuid.uuid4()))
        producer = come(broker)
        open_transaction(broker, producer)
        fail(crash)
        with pytest.raises(Crash):
            end(broker, producer, 0)
        fail(0)
        found = left_behind(broker.data_dir)
        broker.close()
        return found

    for crash in (2, 4):  # before the first marker, and before one in the middle
        data_dir, deaths = await decided(crash), 0
        for appends in range(1, 10):
            copy = left_behind(data_dir)
            if started(copy, appends):
                break
            deaths += 1
            # what it did may be there, or all lost
            data_dir = left_behind(copy) if appends % 2 else data_dir
            again = begun(left_behind(copy))
            assert seen(again) == ("everything" if end is commit else "nothing")
            assert not again.coordinators.transactions.coordinator.prepared
            again.close()
        assert deaths > 2


@pytest.mark.parametrize("end", [commit, abort])
@story
async def test_a_disk_that_is_full_at_any_append(
    tmp_path: Path, fail: Callable[..., None], end: Callable[..., object]
) -> None:
    async def tried(appends: int) -> None:
        clock = Clock()
        broker = begun(tmp_path / str(appends), clock)
        producer = come(broker)
        open_transaction(broker, producer)
        fail(appends, FULL)
        if appends == 1:
            with pytest.raises(StorageError):  # nothing was decided
                end(broker, producer, 0)
            fail(0)
            assert seen(broker) == "open"
        else:
            assert end(broker, producer, 0) == producer
            assert (
                broker.coordinators.transactions.add_partitions("id", producer, PARTITIONS)
                == CONCURRENT_TRANSACTIONS
            )
            assert end(broker, producer, 0) == CONCURRENT_TRANSACTIONS
            clock.now_ms += 1001
            broker.coordinators.transactions.expire(clock.now_ms)  # still full
            fail(0)
            assert broker.coordinators.transactions.next_deadline_ms() == clock.now_ms + 1000
            clock.now_ms += 1001
            broker.coordinators.transactions.expire(clock.now_ms)
            assert broker.coordinators.transactions.next_deadline_ms() is None
        assert end(broker, producer, 0) == producer
        assert seen(broker) == ("everything" if end is commit else "nothing")
        broker.close()

    for appends in range(1, 7):
        await tried(appends)


@story
async def test_each_partition_gets_one_marker_while_another_one_is_offline(tmp_path: Path) -> None:
    clock = Clock()
    broker = begun(tmp_path, clock)
    producer = come(broker)
    open_transaction(broker, producer)
    log_of(broker, "t", 1).take_offline(OSError(errno.EIO, "Input/output error"))
    assert commit(broker, producer, 0) == producer
    for number in range(3):  # neither other producers nor the time write more of them
        other = broker.coordinators.transactions.init_producer_id(
            f"id{number}", TIMEOUT_MS, NO_PRODUCER
        )
        assert isinstance(other, Producer)
        clock.now_ms += 1001
        broker.coordinators.transactions.expire(clock.now_ms)
    for one in (("t", 0), ("u", 0)):
        log = log_of(broker, *one)
        assert (log.last_stable_offset, log.end_offset) == (3, 3), one
    broker.close()
    again = begun(tmp_path, clock)  # which verifies the log
    assert seen(again) == "everything"
    assert not again.coordinators.transactions.coordinator.prepared
    again.close()


@story
async def test_a_start_that_cannot_write_share_state_completes_the_transaction(
    tmp_path: Path, fail: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = begun(tmp_path / "crashed")
    broker.topic_logs.internal_topic(SHARE_GROUP_STATE)
    producer = come(broker)
    open_transaction(broker, producer)
    fail(2)
    with pytest.raises(Crash):
        commit(broker, producer, 0)
    fail(0)
    shutil.copytree(broker.data_dir, found := tmp_path / "found")
    (found / "lock").unlink(missing_ok=True)
    broker.close()

    def refuse(*_: object) -> None:
        raise StorageError("the log is offline")

    monkeypatch.setattr(share_state_recovery, "recover", refuse)
    after = begun(found)
    assert seen(after) == "everything"
    assert not after.coordinators.transactions.coordinator.prepared
    after.close()


@story
async def test_a_disk_that_is_still_full_at_the_start_does_not_keep_the_broker_from_serving(
    tmp_path: Path, fail: Callable[..., None]
) -> None:
    clock = Clock()
    broker = begun(tmp_path, clock)
    producer = come(broker)
    open_transaction(broker, producer)
    fail(6, FULL)  # that it is complete cannot be written
    assert commit(broker, producer, 0) == producer
    broker.close()
    fail(1, FULL)
    after = begun(tmp_path, clock)
    assert list(after.coordinators.transactions.coordinator.prepared) == ["id"]
    fail(0)
    clock.now_ms += 1001
    after.coordinators.transactions.expire(clock.now_ms)
    assert seen(after) == "everything"
    after.close()


@pytest.mark.parametrize("end", [commit, abort])
@story
async def test_a_topic_that_is_deleted_meanwhile(
    tmp_path: Path, end: Callable[..., object]
) -> None:
    broker = begun(tmp_path)
    producer = come(broker)
    open_transaction(broker, producer)
    run_now(broker.topic_deletions.delete([broker.catalog.topics["u"]]))
    broker.close()
    again = begun(tmp_path)  # which makes another topic of that name
    assert end(again, producer, 0) == producer
    assert log_of(again, "u", 0).end_offset == 0
    run_now(again.topic_deletions.delete([again.catalog.topics["u"]]))
    assert seen(again) == ("everything" if end is commit else "nothing")
    again.close()
