"""The lock of a data directory: one process holds a directory at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os

from headrace.log.files import FILE_MODE

LOCK_FILE = "lock"


class DirectoryInUse(RuntimeError):
    """Another process holds the data directory; the message says which one."""


def take(directory: str, holder: str = "") -> int:
    """Take the lock of a directory, and return its file descriptor. Closing it releases the lock.

    :param holder: HOST:PORT of the broker, or the name of the command, for the error of the next
        process
    :raises DirectoryInUse: when another process has the lock
    :raises OSError: when the lock file cannot be opened
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(f"{directory}/{LOCK_FILE}", flags, FILE_MODE)
    _lock(fd, directory, fcntl.LOCK_EX)
    announce(fd, holder)
    return fd


def take_shared(directory: str) -> int | None:
    """Take the lock of a directory that is only read, and return its file descriptor; None if the
    directory has no lock file. Nothing is written.

    :raises DirectoryInUse: when a process uses the directory
    :raises OSError: when the lock file cannot be opened
    """
    with contextlib.suppress(FileNotFoundError):
        # Opening a FIFO to read would wait for somebody to write.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{directory}/{LOCK_FILE}", flags)
        share(fd, directory)
        return fd
    return None


def share(fd: int, directory: str) -> None:
    """Take the lock of a directory that is only read.

    :param fd: its lock file, opened to read; it is closed if the lock is not free
    :raises DirectoryInUse: when a process uses the directory
    """
    _lock(fd, directory, fcntl.LOCK_SH)


def announce(fd: int, holder: str) -> None:
    """Write into the lock file who holds it."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {holder}\n".encode(), 0)


def _lock(fd: int, directory: str, operation: int) -> None:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except OSError:
        pid, _, holder = os.pread(fd, 1000, 0).decode(errors="replace").strip().partition(" ")
        os.close(fd)
        where = f" at {holder}" if holder else ""
        raise DirectoryInUse(
            f"data directory {directory} is in use (process {pid or 'unknown'}{where})"
        ) from None
