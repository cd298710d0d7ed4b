"""The topic id of a partition directory, in Kafka's file ``partition.metadata``."""

from __future__ import annotations

import binascii
import re
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode

from headrace.log.files import replace_file
from headrace.log_lines import get_logger

logger = get_logger("headrace.log")

METADATA_FILE = "partition.metadata"
_TEXT = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")


class UnreadableMetadata(ValueError):
    """A ``partition.metadata`` file that does not name a topic id. The message names the file."""


def write(directory: str, topic_id: uuid.UUID) -> None:
    """Write the id of the topic that a directory belongs to.

    :raises OSError: when the disk fails
    """
    text = f"version: 0\ntopic_id: {text_of(topic_id)}\n"
    replace_file(f"{directory}/{METADATA_FILE}", text.encode(), sync=False)


def read(directory: str) -> uuid.UUID | None:
    """Return the id of the topic that a directory belongs to; None if the file is missing, or if a
    power cut has emptied it.

    :raises UnreadableMetadata: when the file has anything else
    :raises OSError: when the disk fails
    """
    path = f"{directory}/{METADATA_FILE}"
    try:
        with open(path, "rb") as file:
            data = file.read(1000)
    except FileNotFoundError:
        return None
    if not data:
        return None
    found = _TEXT.fullmatch(data)
    if found is None:
        raise UnreadableMetadata(f"{path} is damaged")
    try:
        topic_id = uuid.UUID(bytes=urlsafe_b64decode(found[1] + b"=="))
    except (binascii.Error, ValueError) as error:
        raise UnreadableMetadata(f"{path} is damaged") from error
    if text_of(topic_id).encode() != found[1]:  # bits after the last byte
        raise UnreadableMetadata(f"{path} is damaged")
    return topic_id


def contradiction(directory: str, topic_id: uuid.UUID) -> str | None:
    """Return the reason why a directory cannot be that of the topic of its name: it names another
    topic id. None if it can be, as a directory without a topic id that can be read.

    :raises OSError: when the disk fails
    """
    try:
        found = read(directory)
    except UnreadableMetadata:
        return None
    if found is None or found == topic_id:
        return None
    return (
        f"{directory}/{METADATA_FILE} names the topic id {text_of(found)}, and the catalog "
        f"{text_of(topic_id)}"
    )


def complete(directory: str, topic_id: uuid.UUID) -> None:
    """Write the id of the topic that a directory belongs to, unless the directory has one.

    :raises OSError: when the disk fails
    """
    try:
        found = read(directory)
        problem = f"{directory}/{METADATA_FILE} is missing or empty"
    except UnreadableMetadata as error:
        found, problem = None, str(error)
    if found is None:
        logger.warning("%s: writing it again for the topic id %s", problem, text_of(topic_id))
        write(directory, topic_id)


def text_of(topic_id: uuid.UUID) -> str:
    """Return Kafka's text of an id: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
