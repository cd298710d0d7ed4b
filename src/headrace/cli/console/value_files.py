"""The files of ``headrace consume --to-directory``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headrace.topic_names import why_illegal

from .message_formatter import Delivered


class ValueFiles:
    """A directory with a file for the value of each record.

    Nothing is written elsewhere: not through a link that is there, and not for a topic whose name
    is a path.

    :param path: created if it is missing
    :raises OSError: it cannot be created or opened
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the directory."""
        os.close(self._directory)

    def write(self, record: Delivered) -> None:
        """Write the value of a record to the file TOPIC-PARTITION-OFFSET.

        :raises ValueError: no topic can have this name
        :raises OSError: the file cannot be written
        """
        reason = why_illegal(record.topic)
        if reason is not None:
            raise ValueError(f"the broker names an illegal topic: {reason}")
        name = f"{record.topic}-{record.partition}-{record.offset}"
        try:
            # A group that was interrupted gets records again.
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            handle = os.open(name, flags, 0o666, dir_fd=self._directory)
        except OSError as error:
            error.filename = str(self._path / name)
            raise
        with open(handle, "wb") as file:
            file.write(record.value or b"")
