"""A consumer of several topics in the order of their timestamps (KIP-695)."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from headrace.client.config import check_login, librdkafka_config
from headrace.client.errors import (
    ClientError,
    ConnectionFailed,
    RequestRefused,
    UnsupportedSetting,
    missing_permission,
)
from headrace.log_lines import get_logger
from headrace.ordered.ordered_task import OrderedTask, TaskMetrics
from headrace.ordered.readiness import IDLING_DISABLED
from headrace.protocol.partitions import TopicPartition

from .lag_consumer import LagConsumer, partition_key

logger = get_logger(__name__)

MAX_BUFFERED_RECORDS = 20_000
"""The number of buffered records at which a partition is paused. Kafka Streams has 1,000
(``buffered.records.per.partition``); but librdkafka discards the fetched records of a paused
partition, so pausing must be rarer.
"""

MAX_POLL_RECORDS = 2_000
"""The number of records taken from librdkafka at a time."""

RECORDS_PER_TURN = 100
"""The number of records of one task before the next task's turn. Between turns the broker is polled
if a task lacks records.
"""

CHECK_INTERVAL_S = 5.0
"""The interval of looking up the topics while inputs of a task are not assigned."""

METADATA_TIMEOUT_S = 10.0
"""The timeout of looking up one topic."""

_NO_EPOCH = -1

POLL_INTERVAL_S = 0.1
"""The longest wait for records, and the longest time without polling the broker."""


class OrderedConsumer:
    """A consumer of co-partitioned topics that returns records in the order of their timestamps.

    Partition *i* of every topic belongs to task *i*, as in Kafka Streams. Within a task the next
    record is the one with the smallest timestamp. It is returned once no partition can have an
    earlier one, or ``max_task_idle`` ends the wait for one (docs/behaviour/ordered.md).
    Records of different tasks have no order. The members of a group share the tasks::

        conf = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "matcher"}
        with OrderedConsumer(conf, ["orders", "payments"]) as consumer:
            for record in consumer:
                print(record.timestamp()[1], record.topic(), record.value())

    A record is processed when the next one is requested, or the ``with`` block ends without an
    error. Only offsets of processed records are committed: every ``auto.commit.interval.ms``, when
    partitions are revoked, and at the end. So each record is processed at least once, and exactly
    once unless a member fails. With ``enable.auto.commit`` false, only :meth:`commit` commits.

    Use it from one thread at a time. Its methods raise :class:`headrace.client.ClientError`.

    :param conf: librdkafka's configuration properties; ``group.id`` is a group whose members all
        subscribe to these topics. The defaults are librdkafka's
        (``isolation.level`` is ``read_committed``), except that ``auto.offset.reset`` is
        ``earliest``, ``fetch.wait.max.ms`` 100, ``fetch.queue.backoff.ms`` 5,
        ``queued.min.messages`` 10,000 and ``topic.metadata.refresh.interval.ms`` 10,000
    :param topics: topics with equal numbers of partitions, which must exist. Their order breaks
        ties of timestamps
    :param max_task_idle: seconds. 0: wait for records that the broker has. More: wait as much
        longer for new records of a partition that was read to its end. None: never wait, return
        available records
    :param max_buffered_records: the number of buffered records at which a partition is paused,
        until half of them are processed
    :raises ValueError: an argument is wrong
    :raises UnsupportedSetting: a property is wrong
    :raises InvalidTopics: a topic is missing, or the topics are not co-partitioned
    :raises ConnectionFailed: no broker can be reached
    :raises AuthenticationFailed: the brokers do not accept the security settings
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        *,
        max_task_idle: float | None = 0,
        max_buffered_records: int = MAX_BUFFERED_RECORDS,
    ) -> None:
        if isinstance(topics, str) or not topics or len(set(topics)) != len(topics):
            raise ValueError(f"topics is {topics!r}: give a list of one or more different names")
        self.topics = tuple(topics)
        if max_task_idle is not None and not max_task_idle >= 0:
            raise ValueError(
                f"max_task_idle is {max_task_idle}: it may be None (never wait), 0 (wait for what "
                "the broker has) or a number of seconds to wait for producers, too"
            )
        self._idle_ms = IDLING_DISABLED if max_task_idle is None else round(max_task_idle * 1000)
        if max_buffered_records < 1:
            raise ValueError(
                f"max_buffered_records is {max_buffered_records}: it must be at least 1"
            )
        self._max_buffered = max_buffered_records
        self._stores_offsets = str(conf.get("enable.auto.commit", "true")).lower() == "true"
        self._is_incremental = str(conf.get("group.protocol", "classic")).lower() == "consumer"
        self._tasks: dict[int, OrderedTask[TopicPartition, Message]] = {}
        self._turns: deque[int] = deque()
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._handed_out: tuple[TopicPartition, Message] | None = None
        self._processed: dict[TopicPartition, Message] = {}
        self._stored: dict[TopicPartition, int] = {}
        self._left_in_turn = 0
        self._last_poll_s = self._last_store_s = self._next_check_s = 0.0
        self._problem: Exception | None = None
        self._is_closed = False
        self._clock_offset_s = time.time() - time.monotonic()
        self._conf = librdkafka_config(conf)
        if not self._conf.get("group.id"):
            raise UnsupportedSetting("group.id is missing: set it in conf to the group to join")
        self._group_id = str(self._conf["group.id"])
        self._servers = str(self._conf.get("bootstrap.servers"))
        config = consumer_config(self._conf, self._is_incremental)
        check_login(self._conf)
        self._is_login_in_doubt = False
        with translated_errors(self._group_id):
            self._consumer = LagConsumer({**config, "error_cb": self._on_error})
        try:
            self._check_co_partitioned()
            self._consumer.subscribe(
                list(self.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        except BaseException:
            self.close()
            raise

    # -- for the application

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record; None if there is none within ``timeout`` seconds.

        :param timeout: None waits without limit
        :raises InvalidTopics: the topics or the assignment are not co-partitioned any more; further
            calls raise it again
        :raises AuthenticationFailed: the brokers do not accept the login any more
        :raises ClientError: an error that librdkafka does not recover from; if a partition is not
            read any more, further calls raise it again. Or the consumer is closed
        """
        self._finish_record()
        if not self._left_in_turn:
            self._poll_broker_if_due()
        if (record := self._take()) is None:
            deadline_s = math.inf if timeout is None else time.monotonic() + timeout
            self._poll_broker(0)
            while (record := self._take()) is None:
                wait_s = min(self._wait_s(), deadline_s - time.monotonic())
                if wait_s <= 0:
                    return None
                self._poll_broker(wait_s)
        return record

    def _finish_record(self) -> None:
        """Count the last returned record as processed."""
        if self._handed_out is not None:
            key, record = self._handed_out
            self._processed[key] = record
            self._handed_out = None

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._is_closed:
            raise StopIteration
        record = self.poll()
        assert record is not None
        return record

    def current_lag(self, partition: ConfluentPartition) -> int | None:
        """Return the number of offsets from the last returned record to the end of a partition.

        None if it is unknown. It never waits for a broker; see :meth:`LagConsumer.current_lag`.

        :raises ClientError: the partition is not assigned to this member, or the consumer is closed
        """
        self._check_open()
        key = partition_key(partition)
        with translated_errors(self._group_id):
            lag = self._consumer.current_lag(partition)
            position, next_offset = self._consumer.position_of(key), self._position(key)
        if lag is None or position is None or next_offset is None:
            return lag
        return lag + position - next_offset

    def commit(self) -> None:
        """Commit the offsets after all returned records, and wait for the response.

        :raises ClientError: the coordinator refuses, or cannot be reached; or the consumer is
            closed
        """
        self._check_open()
        self._finish_record()
        offsets = self._offsets()
        if offsets:
            with translated_errors(self._group_id):
                self._consumer.commit(offsets=offsets, asynchronous=False)

    def assignment(self) -> list[ConfluentPartition]:
        """Return the assigned partitions."""
        return [ConfluentPartition(*key) for key in sorted(self._assigned)]

    def metrics(self) -> dict[int, TaskMetrics]:
        """Return the metrics of each task since its assignment, by partition number."""
        return {index: self._tasks[index].metrics() for index in sorted(self._tasks)}

    def close(self) -> None:
        """Commit the offsets of processed records, unless auto-commit is off, and leave the group.

        The last returned record does not count as processed. To include it, call :meth:`commit`.
        """
        if not self._is_closed:
            self._is_closed = True
            self._store()
            self._send_commit()
            self._consumer.close()
            self._tasks.clear()
            self._turns.clear()
            self._assigned.clear()

    def __enter__(self) -> OrderedConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish_record()
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError(f"the consumer of group '{self._group_id}' is closed")

    # -- records

    def _now_ms(self) -> int:
        """Return the time in ms since the epoch. It does not jump when the clock is set."""
        return int((time.monotonic() + self._clock_offset_s) * 1000)

    def _take(self) -> Message | None:
        """Return the next record of the current task, or of the first task after it with one."""
        now_ms = self._now_ms()
        for _ in range(len(self._turns)):
            taken = self._tasks[self._turns[0]].take(now_ms)
            if taken is not None:
                self._handed_out = taken
                self._left_in_turn -= 1
                return taken[1]
            self._turns.rotate(-1)
        return None

    def _poll_broker_if_due(self) -> None:
        """End a turn: poll the broker if a task lacks records, or the last poll is long ago."""
        self._turns.rotate(-1)
        lacking = any(task.empty_queues for task in self._tasks.values())
        if lacking or not self._tasks or time.monotonic() - self._last_poll_s >= POLL_INTERVAL_S:
            self._poll_broker(0)
        else:
            self._left_in_turn = RECORDS_PER_TURN

    def _poll_broker(self, wait_s: float) -> None:
        """Take records from librdkafka, and update the lags of empty partitions.

        :param wait_s: longest wait for the first record
        """
        self._check_open()
        now_s = time.monotonic()
        if now_s - self._last_store_s >= POLL_INTERVAL_S:
            self._store()
            self._last_store_s = now_s
        messages_of: dict[TopicPartition, list[Message]] = {}
        try:
            messages_of = self._consumer.consume_by_partition(MAX_POLL_RECORDS, wait_s)
        except KafkaException as error:
            problem = translated(error.args[0], self._group_id)
            if not is_lasting(error.args[0]):
                raise problem from None
            self._problem = self._problem or problem
        if self._is_login_in_doubt:
            self._is_login_in_doubt = False
            check_login(self._conf)
        for key, messages in messages_of.items():
            if key in self._assigned:
                self._tasks[key[1]].add(
                    key, [(message.timestamp()[1], message) for message in messages]
                )
        self._pause_and_resume(messages_of)
        if self._problem is None and self._is_incremental:
            self._check_inputs()
        if self._problem is not None:
            # Raise it on every call: waiting for a partition that is not read would hide it.
            raise self._problem
        now_ms = self._now_ms()
        for task in self._tasks.values():
            if task.empty_queues and self._idle_ms != IDLING_DISABLED:
                task.update_lags(
                    {
                        key: self._consumer.known_lag(key)
                        for key in task.partitions
                        if key in self._assigned and not task.count(key)
                    }
                )
                if (text := task.to_log(now_ms)) is not None:
                    logger.info("%s", text)
                elif task.decision is not None and task.decision.is_enforced:
                    logger.debug("%s", task.decision)
        self._left_in_turn, self._last_poll_s = RECORDS_PER_TURN, time.monotonic()

    def _wait_s(self) -> float:
        """Return the longest wait for records: until a task is ready without more of them."""
        deadlines_ms = (task.next_deadline_ms() for task in self._tasks.values())
        first_ms = min((ms for ms in deadlines_ms if ms is not None), default=math.inf)
        return min(POLL_INTERVAL_S, max(0.001, (first_ms - self._now_ms()) / 1000))

    def _pause_and_resume(self, grown: Iterable[TopicPartition]) -> None:
        for key in self._paused.union(grown) & self._assigned:
            count = self._tasks[key[1]].count(key)
            if key in self._paused and count <= self._max_buffered // 2:
                self._consumer.resume([ConfluentPartition(*key)])
                self._paused.remove(key)
            elif key not in self._paused and count >= self._max_buffered:
                self._consumer.pause([ConfluentPartition(*key)])
                self._paused.add(key)

    def _on_error(self, error: KafkaError) -> None:
        """Note an error that librdkafka retries without end, and may be about the login."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._is_login_in_doubt = True
        callback = self._conf.get("error_cb")
        if callback is not None:
            callback(error)

    # -- positions

    def _position(self, key: TopicPartition) -> int | None:
        """Return the offset after the returned records of a partition."""
        head = self._tasks[key[1]].peek(key)
        return self._consumer.position_of(key) if head is None else head.offset()

    def _offsets(self) -> list[ConfluentPartition]:
        """Return the offsets to commit: those after the processed records."""
        offsets = []
        for key in self._assigned:
            processed = self._processed.get(key)
            is_in_hand = self._handed_out is not None and self._handed_out[0] == key
            # Without buffered records, the position is also after transaction markers.
            is_buffered = self._tasks[key[1]].count(key)
            position = None if is_in_hand or is_buffered else self._position(key)
            after, epoch = position, None
            if processed is not None:
                next_offset = (processed.offset() or 0) + 1
                if position is None or position <= next_offset:
                    after, epoch = next_offset, processed.leader_epoch()
            if after is not None:
                leader_epoch = _NO_EPOCH if epoch is None else epoch
                offsets.append(ConfluentPartition(*key, after, leader_epoch=leader_epoch))
        return offsets

    def _store(self) -> None:
        """Store changed offsets for librdkafka's next automatic commit."""
        if not self._stores_offsets:
            return
        changed = [
            offset
            for offset in self._offsets()
            if self._stored.get(partition_key(offset)) != offset.offset
        ]
        if changed:
            try:
                self._consumer.store_offsets(offsets=changed)
            except KafkaException as error:
                logger.warning("cannot store processed offsets for the next commit: %s", error)
                return
            self._stored.update((partition_key(offset), offset.offset) for offset in changed)

    def _send_commit(self) -> None:
        """Send a commit of the processed offsets, before librdkafka leaves the group.

        librdkafka commits stored offsets when it closes. If it has just begun to rebalance, for
        instance because a topic was deleted, it does so after leaving, and is refused.
        """
        offsets = self._offsets() if self._stores_offsets else []
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:
                logger.warning("cannot commit processed offsets: %s", error)

    # -- the group

    def _on_assign(self, _: Any, partitions: list[ConfluentPartition]) -> None:
        keys = set(map(partition_key, partitions))
        self._assigned |= keys
        for index in sorted({number for _, number in keys} - self._tasks.keys()):
            self._tasks[index] = OrderedTask(
                [(topic, index) for topic in self.topics], self._idle_ms
            )
            self._turns.append(index)
        self._left_in_turn = 0
        # With the consumer protocol, a later heartbeat may assign the other inputs of a task. Until
        # then their lag is unknown, so the task waits.
        if not self._is_incremental:
            try:
                self._check_assignment()
            except Exception as problem:  # a callback cannot raise: poll() does
                self._problem = problem

    def _check_assignment(self) -> None:
        missing = {key for task in self._tasks.values() for key in task.partitions} - self._assigned
        if missing:
            self._check_co_partitioned()
            topic, number = min(missing)
            raise InvalidTopics(
                f"this member of group '{self._group_id}' was not assigned {topic}-{number}, which "
                f"belongs to one of its tasks: all members must subscribe to exactly "
                f"{', '.join(self.topics)}"
            )

    def _check_inputs(self) -> None:
        """Check at intervals that unassigned inputs of tasks exist.

        The consumer protocol assigns the inputs of a task one by one.
        """
        now_s = time.monotonic()
        if len(self._assigned) == len(self._tasks) * len(self.topics):
            self._next_check_s = now_s + CHECK_INTERVAL_S
        elif now_s >= self._next_check_s:
            self._next_check_s = now_s + CHECK_INTERVAL_S
            try:
                self._check_co_partitioned()
            except InvalidTopics as problem:
                self._problem = problem
            except ConnectionFailed as error:
                logger.warning("cannot look up the topics: %s", error)

    def _check_co_partitioned(self) -> None:
        """Check that the topics have equal numbers of partitions. Creates no topic.

        :raises InvalidTopics: a topic is missing, or they differ
        :raises ConnectionFailed: no broker answers
        """
        counts: dict[str, int] = {}
        for topic in self.topics:
            try:
                cluster = self._consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
            except KafkaException as error:
                raise ConnectionFailed(
                    f"{self._servers} cannot be reached: {error.args[0].str()}"
                ) from None
            metadata = cluster.topics.get(topic)
            if metadata is None:
                raise InvalidTopics(
                    f"topic '{topic}' is missing in the metadata of {self._servers}"
                )
            if metadata.error is not None:
                needs = missing_permission(metadata.error.code(), f"DESCRIBE on topic '{topic}'")
                reason = metadata.error.str() + (f": {needs}" if needs else "")
                raise InvalidTopics(f"topic '{topic}' cannot be read: {reason}")
            counts[topic] = len(metadata.partitions)
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"'{topic}' has {count}" for topic, count in counts.items())
            raise InvalidTopics(
                f"the topics are not co-partitioned: of partitions, {listed}; they need equal "
                "numbers"
            )

    def _on_revoke(self, consumer: Any, partitions: list[ConfluentPartition]) -> None:
        self._store()  # librdkafka commits it before it revokes the partitions
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Any, partitions: list[ConfluentPartition]) -> None:
        self._consumer.resume(partitions)  # a later assignment would find them paused
        for key in map(partition_key, partitions):
            self._assigned.discard(key)
            self._paused.discard(key)
            self._processed.pop(key, None)
            self._stored.pop(key, None)
            if key[1] in self._tasks:
                self._tasks[key[1]].discard(key)
        for index in self._tasks.keys() - {number for _, number in self._assigned}:
            del self._tasks[index]
            self._turns.remove(index)


# Configuration and errors -------------------------------------------------------------------------

_CONNECTION_ERRORS = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)


class InvalidTopics(ClientError):
    """A topic is missing, or the topics are not co-partitioned. The text is one line."""


def consumer_config(conf: Mapping[str, Any], is_incremental: bool) -> dict[str, Any]:
    """Return the configuration of the inner consumer.

    :param is_incremental: whether the consumer protocol is used (KIP-848)
    :raises UnsupportedSetting: a property contradicts those that are needed
    """
    # Only the range assignor assigns partition i of every topic to one member.
    assignor = "group.remote.assignor" if is_incremental else "partition.assignment.strategy"
    if str(conf.get(assignor, "range")) != "range":
        raise UnsupportedSetting(
            f"{assignor} is '{conf[assignor]}': it must be 'range', so that tasks get all "
            f"their inputs"
        )
    return {
        "auto.offset.reset": "earliest",
        # A fetch of inputs at their end delays the fetch of others by at most this time.
        "fetch.wait.max.ms": 100,
        # An input with enough fetched records may soon need more: librdkafka's default pauses it
        # for a second.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 10_000,
        # Detect deleted topics and new partitions sooner than librdkafka's default of 5 minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
        **conf,
        "enable.auto.offset.store": False,
        assignor: "range",
    }


def translated(error: KafkaError, group_id: str) -> ClientError:
    """Return an error of the inner consumer as one of headrace's."""
    code, text = error.code(), error.str()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return InvalidTopics(text)
    if code in _CONNECTION_ERRORS:
        return ConnectionFailed(text)
    if code > 0:
        is_about_group = code == KafkaError.GROUP_AUTHORIZATION_FAILED
        needs = f"READ on group '{group_id}'" if is_about_group else None
        return RequestRefused(f"reading as group '{group_id}'", code, text, needs)
    return ClientError(text)


def is_lasting(error: KafkaError) -> bool:
    """Return whether a partition is not read any more after an error of the inner consumer."""
    return error.fatal() or error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTO_OFFSET_RESET,
    )


@contextmanager
def translated_errors(group_id: str) -> Iterator[None]:
    """Raise errors of the inner consumer in the block as headrace's."""
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0], group_id) from None
