"""The files of ``headrace consume --to-directory``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.errors import Failure, one_line_error
from headrace.topic_names import why_illegal

if TYPE_CHECKING:
    from headrace.client.records import Record


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

    def write(self, records: Sequence[Record]) -> None:
        """Write the value of each record to the file TOPIC-PARTITION-OFFSET.

        :raises Failure: a file cannot be written, or no topic can have this name
        """
        for record in records:
            reason = why_illegal(record.topic)
            if reason is not None:
                raise Failure(f"the broker names an illegal topic: {reason}")
            name = f"{record.topic}-{record.partition}-{record.offset}"
            try:
                # A group that was interrupted gets records again.
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._directory)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(name, flags, 0o666, dir_fd=self._directory), "wb") as file:
                    file.write(record.value or b"")
            except OSError as error:
                error.filename = str(self._path / name)
                raise Failure(f"cannot write {one_line_error(error)}") from error
