"""Validation of the records that a client writes to an internal topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.log.partition_log import PartitionLog
from headrace.log.validation import OpenElsewhere, RefusedRecords, check_client_batch
from headrace.outcome import Coordinator
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.limits import MAX_RECORD_ERRORS
from headrace.protocol.record_batch import Opening

from .coordinators import Coordinators

_RECORDS_AT_A_TIME = 50
"""Records that are decoded in a thread, for about a millisecond, before it may pause."""


def check_coordinator_records(
    coordinators: Coordinators, log: PartitionLog, data: memoryview, opening: Opening | None
) -> Refusal | None:
    """Reject a batch for an internal topic with records that its coordinator cannot decode.

    Accept records of unknown types, which the coordinator skips, and batches that the log refuses
    with its own error.

    :param opening: the limits on opening the batch; None if its records were checked
    :returns: INVALID_RECORD with the positions of these records (KIP-467), or None
    :raises OpenElsewhere: with :data:`OPEN_ON_LOOP`, for a batch that exceeds these limits
    """
    if opening is None or not log.config.internal:
        return None
    now_ms = coordinators.environment.clock.wall_ms()
    if isinstance(check_client_batch(data, log.config, now_ms, opening=opening), Refusal):
        return None
    return coordinator_records_check(coordinators, log)(data, opening)


def coordinator_records_check(
    coordinators: Coordinators, log: PartitionLog
) -> Callable[[memoryview, Opening], Refusal | None]:
    """Return a function that decodes the records of a batch for a log, which any thread may call.

    It returns INVALID_RECORD with the positions of the records that the coordinator of an internal
    topic cannot decode, and None for all other topics.
    """
    if not log.config.internal:
        return lambda data, opening: None
    return partial(_check, coordinators.runtime_of(log.topic).coordinator)


def _check(coordinator: Coordinator[Any], data: memoryview, opening: Opening) -> Refusal | None:
    unreadable: list[int] = []
    try:
        for index, record in enumerate(record_batch.records(data, opening)):
            if opening.pause is not None and not index % _RECORDS_AT_A_TIME:
                opening.pause()
            if not _is_readable(coordinator, record):
                unreadable.append(index)
                if len(unreadable) == MAX_RECORD_ERRORS:
                    break
    except record_batch.TooLargeToOpen as error:
        if opening is record_batch.OPEN_ON_LOOP:
            raise OpenElsewhere from error
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except record_batch.CorruptBatch as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    if not unreadable:
        return None
    message = f"{coordinator.topic} takes only the records of its coordinator"
    records = tuple((index, message) for index in unreadable)
    return RefusedRecords(ErrorCode.INVALID_RECORD, message, records)


def _is_readable(coordinator: Coordinator[Any], record: record_batch.Record) -> bool:
    if record.key is None:
        return False
    try:
        coordinator.decode(record.key, record.value)
    except ValueError:
        return False
    return True
