"""The names that topics can have."""

from __future__ import annotations

import re

MAX_TOPIC_NAME_LENGTH = 249
"""Kafka's own: with the partition and a suffix, a directory name is at most 255 long."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    """Return why no topic can have a name, None for a legal one. The text is Kafka's."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            f"and '-'"
        )
    return None
