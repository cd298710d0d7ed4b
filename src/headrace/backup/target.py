"""The directory of a copy, which is built under a temporary name."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator

from headrace.log.directory_format import INCOMPLETE_FILE
from headrace.log.files import DIRECTORY_MODE, fsync_path

from .directory import BackupError, Directory

PARTIAL_SUFFIX = ".partial-"
_OF_FILE_SYSTEM = frozenset({"lost+found"})


@contextlib.contextmanager
def building(target: str) -> Iterator[Directory]:
    """Yield an empty directory, and rename it to ``target`` at the end; delete it after an
    exception.

    The directory is a new one beside ``target``, with ``.partial-`` and random characters in its
    name, which only its owner may enter: others may write to the parent, too. It has the file
    ``incomplete``: a broker refuses to start in it. What a killed process of this user has left
    there is deleted. A ``target`` that is a mount point, or in a directory that is not writable,
    must be empty and is filled in place.

    The caller forces the content to disk.

    :param target: an absolute path, of an empty directory or of nothing
    :raises BackupError: when something else is there, or another process is building it
    :raises OSError: when the disk fails
    """
    _check_free(target)
    if _is_filled_in_place(target):
        path = target
        _make_private(path)
    else:
        path = _new_directory(target)
    with contextlib.closing(Directory(path)) as directory, _mark(directory):
        try:
            _empty(directory)
            yield directory
            os.unlink(INCOMPLETE_FILE, dir_fd=directory.fd)
            os.fsync(directory.fd)
            directory.check_name()
            if path != target:
                os.rename(path, target)
                fsync_path(os.path.dirname(target))
        except BaseException:
            _empty(directory)
            with contextlib.suppress(OSError):
                os.unlink(INCOMPLETE_FILE, dir_fd=directory.fd)
            if path != target:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            raise


def _is_filled_in_place(target: str) -> bool:
    """Return True if the target exists and no other directory can be renamed to it."""
    parent = os.path.dirname(target)
    return os.path.isdir(target) and (os.path.ismount(target) or not os.access(parent, os.W_OK))


def _check_free(target: str) -> None:
    if not os.path.lexists(target):
        return
    if os.path.islink(target):
        raise BackupError(f"{target} is a symbolic link: name what it points to")
    if not os.path.isdir(target):
        raise BackupError(f"{target} exists and is not a directory")
    names = set(os.listdir(target)) - _OF_FILE_SYSTEM
    if names and INCOMPLETE_FILE not in names:
        raise BackupError(f"{target} exists and is not empty")
    if names and not _is_filled_in_place(target):
        raise BackupError(f"{target} is incomplete: delete it first")


def _make_private(path: str) -> None:
    """Let only the owner enter a directory that is filled in place, as it would be a new one."""
    status = os.stat(path)
    if status.st_mode & 0o077:
        try:
            os.chmod(path, DIRECTORY_MODE)
        except OSError:
            # Files that are created are for their owner: who may only read sees their names.
            if status.st_mode & 0o002:
                raise BackupError(
                    f"everybody may replace files in {path}, which belongs to another user: "
                    "chmod 700 it, or name a directory below it"
                ) from None


def _new_directory(target: str) -> str:
    """Create the directory that is renamed at the end; delete those that were left by others."""
    parent, name = os.path.split(target)
    try:
        os.makedirs(parent, DIRECTORY_MODE, exist_ok=True)
    except FileExistsError:
        raise BackupError(f"Not a directory: {parent}") from None
    prefix = name + PARTIAL_SUFFIX
    for abandoned in os.listdir(parent):
        if abandoned.startswith(prefix):
            _delete_left(os.path.join(parent, abandoned))
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def _delete_left(path: str) -> None:
    """Delete a directory that a killed process of this user has left.

    :raises BackupError: when the process is not dead
    """
    status = os.lstat(path)
    # A parent that gives its group to what is in it (setgid) gives its directories that bit, too.
    is_ours = status.st_uid == os.geteuid() and status.st_mode & 0o777 == DIRECTORY_MODE
    if not stat.S_ISDIR(status.st_mode) or not is_ours:
        return  # anybody may have made it
    with contextlib.closing(Directory(path)) as directory:
        if not os.path.samestat(status, os.fstat(directory.fd)):
            return  # somebody has exchanged it
        try:
            mark = directory.open(INCOMPLETE_FILE)
        except FileNotFoundError:
            return  # empty, or not of a copy
        with mark:
            _lock(mark, path)
            _empty(directory)
            os.unlink(INCOMPLETE_FILE, dir_fd=directory.fd)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _mark(directory: Directory) -> io.FileIO:
    """Create and lock the file ``incomplete``.

    :raises BackupError: when another process has the lock, or somebody else has put it there
    """
    try:
        mark = directory.create(INCOMPLETE_FILE)
    except FileExistsError:
        mark = directory.open(INCOMPLETE_FILE)
    try:
        _lock(mark, directory.path)
    except BackupError:
        mark.close()
        raise
    return mark


def _lock(mark: io.FileIO, path: str) -> None:
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BackupError(f"another process is writing {path}") from None


def _empty(directory: Directory) -> None:
    """Delete everything but the mark."""
    with os.scandir(directory.fd) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        if name == INCOMPLETE_FILE or name in _OF_FILE_SYSTEM:
            continue
        if is_directory:
            shutil.rmtree(name, ignore_errors=True, dir_fd=directory.fd)
        else:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory.fd)
