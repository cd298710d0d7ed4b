"""Reading of ranges of offsets as Arrow batches with the columns of Spark's Kafka source.

Headrace's own connections fetch from the leaders on a thread of their own, so that the next bytes
arrive while the last ones are decoded. Memory is bounded: of each topic partition one fetched piece
waits while another is decoded.

    for batch in read(options.kafka(), [OffsetRange("flights", 0, 100, 200)]):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.client import ClientError
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.record_batch import CorruptBatch
from headrace.spark.option_parsing import KafkaOptions

from .batches import WantedOffsets
from .columns import decode
from .fetcher import Fetcher, Piece
from .ranges import DEFAULTS, OffsetRange, ReadError, ReadOptions

_LEAST_OPENED_BYTES = 1024 * 1024
"""Smaller pieces take longer to decode."""


def read(
    kafka: KafkaOptions, ranges: Sequence[OffsetRange], options: ReadOptions = DEFAULTS
) -> Iterator[Any]:
    """Yield the records of ranges as ``pa.RecordBatch``.

    Each batch is of one topic partition. Offsets of a topic partition ascend.

    :param ranges: disjoint; a topic partition may have several
    :raises ReadError: records are lost, or did not arrive in time
    :raises SourceError: the settings are invalid, or a broker refuses
    """
    with LogReader(kafka, ranges, options) as reader:
        yield from reader


class LogReader:
    """A read whose caller may choose the topic partition that it continues with.

    A context manager. :meth:`next` returns a batch of one topic partition; iteration yields the
    batches of all as they arrive.

    :param ranges: disjoint; a topic partition may have several
    """

    def __init__(
        self, kafka: KafkaOptions, ranges: Sequence[OffsetRange], options: ReadOptions = DEFAULTS
    ) -> None:
        bounds: dict[TopicPartition, list[tuple[int, int]]] = {}
        for r in sorted(ranges):
            if r.start < r.end:
                bounds.setdefault((r.topic, r.partition), []).append((r.start, r.end))
        self._options = options
        self._wanted = {key: WantedOffsets.of(of_key) for key, of_key in bounds.items()}
        # A merge holds an opened piece of each partition.
        self._opened_bytes = max(
            _LEAST_OPENED_BYTES, options.buffer_bytes // max(1, len(self._wanted))
        )
        self._decoded: dict[TopicPartition | None, Iterator[Any]] = {}
        self._thread = kafka.shared_thread()
        self._fetcher = Fetcher(self._thread.cluster, options, bounds)
        self._thread.run(self._fetcher.start())

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoded.clear()  # its generators refer to this object and to fetched bytes
        self._thread.run(self._fetcher.close())

    def __iter__(self) -> Iterator[Any]:
        while (batch := self.next()) is not None:
            yield batch

    def next(self, key: TopicPartition | None = None) -> Any | None:
        """Return the next ``pa.RecordBatch`` of a topic partition, or of any; None after the last
        range.

        :raises ReadError: records are lost, or did not arrive in time
        """
        while (batch := next(self._decoded.get(key, iter(())), None)) is None:
            piece = self._take(key)
            if piece is None:
                return None
            self._decoded[key] = self._decode(piece)
        return batch

    def _take(self, key: TopicPartition | None) -> Piece | None:
        try:
            return self._thread.run(self._fetcher.take(key))
        except ClientError as error:
            raise ReadError(str(error)) from None

    def _decode(self, piece: Piece) -> Iterator[Any]:
        try:
            for records in decode(
                piece.batches,
                piece.aborted,
                self._wanted[piece.key].not_before(piece.start),
                headers=self._options.headers,
                most_bytes=self._opened_bytes,
            ):
                yield records.spark_batch(*piece.key)
        except CorruptBatch as error:
            topic, partition = piece.key
            raise ReadError(
                f"{topic}-{partition} has records that are corrupt, from offset {piece.start} on: "
                f"{error}"
            ) from error
