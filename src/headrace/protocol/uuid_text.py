"""Kafka's text of a UUID, for topic ids and member ids."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from uuid import UUID


def uuid_text(value: UUID) -> str:
    """Return the text that Kafka prints for a UUID: URL-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")
