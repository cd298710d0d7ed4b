"""Records of the internal topics as columns, compared with decoding them one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.groups import record_schemas
from headrace.groups.records import (
    CONSUMER_RECORDS,
    AssignmentEpoch,
    CommittedOffset,
    ConsumerMember,
    Generation,
    GenerationMember,
    GroupEpoch,
    GroupMetadata,
    OffsetCommit,
    ShareMember,
)
from headrace.groups.records import (
    SHARE_RECORDS as SHARE_GROUP_RECORDS,
)
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from headrace.share import records as share_records
from headrace.spark.history.group_records import (
    COMMIT,
    COMMIT_DELETED,
    GROUP,
    GROUP_DELETED,
    MEMBER,
    MEMBER_LEFT,
    SHARE_STATE,
    SHARE_STATE_DELETED,
    UNREADABLE,
    events,
)
from headrace.spark.reader.columns import Records
from headrace.spark.reader.ranges import OffsetRange, split_evenly
from tests import encoding

Pair = tuple[bytes, bytes | None]
TOPIC_ID = UUID(int=2**127 + 5)
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30)
NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**62)

COMMITTED = st.builds(
    CommittedOffset,
    OFFSETS,
    st.integers(-1, 100),
    st.text(max_size=300),
    st.integers(-1, 2**40),
    st.sampled_from((-1, -1, 2**41)),
    st.sampled_from((None, TOPIC_ID)),
)
MEMBERS = st.builds(
    GenerationMember,
    NAMES,
    st.none() | NAMES,
    NAMES,
    NAMES,
    NUMBERS,
    NUMBERS,
    st.binary(),
    st.binary(),
)
GENERATIONS = st.builds(
    Generation,
    NAMES,
    NUMBERS,
    st.none() | NAMES,
    st.none() | NAMES,
    OFFSETS,
    st.lists(MEMBERS, max_size=3).map(tuple),
)
CONSUMERS = st.builds(
    ConsumerMember,
    st.none() | NAMES,
    st.none(),
    NAMES,
    NAMES,
    st.just(("a",)),
    st.just(""),
    NUMBERS,
    st.none(),
    st.none(),
)
GROUP_RECORDS = st.one_of(
    st.builds(OffsetCommit, NAMES, NAMES, NUMBERS, st.none() | COMMITTED),
    st.builds(GroupMetadata, NAMES, st.none() | GENERATIONS),
    st.builds(CONSUMER_RECORDS.group, NAMES, st.none() | st.builds(GroupEpoch, NUMBERS, OFFSETS)),
    st.builds(
        SHARE_GROUP_RECORDS.group, NAMES, st.none() | st.builds(GroupEpoch, NUMBERS, OFFSETS)
    ),
    st.builds(CONSUMER_RECORDS.member, NAMES, NAMES, st.none() | CONSUMERS),
    st.builds(
        SHARE_GROUP_RECORDS.member,
        NAMES,
        NAMES,
        st.none() | st.just(ShareMember(None, "c", "h", ("a",))),
    ),
    st.builds(CONSUMER_RECORDS.target_epoch, NAMES, st.none() | st.just(AssignmentEpoch(3, 0))),
)
SHARE_KEYS = st.builds(share_records.SharePartitionKey, NAMES, st.just(TOPIC_ID), NUMBERS)
BATCHES = st.lists(
    st.builds(
        share_records.StateBatch, st.just(1), OFFSETS.map(lambda n: n + 1), st.just(2), st.just(1)
    )
)
SHARE_RECORDS = st.one_of(
    st.builds(
        share_records.ShareSnapshot,
        SHARE_KEYS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.integers(-1, 2**62),
        OFFSETS,
        OFFSETS,
        BATCHES.map(tuple),
        st.integers(-1, 2**31 - 1),
    ),
    st.builds(
        share_records.ShareUpdate,
        SHARE_KEYS,
        NUMBERS,
        NUMBERS,
        st.integers(-1, 2**62),
        BATCHES.map(tuple),
        st.integers(-1, 2**31 - 1),
    ),
    st.builds(share_records.ShareTombstone, SHARE_KEYS),
)


def rows(pairs: Sequence[Pair], topic: str, groups: str | None = None) -> list[dict[str, Any]]:
    count = len(pairs)
    keys, values = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    numbers = np.arange(count, dtype=np.int64)
    batch = Records(numbers + 7, numbers + 1000, numbers * 0, keys, values).spark_batch(topic, 3)
    found = [row for decoded in events(batch, groups) for row in decoded.to_pylist()]
    for row in found:
        assert (row["logTopic"], row["logPartition"]) == (topic, 3)
        assert round(row["timestamp"].timestamp() * 1000) == 1000 + row["logOffset"] - 7
    return found


def known(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that are set, without those that every row has."""
    common = ("timestamp", "logTopic", "logPartition", "logOffset", "recordType", "version")
    return {name: value for name, value in row.items() if value is not None and name not in common}


def expected(record: Any) -> dict[str, Any] | None:
    """Return the columns that a record of ``__consumer_offsets`` sets; None if it has no event."""
    fields: dict[str, Any] = {"groupId": record.group_id}
    value = record.value
    match record:
        case OffsetCommit():
            fields |= {"event": COMMIT, "topic": record.topic, "partition": record.partition}
            if value is not None:
                fields |= {"offset": value.offset}
                if value.leader_epoch >= 0 and value.expire_timestamp_ms < 0:
                    fields["leaderEpoch"] = value.leader_epoch
                if value.commit_timestamp_ms >= 0:
                    fields["commitTimestamp"] = value.commit_timestamp_ms
            return fields | ({} if value is not None else {"event": COMMIT_DELETED})
        case GroupMetadata():
            fields |= {"event": GROUP, "groupType": "classic"}
            if value is not None:
                fields |= {"epoch": value.generation, "members": len(value.members)}
        case CONSUMER_RECORDS.group() | SHARE_GROUP_RECORDS.group():
            kind = "share" if isinstance(record, SHARE_GROUP_RECORDS.group) else "consumer"
            fields |= {"event": GROUP, "groupType": kind} | (
                {} if value is None else {"epoch": value.epoch}
            )
        case CONSUMER_RECORDS.member() | SHARE_GROUP_RECORDS.member():
            kind = "share" if isinstance(record, SHARE_GROUP_RECORDS.member) else "consumer"
            fields |= {"event": MEMBER, "groupType": kind, "memberId": record.member_id}
        case _:
            return None
    gone = {GROUP: GROUP_DELETED, MEMBER: MEMBER_LEFT}[fields["event"]]
    return fields if value is not None else fields | {"event": gone}


def in_ms(fields: dict[str, Any]) -> dict[str, Any]:
    if "commitTimestamp" in fields:
        fields["commitTimestamp"] = round(fields["commitTimestamp"].timestamp() * 1000)
    return fields


@given(st.lists(GROUP_RECORDS, min_size=1, max_size=20))
@settings(deadline=None)
def test_events_in_groups(records: list[Any]) -> None:
    found = [
        in_ms(known(row))
        for row in rows([record_schemas.encode(record) for record in records], CONSUMER_OFFSETS)
    ]
    assert found == [fields for record in records if (fields := expected(record)) is not None]


PLAIN = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.just(""),
    st.integers(-(2**63), 2**41) | st.just(2**63 - 1),  # Python has no dates between these
    st.just(-1),
    st.sampled_from((None, TOPIC_ID)),
)


@given(
    st.lists(
        st.builds(OffsetCommit, st.sampled_from(("a", "b")), NAMES, NUMBERS, PLAIN), min_size=1
    ),
    st.sampled_from((None, "a")),
)
@settings(deadline=None)
def test_commits_that_are_decoded_at_once_are_as_those_that_are_decoded_one_by_one(
    records: list[OffsetCommit], groups: str | None
) -> None:
    pairs = [record_schemas.encode(record) for record in records]
    other = record_schemas.encode(GroupMetadata("a", None))
    *one_by_one, last = rows([*pairs, other], CONSUMER_OFFSETS, groups)
    assert last["event"] == GROUP_DELETED
    assert rows(pairs, CONSUMER_OFFSETS, groups) == one_by_one


@given(st.lists(SHARE_RECORDS, min_size=1, max_size=20))
@settings(deadline=None)
def test_events_in_share_partitions(records: list[Any]) -> None:
    found = [
        known(row)
        for row in rows([share_records.encode(record) for record in records], SHARE_GROUP_STATE)
    ]
    for record, row in zip(records, found, strict=True):
        fields = {
            "groupId": record.key.group_id,
            "topicId": TOPIC_ID.bytes,
            "partition": record.key.partition,
        }
        fields |= {"groupType": "share", "event": SHARE_STATE}
        if isinstance(record, share_records.ShareTombstone):
            fields["event"] = SHARE_STATE_DELETED
        else:
            fields["leaderEpoch"] = record.leader_epoch
            if record.start_offset >= 0:
                fields["offset"] = record.start_offset
            if record.delivery_complete_count >= 0:
                fields["deliveryCompleteCount"] = record.delivery_complete_count
        assert row == fields


def test_every_version_of_a_commit_that_a_broker_ever_wrote() -> None:
    key = record_schemas.encode(OffsetCommit("g", "t", 2, None))[0]
    head, middle = struct.pack(">q", 42), encoding.string("note")
    values = [
        encoding.i16(0) + head + middle + encoding.i64(99),
        encoding.i16(1) + head + middle + encoding.i64(99) + encoding.i64(100),
        encoding.i16(2) + head + middle + encoding.i64(99),
        encoding.i16(3) + head + encoding.i32(5) + middle + encoding.i64(99),
        encoding.i16(4)
        + head
        + encoding.i32(5)
        + encoding.compact_string("note")
        + encoding.i64(99)
        + encoding.NO_TAGS,
    ]
    found = rows([(key, value) for value in values], CONSUMER_OFFSETS)
    assert [(row["event"], row["version"], row["offset"], row["leaderEpoch"]) for row in found] == [
        (COMMIT, version, 42, 5 if version >= 3 else None) for version in range(5)
    ]
    old_type = b"\0\0" + key[2:]
    assert rows([(old_type, values[0])], CONSUMER_OFFSETS)[0]["offset"] == 42


def test_the_members_of_old_generations_are_counted() -> None:
    key = record_schemas.encode(GroupMetadata("g", None))[0]
    start = (
        encoding.string("consumer")
        + encoding.i32(7)
        + encoding.string(None)
        + encoding.string(None)
    )
    names = encoding.string("m") * 3
    empty = encoding.i32(0) * 2
    oldest, older = names + encoding.i32(1) + empty, names + encoding.i32(1) * 2 + empty
    newest = b"\2m\0\2m\2m" + encoding.i32(1) * 2 + b"\1\1\0"
    values = [
        encoding.i16(0) + start + encoding.array([oldest] * 2),
        encoding.i16(1) + start + encoding.array([older] * 3),
        encoding.i16(2) + start + encoding.i64(9) + encoding.array([older] * 4),
        encoding.i16(4)
        + encoding.compact_string("consumer")
        + encoding.i32(7)
        + b"\0\0"
        + encoding.i64(9)
        + b"\6"
        + newest * 5
        + encoding.NO_TAGS,
    ]
    found = rows([(key, value) for value in values], CONSUMER_OFFSETS)
    assert [(row["event"], row["members"], row["epoch"]) for row in found] == [
        (GROUP, n, 7) for n in (2, 3, 4, 5)
    ]


STREAMS_GROUP = "0018" + b"streams-406-7064216134-2".hex()
STREAMS_MEMBER = "0016" + b"yfEl9SRRrCZciL7xRm2iyg".hex()
STREAMS_RECORDS = (
    (
        "0011" + STREAMS_GROUP,
        "00000000000270a2aeabb7b6603101011902156e756d2e7374616e6462792e7265706c69636173023000",
    ),
    (
        "0013" + STREAMS_GROUP + STREAMS_MEMBER,
        "000000005673747265616d732d3430362d373036343231363133342d322d64313964383830312d663831312d346535352d626136652d"
        "6538353337393861376538332d53747265616d5468726561642d322d636f6e73756d65720b2f3132372e302e302e31000493e00000000025"
        "64313964383830312d663831312d346535352d626136652d653835333739386137653833ff0100",
    ),
    ("0014" + STREAMS_GROUP, "000000000004010008000001a1fd09fbd0"),
    ("0015" + STREAMS_GROUP + STREAMS_MEMBER, "00000302300200000000000231020000000000010100"),
    ("0016" + STREAMS_GROUP + STREAMS_MEMBER, "000000000001000000000101010101010100"),
    ("0017" + STREAMS_GROUP, "000000000000010000"),
    ("0013" + STREAMS_GROUP + STREAMS_MEMBER, None),
    ("0016" + STREAMS_GROUP + STREAMS_MEMBER, None),
    ("0011" + STREAMS_GROUP, None),
)
"""Records that Apache Kafka 4.3.1 wrote for a streams group (KIP-1071), of types 17 and 19 to 23.

The topology is shortened.
"""


def test_streams_groups_that_apache_kafka_coordinates() -> None:
    found = rows(
        [
            (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
            for key, value in STREAMS_RECORDS
        ],
        CONSUMER_OFFSETS,
    )
    group = {"groupId": "streams-406-7064216134-2", "groupType": "streams"}
    member = {**group, "memberId": "yfEl9SRRrCZciL7xRm2iyg"}
    assert [known(row) for row in found] == [
        {**group, "event": GROUP, "epoch": 2},
        {**member, "event": MEMBER},
        {**member, "event": MEMBER_LEFT},
        {**group, "event": GROUP_DELETED},
    ]


def test_a_varint_that_is_too_long_makes_only_its_own_record_unreadable() -> None:
    commit = record_schemas.encode(OffsetCommit("g", "t", 2, CommittedOffset(1, -1, "", 1)))
    head = encoding.i16(4) + encoding.i64(1) + encoding.i32(-1)
    found = rows([commit, (commit[0], head + b"\xff" * 11), commit], CONSUMER_OFFSETS)
    assert [row["event"] for row in found] == [COMMIT, UNREADABLE, COMMIT]


def test_unknown_types_and_versions_are_unreadable() -> None:
    commit = record_schemas.encode(OffsetCommit("g", "t", 2, CommittedOffset(1, -1, "", 1)))
    newer = (commit[0], encoding.i16(9) + commit[1][2:])
    other_type = (encoding.i16(77) + commit[0][2:], commit[1])
    found = rows([commit, newer, other_type, (b"", b""), commit], CONSUMER_OFFSETS)
    assert [row["event"] for row in found] == [COMMIT, UNREADABLE, UNREADABLE, UNREADABLE, COMMIT]
    assert found[1]["version"] == 9
    assert found[4]["offset"] == 1


@given(
    st.lists(
        st.one_of(
            GROUP_RECORDS.map(record_schemas.encode),
            st.tuples(st.binary(), st.none() | st.binary()),
        ),
        min_size=1,
    ),
    st.data(),
)
@settings(deadline=None)
def test_damaged_records_do_not_harm_their_neighbours(pairs: list[Pair], data: Any) -> None:
    commit = OffsetCommit("good", "topic", 2, CommittedOffset(11, 3, "x", 1))
    good_commit = record_schemas.encode(commit)
    key = share_records.SharePartitionKey("good", TOPIC_ID, 2)
    good_state = share_records.encode(share_records.ShareUpdate(key, 1, 1, 11, (), 0))
    cut = [
        (
            key[: data.draw(st.integers(0, len(key)))],
            value and value[: data.draw(st.integers(0, len(value)))],
        )
        for key, value in pairs
    ]
    for topic, intact, event in (
        (CONSUMER_OFFSETS, good_commit, COMMIT),
        (SHARE_GROUP_STATE, good_state, SHARE_STATE),
    ):
        found = rows([intact, *cut, intact], topic)
        for row in (found[0], found[-1]):
            assert (row["event"], row["groupId"], row["offset"]) == (event, "good", 11)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 40)), max_size=6),
    st.integers(1, 30),
)
def test_tasks_together_have_all_ranges(bounds: list[tuple[int, int, int]], size: int) -> None:
    ranges = [
        OffsetRange(CONSUMER_OFFSETS, index, start, start + count) for index, start, count in bounds
    ]
    work = split_evenly(ranges, size)
    counts = [sum(part.end - part.start for part in parts) for parts in work]
    assert len(work) == -(-sum(counts) // size)
    assert all(0 < count <= size for count in counts)
    assert len(set(counts[:-1])) <= 1
    wanted = [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert [
        (r.partition, offset) for parts in work for r in parts for offset in range(r.start, r.end)
    ] == wanted


def test_a_record_without_a_group_is_of_none_that_a_pattern_chooses() -> None:
    commit = record_schemas.encode(OffsetCommit("g", "t", 2, CommittedOffset(1, -1, "", 1)))
    pairs = [commit, (b"\0\1", b""), (b"", b"")]
    assert [row["groupId"] for row in rows(pairs, CONSUMER_OFFSETS)] == ["g", None, None]
    assert [row["groupId"] for row in rows(pairs, CONSUMER_OFFSETS, "[a-z]*")] == ["g"]
    assert rows(pairs, CONSUMER_OFFSETS, "h") == []


def test_hostile_numbers_and_text_harm_no_neighbours() -> None:
    commit = record_schemas.encode(OffsetCommit("g", "t", 2, CommittedOffset(1, -1, "", 2**62)))
    surrogate = record_schemas.encode(OffsetCommit("\udcff", "t", 2, None))
    key = record_schemas.encode(GroupMetadata("g", None))[0]
    members = encoding.compact_string("") + encoding.i32(7) + b"\0\0" + encoding.i64(9)
    many = (key, encoding.i16(4) + members + b"\xff\xff\xff\xff\x0f")
    found = rows([commit, surrogate, many, commit], CONSUMER_OFFSETS)
    assert [(row["event"], row["groupId"]) for row in found] == [
        (COMMIT, "g"),
        (COMMIT_DELETED, "?"),
        (UNREADABLE, "g"),
        (COMMIT, "g"),
    ]
