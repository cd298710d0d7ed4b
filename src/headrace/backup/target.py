"""The directory of a copy, which is built under a temporary name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator

from headrace.log.directory_format import INCOMPLETE_FILE
from headrace.log.files import fsync_path

from .errors import BackupError

PARTIAL_SUFFIX = ".partial"
_OF_FILE_SYSTEM = frozenset({"lost+found"})


@contextlib.contextmanager
def building(target: str) -> Iterator[str]:
    """Yield an empty directory, and rename it to ``target`` at the end; delete it after an
    exception.

    The directory is ``target`` with ``.partial``, and has the file ``incomplete``: a broker refuses
    to start in it. What a killed process has left there is deleted. A ``target`` that is a mount
    point, or in a directory that is not writable, must be empty and is filled in place.

    The caller forces the content to disk.

    :param target: an absolute path, of an empty directory or of nothing
    :raises BackupError: when something else is there, or another process is building it
    :raises OSError: when the disk fails
    """
    _check_free(target)
    in_place = _is_filled_in_place(target)
    directory = target if in_place else target + PARTIAL_SUFFIX
    os.makedirs(directory, mode=0o700, exist_ok=True)
    mark = _mark(directory)
    try:
        try:
            _empty(directory)
            yield directory
            os.unlink(f"{directory}/{INCOMPLETE_FILE}")
            fsync_path(directory)
            if not in_place:
                os.rename(directory, target)
                fsync_path(os.path.dirname(target))
        except BaseException:
            _empty(directory)
            with contextlib.suppress(OSError):
                os.unlink(f"{directory}/{INCOMPLETE_FILE}")
            if not in_place:
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            raise
    finally:
        os.close(mark)


def _is_filled_in_place(target: str) -> bool:
    """Return True if the target exists and no other directory can be renamed to it."""
    parent = os.path.dirname(target)
    return os.path.isdir(target) and (os.path.ismount(target) or not os.access(parent, os.W_OK))


def _check_free(target: str) -> None:
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise BackupError(f"{target} exists and is not a directory")
    names = set(os.listdir(target)) - _OF_FILE_SYSTEM
    if names and INCOMPLETE_FILE not in names:
        raise BackupError(f"{target} exists and is not empty")
    if names and not _is_filled_in_place(target):
        raise BackupError(f"{target} is incomplete: delete it first")


def _mark(directory: str) -> int:
    """Create and lock the file ``incomplete``; return its file descriptor.

    :raises BackupError: when another process has the lock, or the directory is not ours
    """
    names = set(os.listdir(directory)) - _OF_FILE_SYSTEM
    if names and INCOMPLETE_FILE not in names:
        raise BackupError(f"{directory} is in the way: delete it first")
    fd = os.open(f"{directory}/{INCOMPLETE_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise BackupError(f"another process is writing {directory}") from None
    return fd


def _empty(directory: str) -> None:
    """Delete everything but the mark."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == INCOMPLETE_FILE or entry.name in _OF_FILE_SYSTEM:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
