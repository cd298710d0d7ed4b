"""The client libraries of open connections, as ApiVersions names them (KIP-511)."""

from __future__ import annotations

import sys
from typing import NamedTuple

from .limits import MAX_SOFTWARE_NAME_LENGTH


class Software(NamedTuple):
    """The name and version of a client library."""

    name: str
    version: str


UNKNOWN = Software("unknown", "unknown")
"""Kafka's own: the library of a client that has not named it."""


class ClientSoftware:
    """The client libraries by connection."""

    def __init__(self) -> None:
        self._of: dict[int, Software] = {}

    def note(self, connection_id: int, name: str, version: str) -> None:
        """Remember the library of a connection. Long names are cut."""
        end = MAX_SOFTWARE_NAME_LENGTH
        # Most connections have the same few libraries.
        self._of[connection_id] = Software(sys.intern(name[:end]), sys.intern(version[:end]))

    def of(self, connection_id: int) -> Software:
        """Return the library of a connection."""
        return self._of.get(connection_id, UNKNOWN)

    def forget(self, connection_id: int) -> None:
        """Forget a closed connection."""
        self._of.pop(connection_id, None)
