"""Validation of the records that a client writes to an internal topic."""

from __future__ import annotations

from typing import Any

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.log.validation import RefusedRecords, check_client_batch
from headrace.outcome import Coordinator
from headrace.protocol import record_batch


def check_coordinator_records(
    broker: Broker, log: PartitionLog, data: memoryview
) -> Refusal | None:
    """Reject a batch for an internal topic with records that its coordinator cannot decode.

    Accept records of unknown types, which the coordinator skips, and batches that the log refuses
    with its own error.

    :returns: INVALID_RECORD with the positions of these records (KIP-467), or None
    """
    if not log.config.internal:
        return None
    if isinstance(check_client_batch(data, log.config, broker.clock.wall_ms()), Refusal):
        return None
    coordinator = broker.coordinators.runtime_of(log.topic).coordinator
    try:
        records = list(record_batch.records(data))
    except record_batch.CorruptBatch as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    unreadable = tuple(
        index for index, record in enumerate(records) if not _is_readable(coordinator, record)
    )
    if not unreadable:
        return None
    message = f"{log.topic} takes only the records of its coordinator"
    return RefusedRecords(ErrorCode.INVALID_RECORD, message, unreadable)


def _is_readable(coordinator: Coordinator[Any], record: record_batch.Record) -> bool:
    if record.key is None:
        return False
    try:
        coordinator.decode(record.key, record.value)
    except ValueError:
        return False
    return True
