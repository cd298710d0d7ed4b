"""Files with passwords, tokens and keys that options name."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from .tables import one_line

MAX_SECRET_FILE_BYTES = 16 << 20
_told: set[str] = set()


def secret_file(path: Path) -> bytes:
    """Return the content of a file that may have secrets, and warn if others can read it.

    :raises OSError: it cannot be read, or is too large
    """
    with path.open("rb") as file:
        warn_of_readers(path, file.fileno())
        data = file.read(MAX_SECRET_FILE_BYTES + 1)
    if len(data) > MAX_SECRET_FILE_BYTES:
        raise OSError(f"{path} is larger than {MAX_SECRET_FILE_BYTES} bytes")
    return data


def warn_of_readers(path: Path, fd: int | None = None) -> None:
    """Warn once on stderr if others can read or change a file with secrets.

    Group and others of a file of root are no warning where this process is not root: a service may
    have no other way to read it, such as a secret that Kubernetes mounts.
    """
    try:
        found = os.stat(path) if fd is None else os.fstat(fd)
    except OSError:
        return  # who opens it tells
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o077:
        return
    if found.st_uid != os.geteuid() or str(path) in _told:
        return
    _told.add(str(path))
    name = one_line(str(path))
    print(
        f"warning: {name} may have secrets, and other users can read it: chmod 600 {name}",
        file=sys.stderr,
    )
