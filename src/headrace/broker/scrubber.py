"""Verify the stored batches in the background, slowly, and name what is damaged in the log.

Disks flip bits in files that nobody reads for months. A damaged batch should be known while there
is still a backup to restore it from.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from headrace.log.cleaner import CleaningStopped, Pace
from headrace.log.data_directory import DataDirectory, is_partition_name
from headrace.log.verify import LogFile, Verified, log_files, verify_file
from headrace.log_lines import get_logger
from headrace.protocol.record_batch import BatchHeader

if TYPE_CHECKING:
    from headrace.net.metrics import ScrubberMetrics

SCRUB_BYTES_PER_SECOND = 4 * 1024 * 1024
"""The rate at which stored batches are verified in the background."""

SCRUB_LEAST_BATCH_BYTES = 1024
"""A smaller batch counts as this size, as it takes as much time."""

SCRUB_INTERVAL_S = 24 * 3600
"""The time from the start of one verification of all batches to the next, if it takes no longer."""

log = get_logger("headrace.broker")

_LEAST_WAIT_S = 0.02


class Scrubber:
    """A thread that verifies all batches of a data directory every ``SCRUB_INTERVAL_S`` seconds, at
    ``SCRUB_BYTES_PER_SECOND``.

    :ivar damaged: path and offset of the damaged batches found since the start
    """

    def __init__(self, directory: DataDirectory, metrics: ScrubberMetrics) -> None:
        self.damaged: set[tuple[str, int]] = set()
        self._metrics = metrics
        self._directory = directory
        self._pace = Pace(lambda: SCRUB_BYTES_PER_SECOND, _LEAST_WAIT_S)
        self._thread = threading.Thread(target=self._run, name="headrace-scrubber", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._pace.stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._pace.stopped.is_set():
            started = time.monotonic()
            try:
                self.scrub()
            except CleaningStopped:
                return
            except OSError as error:
                log.error("cannot verify the stored batches now: %s", error)
            self._pace.stopped.wait(max(1.0, started + SCRUB_INTERVAL_S - time.monotonic()))

    def scrub(self) -> None:
        """Verify all batches once.

        :raises OSError: when the directory cannot be read
        """
        path = self._directory.path
        for name in sorted(filter(is_partition_name, os.listdir(path))):
            self._pace.spend(SCRUB_LEAST_BATCH_BYTES)
            if name in self._directory.unverified:
                continue  # its tail may be torn, and is cut when the log is first used
            try:
                for file in log_files(path, [name]):
                    self._verify(file)
            except OSError as error:  # go on with the other logs
                log.error("cannot verify %s/%s now: %s", path, name, error)
        self._metrics.passes += 1
        self._metrics.last_pass_s = time.time()

    def _verify(self, file: LogFile) -> None:
        for damage in verify_file(
            file, is_live=True, verified=Verified(), on_batch=self._verified_batch
        ):
            key = (damage.path, damage.first_offset)
            if key not in self.damaged:
                self.damaged.add(key)
                self._metrics.damaged += 1
                log.error("%s. See docs/behaviour/disk-failures.md", damage)

    def _verified_batch(self, header: BatchHeader) -> None:
        self._metrics.read_bytes += header.size_bytes
        self._pace.spend(max(header.size_bytes, SCRUB_LEAST_BATCH_BYTES))
