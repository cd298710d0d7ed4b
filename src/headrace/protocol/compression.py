"""Compression of record batches: 1 gzip, 2 snappy, 3 lz4, 4 zstd. The library is loaded with the
first compressed batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_LENGTH = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"


class BadCompression(ValueError):
    """Bytes that cannot be decompressed with their codec."""


@cache
def _cramjam() -> Any:
    import cramjam

    return cramjam


def _snappy(data: bytes) -> bytes:
    """Decompress snappy blocks in xerial framing, as Java clients write, or one bare block."""
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(_cramjam().snappy.decompress_raw(data))
    out, position = bytearray(), 16
    while position < len(data):
        length = _LENGTH.unpack_from(data, position)[0]
        position += 4
        out += bytes(_cramjam().snappy.decompress_raw(data[position : position + length]))
        position += length
    return bytes(out)


def _xerial(data: bytes) -> bytes:
    out = bytearray(_XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for start in range(0, len(data), 32768):
        block = bytes(_cramjam().snappy.compress_raw(data[start : start + 32768]))
        out += _LENGTH.pack(len(block)) + block
    return bytes(out)


def _lz4(data: bytes) -> bytes:
    """Return an lz4 frame of independent blocks, the only ones that the Java clients read."""
    compressor = _cramjam().lz4.Compressor(block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


_COMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: lambda data: bytes(_cramjam().gzip.compress(data)),
    SNAPPY: _xerial,
    LZ4: _lz4,
    ZSTD: lambda data: bytes(_cramjam().zstd.compress(data)),
}

_DECOMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    GZIP: lambda data: bytes(_cramjam().gzip.decompress(data)),
    SNAPPY: _snappy,
    LZ4: lambda data: bytes(_cramjam().lz4.decompress(data)),
    ZSTD: lambda data: bytes(_cramjam().zstd.decompress(data)),
}


def compress(codec: int, data: bytes) -> bytes:
    """Compress the records of a batch."""
    return _COMPRESS[codec](data)


def decompress(codec: int, data: bytes) -> bytes:
    """Decompress the records of a batch.

    :raises BadCompression: the bytes are corrupt, or the codec is unknown
    """
    try:
        return _DECOMPRESS[codec](data)
    except (KeyError, IndexError, struct.error, _cramjam().DecompressionError) as error:
        raise BadCompression(repr(error)) from error
