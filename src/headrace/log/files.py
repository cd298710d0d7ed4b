"""Operations on whole files."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import BinaryIO

TEMPORARY_SUFFIX = ".tmp"
"""The end of the name of a file that is being written. A start deletes what a crash has left."""
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
"""Records and keys are for the owner of the process, whatever its umask is: a broker in another
program must not change that.
"""
DAMAGED_SUFFIX = ".damaged"
"""The end of the name of a file that is kept because it is damaged."""
_temporary_numbers = itertools.count(1)


def private(path: str, flags: int) -> int:
    """Create a file for the owner only. This is an opener for :func:`open`."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


@contextlib.contextmanager
def opened(path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Yield the handle of a file, which is for the owner only if it is created.

    :raises OSError: when the file cannot be opened
    """
    fd = private(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def replacing(path: str, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that atomically replaces another one at the end. Several threads may do so at
    the same time. After an OSError the file is as it was.

    :param sync: force the new file to disk first, but not its name
    :raises OSError: when the disk fails
    """
    temporary = f"{path}.{next(_temporary_numbers)}{TEMPORARY_SUFFIX}"
    try:
        with open(temporary, "wb", opener=private) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace_file(path: str, data: bytes, *, sync: bool = True) -> None:
    """Replace the content of a file, as :func:`replacing` does.

    :param sync: force the new file to disk first, and its name after that
    :raises OSError: when the disk fails; the file has the old content, or the new one if only its
        name could not be forced to disk
    """
    with replacing(path, sync=sync) as file:
        file.write(data)
    if sync:
        fsync_path(os.path.dirname(path))


def read_file(path: str) -> bytes:
    """Return the content of a file; nothing if it does not exist.

    :raises OSError: when the disk fails
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def remove_file(path: str) -> None:
    """Remove a file, unless it does not exist.

    :raises OSError: when the disk fails
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def link_aside(path: str, name: str) -> str:
    """Give a damaged file a second name that is not used, and return it; or the one that it has
    already, if a crash has interrupted an earlier call.

    :param name: the path that the new name begins with
    :raises OSError: when the disk fails
    """
    for number in itertools.count(1):
        aside = f"{name}{DAMAGED_SUFFIX}" if number == 1 else f"{name}{DAMAGED_SUFFIX}-{number}"
        try:
            os.link(path, aside)
        except FileExistsError:
            if not os.path.samefile(path, aside):
                continue
        return aside
    raise AssertionError


def fsync_path(path: str, *, must_exist: bool = False) -> None:
    """Force a file or a directory to disk, unless it does not exist.

    :param must_exist: raise FileNotFoundError if it does not exist
    :raises OSError: when the disk fails; it names the path. What was written may be lost even if a
        later call succeeds: the kernel reports an error once
    """
    try:
        with opened(path) as fd:
            os.fsync(fd)
    except FileNotFoundError:
        if must_exist:
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def sync_filesystem(fd: int) -> None:
    """Force the whole file system of an open file to disk.

    :raises OSError: when anything could not be written since the file was opened. Only Linux
        reports that
    """
    import ctypes

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(fd):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
