"""The partitions that have a directory, in the file ``partitions`` of the data directory.

A partition without a directory never had a record. If a directory is deleted while no broker runs,
its partition looks the same: this file tells them apart. It names a directory only when the
directory is on disk, so that a power cut does not make it claim too much. It may claim too little:
a start adds the directories that it finds.

Each line has a checksum (CRC-32 of what follows it), the topic id, the topic, and partitions.
Lines are appended; a start writes the file again. A line with ``-`` in the place of the id names
partitions that have no directory any more, because it was set aside or given up. Lines that are
torn or damaged are left out::

    3f0a91c2 TGVhc3QgaW1wb3J0YW50IQ orders 0-11,14
    77b01ae5 - orders 3
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from headrace.log.files import FILE_MODE, replace_file
from headrace.uuid_text import uuid_text

KNOWN_PARTITIONS_FILE = "partitions"
_ANY_ID = "-"


class KnownTopic(NamedTuple):
    """The partitions of a topic that have a directory.

    :ivar topic_id: text of the topic id
    """

    topic_id: str
    partitions: set[int]


Known = dict[str, KnownTopic]
"""Topics by name."""


def read(directory: str) -> Known:
    """Return the partitions that had a directory when the data directory was last used.

    :raises OSError: when the disk fails
    """
    known: Known = {}
    try:
        with open(f"{directory}/{KNOWN_PARTITIONS_FILE}", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return known
    for line in data.split(b"\n"):
        if line[:8] != b"%08x" % crc32(line[9:]):
            continue
        topic_id, topic, ranges = line[9:].decode().split(" ")
        partitions = _partitions_in(ranges)
        found = known.get(topic)
        if topic_id == _ANY_ID:
            if found is not None:
                found.partitions.difference_update(partitions)
        elif found is None or found.topic_id != topic_id:
            known[topic] = KnownTopic(topic_id, partitions)
        else:
            found.partitions.update(partitions)
    return known


def replace(directory: str, known: Mapping[str, KnownTopic]) -> None:
    """Write the file again, and force it to disk. The directories that it names must be on disk.

    :raises OSError: when the disk fails
    """
    lines = [
        _line(one.topic_id, topic, one.partitions) for topic, one in known.items() if one.partitions
    ]
    replace_file(f"{directory}/{KNOWN_PARTITIONS_FILE}", b"".join(lines))


def add(directory: str, partitions: Iterable[tuple[str, uuid.UUID, int]]) -> None:
    """Add partitions, given as topic, topic id and number. Their directories must be on disk.

    :raises OSError: when the disk fails
    """
    of_topic: dict[tuple[str, uuid.UUID], set[int]] = {}
    for topic, topic_id, partition in partitions:
        of_topic.setdefault((topic, topic_id), set()).add(partition)
    lines = [_line(uuid_text(topic_id), topic, new) for (topic, topic_id), new in of_topic.items()]
    _append(directory, b"".join(lines), sync=False)


def withdraw(directory: str, partitions: Iterable[tuple[str, int]]) -> None:
    """Remove partitions that will have no directory, and force that to disk.

    :raises OSError: when the disk fails
    """
    lines = [_line(_ANY_ID, topic, {partition}) for topic, partition in partitions]
    _append(directory, b"".join(lines), sync=True)


def _append(directory: str, lines: bytes, *, sync: bool) -> None:
    """Append lines. A line that a crash may have torn before them is ended first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(f"{directory}/{KNOWN_PARTITIONS_FILE}", flags, FILE_MODE)
    try:
        os.write(fd, b"\n" + lines)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _line(topic_id: str, topic: str, partitions: Collection[int]) -> bytes:
    text = f"{topic_id} {topic} {_ranges_of(partitions)}".encode()
    return b"%08x %s\n" % (crc32(text), text)


def _ranges_of(partitions: Collection[int]) -> str:
    """Return numbers as text, such as ``0-2,5``."""
    if len(partitions) == 1:
        return str(*partitions)
    runs: list[list[int]] = []
    for partition in sorted(partitions):
        if runs and runs[-1][1] + 1 == partition:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _partitions_in(ranges: str) -> set[int]:
    if ranges.isdigit():  # most topics of many have one partition
        return {int(ranges)}
    partitions: set[int] = set()
    for run in ranges.split(","):
        first, _, last = run.partition("-")
        partitions.update(range(int(first), int(last or first) + 1))
    return partitions
