"""Acquisition for the next micro-batch while the current one runs (the option ``acquireAhead``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from headrace.client import Acquired, AcquiredRange, ClientError
from headrace.client.share.spans import Span, intersect, subtract
from headrace.client.share.types import parts
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition

_log = get_logger(__name__)

_RETRY_INTERVAL_S = 0.5
"""Interval of looking for new records, unless an acknowledgement has freed locks."""


class AcquisitionAhead:
    """A task that acquires records for the next micro-batch. Lives in the consumer's event loop.

    It does not wait at a broker, because acknowledgements and renewals of locks would have to wait
    with it.

    :param acquire_now: acquires up to a number of records without waiting for any
    """

    def __init__(self, acquire_now: Callable[[int], Awaitable[Acquired]]) -> None:
        self._acquire_now = acquire_now
        self._ranges: list[AcquiredRange] = []
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False
        self._changed = asyncio.Event()

    def start(self, max_records: int) -> None:
        """Begin to acquire up to ``max_records`` records."""
        self._is_ending = False
        self._task = asyncio.create_task(self._acquire(max_records))

    def locks_freed(self) -> None:
        """Try again at once: an acknowledgement may have made room for other locks."""
        self._changed.set()

    async def take(self) -> list[AcquiredRange]:
        """End the task, and return what it has acquired.

        An answer that is on its way is waited for: its records are locked.
        """
        if self._task is None:
            return []
        self._is_ending = True
        self._changed.set()
        await self._task
        self._task = None
        ranges, self._ranges = self._ranges, []
        return ranges

    async def _acquire(self, room: int) -> None:
        while room > 0 and not self._is_ending:
            self._changed.clear()
            try:
                ranges = (await self._acquire_now(room)).ranges
            except ClientError as error:
                # What has been acquired is kept. The next acquisition of the query reports errors.
                _log.warning("acquiring records for the next micro-batch: %s", error)
                return
            self._ranges += ranges
            room -= sum(acquired.count for acquired in ranges)
            if not ranges:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _RETRY_INTERVAL_S)


def still_held(
    ranges: Sequence[AcquiredRange], held: Mapping[TopicPartition, Sequence[Span]]
) -> list[AcquiredRange]:
    """Return the parts of ranges whose records are held, each record once.

    A record that was lost with a share session, and acquired again, is in two ranges: the later one
    has its delivery count.

    :param ranges: in the order in which they were acquired
    :param held: runs of offsets that are held, ascending
    """
    left = {partition: list(spans) for partition, spans in held.items()}
    held_ranges: list[AcquiredRange] = []
    for acquired in reversed(ranges):
        free = left.get(acquired.topic_partition, [])
        held_ranges += reversed(parts(acquired, intersect(free, [acquired.span])))
        left[acquired.topic_partition] = subtract(free, [acquired.span])
    held_ranges.reverse()
    return held_ranges
