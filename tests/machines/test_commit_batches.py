"""Batches of offset commits, decoded in one pass, are as the general readers read them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.groups.offsets.commit_batches import CommitBatches
from headrace.groups.record_schemas import decode, encode
from headrace.groups.records import CommittedOffset, Generation, GroupMetadata, OffsetCommit
from headrace.protocol.record_batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    Marker,
    build,
    end_transaction_marker,
    header_at,
    records,
    seal,
)
from tests.encoding import i16, string

TOPIC_ID = UUID(int=7)
PLAIN = CommittedOffset(5, 2, commit_timestamp_ms=9, topic_id=TOPIC_ID)
NAMES = st.text(max_size=40) | st.text("g", min_size=20, max_size=300)
VALUES = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.just("") | st.text(max_size=3),
    st.integers(-1, 2**50),
    st.just(-1) | st.integers(0, 2**50),
    st.none() | st.uuids(),
)
COMMITS = st.builds(OffsetCommit, NAMES, NAMES, st.integers(0, 2**31 - 1), st.none() | VALUES)
PLAIN_COMMITS = st.builds(
    OffsetCommit,
    st.text(min_size=4, max_size=300),
    st.text(min_size=4, max_size=300),
    st.integers(0, 2**31 - 1),
    st.builds(PLAIN._replace, offset=st.integers(-(2**63), 2**63 - 1), topic_id=st.uuids()),
)


def batch_of(commits: list[OffsetCommit], base_offset: int = 0, **options: Any) -> bytes:
    return build(map(encode, commits), timestamp_ms=1, base_offset=base_offset, **options)


def decoded(data: bytes) -> list[tuple[int, OffsetCommit]] | None:
    return CommitBatches().decode(memoryview(data), header_at(data))


def read(data: bytes) -> list[tuple[int, Any]]:
    """Read offset and record of each record with the general readers."""
    return [(one.offset, decode(one.key or b"", one.value)) for one in records(data)]


@given(st.lists(PLAIN_COMMITS, min_size=1, max_size=200), st.integers(0, 2**40))
def test_commits_without_metadata_are_decoded_as_by_the_general_readers(
    commits: list[OffsetCommit], base_offset: int
) -> None:
    data = batch_of(commits, base_offset)
    assert decoded(data) == read(data)


@given(st.lists(COMMITS, min_size=1, max_size=5))
@example([OffsetCommit("g", "t", 0, PLAIN)])
def test_other_commits_are_decoded_right_or_not_at_all(commits: list[OffsetCommit]) -> None:
    data = batch_of(commits)
    assert decoded(data) in (None, read(data))


@pytest.mark.parametrize("count", [1, 64, 65, 200, 8192])
def test_large_batches(count: int) -> None:
    data = batch_of([OffsetCommit("group", "topic", n, PLAIN) for n in range(count)])
    assert decoded(data) == read(data)
    assert len(read(data)) == count


def test_offsets_removed_by_compaction() -> None:
    whole = batch_of([OffsetCommit("group", "topic", n, PLAIN) for n in range(3)], 100)
    size = (len(whole) - HEADER_BYTES) // 3
    payload = whole[HEADER_BYTES : HEADER_BYTES + size] + whole[HEADER_BYTES + 2 * size :]
    header = header_at(whole)._replace(
        batch_length=header_at(whole).batch_length - size, record_count=2
    )
    found = decoded(seal(header, payload) + payload)
    assert found is not None
    assert [(offset, record.partition) for offset, record in found] == [(100, 0), (102, 2)]


def test_batches_of_transactions_are_decoded_and_markers_are_not() -> None:
    commit = OffsetCommit("group", "topic", 0, PLAIN)
    assert decoded(batch_of([commit], attributes=TRANSACTIONAL_BIT)) == [(0, commit)]
    assert decoded(batch_of([commit], attributes=CONTROL_BIT)) is None
    assert (
        decoded(end_transaction_marker(1, 0, Marker(commit=True, coordinator_epoch=0), 1)) is None
    )


@pytest.mark.parametrize(
    "other",
    [
        OffsetCommit("group", "topic", 0, None),
        OffsetCommit("group", "topic", 0, PLAIN._replace(metadata="text")),
        OffsetCommit("group", "topic", 0, PLAIN._replace(topic_id=None)),
        GroupMetadata("group", Generation("consumer", 1, None, None, 1)),
    ],
)
def test_a_batch_with_any_other_record_is_left_to_the_general_readers(other: Any) -> None:
    commit = OffsetCommit("group", "topic", 0, PLAIN)
    assert decoded(batch_of([commit, other])) is None
    assert decoded(batch_of([commit], codec=4)) is None


@pytest.mark.parametrize(
    "key",
    [
        i16(2) + string("group") + string("topic") + bytes(4),
        i16(1) + string("group") + string("topic") + bytes(5),
        i16(1) + string("group") + b"\0\5topi\xff" + bytes(4),
        i16(1) + b"\x40\0group-topic" + bytes(4),
    ],
)
def test_keys_of_other_types_and_damaged_ones_are_left_to_the_general_readers(key: bytes) -> None:
    _, value = encode(OffsetCommit("group", "topic", 0, PLAIN))
    assert decoded(build([(key, value)], timestamp_ms=1)) is None


@pytest.mark.parametrize("count", [1, 65])
def test_a_flipped_bit_is_decoded_as_by_the_general_readers_or_not_at_all(count: int) -> None:
    data = batch_of([OffsetCommit("group", "topic", n, PLAIN) for n in range(count)])
    record_bytes = (len(data) - HEADER_BYTES) // count
    for position in range(len(data) - record_bytes, len(data)):
        for bit in range(8):
            other = bytearray(data)
            other[position] ^= 1 << bit
            found = decoded(bytes(other))
            if found is not None:
                assert found == read(bytes(other)), (position, bit)


def test_a_batch_cut_short_is_left_to_the_general_readers() -> None:
    data = batch_of([OffsetCommit("group", "topic", n, PLAIN) for n in range(2)])
    for end in range(HEADER_BYTES, len(data)):
        assert CommitBatches().decode(memoryview(data)[:end], header_at(data)) is None
