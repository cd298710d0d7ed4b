"""The format of a data directory: its version in ``meta.properties``, and the mark of a copy that
is not complete.

==== ===============================================================================================
1    no ``meta.properties``; schema 1 of the catalog
2    ``meta.properties`` with the version and the cluster id; schema 2 of the catalog, with the
     deleted topics whose directories are still to be removed
3    checksums: one in ``meta.properties``, one for each row of the catalog
4    schema 4 of the catalog, with ACLs
==== ===============================================================================================

The schema of the catalog has the same number. The catalog upgrades itself, see
:class:`headrace.topics.catalog.Catalog`; ``meta.properties`` is written after that.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from zlib import crc32

from headrace.log.files import fsync_path, replace_file
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

FORMAT_VERSION = 4
META_FILE = "meta.properties"
INCOMPLETE_FILE = "incomplete"
"""In a directory that ``headrace backup`` or ``headrace restore`` has not finished."""
_VERSION, _CLUSTER_ID = "headrace.format.version", "cluster.id"
_CHECKSUM = "headrace.checksum"
"""The last property: the CRC-32 of the lines before it."""
_FIRST_WITH_CHECKSUM = 3
_OF_KAFKA = re.compile(rb"^(node|broker|directory)\.id=", re.MULTILINE)
"""Properties that only Apache Kafka writes."""


class UnusableDirectory(RuntimeError):
    """A data directory that cannot be used; the message says why, on one line."""


class Format(NamedTuple):
    """The content of ``meta.properties``."""

    version: int
    cluster_id: str


def read(directory: str) -> Format | None:
    """Return the format of a directory; None if ``meta.properties`` is missing, or damaged, which
    is logged.

    :raises UnusableDirectory: when the directory is one of Apache Kafka
    :raises OSError: when the file cannot be read
    """
    path = f"{directory}/{META_FILE}"
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    if _OF_KAFKA.search(data) and _VERSION.encode() not in data:
        raise UnusableDirectory(
            f"{directory} has the data of Apache Kafka, which must stay as it is: name another "
            "directory"
        )
    try:
        return _parse(data)
    except (ValueError, KeyError):
        logger.warning("%s is damaged: it is written again from the catalog", path)
        return None


def _parse(data: bytes) -> Format:
    """Return the content of ``meta.properties``.

    :raises ValueError: when it is damaged
    :raises KeyError: when a property is missing
    """
    lines = [line for line in data.decode().splitlines() if line and line[0] != "#"]
    values = dict(line.split("=", 1) for line in lines)
    found = Format(int(values[_VERSION]), values[_CLUSTER_ID])
    has_checksum = _FIRST_WITH_CHECKSUM <= found.version <= FORMAT_VERSION
    if found.version < 1 or (has_checksum and data != _text(*found)):
        raise ValueError("damaged")
    return found


def _text(version: int, cluster_id: str) -> bytes:
    text = f"# headrace\n{_VERSION}={version}\n{_CLUSTER_ID}={cluster_id}\n".encode()
    return b"%s%s=%08x\n" % (text, _CHECKSUM.encode(), crc32(text))


def check(directory: str) -> None:
    """Check that this version can use a directory. Nothing is written.

    :raises UnusableDirectory: when a newer version or Apache Kafka has written it, or it is an
        incomplete copy
    :raises OSError: when it cannot be read
    """
    if os.path.exists(f"{directory}/{INCOMPLETE_FILE}"):
        raise UnusableDirectory(
            f"{directory} is a backup or a restore that was not finished: delete it and start again"
        )
    found = read(directory)
    if found is not None and found.version > FORMAT_VERSION:
        raise UnusableDirectory(newer(f"{directory}/{META_FILE}", found.version))


def newer(what: str, version: int) -> str:
    """Return the message for something that was written in a newer format."""
    return (
        f"{what} was written by a newer headrace: its format is {version}, and this one knows up "
        f"to {FORMAT_VERSION}"
    )


def settle(directory: str, cluster_id: str, *, sync: bool) -> None:
    """Write ``meta.properties``, unless it says the same already. Call it after the upgrade of
    everything else.

    :param cluster_id: the cluster id in the catalog
    :raises UnusableDirectory: when the file has another cluster id
    :raises OSError: when the disk fails
    """
    found = read(directory)
    if found == (FORMAT_VERSION, cluster_id):
        return
    if found is not None and found.cluster_id != cluster_id:
        raise UnusableDirectory(
            f"the catalog in {directory} is of cluster {cluster_id}, but {META_FILE} is of cluster "
            f"{found.cluster_id}: they are from different directories"
        )
    replace_file(f"{directory}/{META_FILE}", _text(FORMAT_VERSION, cluster_id), sync=sync)
    if sync:
        fsync_path(directory)
