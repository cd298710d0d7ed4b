"""Load a coordinator: replay the records of its internal topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from headrace.log.replay import FoundBatch
from headrace.log_lines import LimitedLog, get_logger
from headrace.outcome import Coordinator, Position, make
from headrace.protocol import record_batch

from .logs import InternalLogs

limited = LimitedLog(get_logger("headrace.coordinators"))


class EndTransaction(Protocol):
    """Commits or aborts a producer's transaction in one partition of an internal topic."""

    def __call__(self, producer_id: int, partition: int, *, commit: bool) -> None: ...


def load(
    logs: InternalLogs, coordinator: Coordinator[Any], end_transaction: EndTransaction | None = None
) -> None:
    """Replay the records of a coordinator's internal topic.

    A record that cannot be decoded or replayed is skipped with a warning, so that the broker can
    start.

    :param end_transaction: called for each transaction marker
    :raises CorruptLog: when a batch in the middle of a log is damaged or missing
    """
    for partition, found in logs.batches(coordinator.topic):
        _replay(coordinator, partition, found, end_transaction)


def _replay(
    coordinator: Coordinator[Any],
    partition: int,
    found: FoundBatch,
    end_transaction: EndTransaction | None,
) -> None:
    """Replay one batch; skip the records that cannot be replayed."""
    header = found.header
    producer_id = header.producer_id if header.is_transactional else record_batch.NO_PRODUCER_ID
    plain = record_batch.plain_records(found.data, header)
    records = _readable_records(found) if plain is None else plain
    is_control, decode, replay = header.is_control, coordinator.decode, coordinator.replay
    for offset, key, value in records:
        if key is None:
            continue
        try:
            if is_control:
                marker = record_batch.marker_in(found.data)
                if marker is not None and end_transaction is not None:
                    end_transaction(producer_id, partition, commit=marker.commit)
            else:
                decoded = decode(key, value)
                if decoded is not None:  # else a record type that this version does not know
                    replay(decoded, make(Position, (partition, offset, producer_id)))
        except Exception as error:
            limited.warning(
                found.path,
                "skipped the record at offset %d of %s, with the key %s: %s",
                offset,
                found.path,
                key.hex(),
                error if isinstance(error, ValueError) else repr(error),
            )


def _readable_records(found: FoundBatch) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield offset, key and value of the records of a batch, up to the first one that cannot be
    read.
    """
    offset = found.header.base_offset
    try:
        for record in record_batch.records(found.data):
            yield record.offset, record.key, record.value
            offset = record.offset + 1
    except record_batch.CorruptBatch as error:
        message = "skipped the records of %s from offset %d on: %s"
        limited.warning(found.path, message, found.path, offset, error)
