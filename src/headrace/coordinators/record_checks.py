"""Validation of the records that a client writes to an internal topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.log.partition_log import PartitionLog
from headrace.log.validation import OpenElsewhere, RefusedRecords
from headrace.outcome import Coordinator
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.limits import MAX_RECORD_ERRORS
from headrace.protocol.record_batch import Opening

from .coordinators import Coordinators

_RECORDS_AT_A_TIME = 50
"""Records that are decoded in a thread, for about a millisecond, before it may pause."""


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
