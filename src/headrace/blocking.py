"""A share group as a queue of records, without asyncio."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from math import inf
from threading import TIMEOUT_MAX
from typing import Any, TypeVar

from headrace.client.arguments import Seconds, seconds
from headrace.client.errors import ClientError
from headrace.client.loop_thread import LoopThread
from headrace.client.records import Record
from headrace.client.share import consumer
from headrace.client.share.consumer import Records
from headrace.protocol.partitions import TopicPartition

T = TypeVar("T")


class ShareConsumer:
    """:class:`headrace.ShareConsumer` for programs without asyncio, safe to use from several
    threads.

    ::

        conf = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "packers"}
        with ShareConsumer(conf, ["orders"], start="earliest") as queue:
            for record in queue:
                print(record.value)
                queue.accept(record)

    Its event loop is in a thread of its own, which renews locks while a record is processed, and
    calls ``on_lock_lost`` and the deserializers. If an exception such as Ctrl-C ends a call in the
    waiting thread, the next call returns the records that were on their way.

    :param conf: this and all others are those of :class:`headrace.ShareConsumer`
    """

    def __init__(self, conf: Mapping[str, Any], topics: Iterable[str], **options: Any) -> None:
        self._consumer = consumer.ShareConsumer(conf, topics, **options)
        self._thread = LoopThread(f"headrace-share-{self._consumer.group_id}")
        self._process_id = os.getpid()
        self._unseen: deque[Future[list[Record]]] = deque()
        """The calls whose waiting threads have gone."""

    def __enter__(self) -> ShareConsumer:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Join the group; see :meth:`headrace.ShareConsumer.open`."""
        try:
            self._run(self._consumer.open())
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        """Release the held records, and leave the group. Iteration ends. May be called twice."""
        if self._thread.is_closed or os.getpid() != self._process_id:
            return
        try:
            self._run(self._consumer.close())
        finally:
            self._thread.close()

    def __iter__(self) -> ShareConsumer:
        return self

    def __next__(self) -> Record:
        """Wait for the next record."""
        while not self._thread.is_closed:
            try:
                records = self._records(self._next(), 1)
            except ClientError:
                if not self._consumer.is_closed:
                    raise
                break
            if records:
                return records[0]
        raise StopIteration

    def poll(self, max_records: int = 500, timeout: Seconds = 1.0) -> list[Record]:
        """Return records; see :meth:`headrace.ShareConsumer.poll`."""
        wait_s = min(seconds(timeout, "timeout", inf), TIMEOUT_MAX)
        return self._records(self._consumer.poll(max_records, timeout), max_records, wait_s)

    def accept(self, records: Records) -> None:
        """End records; see :meth:`headrace.ShareConsumer.accept`."""
        self._run(self._consumer.accept(records))

    def release(self, records: Records, *, delay: float = 0.0, counted: bool = True) -> None:
        """Give records back; see :meth:`headrace.ShareConsumer.release`."""
        self._run(self._consumer.release(records, delay=delay, counted=counted))

    def reject(self, records: Records, *, reason: str = "") -> None:
        """End records; see :meth:`headrace.ShareConsumer.reject`."""
        self._run(self._consumer.reject(records, reason=reason))

    def renew(self, records: Records) -> None:
        """Restart locks; see :meth:`headrace.ShareConsumer.renew`."""
        self._run(self._consumer.renew(records))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group assigns to this member."""
        return self._consumer.assignment

    @property
    def held(self) -> int:
        """The number of held records; see :attr:`headrace.ShareConsumer.held`."""

        async def held() -> int:
            return self._consumer.held

        return self._run(held())

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire no more records from these partitions until :meth:`resume`."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Acquire records from these partitions again."""
        self._consumer.resume(partitions)

    def processing(self, record: Record) -> AbstractContextManager[object]:
        """Return a context for spans; see :meth:`headrace.ShareConsumer.processing`."""
        return self._consumer.processing(record)

    async def _next(self) -> list[Record]:
        async for record in self._consumer:
            return [record]
        return []

    def _records(
        self,
        work: Coroutine[Any, Any, list[Record]],
        max_records: int,
        wait_s: float | None = None,
    ) -> list[Record]:
        """Run a call that returns records, or wait for one whose waiting thread has gone."""
        try:
            future = self._unseen.popleft()
            work.close()
        except IndexError:
            future, wait_s = self._submit(work), None
        try:
            records = future.result(wait_s)
        except CancelledError:
            raise ClientError(f"{self._consumer} is closed") from None
        except BaseException as error:
            if not future.done() or future.exception() is None:
                self._unseen.append(future)
                if isinstance(error, TimeoutError):
                    return []
            raise
        if len(records) > max_records:
            rest = Future[list[Record]]()
            rest.set_result(records[max_records:])
            self._unseen.appendleft(rest)
        return records[:max_records]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._submit(work).result()
        except CancelledError:
            raise ClientError(f"{self._consumer} is closed") from None

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if os.getpid() != self._process_id:
            work.close()
            raise ClientError(
                f"{self._consumer} belongs to another process: create one after the fork"
            )
        if self._thread.is_current():
            work.close()
            raise ClientError(
                f"{self._consumer} waits for the thread that it is called in, which runs "
                "on_lock_lost and the deserializers: call it in another thread"
            )
        try:
            return self._thread.submit(work)
        except RuntimeError:
            raise ClientError(f"{self._consumer} is closed") from None
