"""Ranges of offsets, their division into tasks, and how to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from headrace.spark.errors import SourceError

DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_BUFFER_BYTES = 32 * 1024 * 1024


class ReadError(SourceError):
    """Records that could not be read. The text is one line that names the topic partition."""


class OffsetRange(NamedTuple):
    """Offsets of one topic partition. Some of them may hold no record.

    :param start: first offset, inclusive
    :param end: exclusive
    :param delivery_count: of records that a share group has acquired
    """

    topic: str
    partition: int
    start: int
    end: int
    delivery_count: int = 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Parameters of a read. Plain values: Spark sends them to the executors.

    :param headers: yield the column ``headers``
    :param read_committed: leave out records of open and of aborted transactions (KIP-98)
    :param skip_lost: skip offsets that the log no longer has, and topics that no longer exist,
        instead of failing
    :param warn_of_lost: log a warning for what is skipped
    :param advice: text that is appended to an error about lost records
    :param timeout_ms: fail when a partition has yielded nothing for this long
    :param buffer_bytes: fetched bytes to hold, approximately
    """

    headers: bool = False
    read_committed: bool = False
    skip_lost: bool = False
    warn_of_lost: bool = False
    advice: str = ""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    buffer_bytes: int = DEFAULT_BUFFER_BYTES

    @property
    def isolation_level(self) -> int:
        """Kafka's number of the isolation level."""
        return READ_COMMITTED if self.read_committed else READ_UNCOMMITTED


DEFAULTS = ReadOptions()


def split_evenly(ranges: Sequence[OffsetRange], most: int) -> list[list[OffsetRange]]:
    """Divide ranges of offsets into as few tasks as possible, of about equal size.

    Ranges keep their order. A task may hold a part of a range, or parts of several.

    :param most: the largest number of offsets of a task
    """
    total = sum(max(0, r.end - r.start) for r in ranges)
    if not total:
        return []
    task_count = -(-total // most)
    task_size = -(-total // task_count)
    tasks: list[list[OffsetRange]] = []
    room = 0
    for r in ranges:
        start = r.start
        while start < r.end:
            if not room:
                tasks.append([])
                room = task_size
            end = min(r.end, start + room)
            tasks[-1].append(r._replace(start=start, end=end))
            room -= end - start
            start = end
    return tasks
