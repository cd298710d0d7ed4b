"""The manifest of a backup: its files with sizes and checksums.

``backup-manifest`` has lines of JSON. The first is an object about the backup, the last one has the
number of files and the checksum of all lines before it, and each line between is an array: path
below the directory, size in bytes, CRC-32C.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from crc32c import crc32c

from headrace.log.directory_format import FORMAT_VERSION, newer

from .errors import BackupError, text_of

MANIFEST_FILE = "backup-manifest"


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
    """Read the manifest of a backup.

    :raises BackupError: when it is missing, damaged, or of a newer version
    """
    path = f"{directory}/{MANIFEST_FILE}"
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise BackupError(f"{directory} is not a backup: it has no {MANIFEST_FILE}") from None
    except OSError as error:
        raise BackupError(f"cannot read {path}: {text_of(error)}") from error
    lines = data.splitlines(keepends=True)
    try:
        version = json.loads(lines[0])["format"]
        if version > FORMAT_VERSION:
            raise BackupError(newer(directory, version))
        end = json.loads(lines[-1])
        if end != {"files": len(lines) - 2, "crc": crc32c(b"".join(lines[:-1]))}:
            raise ValueError("its checksum is wrong")
        entries = [Entry(*json.loads(line)) for line in lines[1:-1]]
        for entry in entries:
            _check_name(entry.name)
        return Header(**json.loads(lines[0])), entries
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BackupError(f"{path} is damaged: {error}") from error


def _check_name(name: str) -> None:
    """Refuse a name outside of the directory."""
    parts = name.split("/")
    if not 1 <= len(parts) <= 2 or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not the name of a file in a data directory")
