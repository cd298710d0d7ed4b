"""The partitions that have a directory, in the file ``partitions`` of the data directory.

A partition without a directory never had a record. If a directory is deleted while no broker runs,
its partition looks the same: this file tells them apart. It names a directory only when the
directory is on disk, so that a power cut does not make it claim too much. It may claim too little:
a start adds the directories that it finds.

A start writes the file again, and later lines are appended. A line has topics with their ids and
runs of partitions, their ends exclusive; null in the place of an id is for partitions that have no
directory any more, because it was set aside or given up::

    {"orders": ["TGVhc3QgaW1wb3J0YW50IQ", [[0, 12], [14, 15]]]}
    {"orders": [null, [[3, 4]]]}
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.log import checked_file
from headrace.log_lines import get_logger
from headrace.protocol.uuid_text import uuid_text

logger = get_logger("headrace.log")

KNOWN_PARTITIONS_FILE = "partitions"


class KnownTopic(NamedTuple):
    """The partitions of a topic that have a directory.

    :ivar topic_id: text of the topic id; None for partitions that have no directory any more
    """

    topic_id: str | None
    partitions: set[int]


Known = dict[str, KnownTopic]
"""Topics by name."""


def read(directory: str) -> Known:
    """Return the partitions that had a directory when the data directory was last used.

    :raises OSError: when the disk fails, or another version has written the file
    """
    path = f"{directory}/{KNOWN_PARTITIONS_FILE}"
    lines, damaged = checked_file.read_lines(path)
    if damaged:
        logger.warning(
            "%s has %d torn or damaged lines: a lost directory of theirs is not noticed",
            path,
            damaged,
        )
    topics: Known = {}
    for line in lines:
        for topic, (topic_id, runs) in line.items():
            partitions = {number for first, end in runs for number in range(first, end)}
            if topic_id is not None:
                _add(topics, topic, topic_id, partitions)
            elif topic in topics:
                topics[topic].partitions.difference_update(partitions)
    return topics


def replace(directory: str, topics: Mapping[str, KnownTopic]) -> None:
    """Write the file again, and force it to disk. The directories that it names must be on disk.

    :raises OSError: when the disk fails
    """
    checked_file.replace(f"{directory}/{KNOWN_PARTITIONS_FILE}", _line(topics), sync=True)


def append(
    directory: str, partitions: Iterable[tuple[str, uuid.UUID | None, int]], *, sync: bool
) -> None:
    """Append partitions, given as topic, topic id and number. Their directories must be on disk; or
    the topic id is None for those that will have none, which must be forced to disk.

    :param sync: force it to disk
    :raises OSError: when the disk fails
    """
    topics: Known = {}
    for topic, topic_id, partition in partitions:
        _add(topics, topic, None if topic_id is None else uuid_text(topic_id), {partition})
    checked_file.append(f"{directory}/{KNOWN_PARTITIONS_FILE}", _line(topics), sync=sync)


def _add(topics: Known, topic: str, topic_id: str | None, partitions: set[int]) -> None:
    earlier = topics.get(topic)
    if earlier is None or earlier.topic_id != topic_id:  # a topic of this name was created again
        topics[topic] = KnownTopic(topic_id, partitions)
    else:
        earlier.partitions.update(partitions)


def _line(topics: Mapping[str, KnownTopic]) -> dict[str, tuple[str | None, list[list[int]]]]:
    return {
        topic: (topic_id, _runs(partitions))
        for topic, (topic_id, partitions) in topics.items()
        if partitions
    }


def _runs(partitions: set[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for partition in sorted(partitions):
        if runs and runs[-1][1] == partition:
            runs[-1][1] = partition + 1
        else:
            runs.append([partition, partition + 1])
    return runs
