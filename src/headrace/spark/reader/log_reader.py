"""Ranges of offsets in, Arrow batches of Spark's Kafka columns out: how tasks read topics without
librdkafka.

Our own connections fetch from the leaders on a thread of their own, so that the next bytes come in
while the last ones are decoded. What is held is bounded: of each topic partition one fetched piece
waits while another is being decoded.

    for batch in read(options.kafka(), [OffsetRange("flights", 0, 100, 200)]):
        ...
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from headrace.client import ClientError, Cluster
from headrace.client.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from headrace.protocol.record_batch import CorruptBatch
from headrace.spark.option_parsing import KafkaOptions, SourceError

from .batches import Wanted
from .columns import HEADERS_TYPE, Records, decode
from .fetching import Fetching, Piece, ReadError, Reading

T = TypeVar("T")

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""What :func:`read` yields; with headers one more column, ``headers``."""
ARROW_SCHEMA_WITH_HEADERS = ARROW_SCHEMA.append(pa.field("headers", HEADERS_TYPE))

DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_BUFFER_BYTES = 32 * 1024 * 1024


class OffsetRange(NamedTuple):
    """Offsets of one topic partition: ``start`` inclusive, ``end`` exclusive. There may be gaps in
    them.
    """

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.

    :param headers: yield the column ``headers``
    :param read_committed: only records of committed transactions, and of none (KIP-98)
    :param skip_lost: pass over offsets that the log no longer has, or a topic that is gone, instead
        of failing
    :param warn_of_lost: say so in the log
    :param advice: what the error about them shall end with
    :param check_crc: compare checksums of batches
    :param timeout_ms: how long to go on when a partition yields nothing before its end is reached
    :param buffer_bytes: of fetched bytes to hold, about
    """

    headers: bool = False
    read_committed: bool = False
    skip_lost: bool = False
    warn_of_lost: bool = False
    advice: str = ""
    check_crc: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    buffer_bytes: int = DEFAULT_BUFFER_BYTES


DEFAULTS = ReadOptions()


def read(
    kafka: KafkaOptions, ranges: Sequence[OffsetRange], options: ReadOptions = DEFAULTS
) -> Iterator[Any]:
    """The records of ranges as ``pa.RecordBatch``es, each of one topic partition; ascending within
    it.

    :param ranges: disjoint; several of one topic partition may be given
    :raises ReadError: records are gone, or none came in time
    :raises SourceError: the settings cannot be used, or a broker refuses
    """
    with LogReader(kafka, ranges, options) as reader:
        yield from reader


class LogReader:
    """What :func:`read` does, for who wants to choose the topic partition to read on from.

    A context manager. :meth:`next` yields a batch of one topic partition; iterating, those of all
    as they come.
    """

    def __init__(
        self, kafka: KafkaOptions, ranges: Sequence[OffsetRange], options: ReadOptions = DEFAULTS
    ) -> None:
        wanted: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic, partition, start, end in sorted(ranges):
            if start < end:
                wanted.setdefault((topic, partition), []).append((start, end))
        self._options = options
        self._wanted = {key: Wanted.of(bounds) for key, bounds in wanted.items()}
        self._decoded: dict[tuple[str, int] | None, Iterator[Any]] = {}
        self._link = link(kafka)
        self._fetching = self._link.call(self._begin(wanted))

    async def _begin(self, wanted: Mapping[tuple[str, int], list[tuple[int, int]]]) -> Fetching:
        options = self._options
        return Fetching(
            self._link.cluster,
            Reading(
                isolation_level=READ_COMMITTED if options.read_committed else READ_UNCOMMITTED,
                skip_lost=options.skip_lost,
                warn_of_lost=options.warn_of_lost,
                advice=options.advice,
                timeout_ms=options.timeout_ms,
                buffer_bytes=options.buffer_bytes,
            ),
            wanted,
        )

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoded.clear()  # generators that refer to this, and to fetched bytes
        self._link.call(self._fetching.close())

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._next(None)) is not None:
            yield batch

    def next(self, topic: str, partition: int) -> Any | None:
        """The next ``pa.RecordBatch`` of a topic partition; None when its ranges have been read.

        :raises ReadError: as :func:`read` does
        """
        return self._next((topic, partition))

    def records(self) -> Iterator[tuple[tuple[str, int], Records]]:
        """Topic, partition and records as they come: the same without the columns that only Spark
        wants.
        """
        while (piece := self._take(None)) is not None:
            for records in self._decode(piece):
                yield piece.key, records

    def _next(self, key: tuple[str, int] | None) -> Any | None:
        while True:
            batch = next(self._decoded.get(key, iter(())), None)
            if batch is not None:
                return batch
            piece = self._take(key)
            if piece is None:
                return None
            self._decoded[key] = (
                records.spark_batch(*piece.key) for records in self._decode(piece)
            )

    def _take(self, key: tuple[str, int] | None) -> Piece | None:
        try:
            return self._link.call(self._fetching.take(key))
        except ClientError as error:
            raise ReadError(str(error)) from None

    def _decode(self, piece: Piece) -> Iterator[Records]:
        topic, partition = piece.key
        batches = piece.batches
        try:
            if self._options.check_crc:
                batches.check_crc()
            chosen, wanted = (
                batches.with_data(piece.aborted),
                self._wanted[piece.key].not_before(piece.start),
            )
            yield from decode(batches, chosen, wanted, headers=self._options.headers)
        except CorruptBatch as error:
            raise ReadError(
                f"{topic}-{partition} has records that cannot be read: {error}"
            ) from error


class Link:
    """A thread with an event loop, and a cluster's connections in it; kept for the next tasks of
    this process.
    """

    def __init__(self, kafka: KafkaOptions) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="headrace-fetch", daemon=True).start()
        self.cluster: Cluster = kafka.cluster()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait for the result; Ctrl-C and SIGTERM give it up."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Hang up and end the thread."""
        self.call(self.cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)


_links: dict[tuple[Any, ...], Link] = {}


def link(kafka: KafkaOptions) -> Link:
    """This process's link to a cluster, made when first asked for."""
    key = (os.getpid(), kafka.bootstrap_servers, tuple(sorted(kafka.librdkafka.items())))
    if key not in _links:
        _links[key] = Link(kafka)
    return _links[key]


@atexit.register
def _close_links() -> None:
    for key, one in _links.items():
        if key[0] == os.getpid():
            one.close()
    _links.clear()


__all__ = [
    "ARROW_SCHEMA",
    "ARROW_SCHEMA_WITH_HEADERS",
    "LogReader",
    "OffsetRange",
    "ReadError",
    "ReadOptions",
    "SourceError",
    "read",
]
