"""Load a coordinator: replay the records of its internal topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from headrace.log.partition_log import FoundBatch
from headrace.log_lines import LimitedLog, get_logger
from headrace.outcome import Coordinator, Position, make
from headrace.protocol import record_batch

from .environment import InternalLogs

limited = LimitedLog(get_logger("headrace.coordinators"))


class EndTransaction(Protocol):
    """Commits or aborts a producer's transaction in one partition of an internal topic."""

    def __call__(self, producer_id: int, partition: int, *, commit: bool) -> None: ...


DecodeBatch = Callable[[memoryview, record_batch.BatchHeader], Sequence[tuple[int, Any]] | None]
"""Returns offset and record of each record of a batch; None for one that it does not decode."""


def load(
    logs: InternalLogs,
    coordinator: Coordinator[Any],
    end_transaction: EndTransaction | None = None,
    decode_batch: DecodeBatch | None = None,
) -> None:
    """Replay the records of a coordinator's internal topic.

    A record that cannot be decoded or replayed is skipped with a warning, so that the broker can
    start.

    :param end_transaction: called for each transaction marker
    :param decode_batch: a decoder for the most frequent batches, faster than that of the
        coordinator
    :raises CorruptLog: when a batch in the middle of a log is damaged or missing
    """
    replay = coordinator.replay
    for partition, batch in logs.batches(coordinator.topic):
        header = batch.header
        producer_id = header.producer_id if header.is_transactional else record_batch.NO_PRODUCER_ID
        if header.is_control:
            try:
                marker = record_batch.marker_in(batch.data)
                if marker is not None and end_transaction is not None:
                    end_transaction(producer_id, partition, commit=marker.commit)
            except Exception as error:
                _skipped(batch, header.base_offset, b"", error)
            continue
        decoded: Iterable[tuple[int, Any]] | None = None
        if decode_batch is not None:
            decoded = decode_batch(batch.data, header)
        for offset, record in _decoded(coordinator, batch) if decoded is None else decoded:
            try:
                replay(record, make(Position, (partition, offset, producer_id)))
            except Exception as error:
                _skipped(batch, offset, coordinator.encode(record)[0], error)


def _decoded(coordinator: Coordinator[Any], batch: FoundBatch) -> Iterator[tuple[int, Any]]:
    """Yield offset and record of each record of a batch that can be decoded, up to the first one
    that cannot be read.
    """
    following = batch.header.base_offset
    try:
        for offset, _, key, value, _ in chain.from_iterable(
            record_batch.record_lists(batch.data, batch.header)
        ):
            following = offset + 1
            if key is None:
                continue
            try:
                record = coordinator.decode(key, value)
            except Exception as error:
                _skipped(batch, offset, key, error)
            else:
                if record is not None:  # else a record type that this version does not know
                    yield offset, record
    except record_batch.CorruptBatch as error:
        message = "skipped the records of %s from offset %d on: %s"
        limited.warning(batch.path, message, batch.path, following, error)


def _skipped(batch: FoundBatch, offset: int, key: bytes, error: Exception) -> None:
    limited.warning(
        batch.path,
        "skipped the record at offset %d of %s, with the key %s: %s",
        offset,
        batch.path,
        key.hex(),
        error if isinstance(error, ValueError) else repr(error),
    )
