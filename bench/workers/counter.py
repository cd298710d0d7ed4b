"""Counts calls of functions in several processes, in a file that they share."""

from __future__ import annotations

import mmap
import os
import struct
import threading
from pathlib import Path

SLOTS = 4096
_SLOT = struct.Struct("<q")
PATH = os.environ.get("BENCH_COUNTER", "")


class Counter:
    """The count of this process, in its own slot of the file."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SLOTS * _SLOT.size)
        self._lock = threading.Lock()
        self._process_id = 0

    def add(self) -> None:
        with self._lock:
            if self._process_id != os.getpid():  # or after a fork
                self._process_id, self._count = os.getpid(), 0
                self._at = self._process_id % SLOTS * _SLOT.size
            self._count += 1
            _SLOT.pack_into(self._memory, self._at, self._count)

    def total(self) -> int:
        """Return the calls of all processes."""
        return sum(struct.unpack(f"<{SLOTS}q", self._memory[:]))


def new(path: Path) -> Counter:
    """Return a counter in a new file."""
    path.write_bytes(bytes(SLOTS * _SLOT.size))
    return Counter(str(path))


counter = Counter(PATH) if PATH else None
