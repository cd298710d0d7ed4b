"""The file of the catalog, ``headrace.db``: copies of it, and its replacement after the disk has
failed.

After an fsync that failed, a file system may keep the blocks of the failed write as unwritten, and
lose what is written to them later although its fsync succeeds; see
:func:`headrace.log.recovery.rewrite`. SQLite writes its log, ``headrace.db-wal``, and the database
in place. So the catalog gets new files after such an error, and after a crash that may have hidden
one.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from headrace.log.files import TEMPORARY_SUFFIX, fsync_path

_REPLACEMENT = ".new"
"""The end of the name of a whole copy that is about to become the catalog."""
SIDES = ("-wal", "-shm")
"""The ends of the names of SQLite's files beside a database."""


def make_private(database: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    """Let only the owner read a catalog, because it has the keys of users. SQLite gives the files
    that it creates beside it the same mode.
    """
    database.execute("PRAGMA user_version")  # creates the file
    with suppress(OSError):  # another owner, or a file system without modes
        os.chmod(path, 0o600)


def save(database: sqlite3.Connection, path: str) -> None:
    """Write the current content of a database to a new file, force it to disk, and put it in the
    place of ``path``.

    :raises sqlite3.Error: when the database cannot be read, or the disk fails
    :raises OSError: when the disk fails
    """
    temporary = f"{path}{TEMPORARY_SUFFIX}"
    remove(temporary, ("", *SIDES, "-journal"))
    copy = sqlite3.connect(temporary)
    try:
        make_private(copy, temporary)
        database.backup(copy)
    finally:
        copy.close()
    fsync_path(temporary)
    os.replace(temporary, path)
    fsync_path(os.path.dirname(path))


def may_be_unwritten(path: str | os.PathLike[str]) -> bool:
    """Return True if the catalog was not closed cleanly, so that a write to it may have failed."""
    try:
        return os.path.getsize(f"{os.fspath(path)}-wal") > 0
    except OSError:
        return False


def replace(database: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    """Close a catalog, and replace its files by a copy that is on disk. After an error the call can
    be repeated; until it succeeds, the catalog must not be written.

    :raises sqlite3.Error: when the database cannot be read, or the disk fails
    :raises OSError: when the disk fails
    """
    path = os.fspath(path)
    if not os.path.exists(f"{path}{_REPLACEMENT}"):
        save(database, f"{path}{_REPLACEMENT}")
        _keep_owner(path, f"{path}{_REPLACEMENT}")
    database.close()
    complete_replacement(path)


def complete_replacement(path: str | os.PathLike[str]) -> None:
    """Complete a replacement that a crash or an error has interrupted, if there is one. The copy
    has everything that the old files have.

    :raises OSError: when the disk fails
    """
    path = os.fspath(path)
    if not os.path.exists(f"{path}{_REPLACEMENT}"):
        return
    remove(path, SIDES)
    # SQLite would apply what a power cut leaves of the old log to the copy.
    fsync_path(os.path.dirname(path))
    os.replace(f"{path}{_REPLACEMENT}", path)
    fsync_path(os.path.dirname(path))


def _keep_owner(path: str, copy: str) -> None:
    """Give a copy the owner of the catalog, if another one makes it (root)."""
    owner = os.stat(path)
    with suppress(OSError):
        os.chown(copy, owner.st_uid, owner.st_gid)


def remove(path: str, suffixes: tuple[str, ...]) -> None:
    """Remove the files of a database that exist."""
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)
