"""The bytes of ``__consumer_offsets``: as a real Apache Kafka 4.3.1 wrote them, and every older
version read.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.classic.member import Member
from headrace.groups.record_schemas import decode, encode
from headrace.groups.records import (
    CONSUMER_RECORDS,
    SHARE_RECORDS,
    STREAMS_RECORDS,
    AssignmentEpoch,
    ByRole,
    ClassicMember,
    CommittedOffset,
    ConsumerAssignment,
    ConsumerGroupRegularExpression,
    ConsumerMember,
    CopartitionGroup,
    CurrentAssignment,
    Generation,
    GenerationMember,
    GroupEpoch,
    GroupMetadata,
    InternalTopic,
    MemberState,
    OffsetCommit,
    ResolvedRegex,
    SharedTopic,
    ShareMember,
    StatePartitions,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    Subtopology,
    Topology,
)

TOPIC_ID = UUID("0d3f9b49-158d-4359-bb6b-d77021a3cf65")
ID_HEX = TOPIC_ID.hex
GROUP = "6772702d73682d622d31"  # grp-sh-b-1
MEMBER_ID = "cl-3debb04a-8a75-451c-9cc2-6f37f8c13625"

# (record, key, value) captured from Apache Kafka 4.3.1
CAPTURED = {
    "commit with topic id": (
        OffsetCommit(
            "grp-classic-a",
            "grp-t1",
            0,
            CommittedOffset(13, 0, "", 0x1A1FAFF221D, topic_id=TOPIC_ID),
        ),
        "0001000d6772702d636c61737369632d6100066772702d743100000000",
        f"0004000000000000000d0000000001000001a1faff221d010010{ID_HEX}",
    ),
    "commit with metadata": (
        OffsetCommit(
            "grp-classic-a",
            "grp-t1",
            0,
            CommittedOffset(2, -1, "meta!\0", 0x1A1FAFF2229, topic_id=TOPIC_ID),
        ),
        "0001000d6772702d636c61737369632d6100066772702d743100000000",
        f"00040000000000000002ffffffff076d6574612100000001a1faff2229010010{ID_HEX}",
    ),
    "new classic group": (
        GroupMetadata("grp-classic-a", Generation("", 0, None, None, 0x1A1FAFF219F)),
        "0002000d6772702d636c61737369632d61",
        "0003000000000000ffffffff000001a1faff219f00000000",
    ),
    "stable classic group": (
        GroupMetadata(
            "grp-classic-a",
            Generation(
                "consumer",
                1,
                "range",
                MEMBER_ID,
                0x1A1FAFF21A3,
                (
                    GenerationMember(
                        MEMBER_ID,
                        None,
                        "cl",
                        "/127.0.0.1",
                        300_000,
                        10_000,
                        bytes.fromhex("00030000000100066772702d74310000000000000000ffffffff0000"),
                        bytes.fromhex(
                            "00000000000100066772702d74310000000300000000000000010000000200000000"
                        ),
                    ),
                ),
            ),
        ),
        "0002000d6772702d636c61737369632d61",
        "00030008636f6e73756d657200000001000572616e67650027"
        f"{MEMBER_ID.encode().hex()}000001a1faff21a3000000010027{MEMBER_ID.encode().hex()}"
        "ffff0002636c000a2f3132372e302e302e31000493e0000027100000001c00030000000100066772702d7431"
        "0000000000000000ffffffff00000000002200000000000100066772702d743100000003000000000000000100000002"
        "00000000",
    ),
    "consumer member": (
        CONSUMER_RECORDS.member(
            "grp-sh-b-1",
            "m",
            ConsumerMember(None, "ra", "raw", "/127.0.0.1", ("grp-t1",), "", 30_000, None),
        ),
        f"0005000a{GROUP}00016d",
        "000000037261047261770b2f3132372e302e302e3102076772702d743101000075300001000100",
    ),
    "static consumer member with a regular expression": (
        CONSUMER_RECORDS.member(
            "grp-sh-b-1",
            "m",
            ConsumerMember("i3", None, "raw", "/127.0.0.1", (), "cgp.*6552-0", 30_000, None),
        ),
        f"0005000a{GROUP}00016d",
        "000003693300047261770b2f3132372e302e302e31010c6367702e2a363535322d30000075300001000100",
    ),
    "classic member of a consumer group": (
        CONSUMER_RECORDS.member(
            "grp-sh-b-1",
            "m",
            ConsumerMember(
                None,
                None,
                "raw",
                "/127.0.0.1",
                ("grp-t1",),
                "",
                20_000,
                None,
                ClassicMember(
                    10_000,
                    (
                        ConsumerMember.ClassicProtocol(
                            "range",
                            bytes.fromhex(
                                "00030000000100066772702d7431ffffffff00000000ffffffffffff"
                            ),
                        ),
                    ),
                ),
            ),
        ),
        f"0005000a{GROUP}00016d",
        "00000000047261770b2f3132372e302e302e3102076772702d74310100004e200001002b0100002710020672616e67651d"
        "00030000000100066772702d7431ffffffff00000000ffffffffffff0000",
    ),
    "new consumer group epoch": (
        CONSUMER_RECORDS.group("grp-sh-b-1", GroupEpoch(2, 0)),
        f"0003000a{GROUP}",
        "00000000000200",
    ),
    "consumer group epoch": (
        CONSUMER_RECORDS.group("grp-sh-b-1", GroupEpoch(4, 0xCA042E484D0C34)),
        f"0003000a{GROUP}",
        "00000000000401000800ca042e484d0c34",
    ),
    "consumer target epoch": (
        CONSUMER_RECORDS.target_epoch("grp-sh-b-1", AssignmentEpoch(4, 0x1A1FBD232FB)),
        f"0006000a{GROUP}",
        "000000000004010008000001a1fbd232fb",
    ),
    "consumer target": (
        CONSUMER_RECORDS.target("grp-sh-b-1", "m", {TOPIC_ID: (0, 1)}),
        f"0007000a{GROUP}00016d",
        f"000002{ID_HEX}0300000000000000010000",
    ),
    "consumer current": (
        CONSUMER_RECORDS.current(
            "grp-sh-b-1",
            "m",
            ConsumerAssignment(4, 2, MemberState.STABLE, {TOPIC_ID: {0: 4, 1: 4}}),
        ),
        f"0008000a{GROUP}00016d",
        f"000000000004000000020002{ID_HEX}0300000000000000010100090300000004000000040100",
    ),
    "consumer current, unrevoked": (
        CONSUMER_RECORDS.current(
            "grp-sh-b-1",
            "m",
            ConsumerAssignment(
                1,
                1,
                MemberState.UNREVOKED,
                {TOPIC_ID: {0: 1, 1: 1}},
                {TOPIC_ID: {2: 1, 3: 1}},
            ),
        ),
        f"0008000a{GROUP}00016d",
        f"000000000001000000010102{ID_HEX}03000000000000000101000903000000010000000102{ID_HEX}"
        "03000000020000000301000903000000010000000100",
    ),
    "static consumer that is away": (
        CONSUMER_RECORDS.current("grp-sh-b-1", "m", ConsumerAssignment(-2, 0)),
        f"0008000a{GROUP}00016d",
        "0000fffffffe0000000000010100",
    ),
    "resolved regular expression": (
        ConsumerGroupRegularExpression(
            "grp-sh-b-1", "a.*", ResolvedRegex(("grp-t1",), 0x2358, 0x1A1FBD23305)
        ),
        f"0010000a{GROUP}0003612e2a",
        "000002076772702d74310000000000002358000001a1fbd2330500",
    ),
    "streams group epoch": (
        STREAMS_RECORDS.group(
            "grp-sh-b-1",
            StreamsEpoch(
                4,
                -9010562706193886943,
                0,
                (StreamsEpoch.LastAssignmentConfig("num.standby.replicas", "1"),),
            ),
        ),
        f"0011000a{GROUP}",
        "00000000000482f40cf56eee512102000400000000011902156e756d2e7374616e6462792e7265706c69636173"
        "023100",
    ),
    "streams member": (
        STREAMS_RECORDS.member(
            "grp-sh-b-1",
            "m",
            StreamsMember(
                None,
                None,
                "raw",
                "/127.0.0.1",
                300_000,
                0,
                "a",
                StreamsMember.Endpoint("host", 9100),
                (StreamsMember.KeyValue("zone", "y"),),
            ),
        ),
        f"0013000a{GROUP}00016d",
        "00000000047261770b2f3132372e302e302e31000493e00000000002610105686f7374238c0002057a6f6e6502"
        "790000",
    ),
    "streams target epoch": (
        STREAMS_RECORDS.target_epoch("grp-sh-b-1", AssignmentEpoch(2, 1795357031740)),
        f"0014000a{GROUP}",
        "000000000002010008000001a2039e3d3c",
    ),
    "streams target": (
        STREAMS_RECORDS.target("grp-sh-b-1", "m", ByRole({"0": (1,), "1": (0,)}, {"1": (1, 2)})),
        f"0015000a{GROUP}00016d",
        "00000302300200000001000231020000000000020231030000000100000002000100",
    ),
    "streams current, unrevoked": (
        STREAMS_RECORDS.current(
            "grp-sh-b-1",
            "m",
            StreamsAssignment(
                3,
                3,
                MemberState.UNREVOKED,
                ByRole({"0": {1: 3}, "1": {1: 3}}),
                ByRole({"0": {3: 3}}, {"1": {0: 0}}),
            ),
        ),
        f"0016000a{GROUP}00016d",
        "000000000003000000030203023002000000010100050200000003023102000000010100050200000003010102"
        "0230020000000301000502000000030202310200000000000100",
    ),
    "streams topology": (
        STREAMS_RECORDS.other(
            "grp-sh-b-1",
            Topology(
                0,
                (
                    Subtopology(
                        "0",
                        ("t-24839-956678226-5",),
                        repartition_sink_topics=("t-24839-956678226-5-words",),
                    ),
                    Subtopology(
                        "1",
                        ("u-24839-956679367-6",),
                        (),
                        (
                            InternalTopic(
                                "t-24839-956678226-5-counts",
                                0,
                                0,
                                (Topology.TopicConfig("cleanup.policy", "compact"),),
                            ),
                        ),
                        (),
                        (InternalTopic("t-24839-956678226-5-words", 2, 0),),
                        (CopartitionGroup((0,), (), (0,)),),
                    ),
                ),
            ),
        ),
        f"0017000a{GROUP}",
        "0000000000000302300214742d32343833392d3935363637383232362d350101021a742d32343833392d393536"
        "3637383232362d352d776f72647301010002310214752d32343833392d3935363637393336372d3601021b742d"
        "32343833392d3935363637383232362d352d636f756e7473000000000000020f636c65616e75702e706f6c6963"
        "7908636f6d70616374000001021a742d32343833392d3935363637383232362d352d776f726473000000020000"
        "01000202000001020000000000",
    ),
    "share member": (
        SHARE_RECORDS.member(
            "grp-sh-b-1", "m", ShareMember(None, "raw", "/127.0.0.1", ("grp-t1", "nope"))
        ),
        f"000a000a{GROUP}00016d",
        "000000047261770b2f3132372e302e302e3103076772702d7431056e6f706500",
    ),
    "share group epoch": (
        SHARE_RECORDS.group("grp-sh-b-1", GroupEpoch(2, 0x229533BB79EF830A)),
        f"000b000a{GROUP}",
        "000000000002229533bb79ef830a00",
    ),
    "share target epoch": (
        SHARE_RECORDS.target_epoch("grp-sh-b-1", AssignmentEpoch(2, 0x1A1FB02F3B3)),
        f"000c000a{GROUP}",
        "000000000002010008000001a1fb02f3b3",
    ),
    "share target": (
        SHARE_RECORDS.target("grp-sh-b-1", "m", {TOPIC_ID: (0, 2)}),
        f"000d000a{GROUP}00016d",
        f"000002{ID_HEX}0300000000000000020000",
    ),
    "empty share target": (
        SHARE_RECORDS.target("grp-sh-b-1", "m", {}),
        f"000d000a{GROUP}00016d",
        "00000100",
    ),
    "share current": (
        SHARE_RECORDS.current(
            "grp-sh-b-1", "m", CurrentAssignment(4, 3, assigned={TOPIC_ID: (0,)})
        ),
        f"000e000a{GROUP}00016d",
        f"000000000004000000030002{ID_HEX}02000000000000",
    ),
    "share state partitions, initializing": (
        SHARE_RECORDS.other(
            "grp-sh-b-1", StatePartitions({TOPIC_ID: SharedTopic("grp-t1", (0, 1, 2))})
        ),
        f"000f000a{GROUP}",
        f"000002{ID_HEX}076772702d74310400000000000000010000000200010100",
    ),
    "share state partitions, initialized": (
        SHARE_RECORDS.other(
            "grp-sh-b-1", StatePartitions({}, {TOPIC_ID: SharedTopic("grp-t1", (0, 1, 2))})
        ),
        f"000f000a{GROUP}",
        f"00000102{ID_HEX}076772702d743104000000000000000100000002000100",
    ),
    "share member tombstone": (
        SHARE_RECORDS.member("grp-sh-b-1", "m", None),
        f"000a000a{GROUP}00016d",
        None,
    ),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_bytes_are_those_of_apache_kafka(name):
    record, key, value = CAPTURED[name]
    expected = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode(record) == expected
    assert decode(*expected) == record


def test_a_commit_with_its_own_retention_is_written_as_version_1():
    record = OffsetCommit("g", "t", 3, CommittedOffset(7, -1, "m", 1000, 5000))
    key, value = encode(record)
    assert value == bytes.fromhex("0001000000000000000700016d00000000000003e80000000000001388")
    assert decode(key, value) == record


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000000000000000000700016d00000000000003e8", CommittedOffset(7, -1, "m", 1000)),
        ("0002000000000000000700016d00000000000003e8", CommittedOffset(7, -1, "m", 1000)),
        ("000300000000000000070000000400016d00000000000003e8", CommittedOffset(7, 4, "m", 1000)),
        ("0004000000000000000700000004026d00000000000003e800", CommittedOffset(7, 4, "m", 1000)),
    ],
)
def test_older_offset_commits_are_read(value, expected):
    for record_type in ("0000", "0001"):
        key = bytes.fromhex(record_type + "00016700017400000003")
        assert decode(key, bytes.fromhex(value)) == OffsetCommit("g", "t", 3, expected)


@pytest.mark.parametrize(
    ("value", "member"),
    [
        (
            "00000001630000000100017200016d0000000100016d0001690001680000138800000001610000000162",
            GenerationMember("m", None, "i", "h", -1, 5000, b"a", b"b"),
        ),
        (
            "00010001630000000100017200016d0000000100016d0001690001680000ea600000138800000001610000000162",
            GenerationMember("m", None, "i", "h", 60000, 5000, b"a", b"b"),
        ),
        (
            "00040263000000010272026dffffffffffffffff02026d0273026902680000ea6000001388026102620000",
            GenerationMember("m", "s", "i", "h", 60000, 5000, b"a", b"b"),
        ),
    ],
)
def test_older_and_newer_group_metadata_is_read(value, member):
    record = decode(bytes.fromhex("0002000167"), bytes.fromhex(value))
    assert record == GroupMetadata("g", Generation("c", 1, "r", "m", -1, (member,)))


def test_a_member_without_a_rebalance_timeout_has_as_much_time_as_its_session_lasts():
    recorded = GenerationMember("m", None, "i", "h", -1, 5000, b"a", b"b")
    assert Member.recorded(recorded, "r").rebalance_timeout_ms == 5000


def test_other_record_types_are_left_alone():
    assert decode(bytes.fromhex("0004000167"), None) is None  # of consumer groups before 4.0
    assert decode(bytes.fromhex("0012000167"), b"\0\0\0") is None  # of streams groups before 4.2


@pytest.mark.parametrize("cut", range(1, 20))
def test_half_a_record_is_no_record(cut):
    key, value = encode(CAPTURED["commit with topic id"][0])
    with pytest.raises(ValueError, match="not a group coordinator record"):
        decode(key, value[:-cut])


@given(
    st.builds(
        OffsetCommit,
        st.text(max_size=20),
        st.text(max_size=200),
        st.integers(0, 2**31 - 1),
        st.none()
        | st.builds(
            CommittedOffset,
            st.integers(-(2**63), 2**63 - 1),
            st.integers(-1, 2**31 - 1),
            st.text(max_size=300),
            st.integers(0, 2**62),
            st.just(-1),
            st.none() | st.uuids(),
        ),
    )
)
def test_what_was_written_is_read_back(record):
    assert decode(*encode(record)) == record
