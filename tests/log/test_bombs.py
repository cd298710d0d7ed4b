"""Batches in a log that are much larger than their bytes: compaction and look-ups by timestamp."""

from __future__ import annotations

import pytest

from headrace.log.compaction import LatestOffsets
from headrace.log.timestamps import timestamp_steps
from headrace.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD
from headrace.protocol.record_batch import Opening, TooLargeToOpen, build, header_at
from tests.bombs import cost_of, count_bomb

MIB = 1 << 20

_COMPACTION = """
from headrace.log.aborted_transactions import AbortedLookup
from headrace.log.compaction import Compactor, LatestOffsets

def key(number):
    return number.to_bytes(4) * {key_words}

def large_records():
    for number in range(200):
        yield record(number, key(number), bytes({value_bytes}))

batch = memoryview(batch_of(compressed({codec}, large_records()), 200, {codec}))
header = header_at(batch)
last = memoryview(build([(key(0), b"v")], timestamp_ms=TIMESTAMP_MS, base_offset=200))

def compact():
    latest = LatestOffsets(1 << 20)
    assert latest.note(header, batch, 0) is None
    assert latest.note(header_at(last), last, 0) is None
    compactor = Compactor(
        latest, 201, aborted=AbortedLookup(()), producers={{}}, now_ms=0, delete_retention_ms=0
    )
    return header_at(compactor.clean(header, batch)).record_count
"""


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize(("key_words", "value_bytes"), [(1, 1 << 20), (1 << 18, 1)])
def test_compaction_has_one_record_in_memory(codec: int, key_words: int, value_bytes: int):
    """It had the whole batch, the batch without some records, and whole keys."""
    prepare = _COMPACTION.format(codec=codec, key_words=key_words, value_bytes=value_bytes)
    cost = cost_of("compact()", prepare)
    assert cost.result == "199"
    assert cost.grown_bytes < 40 * MIB, cost


def test_a_batch_with_more_keys_than_fit_is_noted_in_part():
    """It was noted whole, if there was memory left for one key."""
    data = build([(b"%d" % number, b"v") for number in range(100)], timestamp_ms=1, base_offset=7)
    header, latest = header_at(data), LatestOffsets(2000)
    not_noted = latest.note(header, memoryview(data), 0)
    assert not_noted is not None
    assert not_noted == 7 + len(latest) < 20
    rest = LatestOffsets(1 << 20)
    assert rest.note(header, memoryview(data), not_noted) is None
    assert len(rest) == 107 - not_noted
    assert (rest.get(b"0", -1), rest.get(b"99", -1)) == (-1, 106)


def test_long_keys_are_told_apart():
    keys = [bytes(length) for length in range(0, 200, 3)]
    data = build([(key, b"v") for key in keys], timestamp_ms=1)
    latest = LatestOffsets(1 << 20)
    latest.note(header_at(data), memoryview(data), 0)
    assert [latest.get(key, -1) for key in keys] == list(range(len(keys)))
    assert latest.get(bytes(201), -1) == -1


def test_a_batch_that_is_not_opened_is_not_compacted():
    bomb = count_bomb(ZSTD, 2_000_000)
    with pytest.raises(TooLargeToOpen):
        LatestOffsets(1 << 20).note(header_at(bomb), memoryview(bomb), 0)


@pytest.mark.parametrize(("later_ms", "whole"), [(0, False), (1, True)])
def test_a_search_opens_a_batch_up_to_its_largest_timestamp(later_ms: int, whole: bool):
    """A million tiny records of one time took a second and more; a header that lies still does."""
    count, pieces = 50_000, []
    now_ms = 1_700_000_000_000
    data = count_bomb(ZSTD, count, base_timestamp=now_ms, max_timestamp=now_ms + later_ms)
    opening = Opening(pause=lambda: pieces.append(1))
    steps = timestamp_steps(data, header_at(data), 0, opening)
    assert steps.first_at_or_after(now_ms) == (0, now_ms)
    assert steps.first_at_or_after(now_ms + 1) is None
    assert len(pieces) > 10 if whole else len(pieces) <= 1
