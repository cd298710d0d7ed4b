"""Record batches that no honest producer sends: bombs, and batches that lie about their content."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import cramjam
import lz4.frame
import zstandard

from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from headrace.protocol.primitives import varint
from headrace.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    seal,
)
from tests.support import ROOT

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TIMESTAMP_MS = 1_700_000_000_000
_PIECE_BYTES = 1 << 20


def record(
    number: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp_delta: int = 0,
    headers: bytes = b"\0",
    length: int | None = None,
) -> bytes:
    """Return a record.

    :param headers: the encoded number of headers, and the headers
    :param length: the length that the record states; None for the right one
    """
    body = b"".join(
        (
            b"\0",
            varint(timestamp_delta),
            varint(number),
            varint(-1) if key is None else varint(len(key)) + key,
            varint(-1) if value is None else varint(len(value)) + value,
            headers,
        )
    )
    return varint(len(body) if length is None else length) + body


def zeros(size_bytes: int) -> Iterator[bytes]:
    """Yield zeros in pieces."""
    piece = bytes(min(size_bytes, _PIECE_BYTES))
    for _ in range(size_bytes // _PIECE_BYTES):
        yield piece
    yield bytes(size_bytes % _PIECE_BYTES)


def one_large_record(value_bytes: int, key: bytes = b"k") -> Iterator[bytes]:
    """Yield the pieces of one record whose value is ``value_bytes`` zeros."""
    start = b"\0\0\0" + varint(len(key)) + key + varint(value_bytes)
    yield varint(len(start) + value_bytes + 1) + start
    yield from zeros(value_bytes)
    yield b"\0"


def tiny_records(count: int, key: bytes | None = b"") -> Iterator[bytes]:
    """Yield ``count`` records, all with the same bytes, of 7 or 8 bytes each."""
    one = record(0, key, None)
    for start in range(0, count, 10_000):
        yield one * min(10_000, count - start)


def numbered_records(count: int, key: bytes | None = b"") -> Iterator[bytes]:
    """Yield ``count`` records with the right offsets."""
    for number in range(count):
        yield record(number, key, None)


def compressed(codec: int, pieces: Iterable[bytes]) -> bytes:
    """Compress pieces one after the other. Snappy is written in xerial framing."""
    if codec == NONE:
        return b"".join(pieces)
    if codec == SNAPPY:
        out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        for piece in pieces:
            block = bytes(cramjam.snappy.compress_raw(piece))
            out += struct.pack(">i", len(block)) + block
        return out
    compressor: Any
    begin = b""
    if codec == GZIP:
        compressor = zlib.compressobj(6, wbits=31)
    elif codec == ZSTD:
        compressor = zstandard.ZstdCompressor(level=3).compressobj()
    else:
        compressor = lz4.frame.LZ4FrameCompressor(block_size=7, block_linked=False)
        begin = compressor.begin()
    return begin + b"".join(map(compressor.compress, pieces)) + compressor.flush()


def batch_of(payload: bytes, count: int, codec: int = NONE, **fields: int) -> bytes:
    """Return a batch with this compressed payload, which states ``count`` records.

    :param fields: fields of the header to set
    """
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=TIMESTAMP_MS,
        max_timestamp=TIMESTAMP_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )._replace(**fields)
    return seal(header, payload) + payload


def size_bomb(codec: int, size_bytes: int, **fields: int) -> bytes:
    """Return a batch of one record with a value of ``size_bytes`` zeros."""
    return batch_of(compressed(codec, one_large_record(size_bytes)), 1, codec, **fields)


def count_bomb(codec: int, count: int, **fields: int) -> bytes:
    """Return a batch of ``count`` tiny records."""
    return batch_of(compressed(codec, tiny_records(count)), count, codec, **fields)


def liars(codec: int) -> dict[str, bytes]:
    """Return batches that say something wrong about their records, by the lie.

    The header itself agrees with itself, so the lie is found only where the batch is opened.
    """
    first, second = record(0), record(1)
    whole = first + second
    two_billion = varint(2_000_000_000)

    def made(body: bytes, count: int = 2, **fields: int) -> bytes:
        return batch_of(compressed(codec, [body]), count, codec, **fields)

    return {
        "more records than stated": made(whole, 1),
        "fewer records than stated": made(whole, 3),
        "2 billion records stated": made(whole, 2_000_000_000),
        "no record at all": made(b"", 1),
        "rubbish after the records": made(whole + b"\xff" * 20),
        "an offset twice": made(first + first),
        "offsets with a gap": made(first + record(5)),
        "a record length too long": made(first + record(1, length=100)),
        "a record length too short": made(first + record(1, length=4)),
        "a negative record length": made(first + record(1, length=-5)),
        "a record length of 2 GB": made(first + record(1, length=2**31 - 1)),
        "a length varint too long": made(first + b"\x80" * 40 + b"\x01" + second[1:]),
        "a timestamp varint too long": made(
            first + varint(50) + b"\0" + b"\x80" * 30 + b"\x01" + bytes(18)
        ),
        "2 billion headers": made(first + record(1, headers=two_billion)),
        "-1 headers": made(first + record(1, headers=varint(-1))),
        "a header name of 2 GB": made(first + record(1, headers=varint(1) + two_billion)),
        "a null header name": made(first + record(1, headers=varint(1) + varint(-1) + varint(-1))),
        "a header name that is not UTF-8": made(
            first + record(1, headers=varint(1) + varint(1) + b"\xff" + varint(-1))
        ),
        "a key of 2 GB": made(first + varint(10) + b"\0\0\2" + two_billion + bytes(10)),
        "a value of 2 GB": made(first + varint(10) + b"\0\0\2\1" + two_billion + bytes(10)),
        "a key of length -2": made(first + varint(6) + b"\0\0\2\3\1\0"),
        "a value of length -2": made(first + varint(7) + b"\0\0\2\2k\3\0"),
        "a max timestamp that no record has": made(whole, max_timestamp=TIMESTAMP_MS + 5),
    }


def broken_streams(codec: int) -> dict[str, bytes]:
    """Return batches whose compressed bytes are damaged."""
    payload = compressed(codec, [record(0, value=bytes(range(256)) * 40), record(1)])
    return {
        "cut in the middle": batch_of(payload[: len(payload) // 2], 2, codec),
        "cut by one byte": batch_of(payload[:-1], 2, codec),
        "bytes after the end": batch_of(payload + b"rubbish", 2, codec),
        "noise": batch_of(bytes(range(7, 200)), 2, codec),
        "nothing": batch_of(b"", 2, codec),
    }


# Memory -------------------------------------------------------------------------------------------

_MEASURED = """
import gc, time
from tests.bombs import *
from headrace.protocol.record_batch import *

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

{prepare}
gc.collect()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before, started = peak(), time.perf_counter()
try:
    result = {measured}
except Exception as error:
    result = type(error).__name__
print(result, peak() - before, time.perf_counter() - started)
"""


class Cost(NamedTuple):
    """The cost of an expression that was evaluated in a process of its own.

    :ivar result: its value, or the name of the error that it raised, as text
    :ivar grown_bytes: growth of the resident memory at its peak
    """

    result: str
    grown_bytes: int
    seconds: float


def cost_of(measured: str, prepare: str = "") -> Cost:
    """Evaluate an expression in a process of its own.

    :param prepare: statements to execute before, unmeasured; everything here and in
        ``record_batch`` is imported
    """
    source = _MEASURED.format(prepare=prepare, measured=measured)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert not done.returncode, done.stderr
    result, grown, seconds = done.stdout.rsplit(maxsplit=2)
    return Cost(result, int(grown), float(seconds))
