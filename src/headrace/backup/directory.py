"""A directory of files that is used by its handle, so that nobody can lead its user elsewhere."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator

from headrace.log.files import FILE_MODE

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BackupError(Exception):
    """A backup or restore that failed and has left nothing. The message is one line for users."""


def text_of(error: OSError) -> str:
    """Return the text of an error of the operating system, with the path if it has one."""
    text = os.strerror(error.errno) if error.errno else str(error)
    return f"{text}: {error.filename}" if error.filename is not None else text


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Have errors of the operating system name a path, unless they name one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or path) from error


class Directory:
    """An open directory, with files and directories of files. No symbolic link is followed in it,
    and it stays the same if another one gets its name.

    :param path: may itself be a symbolic link
    :ivar fd: its handle
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close its handle."""
        os.close(self.fd)

    def check_name(self) -> None:
        """Check that this directory still has its name.

        :raises BackupError: when another one has
        """
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), os.fstat(self.fd)):
                return
        raise BackupError(
            f"{self.path} is not the directory that was filled: somebody has exchanged it, as "
            "others may write to the directory above"
        )

    def create(self, name: str) -> io.FileIO:
        """Create a file, and open it to write.

        :param name: path below this directory
        :raises OSError: when it exists, or the disk fails
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return io.FileIO(self._open(name, flags), "w")

    def open(self, name: str) -> io.FileIO:
        """Open a file to read.

        :param name: path below this directory
        :raises BackupError: when it is not a regular file
        :raises OSError: when it is missing or cannot be read
        """
        try:
            # Opening a FIFO to read would wait for somebody to write.
            fd = self._open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                raise self._irregular(name) from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self._irregular(name)
        return io.FileIO(fd)

    def fsync(self, name: str) -> None:
        """Force a file or a directory in this one to disk.

        :param name: path below this directory
        :raises OSError: when the disk fails; it names the path
        """
        fd = self._open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with naming(f"{self.path}/{name}"):
                os.fsync(fd)
        finally:
            os.close(fd)

    def _irregular(self, name: str) -> BackupError:
        return BackupError(f"{self.path}/{name} is a link or not a regular file")

    def _open(self, name: str, flags: int) -> int:
        folder, _, file = name.rpartition("/")
        try:
            if not folder:
                return os.open(file, flags, FILE_MODE, dir_fd=self.fd)
            at = os.open(folder, _DIRECTORY, dir_fd=self.fd)
            try:
                return os.open(file, flags, FILE_MODE, dir_fd=at)
            finally:
                os.close(at)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{self.path}/{name}") from error
