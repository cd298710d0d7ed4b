"""Records that an app sends, each confirmed by the broker or raised."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.client.config import librdkafka_config, read_config
from headrace.client.errors import ClientError, error_line, missing_permission
from headrace.client.loop_thread import LoopThread
from headrace.client.topics import NewTopic, ensure_topic

if TYPE_CHECKING:
    from headrace.client.tracing import Tracing

T = TypeVar("T")

Headers = Sequence[tuple[str, bytes | None]]
Report = Callable[[KafkaError | None, Message | None], None]

_DEFAULTS = {
    "client.id": "headrace",
    "log_level": 2,
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.max.bytes": 256 << 20,  # the broker decides which records are too large
}
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_QUEUE_FULL_PAUSE_S = 0.005
_POLL_S = 0.1
_CLOSE_TIMEOUT_S = 5.0
"""The time for records that nobody waits for any more, such as a worker's reports: while the broker
is away, a worker must end soon after its drain.
"""
_CLOSED = "the app is closed"


class Sent(NamedTuple):
    """The place of a record that the broker has written."""

    topic: str
    partition: int
    offset: int


class SendFailed(ClientError):
    """The broker has not written a record.

    :ivar is_too_large: whether that is for its size
    """

    def __init__(self, topic: str, error: KafkaError) -> None:
        self.is_too_large = error.code() in _TOO_LARGE
        text = f"sending to topic '{topic}': {error_line(error)}"
        permission = missing_permission(error.code(), f"WRITE on topic '{topic}'")
        super().__init__(f"{text}: {permission}" if permission else text)


class NewRecord(NamedTuple):
    """A record to send."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


class Sender:
    """A producer of librdkafka, and the thread that takes its reports. It may be used from several
    threads and event loops, and after a fork; all begin with the first record.

    :param conf: returns librdkafka's names and values
    :ivar tracing: gives each record a span, and puts its context into the headers; None for none
    """

    def __init__(
        self, conf: Callable[[], Mapping[str, Any]], tracing: Tracing | None = None
    ) -> None:
        self._conf = conf
        self.tracing = tracing
        self._topics: set[str] = set()
        """Those that are there."""
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._loop_thread = LoopThread("headrace-sync")
        self._process_id = os.getpid()
        self._is_closed = False

    def use(self, conf: Mapping[str, Any]) -> None:
        """Use other connections from the next record on, if there was none yet."""
        self._conf = lambda: conf

    async def ensure_topic(self, topic: NewTopic) -> None:
        """Create a topic, unless there is one of its name; once for each name.

        :raises ClientError: no broker answers, or it refuses
        """
        if topic.name not in self._topics:
            async with read_config(self._conf()).cluster() as cluster:
                await ensure_topic(cluster, topic)
            self._topics.add(topic.name)

    def ensure_topic_sync(self, topic: NewTopic) -> None:
        """Do the same without asyncio."""
        if topic.name not in self._topics:
            self.run(self.ensure_topic(topic))

    async def send(self, records: Sequence[NewRecord]) -> list[Sent]:
        """Send records, and wait until the broker has written all.

        :raises ClientError: the first of the refusals, the other records may be written; or the app
            is closed
        """
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(done.set)

        batch = _Batch(records, tell)
        while not batch.produce(self.produce):
            await asyncio.sleep(_QUEUE_FULL_PAUSE_S)
        await done.wait()
        return batch.sent()

    def send_sync(self, records: Sequence[NewRecord]) -> list[Sent]:
        """Do the same without asyncio."""
        done = threading.Event()
        batch = _Batch(records, done.set)
        while not batch.produce(self.produce):
            done.wait(_QUEUE_FULL_PAUSE_S)
        done.wait()
        return batch.sent()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work of this sender from code without asyncio."""
        with self._lock:
            self._begin_anew_after_fork()
            if self._is_closed:
                work.close()
                raise ClientError(_CLOSED)
        return self._loop_thread.run(work)

    def produce(self, record: NewRecord, report: Report) -> bool:
        """Put a record into the queue; return False if that is full.

        :param report: is told what has become of it, mostly by another thread
        """
        try:
            producer, tracing = self._running(), self.tracing
            produce = producer.produce if tracing is None else partial(tracing.produce, producer)
            produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=report,
            )
        except BufferError:
            return False
        except KafkaException as error:
            report(error.args[0], None)
        return True

    def _running(self) -> Producer:
        producer = self._producer
        if producer is not None and self._process_id == os.getpid():
            return producer
        with self._lock:
            self._begin_anew_after_fork()
            if self._is_closed:
                raise ClientError(_CLOSED)
            if self._producer is None:
                self._producer = Producer({**_DEFAULTS, **librdkafka_config(self._conf())})
                threading.Thread(
                    target=self._poll, args=(self._producer,), name="headrace-sender", daemon=True
                ).start()
            return self._producer

    def _begin_anew_after_fork(self) -> None:
        """Threads and connections stay with the parent."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._producer, self._loop_thread = None, LoopThread("headrace-sync")

    def _poll(self, producer: Producer) -> None:
        while self._producer is producer:
            producer.poll(_POLL_S)

    def begin_anew(self) -> None:
        """Close, and connect with the next record, perhaps to other brokers."""
        self.close()
        self._topics.clear()
        self._loop_thread, self._is_closed = LoopThread("headrace-sync"), False

    def close(self) -> None:
        """Wait for the records on their way, for up to 5 s. May be called twice."""
        with self._lock:
            self._begin_anew_after_fork()
            self._is_closed = True
            producer, self._producer = self._producer, None
        self._loop_thread.close()
        if producer is not None:
            producer.flush(_CLOSE_TIMEOUT_S)


class _Batch:
    """Records that are sent together, and what has become of them.

    :param done: called when the fate of all is known, mostly by another thread
    """

    def __init__(self, records: Sequence[NewRecord], done: Callable[[], object]) -> None:
        self._records, self._done = records, done
        self._results: list[Sent | SendFailed | None] = [None] * len(records)
        self._produced = 0
        self._left = len(records)
        self._lock = threading.Lock()
        if not records:
            done()

    def produce(self, produce: Callable[[NewRecord, Report], bool]) -> bool:
        """Put records into the queue until it is full; return whether all are in it."""
        for index in range(self._produced, len(self._records)):
            if not produce(self._records[index], partial(self._report, index)):
                return False
            self._produced += 1
        return True

    def _report(self, index: int, error: KafkaError | None, message: Message | None) -> None:
        topic = self._records[index].topic
        if error is not None:
            self._results[index] = SendFailed(topic, error)
        elif message is not None:
            self._results[index] = Sent(topic, message.partition() or 0, message.offset() or 0)
        with self._lock:  # a record that is refused at once is reported by the sending thread
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._done()

    def sent(self) -> list[Sent]:
        """:raises ClientError: a record was not written"""
        for result in self._results:
            if isinstance(result, SendFailed):
                raise result
        return self._results  # type: ignore[return-value]  # no failure is left
