"""The manifest of a backup: its files with sizes and checksums.

``backup-manifest`` has lines of JSON. The first is an object about the backup, the last one has the
number of files and the checksum of all lines before it, and each line between is an array: path
below the directory, size in bytes, CRC-32C.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from crc32c import crc32c

from headrace.log.data_directory import CLEAN_SHUTDOWN_FILE
from headrace.log.directory_format import FORMAT_VERSION, META_FILE, newer
from headrace.log.known_partitions import KNOWN_PARTITIONS_FILE
from headrace.log.snapshot import is_copied
from headrace.log_lines import printable
from headrace.topics.catalog import CATALOG_FILE

from .directory import Directory
from .errors import BackupError, text_of

MANIFEST_FILE = "backup-manifest"
MAX_MANIFEST_BYTES = 256 << 20
"""Some two million files. A manifest is read whole."""
SINGLE_FILES = (
    META_FILE,
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


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a manifest.

    :ivar format: version of the data directory's format
    :ivar headrace: version of headrace that has made the backup
    :ivar created: time of the backup, ISO 8601 with time zone
    """

    format: int
    headrace: str
    created: str
    cluster_id: str


def encode(header: Header, entries: Sequence[Entry]) -> bytes:
    """Return the content of a manifest."""
    lines = [json.dumps(asdict(header)), *(json.dumps(entry) for entry in entries)]
    body = "".join(f"{line}\n" for line in lines).encode()
    end = json.dumps({"files": len(entries), "crc": crc32c(body)})
    return body + end.encode() + b"\n"


def read(directory: str) -> tuple[Header, list[Entry]]:
    """Read the manifest of a backup, which others may have written.

    :raises BackupError: when it is missing, damaged, or of a newer version
    """
    path = f"{directory}/{MANIFEST_FILE}"
    try:
        with contextlib.closing(Directory(directory)) as backup:
            fd = backup.open(MANIFEST_FILE)
        with os.fdopen(fd, "rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise BackupError(f"{directory} is not a backup: it has no {MANIFEST_FILE}") from None
    except OSError as error:
        raise BackupError(f"cannot read {path}: {text_of(error)}") from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise BackupError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes")
    return parsed(data, directory)


def parsed(data: bytes, directory: str) -> tuple[Header, list[Entry]]:
    """Return the content of a manifest.

    :param directory: the directory that has it, for errors
    :raises BackupError: when it is damaged, or of a newer version
    """
    lines = data.splitlines(keepends=True)
    try:
        header = json.loads(lines[0])
        version = header["format"]
        if _is_number(version) and version > FORMAT_VERSION:
            raise BackupError(newer(directory, version))
        end = json.loads(lines[-1])
        if end != {"files": len(lines) - 2, "crc": crc32c(b"".join(lines[:-1]))}:
            raise ValueError("its checksum is wrong")
        entries = [_entry(json.loads(line)) for line in lines[1:-1]]
        if len({entry.name for entry in entries}) < len(entries):
            raise ValueError("it names a file twice")
        found = Header(**header)
        if not _is_number(version) or not all(
            isinstance(text, str) for text in (found.headrace, found.created, found.cluster_id)
        ):
            raise ValueError("its first line is not about a backup")
        return found, entries
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        problem = printable(str(error))
        raise BackupError(f"{directory}/{MANIFEST_FILE} is damaged: {problem}") from error


def _entry(line: Any) -> Entry:
    """Return the entry of a line.

    :raises ValueError: when it is none, or not of a file that a backup has
    """
    match line:
        case [str(name), size_bytes, crc] if _is_number(size_bytes) and _is_number(crc):
            _check_name(name)
            return Entry(name, size_bytes, crc)
    raise ValueError("a line is not of the form [name, bytes, checksum]")


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _check_name(name: str) -> None:
    """Refuse a name that no backup has, such as one outside of the directory."""
    folder, _, file = name.rpartition("/")
    is_in_partition = is_copied(folder) and "/" not in folder and file not in ("", ".", "..")
    if (
        not name.isprintable()  # NUL, and what is not UTF-8
        or not (is_in_partition if folder else name in SINGLE_FILES)
    ):
        raise ValueError(f"{name!r} is not the name of a file in a data directory")
