"""Who can read a file."""

from __future__ import annotations

import os
import stat


def others_can_read(path: str | os.PathLike[str]) -> bool:
    """Return True if a regular file of this process's user is open to other users.

    A file of another user, such as a secret that Kubernetes mounts for root, is not told: this user
    may have no other way to read it, and cannot change it.
    """
    try:
        status = os.stat(path)
    except OSError:
        return False  # who opens it tells
    is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return is_ours and bool(status.st_mode & 0o077)
