"""The bytes of messages as kio writes them."""

from __future__ import annotations

import io

from kio.serial import entity_writer


def written(message: object) -> bytes:
    body = io.BytesIO()
    entity_writer(type(message))(body, message)
    return body.getvalue()
