"""Files with passwords, tokens and keys that options name."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.file_readers import others_can_read

from .tables import one_line

MAX_SECRET_FILE_BYTES = 16 << 20
_told: set[Path] = set()


def secret_file(path: Path) -> bytes:
    """Return the content of a file that may have secrets, and warn if others can read it.

    :raises OSError: it cannot be read, or is too large
    """
    warn_of_readers(path)
    with path.open("rb") as file:
        data = file.read(MAX_SECRET_FILE_BYTES + 1)
    if len(data) > MAX_SECRET_FILE_BYTES:
        raise OSError(f"{path} is larger than {MAX_SECRET_FILE_BYTES} bytes")
    return data


def lines_of(text: str) -> list[str]:
    """Return the lines of a file, whose passwords may have what ends lines in Unicode only."""
    return text.replace("\r\n", "\n").split("\n")


def warn_of_readers(path: Path) -> None:
    """Warn once on stderr if other users can read a file with secrets."""
    if path not in _told and others_can_read(path):
        _told.add(path)
        name = one_line(str(path))
        print(
            f"warning: {name} may have secrets, and other users can read it: chmod 600 {name}",
            file=sys.stderr,
        )
