"""Compression of record batches: 1 gzip, 2 snappy, 3 lz4, 4 zstd. The library of a codec is loaded
with its first batch.

Batches are decompressed piece by piece, so a small batch cannot fill the memory
(:func:`decompressed`). docs/decisions/0012-opening-batches.md says which libraries allow this.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

from .limits import (
    MAX_FRAMES,
    MAX_SNAPPY_BLOCK_BYTES,
    MAX_SNAPPY_RATIO,
    MAX_ZSTD_WINDOW_BYTES,
    PIECE_BYTES,
)

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

Bytes = bytes | memoryview

_LENGTH = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_INPUT_BYTES = 4096
"""Compressed bytes that are passed on at a time, as the libraries copy what they do not use."""


class BadCompression(ValueError):
    """Bytes that cannot be decompressed with their codec."""


class TooLargeToDecompress(BadCompression):
    """Bytes that need more memory than the limits allow."""


class Compressor(Protocol):
    """A stream of compressed bytes."""

    def compress(self, data: Bytes, /) -> bytes:
        """Add data, and return compressed bytes, perhaps none."""

    def flush(self) -> bytes:
        """End the stream, and return its last bytes."""


@cache
def _cramjam() -> Any:
    import cramjam

    return cramjam


@cache
def _lz4() -> Any:
    import lz4.frame

    return lz4.frame


@cache
def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


# Compressing --------------------------------------------------------------------------------------


class _NoCompressor:
    def compress(self, data: Bytes, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


class _SnappyCompressor:
    """Snappy blocks in xerial framing, as Java clients write."""

    def __init__(self) -> None:
        self._start = _XERIAL_HEADER
        self._pending = b""

    def compress(self, data: Bytes, /) -> bytes:
        pending = self._pending + data if self._pending else bytes(data)
        pieces, position = [self._start], 0
        self._start = b""
        while position + _XERIAL_BLOCK_BYTES <= len(pending):
            pieces.append(_xerial_block(pending[position : position + _XERIAL_BLOCK_BYTES]))
            position += _XERIAL_BLOCK_BYTES
        self._pending = pending[position:]
        return b"".join(pieces)

    def flush(self) -> bytes:
        return self._start + (_xerial_block(self._pending) if self._pending else b"")


def _xerial_block(data: bytes) -> bytes:
    block = bytes(_cramjam().snappy.compress_raw(data))
    return _LENGTH.pack(len(block)) + block


class _Lz4Compressor:
    """An lz4 frame of independent blocks, the only ones that the Java clients read."""

    def __init__(self) -> None:
        self._compressor = _lz4().LZ4FrameCompressor(block_linked=False)
        self._start: bytes = self._compressor.begin()

    def compress(self, data: Bytes, /) -> bytes:
        start, self._start = self._start, b""
        return start + bytes(self._compressor.compress(data))

    def flush(self) -> bytes:
        return self._start + bytes(self._compressor.flush())


_COMPRESSORS: Mapping[int, Callable[[], Compressor]] = {
    NONE: _NoCompressor,
    GZIP: lambda: zlib.compressobj(wbits=_GZIP_FORMAT),
    SNAPPY: _SnappyCompressor,
    LZ4: _Lz4Compressor,
    ZSTD: lambda: _zstd().ZstdCompressor(),
}


def compressor(codec: int) -> Compressor:
    """Return a stream that compresses the records of one batch."""
    return _COMPRESSORS[codec]()


def compress(codec: int, data: bytes) -> bytes:
    """Compress the records of a batch."""
    if codec == NONE:
        return data
    stream = compressor(codec)
    return stream.compress(data) + stream.flush()


# Decompressing ------------------------------------------------------------------------------------


def _plain_pieces(data: memoryview) -> Iterator[Bytes]:
    for start in range(0, len(data), PIECE_BYTES):
        yield bytes(data[start : start + PIECE_BYTES])


def _gzip_pieces(data: memoryview) -> Iterator[Bytes]:
    """Decompress the members of a gzip stream; ignore rubbish after one of them, as Java does."""
    position, members = 0, 0
    while not position or position < len(data):
        stream = zlib.decompressobj(_GZIP_FORMAT)
        members = _count_frame(members)
        is_first = not position
        try:
            while not stream.eof:
                chunk = data[position : position + _INPUT_BYTES]
                piece = stream.decompress(chunk, PIECE_BYTES)
                if piece:
                    yield piece
                elif not chunk and not stream.eof:
                    raise BadCompression("the gzip stream is incomplete")
                position += len(chunk) - len(stream.unconsumed_tail) - len(stream.unused_data)
        except zlib.error:
            if is_first:
                raise
            return


def _snappy_pieces(data: memoryview) -> Iterator[Bytes]:
    """Decompress snappy blocks in xerial framing, as Java clients write, or one bare block."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield from _snappy_block(data)
        return
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise BadCompression(f"a snappy block claims {length} bytes")
        yield from _snappy_block(data[position : position + length])
        position += length


def _snappy_block(block: memoryview) -> Iterator[Bytes]:
    claimed: int = _cramjam().snappy.decompress_raw_len(block)
    if claimed > MAX_SNAPPY_RATIO * len(block):
        raise BadCompression(f"a snappy block of {len(block)} bytes claims {claimed}")
    if claimed > MAX_SNAPPY_BLOCK_BYTES:
        raise TooLargeToDecompress(f"a snappy block of {claimed} bytes")
    decompressed = bytes(_cramjam().snappy.decompress_raw(block))
    if len(decompressed) <= PIECE_BYTES:
        yield decompressed
    else:
        yield from _plain_pieces(memoryview(decompressed))


def _lz4_pieces(data: memoryview) -> Iterator[Bytes]:
    """Decompress one lz4 frame; ignore what follows it, as Java does."""
    yield from _frame("lz4", _lz4().LZ4FrameDecompressor(), data, 0)


def _zstd_pieces(data: memoryview) -> Iterator[Bytes]:
    """Decompress the frames of a zstd stream."""
    largest_window = MAX_ZSTD_WINDOW_BYTES.bit_length() - 1
    options = {_zstd().DecompressionParameter.window_log_max: largest_window}
    position, frames = 0, 0
    while position < len(data):
        frames = _count_frame(frames)
        stream = _zstd().ZstdDecompressor(options=options)
        position = yield from _frame("zstd", stream, data, position)


def _frame(codec: str, stream: Any, data: memoryview, position: int) -> Generator[Bytes, None, int]:
    """Decompress the frame at a position, and return the position after it."""
    while not stream.eof:
        chunk = data[position : position + _INPUT_BYTES] if stream.needs_input else b""
        if stream.needs_input and not chunk:
            raise BadCompression(f"the {codec} frame is incomplete")
        position += len(chunk)
        piece = stream.decompress(chunk, PIECE_BYTES)
        if piece:
            yield piece
    return position - len(stream.unused_data or b"")


def _count_frame(frames: int) -> int:
    """Count a frame.

    :raises TooLargeToDecompress: it is one too many
    """
    if frames == MAX_FRAMES:
        raise TooLargeToDecompress(f"more than {MAX_FRAMES} compressed frames")
    return frames + 1


_DECOMPRESSORS: Mapping[int, Callable[[memoryview], Iterator[Bytes]]] = {
    NONE: _plain_pieces,
    GZIP: _gzip_pieces,
    SNAPPY: _snappy_pieces,
    LZ4: _lz4_pieces,
    ZSTD: _zstd_pieces,
}


def _library_errors(codec: int) -> tuple[type[Exception], ...]:
    """Return the errors of a codec's library for corrupt bytes. lz4 raises RuntimeError."""
    if codec == SNAPPY:
        return (_cramjam().DecompressionError, struct.error)
    if codec == ZSTD:
        return (_zstd().ZstdError,)
    return (RuntimeError,) if codec == LZ4 else (zlib.error,)


def decompressed(codec: int, data: memoryview) -> Iterator[Bytes]:
    """Yield the decompressed records of a batch in pieces of at most :data:`PIECE_BYTES`. The
    pieces together may be of any size.

    :raises BadCompression: the bytes are corrupt, or the codec is unknown
    :raises TooLargeToDecompress: a piece needs more memory than the limits allow
    """
    pieces = _DECOMPRESSORS.get(codec)
    if pieces is None:
        raise BadCompression(f"unknown compression codec {codec}")
    try:
        yield from pieces(data)
    except _library_errors(codec) as error:
        raise BadCompression(repr(error)) from error
