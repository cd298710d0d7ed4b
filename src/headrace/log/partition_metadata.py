"""The topic id of a partition directory, in Kafka's file ``partition.metadata``.

A third line, which Kafka ignores, has the number of partitions of the topic when the directory was
created. ``headrace recover`` needs it.
"""

from __future__ import annotations

import os
import re
import uuid
from base64 import urlsafe_b64decode
from typing import NamedTuple

from headrace.log.files import read_file, replace_file
from headrace.log_lines import get_logger
from headrace.protocol.uuid_text import uuid_text

logger = get_logger("headrace.log")

METADATA_FILE = "partition.metadata"
_TEXT = re.compile(
    rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})(?:\npartitions: ([1-9][0-9]{0,9}))?\n?"
)


class PartitionMetadata(NamedTuple):
    """The topic of a partition directory.

    :ivar partitions: the number of partitions of the topic; 0 if it is not known
    """

    topic_id: uuid.UUID
    partitions: int


def write(directory: str, topic_id: uuid.UUID, partitions: int = 0) -> None:
    """Write the id of the topic that a directory belongs to.

    :param partitions: the number of partitions of the topic; 0 to write none
    :raises OSError: when the disk fails
    """
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
    if partitions:
        text += f"partitions: {partitions}\n"
    replace_file(f"{directory}/{METADATA_FILE}", text.encode(), sync=False)


def read(directory: str) -> PartitionMetadata | None:
    """Return the topic that a directory belongs to; None if the file is missing or damaged, or if a
    power cut has emptied it.

    :raises OSError: when the disk fails
    """
    match = _TEXT.fullmatch(read_file(f"{directory}/{METADATA_FILE}"))
    if match is None:
        return None
    topic_id = uuid.UUID(bytes=urlsafe_b64decode(match[1] + b"=="))
    if uuid_text(topic_id).encode() != match[1]:  # bits after the last byte
        return None
    return PartitionMetadata(topic_id, int(match[2] or 0))


def contradiction(directory: str, topic_id: uuid.UUID) -> str | None:
    """Return an error text if a directory names another topic id, None if it names ``topic_id`` or
    has no id that can be read.

    :param topic_id: the id in the catalog of the topic with the directory's name
    :raises OSError: when the disk fails
    """
    metadata = read(directory)
    if metadata is None or metadata.topic_id == topic_id:
        return None
    return (
        f"{directory}/{METADATA_FILE} names the topic id {uuid_text(metadata.topic_id)}, and the "
        f"catalog {uuid_text(topic_id)}"
    )


def names(directory: str, topic_id: uuid.UUID) -> bool:
    """Return True if a directory says that it belongs to a topic.

    :raises OSError: when the disk fails
    """
    metadata = read(directory)
    return metadata is not None and metadata.topic_id == topic_id


def problem(directory: str) -> str | None:
    """Return an error text if a directory does not name a topic id.

    :raises OSError: when the disk fails
    """
    if read(directory) is None and os.path.isdir(directory):
        return f"{directory}/{METADATA_FILE} is missing, empty or damaged"
    return None


def complete(directory: str, topic_id: uuid.UUID, partitions: int) -> None:
    """Write the id of the topic that a directory belongs to, unless the directory has one.

    :raises OSError: when the disk fails
    """
    text = problem(directory)
    if text is not None:
        logger.warning("%s: writing it again for the topic id %s", text, uuid_text(topic_id))
        write(directory, topic_id, partitions)
