"""Read, write and fsync errors by rule, for a broker in a process of its own.

A library in C (``failing_disk.c``) is compiled and loaded before the others, so this needs a C
compiler and no privileges.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.steady import CONFIGS
from tests.support import HeadraceProcess

READS, WRITES, SYNCS = range(3)
NAMES = ("reads", "writes", "syncs")
_RULE = struct.Struct("=iiii")


class Faults:
    """The rules by which calls fail, shared with the broker's process."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_RULE.size * len(NAMES)))
        with path.open("r+b") as file:
            self._rules = mmap.mmap(file.fileno(), 0)
        self.path = path

    def begin(self, kind: int, permille: int, error: int = errno.EIO, size: int = -1) -> None:
        """Fail calls of a kind.

        :param permille: how many of 1000 calls fail
        :param size: the bytes of a failing write that reach the disk
        """
        _RULE.pack_into(self._rules, _RULE.size * kind, permille, error, size, self.failed(kind))

    def end(self) -> None:
        """Let all calls succeed."""
        for kind in range(len(NAMES)):
            self.begin(kind, 0, 0)

    def failed(self, kind: int) -> int:
        """Return how many calls of a kind have failed."""
        return int(_RULE.unpack_from(self._rules, _RULE.size * kind)[3])


def compiled(folder: Path) -> Path:
    """Compile the library and return its path; skip the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make disk errors with")
    library = folder / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"the library that makes disk errors does not compile: {done.stderr[:300]}")
    return library


class FailingHeadrace(HeadraceProcess):
    """A broker whose disk fails by rule."""

    def __init__(self, folder: Path, configs: Mapping[str, str]) -> None:
        super().__init__(folder / "data", {**CONFIGS, **configs})
        self.faults = Faults(folder / "rules")
        self._library = compiled(folder)

    def environment(self) -> dict[str, str]:  # type: ignore[override]
        return {
            **HeadraceProcess.environment(),
            "LD_PRELOAD": str(self._library),
            "FAILING_DISK_RULES": str(self.faults.path),
            "FAILING_DISK_BELOW": str(self.data_dir),
        }
