"""``headrace worker --reload``: a process that runs the worker in another one, again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from headrace.cli.errors import Failure

_EVERY_S = 1.0
_KILL_AFTER_S = 15.0
"""The time that a worker has to end besides that for its functions."""
_MAX_FILES = 20_000
_NOT_SOURCES = ("node_modules", "__pycache__", "site-packages")


def modified(folder: Path) -> Mapping[str, int]:
    """Return when the ``.py`` files below a folder were modified, by path; without those in hidden
    folders and virtual environments.

    :raises Failure: they are too many to look at every second
    """
    times: dict[str, int] = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _NOT_SOURCES
            and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
        ]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(parent, name)
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except OSError:  # it was removed meanwhile
                    continue
        if len(times) > _MAX_FILES:
            raise Failure(f"--reload: {folder} has more than {_MAX_FILES:,} .py files to watch")
    return times


class _Worker:
    """The worker's process, and the signals for it.

    :param words: its command line
    """

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self.process: subprocess.Popen[bytes] | None = None
        self.is_told = False
        """Whether this process was told to end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)

    def start(self) -> None:
        """Start a process, unless the worker was told to end."""
        if self.is_told:
            return
        # In a process group of its own, so that Ctrl-C reaches it once: through this process. Its
        # standard input ends with this process, and then it ends.
        self.process = subprocess.Popen(self._words, stdin=subprocess.PIPE, process_group=0)

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for the end, and return whether it has come."""
        if self.process is None:
            return True
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, timeout_s: float) -> None:
        """Tell the worker to end, and wait for it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            if not self.ends_within(timeout_s):
                self.process.kill()
                self.process.wait()

    def _pass_on(self, _: int, __: FrameType | None) -> None:
        self.is_told = True
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()


def run_reloaded(drain_timeout_s: float) -> int:
    """Run this command line without ``--reload``, and again whenever a source file has changed.

    :returns: the exit status of the last worker
    :raises Failure: there are too many source files
    """
    # An option may be shortened.
    words = [w for w in sys.argv[1:] if not (w.startswith("--r") and "--reload".startswith(w))]
    worker = _Worker([sys.executable, "-m", "headrace", *words, "--stop-with-stdin"])
    folder = Path.cwd()
    seen = modified(folder)
    worker.start()
    has_ended = False
    while not worker.is_told:
        if not has_ended and worker.ends_within(_EVERY_S):
            has_ended = True
            if not worker.is_told:
                print("the worker has ended; it starts again when a file changes", file=sys.stderr)
        elif has_ended:
            time.sleep(_EVERY_S)
        if (now := modified(folder)) != seen and not worker.is_told:
            changed = min(
                path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path)
            )
            print(f"{os.path.relpath(changed)} has changed: starting again", file=sys.stderr)
            seen = now
            worker.stop(drain_timeout_s + _KILL_AFTER_S)
            worker.start()
            has_ended = False
    if not worker.ends_within(drain_timeout_s + _KILL_AFTER_S):
        worker.stop(0)
    return max(worker.process.returncode, 0) if worker.process is not None else 0
