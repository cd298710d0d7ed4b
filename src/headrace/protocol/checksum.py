"""CRC-32C of record batches.

The library is loaded with the first checksum, so that a broker without records starts sooner.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _library() -> Any:
    import crc32c

    return crc32c


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the checksum of ``data``, continued from the checksum ``before``."""
    checksum: int = _library().crc32c(data, before)
    return checksum
