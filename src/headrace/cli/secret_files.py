"""Files with passwords, tokens and keys that options name."""

from __future__ import annotations

from pathlib import Path

from headrace.file_readers import others_can_read

from .errors import BadUsage, one_line_error
from .tables import tell

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


def entries(text: str) -> list[tuple[int, str]]:
    """Return the lines of a file and their numbers, without empty ones and comments.

    Passwords may have what ends lines in Unicode only.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]


def login_text(path: Path) -> str:
    """Return the content of a file that says who may log in.

    :raises BadUsage: it cannot be read
    """
    try:
        return secret_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsage(f"cannot read who may log in: {one_line_error(error)}") from error


def passwords(path: Path) -> list[tuple[str, str]]:
    """Return the names and passwords in a file of ``NAME:PASSWORD`` lines.

    :raises BadUsage: it cannot be used
    """
    users = [line.partition(":") for _, line in entries(login_text(path))]
    if not users or not all(name and password for name, _, password in users):
        raise BadUsage(f"{path} has no lines of the form NAME:PASSWORD")
    return [(name, password) for name, _, password in users]


def warn_of_readers(path: Path) -> None:
    """Warn once on stderr if other users can read a file with secrets."""
    if path not in _told and others_can_read(path):
        _told.add(path)
        tell(f"warning: {path} may have secrets, and other users can read it: chmod 600 {path}")
