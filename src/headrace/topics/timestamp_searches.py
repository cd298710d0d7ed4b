"""Searches for offsets by timestamp, beside the other work of the event loop.

Small batches are opened on the loop, large ones in the thread of the
:class:`~headrace.topics.batch_opener.BatchOpener`. What was found in a batch is remembered, so that
it is opened once for many searches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter

from headrace.log.partition_log import PartitionLog
from headrace.log.timestamps import (
    BatchAt,
    BatchKey,
    Found,
    Search,
    TimestampSteps,
    first_at_or_after,
    latest,
    timestamp_steps,
)
from headrace.protocol.limits import MAX_REMEMBERED_STEPS
from headrace.protocol.record_batch import OPEN_ON_LOOP, CorruptBatch, Opening, TooLargeToOpen

from .batch_opener import BatchOpener
from .recently_used import RecentlyUsed

SEARCH_SLICE_S = 0.005
"""The time after which a search by timestamp lets other requests go on."""

_STEPS_OF_AN_ENTRY = 16
"""The memory of an entry besides its steps, in steps."""


class TimestampSearches:
    """Searches in the logs of one broker. Belongs to its event loop."""

    def __init__(self, opener: BatchOpener) -> None:
        self._opener = opener
        self._remembered: RecentlyUsed[BatchKey, TimestampSteps] = RecentlyUsed(
            MAX_REMEMBERED_STEPS
        )

    async def offset_for_timestamp(self, log: PartitionLog, timestamp_ms: int) -> Found | None:
        """Return the first record at or after a time; None if there is none.

        :raises OSError: when the disk fails
        """
        return await self._run(log, partial(first_at_or_after, log, timestamp_ms))

    async def max_timestamp(self, log: PartitionLog) -> Found | None:
        """Return the first record with the largest timestamp; None without records.

        :raises OSError: when the disk fails
        """
        return await self._run(log, partial(latest, log))

    async def _run(self, log: PartitionLog, begin: Callable[[], Search]) -> Found | None:
        """Run a search; begin again when the log has changed during a pause."""
        search, steps, since = begin(), None, perf_counter()
        while True:
            try:
                step = search.send(steps)
            except StopIteration as end:
                record: Found | None = end.value
                return record
            steps, has_waited = None, False
            segment = step.segment if isinstance(step, BatchAt) else step
            if isinstance(step, BatchAt):
                key = step.key(log.topic_id, log.partition)
                steps = self._open_on_loop(key, step)
                if steps is None:
                    steps, has_waited = await self._open_in_thread(key, step, log), True
            if perf_counter() - since >= SEARCH_SLICE_S:
                await asyncio.sleep(0)
                has_waited = True
            if has_waited:
                since = perf_counter()
                if segment not in log.segments:
                    search, steps = begin(), None

    def _open_on_loop(self, key: BatchKey, batch: BatchAt) -> TimestampSteps | None:
        """Return the steps of a batch that was searched before, or that is small."""
        steps = self._remembered.get(key)
        if steps is None and batch.header.record_count <= OPEN_ON_LOOP.max_records:
            data = batch.read()
            try:
                steps = timestamp_steps(data, batch.header, batch.first_offset, OPEN_ON_LOOP)
            except TooLargeToOpen:
                return None
            except CorruptBatch:
                steps = batch.opened(data, OPEN_ON_LOOP)
            self._remember(key, steps)
        return steps

    async def _open_in_thread(
        self, key: BatchKey, batch: BatchAt, log: PartitionLog
    ) -> TimestampSteps | None:
        """Return the steps of a large batch; None if its segment is no longer in the log."""
        remembered: TimestampSteps | None = None

        def prepare() -> Callable[[Opening], TimestampSteps] | None:
            nonlocal remembered
            remembered = self._remembered.get(key)  # another request may have waited for it, too
            if remembered is not None or batch.segment not in log.segments:
                return None
            return partial(batch.opened, batch.read())

        opened = await self._opener.run(prepare, partial(self._remember, key))
        return remembered if opened is None else opened

    def _remember(self, key: BatchKey, steps: TimestampSteps) -> None:
        """Remember the steps of a batch. One that changes gets another key."""
        self._remembered.put(key, steps, len(steps) + _STEPS_OF_AN_ENTRY)
