"""The manifest of a backup, ``backup-manifest``: where it comes from, and its files with sizes and
checksums (CRC-32C).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace import __version__
from headrace.log import checked_file
from headrace.log.data_directory import CLEAN_SHUTDOWN_FILE
from headrace.log.directory_format import FORMAT_FILE
from headrace.log.known_partitions import KNOWN_PARTITIONS_FILE
from headrace.log.snapshot import is_copied
from headrace.log_lines import printable
from headrace.topics.catalog import CATALOG_FILE

from .directory import BackupError, Directory, text_of

MANIFEST_FILE = "backup-manifest"
SINGLE_FILES = (
    FORMAT_FILE,
    CLEAN_SHUTDOWN_FILE,
    KNOWN_PARTITIONS_FILE,  # not in a snapshot: the file may know partitions made after it
    CATALOG_FILE,
)
"""The files of a backup that are not of a partition, the catalog last: without it a copy is no data
directory.
"""


class Entry(NamedTuple):
    """A file of a backup.

    :ivar name: path below the directory of the backup
    :ivar crc: CRC-32C of its content
    """

    name: str
    size_bytes: int
    crc: int


def encode(created: str, cluster_id: str, entries: Sequence[Entry]) -> bytes:
    """Return the content of the manifest of a backup that this headrace has made.

    :param created: time of the backup, ISO 8601 with time zone
    """
    origin = {"headrace": __version__, "created": created, "cluster_id": cluster_id}
    return checked_file.encode(MANIFEST_FILE, {**origin, "files": entries})


def read(backup: Directory) -> list[Entry]:
    """Read the files in the manifest of a backup, which others may have written.

    :raises BackupError: when it is missing, damaged, or of another version
    """
    path = f"{backup.path}/{MANIFEST_FILE}"
    try:
        with io.BufferedReader(backup.open(MANIFEST_FILE)) as file:
            data = file.read(checked_file.MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise BackupError(f"{backup.path} is not a backup: it has no {MANIFEST_FILE}") from None
    except OSError as error:
        raise BackupError(f"cannot read {path}: {text_of(error)}") from error
    return parsed(data, path)


def parsed(data: bytes, path: str) -> list[Entry]:
    """Return the files in a manifest.

    :param path: the file that has it
    :raises BackupError: when it is damaged, or of another version
    """
    try:
        value = checked_file.parse(path, data)
    except (checked_file.DamagedFile, checked_file.OtherVersion) as error:
        raise BackupError(str(error)) from error
    match value:
        case {
            "headrace": str(),
            "created": str(),
            "cluster_id": str(),
            "files": [*files],
            **others,
        } if not others:
            entries = [_entry(file, path) for file in files]
        case _:
            raise BackupError(f"{path} is damaged: it is not about a backup")
    if len({entry.name for entry in entries}) < len(entries):
        raise BackupError(f"{path} is damaged: it names a file twice")
    return entries


def _entry(file: Any, path: str) -> Entry:
    """Return the entry of a file.

    :raises BackupError: when it is none, or not of a file that a backup has
    """
    match file:
        case [str(name), size_bytes, crc] if _is_number(size_bytes) and _is_number(crc):
            if not _is_file_name(name):
                shown = printable(repr(name))
                raise BackupError(
                    f"{path} is damaged: {shown} is not the name of a file in a data directory"
                )
            return Entry(name, size_bytes, crc)
    raise BackupError(f"{path} is damaged: a file is not of the form [name, bytes, checksum]")


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_file_name(name: str) -> bool:
    """Return False for a name that no backup has, such as one outside of the directory."""
    if not name.isprintable():  # NUL, and what is not UTF-8
        return False
    folder, separator, file = name.rpartition("/")
    if not separator:
        return name in SINGLE_FILES
    return is_copied(folder) and "/" not in folder and file not in ("", ".", "..")
