"""CRC-32C, as batches carry it. Its library is loaded with the first sum: a start without records
does without.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _library() -> Any:
    import crc32c

    return crc32c


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """The checksum of ``data``, behind bytes that have the checksum ``before``."""
    checksum: int = _library().crc32c(data, before)
    return checksum
