"""CRC-32C of record batches.

The library is loaded with the first checksum, so that a broker without records starts sooner.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any

from .limits import PIECE_OF_BATCH_BYTES


@cache
def _library() -> Any:
    import crc32c

    return crc32c


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the checksum of ``data``, continued from the checksum ``before``."""
    checksum: int = _library().crc32c(data, before)
    return checksum


def crc32c_steps(data: memoryview) -> Generator[None, None, int]:
    """Return the checksum of ``data`` as :func:`crc32c` does, and yield between pieces of it."""
    checksum = 0
    for start in range(0, len(data), PIECE_OF_BATCH_BYTES):
        checksum = crc32c(data[start : start + PIECE_OF_BATCH_BYTES], checksum)
        yield
    return checksum
