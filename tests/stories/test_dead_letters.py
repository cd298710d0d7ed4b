"""The dead-letter queue of a share group (KIP-1191), through the handlers."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.coordinators import dead_letters
from headrace.coordinators.dead_letters import COPY_OPENED_BYTES, LETTERS_ON_LOOP, DeadLetterCounts
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.protocol import record_batch
from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.limits import OPENED_ON_LOOP_RECORDS
from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE
from headrace.share.records import AVAILABLE, SharePartitionKey, StateBatch
from tests.bombs import size_bomb
from tests.log.disk import delete_records
from tests.stories.share_stage import GROUP, Stage, begun, on_stage, stage
from tests.support import HANG_S, story

OK = (ErrorCode.NONE, None)
REJECTED, EXCEEDED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
QUEUE = {"errors_deadletterqueue_topic_name": "dlq.t"}
COPYING = {**QUEUE, "errors_deadletterqueue_copy_record_enable": "true"}
NO_SPACE = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "Cannot write to the log: No space left on device"
)


def open_queue(s: Stage, name: str = "dlq.t", partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    s.broker.catalog.create_topic(
        name, partitions, {"errors.deadletterqueue.group.enable": "true", **named}
    )


def records(s: Stage, topic: str = "dlq.t", partition: int = 0) -> list[record_batch.Record]:
    log = s.log(partition, topic)
    found: list[record_batch.Record] = []
    while log.log_start_offset + len(found) < log.end_offset:
        data = log.read(len(found), 1 << 30)
        assert isinstance(data, bytes)
        found += [
            record
            for position, _ in record_batch.headers(data)
            for record in record_batch.records(data[position:])
        ]
    return found


def context(record: record_batch.Record) -> dict[str, str]:
    """Return the context headers without their common prefix."""
    prefix = "__dlq.errors."
    return {
        name[len(prefix) :]: (content or b"").decode()
        for name, content in record.headers
        if name[:6] == "__dlq."
    }


def letters(s: Stage, topic: str = "dlq.t", partition: int = 0) -> list[tuple[int, int, str]]:
    """Return (offset, delivery count, reason) of each dead letter."""
    found = [context(record) for record in records(s, topic, partition)]
    return [(int(one["offset"]), int(one["delivery.count"]), one["message"]) for one in found]


def append_with_everything(s: Stage, codec: int = NONE) -> None:
    """Append three records with keys, values and headers in one batch."""
    log = s.log()
    data = record_batch.build(
        [(b"k0", b"v0"), (None, b"v1"), (b"k2", None)],
        timestamp_ms=s.broker.clock.wall_ms(),
        headers=[(("h", b"0"),), (), (("h", b"2"), ("h", None))],
        codec=codec,
    )
    s.broker.topic_logs.append(log, data)


def failing(monkeypatch: pytest.MonkeyPatch, topic: str, refusal: Refusal = NO_SPACE) -> None:
    """Have appends to a topic refused."""
    append = PartitionLog.append

    def refuse(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        return refusal if self.topic == topic else append(self, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append", refuse)


@on_stage(partitions=4, **QUEUE)
async def test_a_rejected_record_is_written_with_its_context(s):
    open_queue(s, partitions=2)
    s.produce(3, partition=3)
    m = s.member()
    await m.share_fetch(partitions=(3,))
    before_ms = s.broker.clock.wall_ms()
    assert await m.ack((0, 2, (ACCEPT, REJECT, RELEASE)), partition=3) == OK
    (letter,) = records(s, partition=1)  # 3 modulo 2
    assert (letter.key, letter.value) == (None, None)
    assert letter.timestamp_ms >= before_ms
    assert letter.headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"1"),
        ("__dlq.errors.group", GROUP.encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", REJECTED.encode()),
    )
    assert not records(s, partition=0)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@on_stage(**COPYING)
async def test_a_copy_has_what_the_original_had_and_then_the_context(s: Stage, codec: int):
    open_queue(s)
    append_with_everything(s, codec)
    s.produce(5)
    append_with_everything(s)
    m = s.member()
    await m.fetch()
    assert await m.ack((0, 10, (REJECT, REJECT, REJECT, *[ACCEPT] * 6, REJECT, ACCEPT))) == OK
    found = records(s)
    assert [(one.key, one.value) for one in found] == [
        (b"k0", b"v0"),
        (None, b"v1"),
        (b"k2", None),
        (None, b"v1"),
    ]
    assert [one.headers[:-6] for one in found] == [
        (("h", b"0"),),
        (),
        (("h", b"2"), ("h", None)),
        (),
    ]
    assert [offset for offset, _, _ in letters(s)] == [0, 1, 2, 9]
    assert {len(context(one)) for one in found} == {6}


@on_stage(share_delivery_count_limit="2", **QUEUE)
async def test_the_delivery_limit_by_release_by_closing_and_by_a_lost_connection(s):
    open_queue(s)
    m = await s.holder(3)
    assert await m.ack((0, 2, RELEASE)) == OK
    await m.fetch()
    assert not letters(s)
    assert await m.ack((0, 0, RELEASE)) == OK
    assert letters(s) == [(0, 2, EXCEEDED)]
    m.vanish()
    assert letters(s) == [(0, 2, EXCEEDED), (1, 2, EXCEEDED), (2, 2, EXCEEDED)]
    assert s.lag() == 0


@on_stage(share_delivery_count_limit="2", share_record_lock_duration_ms="1000", **QUEUE)
async def test_the_delivery_limit_by_a_lock_that_runs_out(s):
    open_queue(s)
    m = await s.holder(2)
    assert await m.ack((0, 0, ACCEPT), (1, 1, RELEASE)) == OK
    assert await m.fetch() == [(1, 1, 2)]
    s.broker.coordinators.share.expire(s.broker.clock.now_ms() + 1000)
    assert letters(s) == [(1, 2, EXCEEDED)]


@on_stage(**COPYING)
async def test_what_is_no_dead_letter(s):
    open_queue(s)
    m = await s.holder(4, 4)
    assert await m.ack((0, 3, (ACCEPT, GAP, RELEASE, RELEASE))) == OK
    log = s.log()
    delete_records(log, 6)
    assert await m.fetch() == []
    assert s.summary().start_offset == 6
    assert not letters(s)
    assert s.broker.coordinators.share.dead_letters.counts == {}


@on_stage(errors_deadletterqueue_copy_record_enable="true")
async def test_a_group_without_a_queue_opens_no_batch(s: Stage, monkeypatch: pytest.MonkeyPatch):
    open_queue(s)
    m = await s.holder(2)
    monkeypatch.setattr(record_batch, "record_spans", None)
    assert await m.ack((0, 1, REJECT)) == OK
    assert s.lag() == 0


@on_stage(**COPYING)
async def test_only_the_batches_that_hold_dead_letters_are_opened_each_once(
    s: Stage,
    monkeypatch: pytest.MonkeyPatch,
):
    open_queue(s)
    m = await s.holder(10, 10, 10, 10)
    opened: list[int] = []
    real = record_batch.record_spans

    def counting(data: memoryview, header: record_batch.BatchHeader, *limits: Any) -> Any:
        opened.append(header.base_offset)
        return real(data, header, *limits)

    monkeypatch.setattr(record_batch, "record_spans", counting)
    assert (
        await m.ack(
            (0, 9, ACCEPT), (10, 19, (REJECT, ACCEPT) * 5), (20, 29, ACCEPT), (35, 35, REJECT)
        )
        == OK
    )
    assert opened == [10, 30]
    monkeypatch.undo()
    assert [offset for offset, _, _ in letters(s)] == [10, 12, 14, 16, 18, 35]


@on_stage(**COPYING)
async def test_a_rejected_record_that_is_gone_from_the_log_leaves_its_context(s):
    open_queue(s)
    m = await s.holder(1, 1, 1, value=b"there")
    log = s.log()
    delete_records(log, 2)
    assert await m.ack((0, 2, REJECT)) == OK
    assert [one.value for one in records(s)] == [None, None, b"there"]
    assert [offset for offset, _, _ in letters(s)] == [0, 1, 2]


@on_stage(**COPYING)
async def test_many_letters_go_in_batches_below_max_message_bytes(s):
    open_queue(s, max_message_bytes="2000")
    s.produce(20, value=b"x" * 500)
    s.produce(1, value=b"y" * 5000)
    m = await s.holder(1, value=b"z" * 10)
    assert await m.ack((0, 21, REJECT)) == OK
    log = s.log(topic="dlq.t")
    data = log.read(0, 1 << 20)
    assert isinstance(data, bytes)
    sizes = [header.size_bytes for _, header in record_batch.headers(data)]
    assert max(sizes) <= 2000
    assert len(sizes) <= 12  # more than one letter in each
    assert [one.value for one in records(s)] == [b"x" * 500] * 20 + [None, b"z" * 10]
    assert [offset for offset, _, _ in letters(s)] == list(range(22))
    counts = s.broker.coordinators.share.dead_letters.counts[GROUP]
    assert counts == DeadLetterCounts(records=22, writes=len(sizes))


# --- when it cannot be written ---


@on_stage(**QUEUE)
async def test_a_full_disk_refuses_the_acknowledgement_and_the_record_stays_acquired(
    s: Stage,
    monkeypatch: pytest.MonkeyPatch,
):
    open_queue(s)
    m = await s.holder(3)
    with monkeypatch.context() as disk:
        failing(disk, "dlq.t")
        code, message = await m.ack((0, 1, REJECT))
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "dlq.t" in str(message)
        # what is no dead letter does not need the queue
        assert await m.ack((2, 2, ACCEPT)) == OK
        assert await s.member("n").fetch() == []
        assert s.lag() == 2
    assert await m.ack((0, 1, REJECT)) == OK
    assert [offset for offset, _, _ in letters(s)] == [0, 1]
    assert s.broker.coordinators.share.dead_letters.counts[GROUP] == DeadLetterCounts(
        records=2, writes=2, failed_writes=1
    )


@on_stage(share_delivery_count_limit="2", share_record_lock_duration_ms="1000", **QUEUE)
async def test_the_queue_of_one_group_does_not_keep_the_locks_of_another(
    s: Stage,
    monkeypatch: pytest.MonkeyPatch,
):
    open_queue(s)
    s.clock.stop()
    s.produce(1)
    s.configure_group("h", share_auto_offset_reset="earliest", share_record_lock_duration_ms="1000")
    s.initialize(group_id="h")
    m = s.member()
    await m.fetch()
    await m.ack((0, 0, RELEASE))
    assert await m.fetch() == [(0, 0, 2)]
    assert await s.member("n", "h").fetch() == [(0, 0, 1)]
    with monkeypatch.context() as disk:
        failing(disk, "dlq.t")
        s.pass_ms(1000)
        deadline_ms = s.broker.coordinators.share.next_deadline_ms()
        assert deadline_ms is not None
        assert deadline_ms > s.broker.clock.now_ms()  # not at once and for ever
        assert await s.member("o", "h").fetch() == [(0, 0, 2)]
    s.pass_ms(1000)
    assert letters(s) == [(0, 2, EXCEEDED)]


@on_stage(**COPYING)
async def test_a_letter_whose_archiving_failed_is_not_written_again(
    s: Stage,
    monkeypatch: pytest.MonkeyPatch,
):
    open_queue(s)
    m = await s.holder(3)
    with monkeypatch.context() as disk:
        failing(disk, "__share_group_state")
        for _ in range(3):
            assert (await m.ack((0, 1, REJECT)))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await m.ack((0, 2, REJECT)) == OK
    assert [offset for offset, _, _ in letters(s)] == [0, 1, 2]


@on_stage(**QUEUE)
async def test_letters_are_on_disk_before_their_records_are_archived(
    s: Stage,
    monkeypatch: pytest.MonkeyPatch,
):
    """Otherwise a power cut could keep the state, which is in another log, and lose the letter."""
    open_queue(s, flush_messages="1")
    m = await s.holder(3)
    queue = s.log(topic="dlq.t")
    unflushed: list[int] = []
    append = PartitionLog.append

    def watch(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        if self.topic == "__share_group_state":
            unflushed.append(queue.unflushed_records)
        return append(self, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append", watch)
    assert await m.ack((0, 1, REJECT)) == OK
    assert unflushed and not any(unflushed)
    unflushed.clear()
    assert [offset for offset, _, _ in letters(s)] == [0, 1]
    monkeypatch.setattr(PartitionLog, "flush", failing_flush)
    assert (await m.ack((2, 2, REJECT)))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not unflushed
    assert s.lag() == 1


class Flushes:
    """The flushes of logs, which wait until :meth:`let_go`.

    :ivar begun: the topic and the thread of each flush
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[str, threading.Thread]] = []
        self._may_end = threading.Event()
        flush = PartitionLog.flush

        def held(log: PartitionLog) -> None:
            self.begun.append((log.topic, threading.current_thread()))
            if threading.current_thread() is not threading.main_thread():
                assert self._may_end.wait(HANG_S)
            flush(log)

        monkeypatch.setattr(PartitionLog, "flush", held)

    def __enter__(self) -> Flushes:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def let_go(self) -> None:
        self._may_end.set()

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.begun}

    @property
    def on_loop(self) -> list[str]:
        """The topics whose flushes have held the event loop."""
        return [topic for topic, thread in self.begun if thread is threading.main_thread()]


async def seen(condition: Callable[[], object]) -> None:
    """Wait until something that other tasks and threads do has happened."""
    while not condition():
        await asyncio.sleep(0.001)


@on_stage(**QUEUE)
async def test_a_flush_of_the_queue_does_not_hold_the_event_loop(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    """It was made on the loop: a slow disk stalled everybody."""
    open_queue(s, flush_messages="1")
    m = await s.holder(3)
    with Flushes(monkeypatch) as flushes:
        rejected = await begun(m.ack((0, 1, REJECT)))
        await seen(lambda: "dlq.t" in flushes.topics)
        assert not flushes.on_loop
        assert [offset for offset, _, _ in letters(s)] == [0, 1]
        assert s.lag() > 0  # nothing is archived before its letter is on disk
        assert not rejected.done()
        flushes.let_go()
        assert await rejected == OK
        assert await m.ack((2, 2, REJECT)) == OK
        assert [offset for offset, _, _ in letters(s)] == [0, 1, 2]
        assert s.lag() == 0
        assert not flushes.on_loop


@on_stage(share_delivery_count_limit="2", share_record_lock_duration_ms="1000", **QUEUE)
async def test_letters_of_lost_members_and_locks_are_flushed_elsewhere(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    open_queue(s, flush_messages="1")
    s.clock.stop()
    s.produce(2, 1)
    m, n = s.member(), s.member("n")
    assert await m.fetch(max_records=1) == [(0, 1, 1)]
    assert await n.fetch() == [(2, 2, 1)]
    assert await m.ack((0, 1, RELEASE)) == OK
    assert await m.fetch(max_records=1) == [(0, 1, 2)]
    assert await n.ack((2, 2, RELEASE)) == OK
    assert await n.fetch() == [(2, 2, 2)]
    with Flushes(monkeypatch) as flushes:
        m.vanish()
        s.pass_ms(1000)
        assert s.lag() == 3
        flushes.let_go()
        await seen(lambda: s.lag() == 0)
        assert letters(s) == [(0, 2, EXCEEDED), (1, 2, EXCEEDED), (2, 2, EXCEEDED)]
        assert not flushes.on_loop


@on_stage(**QUEUE)
async def test_an_acknowledgement_in_a_fetch_waits_for_its_letters(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    open_queue(s, flush_messages="1")
    s.produce(1, 1)
    m = s.member()
    assert await m.fetch(max_records=1) == [(0, 0, 1)]
    with Flushes(monkeypatch) as flushes:
        fetching = await begun(m.fetch((0, 0, REJECT)))
        await seen(lambda: flushes.begun)
        assert not fetching.done()
        flushes.let_go()
        assert await fetching == [(1, 1, 1)]
        assert letters(s) == [(0, 1, REJECTED)]
        assert s.lag() == 1
        assert not flushes.on_loop


@on_stage(**QUEUE)
async def test_an_acknowledgement_of_a_lost_member_is_applied(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    """The records stay locked while their letters are written, so nobody else gets them."""
    open_queue(s, flush_messages="1")
    m = await s.holder(2)
    with Flushes(monkeypatch) as flushes:
        rejected = await begun(m.ack((0, 0, REJECT)))
        await seen(lambda: flushes.begun)
        m.vanish()
        rejected.cancel()  # as with the connection
        n = s.member("n")
        fetching = await begun(n.fetch(wait_ms=HANG_S * 1000))
        assert not fetching.done()
        flushes.let_go()
        assert await fetching == [(1, 1, 2)]
        assert [offset for offset, _, _ in letters(s)] == [0]
        assert await n.ack((1, 1, ACCEPT)) == OK
        assert s.lag() == 0


@on_stage(**QUEUE)
async def test_letters_that_could_not_be_forced_to_disk_do_not_count(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    """The queue is offline then, and may lose them."""
    open_queue(s, flush_messages="1")
    m = await s.holder(1)
    monkeypatch.setattr(Segment, "fsync", failing_fsync)
    for _ in range(2):
        assert (await m.ack((0, 0, REJECT)))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def failing_fsync(self: Segment, suffixes: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def failing_flush(self: PartitionLog) -> None:
    raise OSError(errno.EIO, "Input/output error")


@on_stage(**QUEUE)
async def test_no_letter_is_written_of_what_the_coordinator_refuses(s):
    open_queue(s)
    m = await s.holder(1)
    # an administrator has reset the group meanwhile
    s.initialize(start_offset=0, state_epoch=2)
    code, _ = await m.ack((0, 0, REJECT))
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not letters(s)
    assert s.lag() == 1


def test_a_crash_between_the_letter_and_the_archiving_delivers_again(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    @on_stage(data_dir=tmp_path, **QUEUE)
    async def before(s):
        open_queue(s)
        m = await s.holder(2)
        failing(monkeypatch, "__share_group_state")
        assert (await m.ack((0, 0, REJECT)))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE

    @on_stage(data_dir=tmp_path)
    async def after(s):
        m = s.member()
        # locks and the counts of what was never written are forgotten
        assert await m.fetch() == [(0, 1, 1)]
        assert await m.ack((0, 0, REJECT), (1, 1, ACCEPT)) == OK
        assert [offset for offset, _, _ in letters(s)] == [0, 0]
        assert s.lag() == 0

    before()
    monkeypatch.undo()
    after()


# --- when it is not set up ---


@pytest.mark.parametrize(
    ("topic", "configs", "why"),
    [
        ("dlq.t", None, "DLQ topic does not exist and auto create is disabled"),
        ("dlq.t", {}, "DLQ is not enabled on configured DLQ topic"),
        (
            "other",
            {"errors.deadletterqueue.group.enable": "true"},
            "does not comply with the DLQ topic prefix",
        ),
        (
            "t",
            {"errors.deadletterqueue.group.enable": "true"},
            "is the topic that the records are in",
        ),
        (
            "__consumer_offsets",
            {"errors.deadletterqueue.group.enable": "true"},
            "cannot start with __",
        ),
    ],
)
@story
async def test_a_queue_that_is_not_set_up_is_reported_and_the_record_archived(
    topic: str, configs: dict[str, str] | None, why: str, caplog: pytest.LogCaptureFixture
):
    async with stage(errors_deadletterqueue_topic_name=topic) as s:
        if topic == "t":
            s.broker.catalog.alter_configs({("topic", "t"): dict(configs or {})})
        elif configs is not None:
            s.broker.catalog.create_topic(topic, 1, configs)
        m = await s.holder(2)
        assert await m.ack((0, 0, REJECT)) == OK
        assert await m.ack((1, 1, REJECT)) == OK
        assert s.lag() == 0
        assert sum(why in record.getMessage() for record in caplog.records) == 1
        assert s.broker.coordinators.share.dead_letters.counts[GROUP] == DeadLetterCounts(
            failed_writes=2
        )
        if configs is not None and topic != "t":
            assert not records(s, topic)


@on_stage(**QUEUE)
async def test_a_queue_that_takes_no_such_records_is_reported_and_the_record_archived(
    s: Stage,
    caplog: pytest.LogCaptureFixture,
):
    open_queue(s, cleanup_policy="compact")  # and a letter without a copy has no key
    m = await s.holder(1)
    assert await m.ack((0, 0, REJECT)) == OK
    assert "Compacted topic cannot accept message without key" in caplog.text
    assert s.lag() == 0


@story
async def test_a_queue_is_created_where_the_broker_allows_it():
    allowed = {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": "3"}
    async with stage(configs=allowed, **QUEUE) as s:
        m = await s.holder(1)
        assert await m.ack((0, 0, REJECT)) == OK
        topic = s.broker.catalog.topics["dlq.t"]
        assert topic.partitions == 3
        assert topic.configs == {
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "CreateTime",
        }
        assert letters(s) == [(0, 1, REJECTED)]


@on_stage(
    configs={"errors.deadletterqueue.topic.name.prefix": ""},
    errors_deadletterqueue_topic_name="graveyard",
)
async def test_without_a_prefix_any_name_will_do(s):
    open_queue(s, "graveyard")
    m = await s.holder(1)
    assert await m.ack((0, 0, REJECT)) == OK
    assert letters(s, "graveyard") == [(0, 1, REJECTED)]


def test_the_queue_may_not_be_an_internal_topic():
    from headrace.broker.config.broker_config import Config

    refusal = Config().check("group", {"errors.deadletterqueue.topic.name": "__consumer_offsets"})
    assert refusal == Refusal(
        ErrorCode.INVALID_CONFIG,
        "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
    )


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@on_stage(**COPYING)
async def test_a_batch_that_is_too_large_to_be_opened_leaves_its_context(s: Stage, codec: int):
    """Each rejected record opened its batch whole on the event loop."""
    open_queue(s)
    log = s.log()
    s.broker.topic_logs.append(log, memoryview(size_bomb(codec, 2 * COPY_OPENED_BYTES)))
    s.produce(1, value=b"small")
    m = s.member()
    for offset in (0, 1):
        assert await m.fetch() == [(offset, offset, 1)]
        assert await m.ack((offset, offset, REJECT)) == OK
    assert [one.value for one in records(s)] == [None, b"small"]
    assert [offset for offset, _, _ in letters(s)] == [0, 1]


@pytest.mark.parametrize("values", [1, 4], ids=["one record", "four records"])
@story
async def test_many_batches_that_are_large_after_decompression(
    monkeypatch: pytest.MonkeyPatch, values: int
):
    """One acknowledgement opened as many as it rejected records, on the event loop."""
    read: list[int] = []
    decompressed = record_batch.decompressed

    def counted(codec: int, data: memoryview) -> Iterator[bytes | memoryview]:
        for piece in decompressed(codec, data):
            read.append(len(piece))
            yield piece

    limit, size = 200_000, 20_000
    monkeypatch.setattr(dead_letters, "COPY_OPENED_TOGETHER_BYTES", limit)
    async with stage(**COPYING) as s:
        open_queue(s)
        log = s.log()
        for _ in range(20):
            pairs = [(None, bytes(size // values))] * values
            s.broker.topic_logs.append(log, record_batch.build(pairs, timestamp_ms=1, codec=ZSTD))
        m = s.member()
        acquired = await m.fetch()
        assert acquired[-1][1] == 20 * values - 1
        monkeypatch.setattr(record_batch, "decompressed", counted)
        first_of_each = [(n, n, ACCEPT if n % values else REJECT) for n in range(20 * values)]
        assert await m.ack(*first_of_each) == OK
        monkeypatch.undo()
        assert limit / 2 < sum(read) <= limit + size
        found = records(s)
        assert len(found) == 20
        copied = [one.value is not None for one in found]
        assert copied == sorted(copied, reverse=True) and 5 < sum(copied) < 12
        await asyncio.sleep(0)
        s.produce(1, value=b"later")
        await m.fetch()
        assert await m.ack((20 * values, 20 * values, REJECT)) == OK
        assert records(s)[-1].value == b"later"


@on_stage(**COPYING)
async def test_the_last_records_of_a_large_batch_are_copied(s):
    open_queue(s)
    log = s.log()
    pairs = [(None, b"%d" % number) for number in range(5000)]
    s.broker.topic_logs.append(log, record_batch.build(pairs, timestamp_ms=1, codec=ZSTD))
    m = s.member()
    first = 0
    while first < 5000:
        for start, end, _ in await m.fetch():
            first = end + 1
            is_last = first >= 5000
            acked = [(start, end - 1, ACCEPT), (end, end, REJECT)] if is_last else []
            assert await m.ack(*(acked or [(start, end, ACCEPT)])) == OK
    assert [one.value for one in records(s)] == [b"4999"]


def watch_threads(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[bool]:
    """Note for each call of a function whether the event loop made it."""
    on_loop: list[bool] = []
    function = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, watched)
    return on_loop


@on_stage(**COPYING)
async def test_a_large_batch_is_opened_in_a_thread(s: Stage, monkeypatch: pytest.MonkeyPatch):
    """All batches were opened on the event loop, up to 64 MiB at a time."""
    open_queue(s)
    pairs = [(None, b"%d" % number) for number in range(OPENED_ON_LOOP_RECORDS + 1)]
    s.broker.topic_logs.append(s.log(), record_batch.build(pairs, timestamp_ms=1, codec=ZSTD))
    s.produce(1, value=b"small")
    m = s.member()
    last = OPENED_ON_LOOP_RECORDS
    assert await m.fetch() == [(0, last, 1)]
    assert await m.fetch() == [(last + 1, last + 1, 1)]
    on_loop = watch_threads(monkeypatch, record_batch, "record_spans")
    assert await m.ack((0, last - 1, ACCEPT), (last, last, REJECT)) == OK
    assert await m.ack((last + 1, last + 1, REJECT)) == OK
    assert on_loop == [False, True]
    monkeypatch.undo()
    assert [one.value for one in records(s)] == [b"%d" % last, b"small"]
    assert s.lag() == 0


@on_stage(**COPYING)
async def test_many_letters_are_built_in_a_thread(s: Stage, monkeypatch: pytest.MonkeyPatch):
    open_queue(s, max_message_bytes="20000")
    m = await s.holder(LETTERS_ON_LOOP + 1)
    on_loop = watch_threads(monkeypatch, dead_letters, "_batch")
    assert await m.ack((0, LETTERS_ON_LOOP, REJECT)) == OK
    assert on_loop and not any(on_loop)
    assert [offset for offset, _, _ in letters(s)] == list(range(LETTERS_ON_LOOP + 1))
    assert {one.value for one in records(s)} == {b"v"}
    assert s.lag() == 0


@on_stage(**QUEUE)
async def test_letters_of_earlier_state_do_not_stand_for_those_of_later_state(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead_letters, "LETTERS_ON_LOOP", 0)
    open_queue(s)
    s.produce(1)
    m, n = s.member(), s.member("n")
    await m.fetch()
    rejecting = await begun(m.ack((0, 0, REJECT)))
    state = {"partition": 0, "state_epoch": 5, "start_offset": 0}
    topic = {"topic_id": s.topic_id, "partitions": [state]}
    response = await s.ask(83, group_id=GROUP, topics=[topic])
    assert response.results[0].partitions[0].error_code == ErrorCode.NONE
    assert letters(s) == []
    await rejecting
    assert letters(s) == [(0, 1, REJECTED)]
    assert await n.fetch() == [(0, 0, 1)]
    assert await n.ack((0, 0, REJECT)) == OK
    assert letters(s) == [(0, 1, REJECTED), (0, 1, REJECTED)]


@on_stage(**QUEUE)
async def test_a_group_that_is_deleted_while_its_letters_are_written_is_not_counted(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead_letters, "LETTERS_ON_LOOP", 0)
    open_queue(s)
    m = await s.holder(1)
    rejecting = await begun(m.ack((0, 0, REJECT)))
    s.broker.coordinators.share.group_deleted(GROUP)
    await rejecting
    assert letters(s) == [(0, 1, REJECTED)]
    assert s.broker.coordinators.share.dead_letters.counts == {}


@on_stage(**QUEUE)
async def test_letters_that_the_queue_refuses_are_tried_once(
    s: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(dead_letters, "LETTERS_ON_LOOP", 0)
    open_queue(s, cleanup_policy="compact")
    m = await s.holder(1)
    assert await m.ack((0, 0, REJECT)) == OK
    assert "Compacted topic cannot accept message without key" in caplog.text
    assert s.lag() == 0
    assert s.broker.coordinators.share.dead_letters.counts[GROUP] == DeadLetterCounts(
        writes=1, failed_writes=1
    )


@on_stage(share_delivery_count_limit="2", **QUEUE)
async def test_a_broker_that_closes_writes_its_last_letters(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    open_queue(s, flush_messages="1")
    m = await s.holder(1)
    assert await m.ack((0, 0, RELEASE)) == OK
    assert await m.fetch() == [(0, 0, 2)]
    s.broker.coordinators.close()
    assert letters(s) == [(0, 2, EXCEEDED)]
    assert not s.log(topic="dlq.t").unflushed_records
    assert s.lag() == 0


@on_stage(**QUEUE)
async def test_a_broker_that_closes_archives_nothing_whose_letter_may_be_lost(
    s: Stage, monkeypatch: pytest.MonkeyPatch
):
    open_queue(s, flush_messages="1")
    m = await s.holder(2)
    with Flushes(monkeypatch) as flushes:
        rejected = await begun(m.ack((0, 1, (REJECT, ACCEPT))))
        await seen(lambda: "dlq.t" in flushes.topics)
        s.broker.coordinators.close()
        flushes.let_go()
        with pytest.raises(asyncio.CancelledError):
            await rejected
    key = SharePartitionKey(GROUP, s.topic_id, 0)
    assert s.broker.coordinators.share_state.state(key).state_batches == (
        StateBatch(0, 1, AVAILABLE, 1),
    )
