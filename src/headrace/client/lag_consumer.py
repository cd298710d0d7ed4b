"""confluent-kafka's consumer, extended by ``current_lag`` (KIP-695)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headrace.client.errors import missing_permission
from headrace.client.settings import librdkafka_config
from headrace.log_lines import get_logger
from headrace.ordered import CurrentLag

logger = get_logger(__name__)

ListedEnd = tuple["PartitionName", int | None, int | None]
"""(partition, position at the time of the request, end offset or None if the request failed)"""

_LIST_OFFSETS_TIMEOUT_S = 1.0
"""The timeout of a background request, and the longest time that closing waits for one."""

CLOSE_TIMEOUT_S = 30.0
"""The longest time that closing waits for librdkafka: the default of Kafka's own consumer."""


class PartitionName(NamedTuple):
    """A partition as a key, and in log lines: ``orders-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def _name_of(message: Any) -> PartitionName:
    return PartitionName(message.topic(), message.partition())


def _name(partition: Any) -> PartitionName:
    return PartitionName(partition.topic, partition.partition)


class LagConsumer(Consumer):
    """``confluent_kafka.Consumer`` with :meth:`current_lag`::

        consumer = LagConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"})
        consumer.subscribe(["orders"])
        message = consumer.poll(1.0)
        consumer.current_lag(TopicPartition("orders", 0))    # 41, or None while unknown

    It takes end offsets from fetch responses, with or without records. For that it sets
    ``enable.partition.eof``, and drops the events unless ``conf`` sets it too.

    :param conf: librdkafka's configuration properties
    """

    def __init__(self, conf: Mapping[str, Any], **more: Any) -> None:
        self._lags: dict[PartitionName, CurrentLag] = {}
        self._read_committed = (
            str(conf.get("isolation.level", "read_committed")) == "read_committed"
        )
        self._shows_eof = str(conf.get("enable.partition.eof", "false")).lower() == "true"
        self._asker: _EndOffsets | None = None
        self._failure: KafkaException | None = None
        self._is_closed = False
        config = {**librdkafka_config(conf), "enable.partition.eof": True}
        super().__init__(config, **more)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets from the position to the end of a partition.

        It never waits for a broker: if the end is unknown, it starts a background request, and a
        later call returns the lag. The end is the high watermark; with read_committed it is the
        last stable offset.

        :returns: the lag, or None while it is unknown
        :raises KafkaException: the partition is not assigned to this consumer (``_STATE``)
        :raises RuntimeError: the consumer is closed
        """
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        name = _name(partition)
        if self._asker is not None:
            self._asker.hand_over(self._learn_end)
        lag = self.known_lag(name)
        if lag is None:
            if self._asker is None:
                self._asker = _EndOffsets(self)
            self._asker.ask(name, self._lags[name].position)
        return lag

    def known_lag(self, name: tuple[str, int]) -> int | None:
        """Return the lag of (topic, partition) like :meth:`current_lag`, but without a request.

        :raises KafkaException: the partition is not assigned to this consumer (``_STATE``)
        """
        lag = self._assigned(name)
        high_watermark = self._cached_high_watermark(name)
        if high_watermark is not None:
            lag.see_high_watermark(high_watermark)
        return lag.lag()

    def position_of(self, name: tuple[str, int]) -> int | None:
        """Return the offset after the last returned record of (topic, partition), or after the
        transaction markers behind it; None while unknown.

        :raises KafkaException: the partition is not assigned to this consumer (``_STATE``)
        """
        return self._assigned(name).position

    def _assigned(self, name: tuple[str, int]) -> CurrentLag:
        lag = self._lags.get(PartitionName(*name))
        if lag is None:
            message = f"No current assignment for partition {PartitionName(*name)}"
            raise KafkaException(KafkaError(KafkaError._STATE, message))
        return lag

    def _learn_end(self, name: PartitionName, asked_at: int | None, end: int | None) -> None:
        if name in self._lags and end is not None:
            self._lags[name].learn_end(end, asked_at)

    def _cached_high_watermark(self, name: tuple[str, int]) -> int | None:
        try:
            watermarks = self.get_watermark_offsets(TopicPartition(*name), cached=True)
        except KafkaException:
            return None  # librdkafka does not know the partition yet
        return watermarks[1] if watermarks is not None and watermarks[1] >= 0 else None

    # -- reading

    def poll(self, timeout: float | None = None) -> Message | None:
        """See ``confluent_kafka.Consumer``."""
        read = super().poll
        messages = self._wait_for(
            lambda left_s: [m for m in (read(left_s),) if m is not None], timeout
        )
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """See ``confluent_kafka.Consumer``."""
        read = super().consume
        return self._wait_for(lambda left_s: read(num_messages, left_s), timeout)

    def _wait_for(
        self, read: Callable[[float], list[Message]], timeout: float | None
    ) -> list[Message]:
        """Call ``read`` until it returns messages for the application, or ``timeout`` has passed.

        End-of-partition events do not count unless the application wants them.
        """
        endless = timeout is None or timeout < 0
        deadline_s = time.monotonic() + (0 if timeout is None else timeout)
        while messages := read(-1 if endless else max(0.0, deadline_s - time.monotonic())):
            if shown := self._track_positions(messages):
                return shown
        return []

    def consume_by_partition(
        self, num_messages: int, timeout: float
    ) -> dict[PartitionName, list[Message]]:
        """Return available messages by partition; wait for the first one up to ``timeout`` seconds.

        :raises KafkaException: an error that librdkafka does not recover from, once the records
            before it have been returned
        """
        messages = [] if self._failure is not None else super().consume(num_messages, 0)
        if not messages and timeout > 0 and self._failure is None:
            first = super().poll(timeout)
            messages = [] if first is None else [first, *super().consume(num_messages, 0)]
        found: dict[PartitionName, list[Message]] = {}
        at_end: dict[PartitionName, int] = {}
        topic, partition, run = None, None, []
        for message in messages:
            if message.error() is not None:
                name = self._handle_event(message)
                at_end[name] = len(found.get(name, ()))
                continue
            if message.partition() != partition or message.topic() != topic:
                topic, partition = message.topic(), message.partition()
                run = found.setdefault(PartitionName(topic, partition), [])  # type: ignore[arg-type]
            run.append(message)
        for name, run in found.items():
            if at_end.get(name) != len(run):
                self._advance(name, run[-1])
        if self._failure is not None and not found:
            failure, self._failure = self._failure, None
            raise failure
        return found

    def _track_positions(self, messages: Iterable[Message]) -> list[Message]:
        """Update the positions; return the messages for the application."""
        shown = []
        last: dict[PartitionName, Message] = {}
        for message in messages:
            error, name = message.error(), _name_of(message)
            if error is None:
                last[name] = message
            elif error.code() == KafkaError._PARTITION_EOF:
                last.pop(name, None)
                self._reach_end(name, message)
                if not self._shows_eof:
                    continue
            shown.append(message)
        for name, message in last.items():
            self._advance(name, message)
        return shown

    def _handle_event(self, message: Any) -> PartitionName:
        error, name = message.error(), _name_of(message)
        if error.code() == KafkaError._PARTITION_EOF:
            self._reach_end(name, message)
        elif self._failure is None and (
            error.fatal() or not (error.retriable() or error.code() in _TRANSIENT_ERRORS)
        ):
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                error = KafkaError(
                    error.code(),
                    f"{name} cannot be read from its position: {error.str()}; {_NO_RESET}",
                )
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                needs = missing_permission(error.code(), f"READ on topic '{name.topic}'")
                error = KafkaError(error.code(), f"{name} cannot be read: {error.str()}: {needs}")
            self._failure = KafkaException(error)
        return name

    def _reach_end(self, name: PartitionName, message: Any) -> None:
        if name in self._lags:
            self._lags[name].reach_end(message.offset())

    def _advance(self, name: PartitionName, last: Any) -> None:
        if name in self._lags:
            self._lags[name].advance(last.offset() + 1)

    def seek(self, partition: TopicPartition) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().seek(partition)
        lag = self._lags.get(_name(partition))
        if lag is not None:
            lag.position = partition.offset if partition.offset >= 0 else None

    # -- assignment

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[[Any, list[TopicPartition]], None] | None = None,
        on_revoke: Callable[[Any, list[TopicPartition]], None] | None = None,
        on_lost: Callable[[Any, list[TopicPartition]], None] | None = None,
    ) -> None:
        """See ``confluent_kafka.Consumer``."""

        def assigned(_: Any, partitions: list[TopicPartition]) -> None:
            if on_assign is not None:
                on_assign(self, partitions)
            self._track([p for p in partitions if _name(p) not in self._lags])

        def revoked(_: Any, partitions: list[TopicPartition]) -> None:
            if on_revoke is not None:
                on_revoke(self, partitions)
            self._forget(partitions)

        def lost(_: Any, partitions: list[TopicPartition]) -> None:
            if (callback := on_lost or on_revoke) is not None:
                callback(self, partitions)
            self._forget(partitions)

        super().subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().assign(partitions)
        self._lags = {}
        self._track(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().incremental_assign(partitions)
        self._track(partitions)

    def unassign(self) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().unassign()
        self._lags = {}

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().incremental_unassign(partitions)
        self._forget(partitions)

    def _track(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            name = _name(partition)
            start = partition.offset if partition.offset >= 0 else None
            self._lags[name] = CurrentLag(
                self._read_committed, start, self._cached_high_watermark(name)
            )

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._lags.pop(_name(partition), None)

    def close(self) -> None:
        """See ``confluent_kafka.Consumer``; it returns after 30 s at the latest.

        librdkafka waits without limit for the answer to a commit: of a broker that stands still, or
        refuses the login meanwhile. The group then notices at the end of the member's session.
        """
        if self._is_closed:
            return
        if self._asker is not None:
            self._asker.close()  # first: its thread uses librdkafka
        self._is_closed = True
        closed: Future[None] = Future()
        # A daemon: it does not hold up the end of the process.
        threading.Thread(
            target=self._close, args=(closed,), name="headrace-close", daemon=True
        ).start()
        try:
            closed.result(CLOSE_TIMEOUT_S)
        except TimeoutError:
            logger.warning(
                "the coordinator has not answered for %g s: the consumer ends without leaving its "
                "group, and its last commit may be lost",
                CLOSE_TIMEOUT_S,
            )
        self._lags = {}

    def _close(self, closed: Future[None]) -> None:
        try:
            closed.set_result(super().close())
        except BaseException as error:
            closed.set_exception(error)

    def __exit__(self, *_: object) -> None:
        self.close()


_NO_RESET = "reset the group's offsets, or set auto.offset.reset to earliest or latest"

_TRANSIENT_ERRORS = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)
"""Errors that librdkafka reports and recovers from, if necessary by joining the group again."""


class _EndOffsets:
    """A thread that asks for end offsets: one request at a time, for all partitions queued."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._questions: SimpleQueue[tuple[PartitionName, int | None] | None] = SimpleQueue()
        self._answers: SimpleQueue[ListedEnd] = SimpleQueue()
        self._asked: set[PartitionName] = set()
        self._thread = threading.Thread(target=self._work, name="headrace-end-offsets", daemon=True)
        self._thread.start()

    def ask(self, name: PartitionName, position: int | None) -> None:
        """Queue a request for the end of a partition, unless there is one.

        :param position: the position now
        """
        if name not in self._asked:
            logger.info("Requesting the log end offset for %s in order to compute lag", name)
            self._asked.add(name)
            self._questions.put((name, position))

    def hand_over(self, receive: Callable[[PartitionName, int | None, int | None], None]) -> None:
        """Call ``receive`` for each answer: partition, position at the request, end offset."""
        while not self._answers.empty():
            name, asked_at, end = self._answers.get()
            self._asked.discard(name)
            receive(name, asked_at, end)

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self._questions.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            wanted = dict([question])
            try:
                while (question := self._questions.get_nowait()) is not None:
                    wanted[question[0]] = question[1]
            except Empty:
                pass
            else:
                return
            found = self._list_ends(list(wanted))
            for name, position in wanted.items():
                self._answers.put((name, position, found.get(name)))

    def _list_ends(self, names: Sequence[PartitionName]) -> dict[PartitionName, int]:
        # OFFSET_END is -1, which as a timestamp of ListOffsets means the end at the consumer's
        # isolation level.
        partitions = [TopicPartition(*name, OFFSET_END) for name in names]
        try:
            found = self._consumer.offsets_for_times(partitions, timeout=_LIST_OFFSETS_TIMEOUT_S)
        except KafkaException as error:
            logger.debug("cannot look up log end offsets: %s", error)
            return {}
        return {_name(end): end.offset for end in found if end.error is None and end.offset >= 0}
