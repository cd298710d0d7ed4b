"""The codecs of record batches: 1 gzip, 2 snappy, 3 lz4, 4 zstd."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import cramjam

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_LENGTH = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"


def _snappy(data: bytes) -> bytes:
    """Snappy blocks as the Java clients frame them (xerial), or one bare block as others send it."""
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, position = bytearray(), 16
    while position < len(data):
        length = _LENGTH.unpack_from(data, position)[0]
        position += 4
        out += bytes(cramjam.snappy.decompress_raw(data[position : position + length]))
        position += length
    return bytes(out)


def _xerial(data: bytes) -> bytes:
    out = bytearray(_XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for start in range(0, len(data), 32768):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + 32768]))
        out += _LENGTH.pack(len(block)) + block
    return bytes(out)


def _lz4(data: bytes) -> bytes:
    """An lz4 frame of independent blocks: the Java clients read no others."""
    compressor = cramjam.lz4.Compressor(block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


COMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    SNAPPY: _xerial,
    LZ4: _lz4,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}

DECOMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    GZIP: lambda data: bytes(cramjam.gzip.decompress(data)),
    SNAPPY: _snappy,
    LZ4: lambda data: bytes(cramjam.lz4.decompress(data)),
    ZSTD: lambda data: bytes(cramjam.zstd.decompress(data)),
}
"""Raise ``cramjam.DecompressionError``, IndexError or struct.error for bytes that they did not make."""
