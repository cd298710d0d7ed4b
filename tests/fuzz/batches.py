"""Record batches: sound ones of every codec, and damaged ones."""

from __future__ import annotations

import random
import struct

from headrace.protocol.checksum import crc32c
from headrace.protocol.record_batch import CONTROL_BIT, CRC_START, HEADER_BYTES, build

_CRC_AT = CRC_START - 4
_TRANSACTIONAL = 0x10


def with_right_crc(data: bytearray) -> bytes:
    """Return a batch with its checksum set anew."""
    if len(data) >= HEADER_BYTES:
        struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[CRC_START:]))
    return bytes(data)


def batch(
    rng: random.Random,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Return a sound batch of a few records."""
    count = rng.choice((1, 1, 2, 5, 40))
    records = [
        (rng.choice((None, b"", b"k1", b"k2")), rng.choice((None, b"", b"v", bytes(100))))
        for _ in range(count)
    ]
    now_ms = 1_750_000_000_000
    times = [now_ms + rng.choice((0, 1, -1, 1 << 40)) for _ in range(count)]
    headers = [[("h", rng.choice((None, b"", b"x")))] for _ in range(count)]
    return build(
        records,
        timestamp_ms=now_ms,
        timestamps_ms=rng.choice((None, times)),
        headers=rng.choice((None, headers)),
        codec=rng.choice((0, 0, 1, 2, 3, 4)),
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return a batch with a few bytes of its header or its records changed, often with the right
    checksum.
    """
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        dice = rng.random()
        if dice < 0.5:
            at = rng.randrange(min(len(spoiled), HEADER_BYTES))
        else:
            at = rng.randrange(len(spoiled))
        spoiled[at] = rng.choice((0, 0x7F, 0x80, 0xFF, spoiled[at] ^ 1 << rng.randrange(8)))
    if rng.random() < 0.1:
        del spoiled[rng.randrange(1, len(spoiled)) :]
    if rng.random() < 0.1:
        spoiled += rng.randbytes(rng.randrange(80))
    if len(spoiled) >= 12 and rng.random() < 0.7:
        struct.pack_into(">i", spoiled, 8, len(spoiled) - 12)
    return with_right_crc(spoiled) if rng.random() < 0.8 else bytes(spoiled)


def records(rng: random.Random, producer_id: int, producer_epoch: int) -> bytes:
    """Return the records of a partition in a Produce request: usually one sound batch."""
    dice = rng.random()
    if dice < 0.5:
        return batch(rng)
    if dice < 0.65:
        transactional = rng.choice((0, _TRANSACTIONAL, _TRANSACTIONAL | CONTROL_BIT))
        return batch(rng, producer_id, producer_epoch, rng.choice((0, 1, 5)), transactional)
    if dice < 0.95:
        return damaged(rng, batch(rng))
    if dice < 0.98:
        return batch(rng) + damaged(rng, batch(rng))
    return rng.randbytes(rng.randrange(200))
