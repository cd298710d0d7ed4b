"""The logs of the internal topics: what coordinators are loaded from, and what of it can go."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker.limits import PRUNED_LOG_BYTES
from headrace.errors import Refusal
from headrace.log.partition_log import PartitionLog
from headrace.log.replay import FoundBatch, checked_batches
from headrace.outcome import Coordinator, Position
from headrace.protocol import record_batch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger("headrace.broker")


def load(broker: Broker, coordinator: Coordinator[Any]) -> None:
    """Replay the records of a coordinator's internal topic.

    A record that cannot be decoded or replayed is skipped with a warning: it costs its key at
    most, and never the start.

    :raises CorruptLog: when a batch in the middle of a log is damaged or missing
    """
    topic = broker.catalog.topics.get(coordinator.topic)
    if topic is None:
        return
    for partition in broker.logs.existing_partitions(topic.name, topic.partitions):
        partition_log = broker.log(topic, partition)
        assert partition_log is not None
        for found in checked_batches(partition_log):
            _replay(broker, coordinator, partition, found)


def _replay(
    broker: Broker, coordinator: Coordinator[Any], partition: int, found: FoundBatch
) -> None:
    """Replay one batch, without the records that cannot be replayed."""
    header = found.header
    producer_id = header.producer_id if header.is_transactional else record_batch.NO_PRODUCER_ID
    for record in _readable_records(found):
        if record.key is None:
            continue
        try:
            if header.is_control:
                marker = record_batch.marker_in(found.data)
                if marker is not None:
                    broker.groups.end_transaction(producer_id, partition, commit=marker.commit)
            else:
                decoded = coordinator.decode(record.key, record.value)
                if decoded is not None:  # else a record type that this version does not know
                    coordinator.replay(decoded, Position(partition, record.offset, producer_id))
        except Exception as error:
            log.warning(
                "skipped the record at offset %d of %s with the key %r: %s",
                record.offset,
                found.path,
                record.key,
                error if isinstance(error, ValueError) else repr(error),
            )


def _readable_records(found: FoundBatch) -> Iterator[record_batch.Record]:
    """Yield the records of a batch up to the first one that cannot be read."""
    offset = found.header.base_offset
    try:
        for record in record_batch.records(found.data):
            yield record
            offset = record.offset + 1
    except record_batch.CorruptBatch as error:
        log.warning("skipped the records of %s from offset %d on: %s", found.path, offset, error)


def prune(broker: Broker, coordinator: Coordinator[Any], deletable: Iterable[Position]) -> None:
    """Delete records of an internal topic that no longer matter. Retention takes the files away."""
    topic = broker.catalog.topics[coordinator.topic]
    for partition, offset, _ in deletable:
        partition_log = broker.log(topic, partition)
        assert partition_log is not None
        if offset > partition_log.log_start_offset:
            # Not forced to disk: to read more than is needed after a power cut does no harm.
            pruned = partition_log.delete_records(offset, sync=False)
            if isinstance(pruned, Refusal):
                log.warning("cannot prune %s: %s", partition_log.path, pruned.message)
            elif partition_log.size_bytes() > PRUNED_LOG_BYTES:
                roll(partition_log, broker.now_ms())


def roll(partition_log: PartitionLog, now_ms: int) -> None:
    """Close the last segment, so that it can go or be cleaned; when that fails it stays open until
    the next time.
    """
    try:
        partition_log.roll(now_ms)
    except OSError as error:
        log.warning("cannot begin a new segment of %s: %s", partition_log.path, error)
