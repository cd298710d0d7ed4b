"""Removal of the directories of deleted topics, in a thread.

A directory is renamed first, so that a crash leaves no half of a log, and a new topic of the same
name can be used at once. The catalog keeps a deleted topic until its directories are gone: a start
continues what a crash or a stop has interrupted.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace.log.data_directory import DELETED_SUFFIX, DataDirectory
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")


class DeletedLog(NamedTuple):
    """The log of a partition of a deleted topic, by the name of its directory."""

    name: str
    topic_id: uuid.UUID


class Removals:
    """The logs whose directories are to be removed. All methods but the thread's own are called
    from one thread.

    :param directory: the data directory
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._executor = ThreadPoolExecutor(1, "headrace-removal")
        self._stopping = threading.Event()
        self._renaming = threading.Lock()
        self._pending: dict[str, uuid.UUID] = {}
        """Names of the directories that are not renamed yet, with the ids of their topics."""

    def add(self, logs: Iterable[DeletedLog], removed: Callable[[], object] | None = None) -> None:
        """Remove the directories of logs in the background.

        :param removed: called in the thread when all of them are gone, forced to disk
        """
        names = []
        for name, topic_id in logs:
            self.rename_now(name)  # of an earlier topic of the same name
            self._pending[name] = topic_id
            names.append(name)
        self._submit(lambda: self._remove(names), removed)

    def remove_renamed(self) -> None:
        """Remove in the background what earlier processes have renamed and not removed."""
        names = os.listdir(self._directory.path)
        renamed = [name for name in names if name.endswith(DELETED_SUFFIX)]
        if renamed:
            self._submit(lambda: self._remove_trees(renamed))

    def finish(self) -> None:
        """Wait until everything is removed."""
        self._executor.submit(int).result()

    def close(self) -> None:
        """Stop after the directory that is being removed."""
        self._stopping.set()
        self._executor.shutdown(cancel_futures=True)

    # In the thread --------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], bool], done: Callable[[], object] | None = None) -> None:
        def run() -> None:
            try:
                if work() and done is not None:
                    done()
            except Exception as error:
                logger.error(
                    "cannot remove the directories of deleted topics: %s; the next start tries "
                    "again",
                    error,
                    exc_info=None if isinstance(error, OSError) else error,
                )

        self._executor.submit(run)

    def _remove(self, names: Iterable[str]) -> bool:
        """Rename all directories, then remove them; return False if interrupted or refused."""
        renamed = []
        for name in names:
            if self._stopping.is_set():
                return False
            doomed = self.rename_now(name)
            if doomed is not None:
                renamed.append(doomed)
        return self._remove_trees(renamed)

    def rename_now(self, name: str) -> str | None:
        """Rename a directory that waits for it; return its new name. A new topic may have the same
        name. Any thread may call this.
        """
        with self._renaming:
            topic_id = self._pending.pop(name, None)
            if topic_id is None:
                return None
            try:
                return self._directory.rename_deleted(name, topic_id)
            except FileNotFoundError:
                return None

    def _remove_trees(self, names: Iterable[str]) -> bool:
        all_removed = True
        for name in names:
            if self._stopping.is_set():
                return False
            all_removed = _remove_tree(f"{self._directory.path}/{name}") and all_removed
        self._directory.make_durable()
        return all_removed


def _remove_tree(path: str) -> bool:
    """Remove a directory and everything in it; return False if something is left.

    Most directories of logs have a few files and no directory: :func:`shutil.rmtree` is slower.
    """
    try:
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
        os.rmdir(path)
    except OSError:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.error("cannot remove %s; the next start tries again: %s", path, error)
            return False
    return True
