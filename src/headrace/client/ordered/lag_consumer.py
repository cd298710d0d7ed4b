"""confluent-kafka's consumer, extended by ``current_lag`` (KIP-695)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from headrace.client.config import librdkafka_config
from headrace.client.errors import missing_permission
from headrace.log_lines import get_logger
from headrace.ordered.current_lag import CurrentLag
from headrace.protocol.partitions import TopicPartition

logger = get_logger(__name__)

Callback = Callable[[Any, list[ConfluentPartition]], None]
"""Called with the consumer and partitions."""

_LIST_OFFSETS_TIMEOUT_S = 1.0
"""The timeout of a background request, and the longest time that closing waits for one."""

CLOSE_TIMEOUT_S = 30.0
"""The longest time that closing waits for librdkafka: the default of Kafka's own consumer."""


def partition_key(partition: Any) -> TopicPartition:
    """Return the key of one of confluent-kafka's partitions."""
    return partition.topic, partition.partition


def _key_of(message: Any) -> TopicPartition:
    return message.topic(), message.partition()


class LagConsumer(Consumer):
    """``confluent_kafka.Consumer`` with :meth:`current_lag`::

        conf = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}
        with LagConsumer(conf, ["orders"]) as consumer:
            message = consumer.poll(1.0)
            consumer.current_lag(TopicPartition("orders", 0))    # 41, or None while unknown

    It takes end offsets from fetch responses, with or without records. For that it sets
    ``enable.partition.eof``, and drops the events unless ``conf`` sets it too.

    It is a ``confluent_kafka.Consumer``, so that code for one can use it: its errors are
    ``KafkaException``, and RuntimeError after :meth:`close`.

    :param conf: librdkafka's configuration properties
    :param topics: to subscribe to; None leaves that to :meth:`subscribe` or :meth:`assign`
    :param more: other arguments of ``confluent_kafka.Consumer``, such as ``logger``
    """

    def __init__(
        self, conf: Mapping[str, Any], topics: Sequence[str] | None = None, **more: Any
    ) -> None:
        self._lags: dict[TopicPartition, CurrentLag] = {}
        self._read_committed = (
            str(conf.get("isolation.level", "read_committed")) == "read_committed"
        )
        self._shows_eof = str(conf.get("enable.partition.eof", "false")).lower() == "true"
        self._ends = ThreadPoolExecutor(1, "headrace-end-offsets")
        self._answer: Future[dict[TopicPartition, tuple[int, int]]] | None = None
        """The answer to the request for end offsets that is under way: end and earlier position."""
        self._failure: KafkaException | None = None
        self._is_closed = False
        config = {**librdkafka_config(conf), "enable.partition.eof": True}
        super().__init__(config, **more)
        if topics is not None:
            self.subscribe(list(topics))

    def current_lag(self, partition: ConfluentPartition) -> int | None:
        """Return the number of offsets from the position to the end of a partition.

        It never waits for a broker: if the end is unknown, it starts a background request about all
        partitions of which it is, and a later call returns the lag. The end is the high watermark;
        with read_committed it is the last stable offset.

        :returns: the lag, or None while it is unknown
        :raises KafkaException: the partition is not assigned to this consumer (``_STATE``)
        :raises RuntimeError: the consumer is closed
        """
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        if self._answer is not None and self._answer.done():
            for key, (end, position) in self._answer.result().items():
                if key in self._lags:
                    self._lags[key].learn_end(end, position)
            self._answer = None
        lag = self.known_lag(partition_key(partition))
        if lag is None and self._answer is None:
            positions: dict[TopicPartition, int] = {}
            for other, tracked in self._lags.items():
                if tracked.position is not None and self.known_lag(other) is None:
                    logger.info(
                        "Requesting the log end offset for %s-%d in order to compute lag", *other
                    )
                    positions[other] = tracked.position
            if positions:
                self._answer = self._ends.submit(self._list_ends, positions)
        return lag

    def known_lag(self, key: TopicPartition) -> int | None:
        """Return the lag of (topic, partition) like :meth:`current_lag`, but without a request.

        :raises KafkaException: the partition is not assigned to this consumer (``_STATE``)
        """
        lag = self._assigned(key)
        lag.see_high_watermark(self._cached_high_watermark(key))
        return lag.lag()

    def position_of(self, key: TopicPartition) -> int | None:
        """Return the offset after the last returned record of (topic, partition), or after the
        transaction markers behind it; None while unknown.

        :raises KafkaException: the partition is not assigned to this consumer (``_STATE``)
        """
        return self._assigned(key).position

    def _assigned(self, key: TopicPartition) -> CurrentLag:
        lag = self._lags.get(key)
        if lag is None:
            message = f"No current assignment for partition {key[0]}-{key[1]}"
            raise KafkaException(KafkaError(KafkaError._STATE, message))
        return lag

    def _list_ends(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        # OFFSET_END is -1, which as a timestamp of ListOffsets means the end at the consumer's
        # isolation level.
        partitions = [ConfluentPartition(*key, OFFSET_END) for key in positions]
        try:
            listed = self.offsets_for_times(partitions, timeout=_LIST_OFFSETS_TIMEOUT_S)
        except KafkaException as error:
            logger.debug("cannot look up log end offsets: %s", error)
            return {}
        return {
            partition_key(end): (end.offset, positions[partition_key(end)])
            for end in listed
            if end.error is None and end.offset >= 0
        }

    def _cached_high_watermark(self, key: TopicPartition) -> int:
        """Return the high watermark of the last fetch response; less than 0 while it is unknown."""
        try:
            watermarks = self.get_watermark_offsets(ConfluentPartition(*key), cached=True)
        except KafkaException:
            return -1  # librdkafka does not know the partition yet
        return -1 if watermarks is None else watermarks[1]

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
    ) -> dict[TopicPartition, list[Message]]:
        """Return available messages by partition; wait for the first one up to ``timeout`` seconds.

        :raises KafkaException: an error that librdkafka does not recover from, once the records
            before it have been returned
        """
        messages: list[Message] = []
        if self._failure is None:
            messages = super().consume(num_messages, 0)
            if not messages and timeout > 0 and (first := super().poll(timeout)) is not None:
                messages = [first, *super().consume(num_messages, 0)]
        messages_of: dict[TopicPartition, list[Message]] = {}
        for message in self._track_positions(messages):
            if message.error() is None:
                messages_of.setdefault(_key_of(message), []).append(message)
            else:
                self._note_failure(message)
        if self._failure is not None and not messages_of:
            failure, self._failure = self._failure, None
            raise failure
        return messages_of

    def _track_positions(self, messages: Iterable[Message]) -> list[Message]:
        """Update the positions; return the messages for the application."""
        shown = []
        last: dict[TopicPartition, Message] = {}
        for message in messages:
            error, key = message.error(), _key_of(message)
            if error is None:
                last[key] = message
            elif error.code() == KafkaError._PARTITION_EOF:
                last.pop(key, None)
                if key in self._lags:
                    self._lags[key].reach_end(message.offset() or 0)
                if not self._shows_eof:
                    continue
            shown.append(message)
        for key, message in last.items():
            if key in self._lags:
                self._lags[key].advance((message.offset() or 0) + 1)
        return shown

    def _note_failure(self, message: Any) -> None:
        """Note the first error that librdkafka does not recover from."""
        error, (topic, partition) = message.error(), _key_of(message)
        code, text = error.code(), error.str()
        is_passing = not error.fatal() and (error.retriable() or code in _TRANSIENT_ERRORS)
        if self._failure is not None or is_passing:
            return
        if code == KafkaError._AUTO_OFFSET_RESET:
            text = f"{topic}-{partition} cannot be read from its position: {text}; {_NO_RESET}"
            error = KafkaError(code, text)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            needs = missing_permission(code, f"READ on topic '{topic}'")
            error = KafkaError(code, f"{topic}-{partition} cannot be read: {text}: {needs}")
        self._failure = KafkaException(error)

    def seek(self, partition: ConfluentPartition) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().seek(partition)
        lag = self._lags.get(partition_key(partition))
        if lag is not None:
            lag.position = partition.offset if partition.offset >= 0 else None

    # -- assignment

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """See ``confluent_kafka.Consumer``."""

        def then(
            track: Callable[[Sequence[ConfluentPartition]], None],
            callback: Callback | None,
        ) -> Callback:
            def called(_: Any, partitions: list[ConfluentPartition]) -> None:
                if callback is not None:
                    callback(self, partitions)
                track(partitions)

            return called

        super().subscribe(
            topics,
            on_assign=then(self._track, on_assign),
            on_revoke=then(self._forget, on_revoke),
            on_lost=then(self._forget, on_lost or on_revoke),
        )

    def assign(self, partitions: list[ConfluentPartition]) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().assign(partitions)
        self._lags = {}
        self._track(partitions)

    def incremental_assign(self, partitions: list[ConfluentPartition]) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().incremental_assign(partitions)
        self._track(partitions)

    def unassign(self) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().unassign()
        self._lags = {}

    def incremental_unassign(self, partitions: list[ConfluentPartition]) -> None:
        """See ``confluent_kafka.Consumer``."""
        super().incremental_unassign(partitions)
        self._forget(partitions)

    def _track(self, partitions: Sequence[ConfluentPartition]) -> None:
        for partition in partitions:
            key = partition_key(partition)
            if key not in self._lags:  # a callback may have assigned it
                start = partition.offset if partition.offset >= 0 else None
                high_watermark = self._cached_high_watermark(key)
                self._lags[key] = CurrentLag(self._read_committed, start, high_watermark)

    def _forget(self, partitions: Sequence[ConfluentPartition]) -> None:
        for partition in partitions:
            self._lags.pop(partition_key(partition), None)

    def close(self) -> None:
        """See ``confluent_kafka.Consumer``; it returns after 30 s at the latest.

        librdkafka waits without limit for the answer to a commit: of a broker that stands still, or
        refuses the login meanwhile. The group then notices at the end of the member's session.
        """
        if self._is_closed:
            return
        self._ends.shutdown()  # first: its thread uses librdkafka
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
        KafkaError._PARTITION_EOF,
    }
)
"""What librdkafka reports and recovers from, if necessary by joining the group again."""
