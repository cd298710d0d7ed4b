"""Verify the stored batches in the background, slowly, and name what is damaged in the log.

Disks flip bits in files that nobody reads for months. A damaged batch should be known while there
is still a backup to restore it from.
"""

from __future__ import annotations

import threading
import time

from headrace.log.data_directory import DataDirectory
from headrace.log.verify import LogFile, Verified, log_files, verify_file
from headrace.log_lines import get_logger
from headrace.protocol.record_batch import BatchHeader

from .limits import SCRUB_BYTES_PER_SECOND, SCRUB_INTERVAL_S, SCRUB_LEAST_BATCH_BYTES

log = get_logger("headrace.broker")

_PAUSE_S = 0.02


class _Stopped(Exception):
    """The broker stops."""


class Scrubber:
    """A thread that verifies all batches of a data directory every ``SCRUB_INTERVAL_S`` seconds, at
    ``SCRUB_BYTES_PER_SECOND``.

    :ivar damaged: path and offset of the damaged batches found since the start
    """

    def __init__(self, directory: DataDirectory) -> None:
        self.damaged: set[tuple[str, int]] = set()
        self._directory = directory
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-scrubber", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                self.scrub()
            except _Stopped:
                return
            except OSError as error:
                log.error("cannot verify the stored batches now: %s", error)
            self._stopping.wait(max(1.0, started + SCRUB_INTERVAL_S - time.monotonic()))

    def scrub(self) -> None:
        """Verify all batches once.

        :raises OSError: when a file cannot be read
        """
        for name in sorted(self._directory.partition_names()):
            if self._directory.needs_recovery(name):
                continue  # its tail may be torn, and is cut when the log is first used
            for file in log_files(self._directory.path, [name]):
                self._verify(file)

    def _verify(self, file: LogFile) -> None:
        verified = Verified()
        for found in verify_file(
            file, is_live=True, verified=verified, on_batch=_Pace(self._stopping)
        ):
            key = (found.path, found.first_offset)
            if key not in self.damaged:
                self.damaged.add(key)
                log.error("%s. See docs/behaviour/disk-failures.md", found)


class _Pace:
    """Called with each batch header: rests so that the rate is kept."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._due_s = 0.0

    def __call__(self, header: BatchHeader) -> None:
        size_bytes = max(header.size_bytes, SCRUB_LEAST_BATCH_BYTES)
        self._due_s += size_bytes / SCRUB_BYTES_PER_SECOND
        if self._due_s >= _PAUSE_S:
            if self._stopping.wait(self._due_s):
                raise _Stopped
            self._due_s = 0.0
