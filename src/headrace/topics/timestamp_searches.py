"""Searches for offsets by timestamp, beside the other work of the event loop.

Small batches are opened on the loop, large ones in the thread of the
:class:`~headrace.topics.batch_opener.BatchOpener`. What was found in a batch is remembered, so that
it is opened once for many searches.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
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

SEARCH_SLICE_S = 0.005
"""The time after which a search by timestamp lets other requests go on."""

_STEPS_OF_AN_ENTRY = 16
"""The memory of an entry besides its steps, in steps."""


class RememberedSteps:
    """The timestamp steps of the batches that were searched last. A batch that changes gets another
    key, so entries need not be removed.

    :param max_steps: the limit on the steps of all entries
    """

    def __init__(self, max_steps: int = MAX_REMEMBERED_STEPS) -> None:
        self._max_steps = max_steps
        self._entries: OrderedDict[BatchKey, TimestampSteps] = OrderedDict()
        self._steps = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: BatchKey) -> TimestampSteps | None:
        """Return the steps of a batch; None if they are not remembered."""
        steps = self._entries.get(key)
        if steps is not None:
            self._entries.move_to_end(key)
        return steps

    def add(self, key: BatchKey, steps: TimestampSteps) -> None:
        """Remember the steps of a batch, and forget those that were not used for the longest
        time.
        """
        known = self._entries.pop(key, None)
        if known is not None:
            self._steps -= len(known) + _STEPS_OF_AN_ENTRY
        self._entries[key] = steps
        self._steps += len(steps) + _STEPS_OF_AN_ENTRY
        while self._steps > self._max_steps:
            _, oldest = self._entries.popitem(last=False)
            self._steps -= len(oldest) + _STEPS_OF_AN_ENTRY


class TimestampSearches:
    """Searches in the logs of one broker. Belongs to its event loop."""

    def __init__(self, opener: BatchOpener) -> None:
        self._opener = opener
        self._remembered = RememberedSteps()

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
                wanted = search.send(steps)
            except StopIteration as end:
                found: Found | None = end.value
                return found
            steps, waited = None, False
            segment = wanted.segment if isinstance(wanted, BatchAt) else wanted
            if isinstance(wanted, BatchAt):
                steps = self._known(log, wanted)
                if steps is None:
                    steps, waited = await self._open_in_thread(log, wanted), True
            if perf_counter() - since >= SEARCH_SLICE_S:
                await asyncio.sleep(0)
                waited = True
            if waited:
                since = perf_counter()
                if not log.has(segment):
                    search, steps = begin(), None

    def _known(self, log: PartitionLog, wanted: BatchAt) -> TimestampSteps | None:
        """Return the steps of a batch that was searched before, or that is small."""
        key = wanted.key(log.topic_id, log.partition)
        steps = self._remembered.get(key)
        if steps is None and wanted.header.record_count <= OPEN_ON_LOOP.max_records:
            data = wanted.read()
            try:
                steps = timestamp_steps(data, wanted.header, wanted.first_offset, OPEN_ON_LOOP)
            except TooLargeToOpen:
                return None
            except CorruptBatch:
                steps = wanted.opened(data, OPEN_ON_LOOP)
            self._remembered.add(key, steps)
        return steps

    async def _open_in_thread(self, log: PartitionLog, wanted: BatchAt) -> TimestampSteps | None:
        """Return the steps of a large batch; None if its segment is no longer in the log."""
        key = wanted.key(log.topic_id, log.partition)
        remembered: TimestampSteps | None = None

        def prepare() -> Callable[[Opening], TimestampSteps] | None:
            nonlocal remembered
            remembered = self._remembered.get(key)  # another request may have waited for it, too
            if remembered is not None or not log.has(wanted.segment):
                return None
            return partial(wanted.opened, wanted.read())

        opened = await self._opener.run(prepare, partial(self._remembered.add, key))
        return remembered if opened is None else opened
