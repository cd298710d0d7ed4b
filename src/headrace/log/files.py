"""File handles, and operations on whole files.

:class:`OpenFiles` keeps the handles of recently used segments and releases the others with their
indexes, so that thousands of partitions need few handles and little memory.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

TEMPORARY_SUFFIX = ".tmp"
"""The end of the name of a file that is being written. A start deletes what a crash has left."""
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
"""Records and keys are for the owner of the process, whatever its umask is: a broker in another
program must not change that.
"""
DAMAGED_SUFFIX = ".damaged"
"""The end of the name of a file that is kept because it is damaged."""
_temporary_numbers = itertools.count(1)


class OpenSegment(Protocol):
    """A segment that has a handle."""

    used: bool
    """Set by each use. When it is the segment's turn to be released, the flag is cleared instead.
    """

    def release(self) -> None:
        """Save the indexes and close the handle."""


class OpenFiles:
    """The open handles of segments.

    :ivar limit: the largest number of handles. The one not used for longest is released first
        (second chance algorithm)
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(2, limit)
        self._ring: OrderedDict[OpenSegment, None] = OrderedDict()
        self._kept = 0
        """Handles of deleted segments that are still being sent to clients."""

    def __len__(self) -> int:
        return len(self._ring)

    def keep(self) -> bool:
        """Count one more handle of a deleted segment; return False if there are too many."""
        if self._kept >= self.limit // 2:
            return False
        self._kept += 1
        return True

    def end_keep(self) -> None:
        """Undo one :meth:`keep`."""
        self._kept -= 1

    def open(self, path: str, segment: OpenSegment) -> int:
        """Open ``path`` for ``segment``. When the process has no handle left, the limit is lowered.

        :raises OSError: when the file cannot be opened
        """
        while True:
            while len(self._ring) > 1 and len(self._ring) + self._kept >= self.limit:
                self._release_one()
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
                break
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._ring) < 2:
                    raise
                self.limit = max(2, len(self._ring) - 1)
                logger.warning(
                    "No file handle is left: from now on at most %d segments are kept open",
                    self.limit,
                )
                self._release_one()
        self._ring[segment] = None
        return fd

    def forget(self, segment: OpenSegment) -> None:
        """Remove a segment that has closed its handle."""
        self._ring.pop(segment, None)

    def _release_one(self) -> None:
        while True:
            segment, _ = self._ring.popitem(last=False)
            if segment.used:
                segment.used = False
                self._ring[segment] = None
            else:
                segment.release()
                return


def private(path: str, flags: int) -> int:
    """Create a file for the owner only. This is an opener for :func:`open`."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


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
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if must_exist:
            raise
        return
    try:
        os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)


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
