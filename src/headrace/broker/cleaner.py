"""Compaction in the background: the order of logs, the threads, the pace.

:mod:`headrace.log.cleaner` compacts one log. Every ``log.cleaner.backoff.ms`` this module checks
the logs of compacted topics and cleans those that are due, the dirtiest first,
``log.cleaner.threads`` at a time. Only the choice of logs and the swap of finished segments run on
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor

from headrace.log.cleaner import Cleanable, CleaningStopped, Pace, Round, cleanable
from headrace.log.partition_log import PartitionLog
from headrace.log_lines import get_logger
from headrace.net.metrics import CleanerMetrics
from headrace.protocol.record_batch import CorruptBatch
from headrace.topics.catalog import Catalog, Topic
from headrace.topics.topic_logs import TOPICS_PER_TURN, TopicLogs, roll

from .config.broker_config import Config

INTERNAL_DIRTY_BYTES = 4 * 1024 * 1024
"""If the active segments of a compacted internal topic exceed this together, they are closed so
that they can be cleaned. A start reads them, at about 10 MB a second.
"""

INTERNAL_CLEANED_BYTES = 64 * 1024
"""The smallest active segment that is closed for cleaning."""

log = get_logger("headrace.cleaner")

MAX_THREADS = 16
"""The largest number of cleaner threads, even if ``log.cleaner.threads`` is larger."""


class Cleaner:
    """Compacts the logs of one broker. Belongs to the broker's event loop."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        logs: TopicLogs,
        wall_ms: Callable[[], int],
        metrics: CleanerMetrics,
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._logs = logs
        self._wall_ms = wall_ms
        self._metrics = metrics
        self._executor: ThreadPoolExecutor | None = None
        self._pace = Pace(lambda: config.get_float("log.cleaner.io.max.bytes.per.second"))
        self._begun: list[Generator[Callable[[], None]]] = []
        """The running rounds."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start cleaning, if ``log.cleaner.enable`` is true."""
        if self._config.get_bool("log.cleaner.enable"):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop. Unfinished rounds are discarded."""
        self._pace.stopped.set()
        if self._task is not None:
            self._task.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        for steps in self._begun:
            steps.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.get_int("log.cleaner.backoff.ms") / 1000)
            try:
                while await self._clean_all():
                    pass
            except Exception:
                log.exception("compaction failed; trying again after log.cleaner.backoff.ms")

    async def _clean_all(self) -> bool:
        """Clean the logs of compacted topics that are due now; return whether any was cleaned."""
        threads = min(self._config.get_int("log.cleaner.threads"), MAX_THREADS)
        if not threads:
            return False
        ranked: list[tuple[bool, float, int, PartitionLog]] = []
        for number, topic in enumerate(list(self._catalog.topics.values())):
            if number % TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
            if "compact" not in (self._config.topic_value(topic, "cleanup.policy") or ""):
                continue
            if topic.internal:
                self._roll_if_dirty(topic)
            for _, partition_log in self._logs.existing(topic):
                plan = self._plan(partition_log)
                if plan is not None:
                    ranked.append((plan.is_overdue, plan.dirty_ratio, len(ranked), partition_log))
                await asyncio.sleep(0)
        ranked.sort(reverse=True)
        remaining = iter([partition_log for *_, partition_log in ranked])
        dedupe_bytes = self._config.get_int("log.cleaner.dedupe.buffer.size") // threads
        workers = (self._work(remaining, dedupe_bytes) for _ in range(threads))
        before = self._metrics.rounds
        # The next pass waits for all: two rounds over one log would write the same files.
        for error in await asyncio.gather(*workers, return_exceptions=True):
            if error is not None:
                raise error
        return self._metrics.rounds > before

    async def _work(self, remaining: Iterator[PartitionLog], dedupe_bytes: int) -> None:
        """Clean logs one after the other."""
        for partition_log in remaining:
            plan = self._plan(partition_log)
            if plan is not None:
                await self._clean(partition_log, plan, dedupe_bytes)

    def _roll_if_dirty(self, topic: Topic) -> None:
        """Begin new segments in the logs of an internal topic when the active ones are larger
        together than ``INTERNAL_DIRTY_BYTES``. Active segments cannot be cleaned, and a start reads
        them.

        A segment stays active if it is too small to be worth a round, or if an open transaction in
        the segment before keeps it from being cleaned.
        """
        active = [
            (partition_log, partition_log.segments[-1])
            for _, partition_log in self._logs.existing(topic)
            if len(partition_log.segments) and not partition_log.is_uncleanable
        ]
        if sum(segment.size_bytes for _, segment in active) <= INTERNAL_DIRTY_BYTES:
            return
        for partition_log, segment in active:
            least = max(
                INTERNAL_CLEANED_BYTES,
                partition_log.config.min_cleanable_dirty_ratio * partition_log.size_bytes(),
            )
            if (
                segment.size_bytes > least
                and partition_log.last_stable_offset > segment.base_offset
            ):
                roll(partition_log, self._wall_ms())

    def _plan(self, partition_log: PartitionLog) -> Cleanable | None:
        if (
            partition_log.is_uncleanable
            or partition_log.is_deleted
            or not partition_log.config.is_compacted
        ):
            return None
        try:
            return cleanable(partition_log, self._wall_ms())
        except OSError as error:
            log.warning("cannot check %s for compaction: %s", partition_log.path, error)
            return None

    async def _clean(self, partition_log: PartitionLog, plan: Cleanable, dedupe_bytes: int) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(MAX_THREADS, "headrace-cleaner")
        compaction = Round(partition_log, plan, self._wall_ms(), dedupe_bytes, self._pace)
        steps = compaction.steps()
        self._begun.append(steps)
        try:
            for step in steps:
                await asyncio.get_running_loop().run_in_executor(self._executor, step)
        except CleaningStopped:
            pass
        except Exception as error:
            if partition_log.is_deleted:  # its files are gone, or those of a new topic
                return
            self._metrics.failures += 1
            path = partition_log.path
            if isinstance(error, OSError):
                log.error("cannot compact %s now: %s", path, error)
                return
            partition_log.is_uncleanable = True
            trace = None if isinstance(error, CorruptBatch) else error
            message = "%s is not compacted until the next start: %s"
            log.error(message, path, error, exc_info=trace)
        else:
            self._metrics.cleaned(compaction)
            log.info("compacted %s up to offset %d", partition_log.path, compaction.end_offset)
        finally:
            steps.close()
            self._begun.remove(steps)
