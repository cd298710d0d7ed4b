"""``headrace worker --reload``: a process that runs the worker in another one, again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from headrace.cli.errors import Failure
from headrace.cli.tables import tell

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


def run_reloaded(drain_timeout_s: float) -> int:
    """Run this command line without ``--reload``, and again whenever a source file has changed.

    :returns: the exit status of the last worker
    :raises Failure: there are too many source files
    """
    # An option may be shortened.
    words = [w for w in sys.argv[1:] if not (w.startswith("--r") and "--reload".startswith(w))]
    command = [sys.executable, "-m", "headrace", *words, "--stop-with-stdin"]
    worker: subprocess.Popen[bytes] | None = None
    is_told = threading.Event()

    def pass_on(*_: object) -> None:
        is_told.set()
        if worker is not None:
            worker.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    seen = modified(Path.cwd())
    while True:
        # In a process group of its own, so that Ctrl-C reaches it once: through this process. Its
        # standard input ends with this process, and then it ends.
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
        seen = _changed(worker, seen, is_told)
        if not is_told.is_set():
            worker.terminate()
        try:
            worker.wait(drain_timeout_s + _KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            worker.kill()
        if is_told.is_set():
            return max(worker.wait(), 0)


def _changed(
    worker: subprocess.Popen[bytes], seen: Mapping[str, int], is_told: threading.Event
) -> Mapping[str, int]:
    """Wait until a source file has changed, or the worker was told to end; return when files were
    modified.
    """
    has_ended = False
    while (now := modified(Path.cwd())) == seen and not is_told.wait(_EVERY_S):
        if not has_ended and worker.poll() is not None:
            has_ended = True
            tell("the worker has ended; it starts again when a file changes")
    if now != seen:
        path = min(path for path in now.keys() | seen.keys() if now.get(path) != seen.get(path))
        tell(f"{os.path.relpath(path)} has changed: starting again")
    return now
