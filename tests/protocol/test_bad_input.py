"""Bytes that no client should send: the broker answers as Kafka does, and serves others."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from uuid import UUID

import pytest

from headrace.protocol.primitives import unsigned_varint
from tests.clients.confluent import consumer, create_topic, produce, take
from tests.encoding import string
from tests.protocol.shapes import NULL, Shape
from tests.support import unique, wait_until
from tests.wire_client import (
    Connection,
    batch,
    connection,
    frame,
    request_header,
    with_byte_changed,
)

DELETE_GROUPS = 42

UNKNOWN_SERVER_ERROR, INVALID_REQUEST, SHARE_SESSION_NOT_FOUND = -1, 42, 122
CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, INVALID_RECORD = 2, 3, 35, 87
NOT_LEADER = 6
RNG = random.Random(20)


@pytest.fixture(autouse=True)
def bystander(bootstrap_servers: str) -> Iterator[Connection]:
    """Another client, connected all the while, that is answered before and after."""
    with connection(bootstrap_servers) as other:
        before = other.api_versions()
        yield other
        assert other.api_versions() == before


CLOSED = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100f8010000f40303") + RNG.randbytes(240),
    "a frame over socket.request.max.bytes": struct.pack(">i", 100 * 1024 * 1024 + 1),
    "a negative size": struct.pack(">i", -5) + b"hello",
    "the lowest size": struct.pack(">i", -(1 << 31)),
    "a header cut short": frame(b"\x00\x12\x00"),
    "a client id longer than the frame": frame(struct.pack(">hhih", 3, 1, 1, 30_000) + b"abc"),
    "an unknown api key": frame(request_header(999, 0, 1)),
    "a negative api key": frame(request_header(-1, 0, 1)),
    "a version that is not served": frame(request_header(3, 99, 1) + struct.pack(">i", 0)),
    "a negative version": frame(request_header(3, -1, 1) + struct.pack(">i", 0)),
    "a body cut short": frame(request_header(3, 1, 1) + struct.pack(">i", 5) + b"\x00"),
    "an array longer than the frame": frame(
        request_header(3, 1, 1) + struct.pack(">i", 2_000_000_000)
    ),
    "a string that is no text": frame(request_header(10, 0, 1) + struct.pack(">h", 200) + b"abc"),
    "a body of noise": frame(request_header(0, 9, 1) + b"\x00" + RNG.randbytes(300)),
}


@pytest.mark.parametrize("garbage", CLOSED.values(), ids=CLOSED.keys())
def test_the_connection_is_closed(bootstrap_servers: str, garbage: bytes) -> None:
    with connection(bootstrap_servers) as client:
        client.send(garbage)
        assert client.receive() is None


def null_body(api_key: int, version: int, path: str) -> bytes:
    """Return the body of a request whose array at `path` is null."""
    (body,) = (
        case.body
        for case in Shape(api_key, version, UUID(int=2**127)).cases()
        if (case.path, case.variant) == (path, NULL)
    )
    return body


NULL_ARRAYS = {
    "Produce, topics": (0, 9, "topic_data", None),
    "Fetch, topics, version 6": (1, 6, "topics", None),
    "Fetch, topics, version 12": (1, 12, "topics", INVALID_REQUEST),
    "Fetch, topics, version 13": (1, 13, "topics", INVALID_REQUEST),
    "ListOffsets, topics": (2, 7, "topics", None),
    "OffsetCommit, topics": (8, 8, "topics", None),
    "FindCoordinator, keys": (10, 4, "coordinator_keys", None),
    "JoinGroup, protocols": (11, 5, "protocols", INVALID_REQUEST),
    "LeaveGroup, members": (13, 4, "members", INVALID_REQUEST),
    "ListGroups, states": (16, 4, "states_filter", INVALID_REQUEST),
    "CreateTopics, topics": (19, 5, "topics", None),
    "DeleteGroups, groups": (42, 2, "groups_names", None),
    "OffsetDelete, topics": (47, 0, "topics", INVALID_REQUEST),
    "ShareFetch, topics": (78, 1, "topics", INVALID_REQUEST),
}
"""API key, version and array, and the error code of headrace, None if it closes the connection."""


@pytest.mark.parametrize(
    ("api_key", "version", "path", "code"), NULL_ARRAYS.values(), ids=NULL_ARRAYS.keys()
)
def test_a_null_array_is_refused(
    bootstrap_servers: str, target: str, api_key: int, version: int, path: str, code: int | None
) -> None:
    """Kafka closes the connection, see "a null array where the schema has none" in
    docs/differences.md.
    """
    with connection(bootstrap_servers) as client:
        sent = client.send_body(api_key, version, null_body(api_key, version, path))
        if code is None or target == "kafka":
            assert client.receive() is None
        else:
            assert client.receive_message(sent).error_code == code


NULLS_WITH_A_MEANING = {
    "Metadata, topics": (3, 9, "topics"),
    "OffsetFetch, topics": (9, 7, "topics"),
    "DescribeConfigs, keys": (32, 4, "resources.configuration_keys"),
    "DescribeLogDirs, topics": (35, 4, "topics"),
    "DescribeShareGroupOffsets, topics": (90, 1, "groups.topics"),
}


@pytest.mark.parametrize(
    ("api_key", "version", "path"), NULLS_WITH_A_MEANING.values(), ids=NULLS_WITH_A_MEANING.keys()
)
def test_a_null_array_with_a_meaning_is_served(
    bootstrap_servers: str, api_key: int, version: int, path: str
) -> None:
    with connection(bootstrap_servers) as client:
        sent = client.send_body(api_key, version, null_body(api_key, version, path))
        assert client.receive_message(sent)


def wanted(*indexes: int) -> dict[str, object]:
    return {
        "partitions": [
            {"partition_index": i, "current_leader_epoch": -1, "timestamp": -2} for i in indexes
        ]
    }


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ([wanted(0, 0, 1)], {0: INVALID_REQUEST, 1: 0}),
        ([wanted(0, 1), wanted(1, 2)], {0: 0, 1: INVALID_REQUEST, 2: 0}),
        ([wanted(0), wanted(1)], {0: 0, 1: 0}),
        ([wanted(2, 1, 0)], {0: 0, 1: 0, 2: 0}),
    ],
)
def test_list_offsets_refuses_partitions_that_it_repeats(
    bootstrap_servers: str, topic_name: str, asked: list[dict[str, object]], codes: dict[int, int]
) -> None:
    """Their answer comes once."""
    with connection(bootstrap_servers) as client:
        client.create_topic(topic_name, 3)
        everything = [wanted(0, 1, 2)]
        wait_until(lambda: not any(listed(client, topic_name, everything).values()), 20, "leaders")
        assert listed(client, topic_name, asked) == codes


def listed(client: Connection, topic: str, asked: list[dict[str, object]]) -> dict[int, int]:
    """Return the error code of each partition; each is answered once."""
    topics = [{"name": topic, **one} for one in asked]
    response = client.ask(2, 7, replica_id=-1, topics=topics)
    codes = [
        (one.partition_index, int(one.error_code))
        for topic_response in response.topics
        for one in topic_response.partitions
    ]
    assert len(dict(codes)) == len(codes)
    return dict(codes)


@pytest.mark.parametrize("api_key", [78, 79], ids=["fetch", "acknowledge"])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": None}, INVALID_REQUEST),
        ({"member_id": "m" * 37}, INVALID_REQUEST),
        ({"member_id": "m" * 36}, SHARE_SESSION_NOT_FOUND),
        ({"member_id": None}, INVALID_REQUEST),
        ({"member_id": ""}, INVALID_REQUEST),
    ],
    ids=["no group", "long member id", "longest member id", "no member id", "empty member id"],
)
def test_a_share_request_of_nobody_is_refused(
    bootstrap_servers: str, api_key: int, fields: dict[str, str | None], code: int
) -> None:
    request = {"group_id": "g", "member_id": "m", "share_session_epoch": 7, "topics": []} | fields
    if api_key == 78:
        request |= dict.fromkeys(("max_wait", "min_bytes", "max_bytes", "max_records"), 1)
        request |= {"batch_size": 1, "forgotten_topics_data": []}
    with connection(bootstrap_servers) as client:
        assert client.ask(api_key, 1, **request).error_code == code


@pytest.mark.parametrize("seed", range(20))
def test_noise_never_harms_others(bootstrap_servers: str, seed: int) -> None:
    """Frames of noise behind a right header of a random API: answered or closed, and the broker
    lives on.
    """
    rng = random.Random(seed)
    with connection(bootstrap_servers) as other:
        versions = other.api_versions()
    for api_key in rng.sample(sorted(versions), 12):
        low, high = versions[api_key]
        with connection(bootstrap_servers) as client:
            client.socket.settimeout(0.05)
            header = request_header(api_key, rng.randint(low, high), 1)
            client.send(frame(header + b"\x00" + rng.randbytes(rng.randint(0, 60))))
            try:
                client.receive()
            except TimeoutError:
                pass  # it waits for something that will not come: it is gone in a moment


def test_api_versions_of_an_unknown_version_is_answered(bootstrap_servers: str) -> None:
    """KIP-511: in version 0, with the error and the versions that are served, and the connection
    stays.
    """
    with connection(bootstrap_servers) as client:
        body = client.call(18, 99, b"\x00\x04java\x064.9.9\x00")
        code, count = struct.unpack_from(">hi", body)
        served = {
            key: (low, high)
            for key, low, high in struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])
        }
        assert code == UNSUPPORTED_VERSION
        assert served[18] == (0, 5)
        assert client.api_versions()[18] == (0, 5)


@pytest.mark.parametrize("version", [1, 2])
def test_an_array_may_have_a_million_elements(bootstrap_servers: str, version: int) -> None:
    """More are refused by their number alone."""
    for count, is_answered in ((1_000_000, True), (1_000_001, False)):
        with connection(bootstrap_servers) as client:
            size = b"\0" + unsigned_varint(count + 1) if version == 2 else struct.pack(">i", count)
            name = b"\1" if version == 2 else b"\0\0"  # empty, and the same for all
            client.send_body(DELETE_GROUPS, version, size + name * count + b"\0" * (version - 1))
            assert (client.receive() is not None) is is_answered


@pytest.mark.parametrize(("count", "is_answered"), [(10_000, True), (10_001, False)])
def test_a_header_may_have_ten_thousand_tagged_fields(
    bootstrap_servers: str, count: int, is_answered: bool
) -> None:
    tags = b"".join(unsigned_varint(tag) + b"\0" for tag in range(100, 100 + count))
    with connection(bootstrap_servers) as client:
        client.send_body(DELETE_GROUPS, 2, unsigned_varint(count) + tags + b"\1\0")
        assert (client.receive() is not None) is is_answered


def test_requests_in_one_write_are_answered_in_order(bootstrap_servers: str) -> None:
    with connection(bootstrap_servers) as client:
        client.send(b"".join(frame(request_header(18, 0, i)) for i in range(50)))
        for i in range(50):
            response = client.receive()
            assert response is not None
            assert struct.unpack(">i", response[:4])[0] == i


def test_a_request_byte_by_byte_is_answered(bootstrap_servers: str) -> None:
    with connection(bootstrap_servers) as client:
        for byte in frame(request_header(18, 0, 5)):
            client.send(bytes([byte]))
        response = client.receive()
        assert response is not None
        assert struct.unpack(">i", response[:4])[0] == 5


def test_a_half_sent_request_holds_up_nobody(
    bootstrap_servers: str, topic_name: str, bystander: Connection
) -> None:
    create_topic(bootstrap_servers, topic_name)
    whole = frame(request_header(18, 0, 5))
    with connection(bootstrap_servers) as slow, connection(bootstrap_servers) as gone:
        slow.send(whole[:9])
        gone.send(whole[:9])
        assert bystander.api_versions()
        assert bystander.produce(topic_name, batch([b"a"])) == (0, 0)
        gone.reset()
        slow.send(whole[9:])
        assert slow.receive() is not None


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_vanishes_mid_poll_holds_up_nobody(
    bootstrap_servers: str, topic_name: str, bystander: Connection, how: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"before"])
    waiting = [Connection(bootstrap_servers) for _ in range(20)]
    for client in waiting:
        client.send_fetch(topic_name, 1, max_wait_ms=20_000)
    with connection(bootstrap_servers) as patient:
        patient.send_fetch(topic_name, 1, max_wait_ms=20_000)
        for client in waiting:
            getattr(client, how)()
        assert bystander.produce(topic_name, batch([b"a"])) == (0, 1)
        response = patient.receive()
        assert response is not None
        assert response.endswith(batch([b"a"])[-8:])


GOOD = batch([b"first", b"second"])
CORRUPT = {
    "a changed byte of a record": with_byte_changed(GOOD, len(GOOD) - 3),
    "a wrong checksum": with_byte_changed(GOOD, 17),
    "a changed timestamp": with_byte_changed(GOOD, 30),
    "cut short": GOOD[:-4],
    "a batch length beyond the end": GOOD[:8] + struct.pack(">i", len(GOOD) + 100) + GOOD[12:],
    "a batch length too small": GOOD[:8] + struct.pack(">i", 5) + GOOD[12:],
    "noise": random.Random(5).randbytes(200),
}


@pytest.mark.parametrize("records", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_batch_is_refused_and_the_next_is_stored(
    bootstrap_servers: str, topic_name: str, records: bytes
) -> None:
    create_topic(bootstrap_servers, topic_name)
    with connection(bootstrap_servers) as client:
        refused = wait_until(
            lambda: (told := client.produce(topic_name, records))[0] != NOT_LEADER and told,
            20,
            "the new partition to have its leader",
        )
        assert refused in {(CORRUPT_MESSAGE, -1), (INVALID_RECORD, -1)}
        assert client.produce(topic_name, GOOD) == (0, 0)
    produce(bootstrap_servers, topic_name, [b"third"])
    with consumer(bootstrap_servers, unique("group"), check_crcs=True) as source:
        source.subscribe([topic_name])
        assert [(m.offset(), m.value()) for m in take(source, 3)] == [
            (0, b"first"),
            (1, b"second"),
            (2, b"third"),
        ]


def test_a_partition_that_is_not_there(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    with connection(bootstrap_servers) as client:
        assert client.produce(topic_name, GOOD, partition=7) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert client.produce(topic_name, GOOD) == (0, 0)


def test_find_coordinator_of_an_empty_group_is_answered(bootstrap_servers: str) -> None:
    with connection(bootstrap_servers) as client:
        assert len(client.call(10, 0, string(""))) > 2


LONGEST = "x" * 32_767
LONG = LONGEST + "x"
PARTITION = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}
COMMIT = {
    "group_id": "g",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "topics": [{"name": "t", "partitions": [PARTITION]}],
}
JOIN = {
    "group_id": "g",
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
    "reason": None,
}
HEARTBEAT = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 10_000,
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": [],
}
SHARE_HEARTBEAT = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rack_id": None,
    "subscribed_topic_names": ["t"],
}
PRODUCER = {
    "transactional_id": "t",
    "transaction_timeout": 60_000,
    "producer_id": -1,
    "producer_epoch": -1,
}
TOO_LONG = [
    *((8, 8, COMMIT | {field: LONG}) for field in ("group_id", "member_id", "group_instance_id")),
    (8, 8, COMMIT | {"topics": [{"name": LONG, "partitions": [PARTITION]}]}),
    (
        8,
        8,
        COMMIT
        | {"topics": [{"name": "t", "partitions": [PARTITION | {"committed_metadata": LONG}]}]},
    ),
    *(
        (11, 9, JOIN | {field: LONG})
        for field in ("group_id", "member_id", "group_instance_id", "protocol_type", "reason")
    ),
    (11, 9, JOIN | {"protocols": [{"name": LONG, "metadata": b""}]}),
    *(
        (68, 1, HEARTBEAT | {field: LONG})
        for field in ("group_id", "member_id", "instance_id", "rack_id", "subscribed_topic_regex")
    ),
    (68, 1, HEARTBEAT | {"subscribed_topic_names": [LONG]}),
    *((76, 1, SHARE_HEARTBEAT | {field: LONG}) for field in ("group_id", "member_id", "rack_id")),
    (76, 1, SHARE_HEARTBEAT | {"subscribed_topic_names": [LONG]}),
    (22, 4, PRODUCER | {"transactional_id": LONG}),
]


@pytest.mark.parametrize(("api_key", "version", "fields"), TOO_LONG)
def test_a_string_longer_than_kafka_reads_closes_the_connection(
    bootstrap_servers: str, api_key: int, version: int, fields: dict
) -> None:
    """Compact strings could be longer than 32,767 bytes; coordinator records cannot hold them."""
    with connection(bootstrap_servers) as client:
        client.send_message(api_key, version, **fields)
        assert client.receive() is None


@pytest.mark.parametrize(
    ("version", "client_id", "instance_id"),
    [(3, LONGEST, None), (9, LONGEST, None), (9, "raw", LONGEST)],
    ids=["client id, version 3", "client id, version 9", "instance id"],
)
def test_a_member_id_that_would_be_too_long_harms_its_sender_only(
    bootstrap_servers: str,
    topic_name: str,
    target: str,
    version: int,
    client_id: str,
    instance_id: str | None,
) -> None:
    """The leader of a group is told of every member's id, in versions that allow 32,767 bytes.

    In Kafka the group may lose its leader (docs/differences.md).
    """
    only_newer = ("reason", "group_instance_id")
    newer = JOIN | {"group_id": topic_name, "group_instance_id": instance_id}
    older = {key: value for key, value in newer.items() if key not in only_newer}
    with connection(bootstrap_servers) as leader:
        joined = leader.ask(11, 3, **older)
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        with connection(bootstrap_servers, client_id=client_id) as client:
            refused = client.ask(11, version, **(older if version == 3 else newer))
            assert (refused.error_code, refused.member_id) == (UNKNOWN_SERVER_ERROR, "")
        if target == "kafka":
            return
        again = leader.ask(11, 3, **older | {"member_id": joined.member_id})
        assert again.error_code == 0
        assert [member.member_id for member in again.members] == [joined.member_id]


def test_a_member_id_of_a_share_group_has_at_most_36_characters(
    bootstrap_servers: str, topic_name: str
) -> None:
    heartbeat = SHARE_HEARTBEAT | {"group_id": topic_name}
    with connection(bootstrap_servers) as client:
        refused = client.ask(76, 1, **heartbeat | {"member_id": LONGEST[:37]})
        assert (refused.error_code, refused.error_message) == (INVALID_REQUEST, None)
        assert client.ask(76, 1, **heartbeat | {"member_id": LONGEST[:36]}).error_code == 0


def test_the_longest_strings_are_served(bootstrap_servers: str, topic_name: str) -> None:
    create_topic(bootstrap_servers, topic_name)
    topics = [{"name": topic_name, "partitions": [PARTITION]}]
    with connection(bootstrap_servers) as client:
        for key_type in range(2):  # Apache Kafka creates its internal topics
            client.ask(10, 6, key_type=key_type, coordinator_keys=["any"])
        commit = COMMIT | {"group_id": LONGEST, "topics": topics}
        producer = PRODUCER | {"transactional_id": LONGEST}

        def is_committed() -> bool:
            (topic,) = client.ask(8, 8, **commit).topics
            return int(topic.partitions[0].error_code) == 0

        wait_until(is_committed, 30, "the commit")
        wait_until(lambda: client.ask(22, 4, **producer).error_code == 0, 30, "a producer id")
        # Apache Kafka cannot describe all groups while it has this one.
        (deleted,) = client.ask(42, 2, groups_names=[LONGEST]).results
        assert deleted.error_code == 0
        for key in ("instance_id", "rack_id"):
            heartbeat = HEARTBEAT | {"group_id": topic_name + key, key: LONGEST}
            assert client.ask(68, 1, **heartbeat).error_code == 0
