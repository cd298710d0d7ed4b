"""A consumer of several topics whose records come in the order of their timestamps (KIP-695)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Message, TopicPartition

from headrace.client.errors import ConnectionFailed
from headrace.client.lag_consumer import LagConsumer, PartitionName
from headrace.tasks import IDLING_DISABLED, OrderedTask, Readiness, TaskMetrics

from .topics import (
    InvalidTopics,
    check_co_partitioned,
    checked_topics,
    consumer_config,
    explained,
)

logger = logging.getLogger(__name__)

MAX_BUFFERED_RECORDS = 20_000
"""Of one partition, before it is paused. Kafka Streams has 1,000
(``buffered.records.per.partition``); but librdkafka throws away what it has fetched of a partition
that is paused, so pausing must be rarer."""

MAX_POLL_RECORDS = 2_000
"""How many records are taken over from librdkafka at a time."""

LOOK_RECORDS = 100
"""After so many records of one task comes the next task; and what has arrived is looked at, if one
lacks records.
"""

CHECK_INTERVAL_S = 5.0
"""How often the topics are looked up while this member lacks inputs of its tasks."""

POLL_INTERVAL_S = 0.1
"""How long one wait for records may be, and how long the broker is not listened to while there are
enough of them.
"""


class OrderedConsumer:
    """Records of several co-partitioned topics, in the order of their timestamps.

    Partition *i* of every topic makes up task *i*, as in Kafka Streams. Within a task the next
    record is always the one with the smallest timestamp; it is handed out when it is known that no
    earlier one is to be had, or when ``max_task_idle_ms`` says not to wait for it
    (docs/behaviour/tasks.md). Records of different tasks are in no order. The members of a group
    share the tasks::

        conf = {"bootstrap.servers": "127.0.0.1:9092"}
        with OrderedConsumer(["orders", "payments"], "matcher", conf=conf) as consumer:
            for record in consumer:
                print(record.timestamp()[1], record.topic(), record.value())

    A record counts as processed when the next one is asked for, or when the ``with`` block ends
    without an error. Only processed ones are committed, never those that are merely buffered: every
    ``auto.commit.interval.ms``, when partitions go to another member, and at the end. So each
    record is processed at least once; and exactly once unless a member dies. With
    ``enable.auto.commit`` false only :meth:`commit` does it.

    Usable from one thread at a time.

    :param topics: with equal numbers of partitions. They are not created; the order of topics
        breaks ties
    :param group_id: all its members must subscribe to the same topics
    :param max_task_idle_ms: -1: never wait, give what is at hand. 0: wait for records that the
        broker has. n: when a partition has been read to its end, wait also n milliseconds for what
        its producers may still send
    :param conf: librdkafka's configuration properties, with its defaults (``isolation.level`` is
        ``read_committed``), but ``auto.offset.reset`` is ``earliest``, ``fetch.wait.max.ms`` 100,
        ``fetch.queue.backoff.ms`` 5, ``queued.min.messages`` 10,000 and
        ``topic.metadata.refresh.interval.ms`` 10,000 unless given here
    :param max_buffered_records: of one partition. One that has more is paused, until half of them
        are processed
    :raises InvalidTopics: a topic is missing, or they are not co-partitioned
    :raises ValueError: an argument is wrong
    :raises ConnectionFailed: no broker of the cluster can be reached
    """

    def __init__(
        self,
        topics: Sequence[str],
        group_id: str,
        max_task_idle_ms: int = 0,
        *,
        conf: Mapping[str, Any],
        max_buffered_records: int = MAX_BUFFERED_RECORDS,
    ) -> None:
        self.topics = checked_topics(topics)
        Readiness(self.topics, max_task_idle_ms)
        if max_buffered_records < 1:
            raise ValueError(
                f"max_buffered_records is {max_buffered_records}: it must be at least 1"
            )
        self._group_id, self._idle_ms, self._max_buffered = (
            group_id,
            max_task_idle_ms,
            max_buffered_records,
        )
        self._stores_offsets = str(conf.get("enable.auto.commit", "true")).lower() == "true"
        self._is_incremental = str(conf.get("group.protocol", "classic")).lower() == "consumer"
        self._tasks: dict[int, OrderedTask[PartitionName, Message]] = {}
        self._turns: deque[int] = deque()
        self._assigned: set[PartitionName] = set()
        self._paused: set[PartitionName] = set()
        self._in_hand: tuple[PartitionName, Message] | None = None
        self._processed: dict[PartitionName, Message] = {}
        self._stored: dict[PartitionName, int] = {}
        self._before_look = 0
        self._last_look_s = self._last_store_s = self._next_check_s = 0.0
        self._problem: Exception | None = None
        self._is_closed = False
        self._clock_offset_s = time.time() - time.monotonic()
        self._servers = str(conf.get("bootstrap.servers"))
        self._consumer = LagConsumer(consumer_config(conf, group_id, self._is_incremental))
        try:
            check_co_partitioned(self._consumer, self.topics, self._servers)
            self._consumer.subscribe(
                list(self.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        except BaseException:
            self.close()
            raise

    # For the application.

    def poll(self, timeout: float | None = None) -> Message | None:
        """The next record, or None when none is due within ``timeout`` seconds (None: wait for
        ever).

        :raises KafkaException: an error that the consumer does not get over by itself; further
            calls raise it again when it leaves a partition that nobody reads
        :raises InvalidTopics: the topics, or what this member was given of them, no longer fit
            together; so does every further call
        """
        if self._in_hand is not None:
            self._processed[self._in_hand[0]] = self._in_hand[1]
            self._in_hand = None
        if not self._before_look:
            self._look_if_needed()
        record = self._take()
        return record if record is not None else self._wait(timeout)

    def _wait(self, timeout: float | None) -> Message | None:
        deadline_s = None if timeout is None else time.monotonic() + timeout
        self._look(0)
        while (record := self._take()) is None:
            wait_s = self._wait_s()
            if deadline_s is not None:
                wait_s = min(wait_s, deadline_s - time.monotonic())
                if wait_s <= 0:
                    return None
            self._look(wait_s)
        return record

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._is_closed:
            raise StopIteration
        record = self.poll()
        assert record is not None
        return record

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the partition has beyond the records handed out; None when that is not
        known.

        It never waits for a broker; see :meth:`LagConsumer.current_lag`.

        :raises KafkaException: the partition is not assigned to this member (``_STATE``)
        """
        lag = self._consumer.current_lag(partition)
        if lag is None:
            return None
        name = PartitionName(partition.topic, partition.partition)
        position, next_offset = self._consumer.position_of(name), self._position(name)
        return lag if position is None or next_offset is None else lag + position - next_offset

    def commit(self) -> None:
        """Commit the positions after all records handed out so far, and wait until it is done.

        :raises KafkaException: the coordinator has refused it, or is not to be reached
        """
        if self._in_hand is not None:
            self._processed[self._in_hand[0]] = self._in_hand[1]
        offsets = self._offsets(self._assigned)
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member has now."""
        return [TopicPartition(*name) for name in sorted(self._assigned)]

    def metrics(self) -> dict[int, TaskMetrics]:
        """What each task of this member has done since it got it, by partition number."""
        return {index: self._tasks[index].metrics() for index in sorted(self._tasks)}

    def close(self) -> None:
        """Commit what has been processed, unless auto-commit is off, and leave the group.

        The record handed out last is not among that: nobody knows. Ask for the next one first, or
        :meth:`commit`.
        """
        if not self._is_closed:
            self._is_closed = True
            self._store()
            self._consumer.close()
            self._tasks.clear()
            self._turns.clear()
            self._assigned.clear()

    def __enter__(self) -> OrderedConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._in_hand is not None:
            self._processed[self._in_hand[0]] = self._in_hand[1]
            self._in_hand = None
        self.close()

    # Records.

    def _now_ms(self) -> int:
        """Milliseconds since 1970 that do not jump when somebody sets the clock."""
        return int((time.monotonic() + self._clock_offset_s) * 1000)

    def _take(self) -> Message | None:
        """The next record of the task whose turn it is, or of the first one after it that has
        any."""
        now_ms = self._now_ms()
        for _ in range(len(self._turns)):
            taken = self._tasks[self._turns[0]].take(now_ms)
            if taken is not None:
                self._in_hand = taken
                self._before_look -= 1
                return taken[1]
            self._turns.rotate(-1)
        return None

    def _look_if_needed(self) -> None:
        """Between two turns: listen to the broker when records may be lacking, or when it has been
        a while.
        """
        self._turns.rotate(-1)
        lacking = any(task.merge.empty_queues for task in self._tasks.values())
        if lacking or not self._tasks or time.monotonic() - self._last_look_s >= POLL_INTERVAL_S:
            self._look(0)
        else:
            self._before_look = LOOK_RECORDS

    def _look(self, wait_s: float) -> None:
        """Take over what has arrived, waiting for the first record if need be, and what is known of
        lags.
        """
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        now_s = time.monotonic()
        if now_s - self._last_store_s >= POLL_INTERVAL_S:
            self._store()
            self._last_store_s = now_s
        found = self._listen(wait_s)
        for name, messages in found.items():
            if name in self._assigned:
                self._tasks[name.partition].add(
                    name, [(message.timestamp()[1], message) for message in messages]
                )
        self._pause_and_resume(found)
        if self._problem is None and self._is_incremental:
            self._check_inputs()
        if self._problem is not None:
            # again and again: what cannot be read any more would be waited for silently
            raise self._problem
        now_ms = self._now_ms()
        for task in self._tasks.values():
            if task.merge.empty_queues and self._idle_ms != IDLING_DISABLED:
                task.update_lags(
                    {
                        name: self._consumer.known_lag(name)
                        for name in task.partitions
                        if name in self._assigned and not task.merge.count(name)
                    }
                )
                if (text := task.to_log(now_ms)) is not None:
                    logger.info("%s", text)
                elif task.decision is not None and task.decision.is_enforced:
                    logger.debug("%s", task.decision)
        self._before_look, self._last_look_s = LOOK_RECORDS, time.monotonic()

    def _listen(self, wait_s: float) -> dict[PartitionName, list[Message]]:
        try:
            return self._consumer.consume_by_partition(MAX_POLL_RECORDS, wait_s)
        except KafkaException as error:
            problem, is_lasting = explained(error)
            if not is_lasting:
                raise
            self._problem = self._problem or problem
            return {}

    def _wait_s(self) -> float:
        """How long to wait for records: no longer than until some task is ready without any."""
        deadlines = [
            ms for task in self._tasks.values() if (ms := task.next_deadline_ms()) is not None
        ]
        return min(
            [POLL_INTERVAL_S, *(max(0.001, (ms - self._now_ms()) / 1000) for ms in deadlines)]
        )

    def _pause_and_resume(self, grown: Iterable[PartitionName]) -> None:
        names = self._paused.union(grown) & self._assigned
        counts = {name: self._tasks[name.partition].merge.count(name) for name in names}
        full = [
            name
            for name, count in counts.items()
            if count >= self._max_buffered and name not in self._paused
        ]
        drained = [name for name in self._paused if counts[name] <= self._max_buffered // 2]
        if full:
            self._consumer.pause([TopicPartition(*name) for name in full])
            self._paused.update(full)
        if drained:
            self._consumer.resume([TopicPartition(*name) for name in drained])
            self._paused.difference_update(drained)

    # Positions.

    def _position(self, name: PartitionName) -> int | None:
        """What comes after the records of ``name`` that have been handed out."""
        task = self._tasks[name.partition]
        head = task.merge.peek(name)
        return self._consumer.position_of(name) if head is None else head.offset()

    def _offsets(self, names: set[PartitionName]) -> list[TopicPartition]:
        """What there is to commit of ``names``: the positions after what has been processed."""
        offsets = []
        for name in names:
            processed = self._processed.get(name)
            held = (
                self._in_hand is not None
                and self._in_hand[0] == name
                and processed is not self._in_hand[1]
            )
            # With nothing of it in flight, the position has passed transaction markers, too.
            position = (
                None
                if held or self._tasks[name.partition].merge.count(name)
                else self._position(name)
            )
            after = None if processed is None else (processed.offset() or 0) + 1
            if (
                processed is not None
                and after is not None
                and (position is None or position <= after)
            ):
                offsets.append(TopicPartition(*name, after, leader_epoch=processed.leader_epoch()))
            elif position is not None:
                offsets.append(TopicPartition(*name, position))
        return offsets

    def _store(self) -> None:
        """Leave to librdkafka what it is to commit with its next automatic commit."""
        if not self._stores_offsets:
            return
        changed = [
            offset
            for offset in self._offsets(self._assigned)
            if self._stored.get(PartitionName(offset.topic, offset.partition)) != offset.offset
        ]
        if changed:
            try:
                self._consumer.store_offsets(offsets=changed)
            except KafkaException as error:
                logger.warning(
                    "the processed offsets cannot be stored, and are not committed: %s", error
                )
                return
            self._stored.update((PartitionName(o.topic, o.partition), o.offset) for o in changed)

    # The group.

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        names = {PartitionName(p.topic, p.partition) for p in partitions}
        self._assigned |= names
        for index in sorted({name.partition for name in names} - self._tasks.keys()):
            self._tasks[index] = OrderedTask(
                [PartitionName(topic, index) for topic in self.topics], self._idle_ms
            )
            self._turns.append(index)
        self._before_look = 0
        # With the consumer protocol the rest may come with a later heartbeat: an input that is not
        # assigned has no known lag, so that its task waits.
        if not self._is_incremental:
            try:
                self._check_assignment()
            except Exception as problem:  # a callback has nobody to raise to: poll() does it
                self._problem = problem

    def _check_assignment(self) -> None:
        missing = {
            name for task in self._tasks.values() for name in task.partitions
        } - self._assigned
        if missing:
            check_co_partitioned(self._consumer, self.topics, self._servers)
            raise InvalidTopics(
                f"this member of group '{self._group_id}' was not given {min(missing)}, "
                f"which belongs to one of its "
                f"tasks: all members must subscribe to exactly {', '.join(self.topics)}"
            )

    def _check_inputs(self) -> None:
        """With the consumer protocol inputs come and go one by one: see now and then that those
        which lack exist.
        """
        now_s = time.monotonic()
        if len(self._assigned) == len(self._tasks) * len(self.topics):
            self._next_check_s = now_s + CHECK_INTERVAL_S
        elif now_s >= self._next_check_s:
            self._next_check_s = now_s + CHECK_INTERVAL_S
            try:
                check_co_partitioned(self._consumer, self.topics, self._servers)
            except InvalidTopics as problem:
                self._problem = problem
            except ConnectionFailed as error:
                logger.warning("the topics cannot be looked up now: %s", error)

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._store()  # librdkafka commits it before it lets go of the partitions
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._consumer.resume(partitions)  # or they would come back paused
        for partition in partitions:
            name = PartitionName(partition.topic, partition.partition)
            self._assigned.discard(name)
            self._paused.discard(name)
            self._processed.pop(name, None)
            self._stored.pop(name, None)
            if name.partition in self._tasks:
                self._tasks[name.partition].discard(name)
        for index in self._tasks.keys() - {name.partition for name in self._assigned}:
            del self._tasks[index]
            self._turns.remove(index)
