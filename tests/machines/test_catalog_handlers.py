"""The handlers of topics: what is created, grown, deleted and described, and what is refused in
Kafka's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.handlers.api_03_metadata import MAX_METADATA_VERSIONS
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from tests.handler_client import HOST, PORT, answer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(Config({"num.partitions": "3"}), tmp_path)
    yield broker
    broker.close()


def new(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    configs: Sequence[tuple[str, str | None]] = (),
    assignments: Sequence[tuple[int, tuple[int, ...]]] = (),
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in assignments
        ],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


def create(broker: Broker, *topics: dict[str, Any], validate_only: bool = False) -> list:
    return list(answer(broker, 19, topics=topics, validate_only=validate_only).topics)


def grow(
    broker: Broker, name: str, total: int, assignments: Sequence[tuple[int, ...]] | None = None
) -> tuple:
    given = assignments and [{"broker_ids": brokers} for brokers in assignments]
    topic = {"name": name, "count": total, "assignments": given}
    (result,) = answer(broker, 37, topics=[topic]).results
    return result.error_code, result.error_message


def delete(broker: Broker, *topics: tuple[str | None, UUID | None], version: int = 6) -> list:
    asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    fields = {"topics": asked} if version >= 6 else {"topic_names": [name for name, _ in topics]}
    return list(answer(broker, 20, version, **fields).responses)


def metadata(
    broker: Broker,
    names: Sequence[str] | None = (),
    ids: Sequence[UUID] = (),
    *,
    auto_create: bool = False,
) -> list:
    topics = None
    if names is not None:
        topics = [{"name": name} for name in names]
        topics += [{"name": None, "topic_id": topic_id} for topic_id in ids]
    return list(answer(broker, 3, topics=topics, allow_auto_topic_creation=auto_create).topics)


def test_a_topic_is_created_as_asked_and_its_configs_are_told(broker: Broker) -> None:
    (created,) = create(broker, new("t", 2, configs=[("retention.ms", "5")]))
    assert (created.error_code, created.error_message) == (ErrorCode.NONE, None)
    assert (created.num_partitions, created.replication_factor) == (2, 1)
    assert created.topic_id == broker.catalog.topics["t"].topic_id
    configs = {config.name: (config.value, config.config_source) for config in created.configs}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["cleanup.policy"] == ("delete", 5)
    assert list(configs) == sorted(configs)
    assert "internal.segment.bytes" not in configs


def test_defaults_and_assignments_say_how_many_partitions(broker: Broker) -> None:
    create(
        broker, new("default", -1, -1), new("assigned", -1, -1, assignments=[(1, (1,)), (0, (1,))])
    )
    assert broker.catalog.topics["default"].partitions == 3
    assert broker.catalog.topics["assigned"].partitions == 2


def test_what_is_only_validated_is_not_created(broker: Broker) -> None:
    (checked,) = create(broker, new("t"), validate_only=True)
    assert checked.error_code == ErrorCode.NONE
    assert checked.topic_id is None
    assert not broker.catalog.topics


INVALID_NAME = ErrorCode.INVALID_TOPIC_EXCEPTION
INVALID_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT
# The messages of Apache Kafka 4.3.1 to the same requests.
REFUSED = [
    (new(""), INVALID_NAME, "Topic name is invalid: the empty string is not allowed"),
    (new(".."), INVALID_NAME, "Topic name is invalid: '..' is not allowed"),
    (
        new("x" * 250),
        INVALID_NAME,
        (
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed "
            f"length 249"
        ),
    ),
    (
        new("a b"),
        INVALID_NAME,
        (
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        ),
    ),
    (new("here.it.is"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'here.it.is' already exists."),
    (
        new("here_it.is"),
        INVALID_NAME,
        "Topic 'here_it.is' collides with existing topic: here.it.is",
    ),
    (
        new("__cluster_metadata"),
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
    (
        new("t", 0),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    (
        new("t", 1, 2),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
        "cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (
        new("t", 1, 0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        new("t", 10001),
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request.",
    ),
    (
        new("t", 1, -1, assignments=[(0, (1,))]),
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        new("t", -1, 1, assignments=[(0, (1,))]),
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        new("t", -1, -1, assignments=[(0, (1,)), (2, (1,))]),
        INVALID_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        new("t", -1, -1, assignments=[(0, (1,)), (0, (1,))]),
        INVALID_ASSIGNMENT,
        "Found multiple manual partition assignments for partition 0",
    ),
    (
        new("t", -1, -1, assignments=[(0, (1, 2))]),
        INVALID_ASSIGNMENT,
        "The manual partition assignment includes broker 2, but no such broker is registered.",
    ),
    (
        new("t", -1, -1, assignments=[(0, ())]),
        INVALID_ASSIGNMENT,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        new("t", -1, -1, assignments=[(0, (1, 1))]),
        INVALID_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        new("t", configs=[("nope", "x")]),
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: nope",
    ),
    (
        new("t", configs=[("retention.ms", None)]),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    ),
]


@pytest.mark.parametrize(
    ("topic", "code", "message"), REFUSED, ids=[message[:60] for _, _, message in REFUSED]
)
def test_what_cannot_be_is_refused(
    broker: Broker, topic: dict[str, Any], code: ErrorCode, message: str
) -> None:
    create(broker, new("here.it.is"))
    refused, created = create(broker, topic, new("other"))
    assert (refused.name, refused.error_code, refused.error_message) == (
        topic["name"],
        code,
        message,
    )
    assert (refused.topic_id, refused.num_partitions, refused.configs) == (None, -1, [])
    if code != ErrorCode.POLICY_VIOLATION:  # that one is about the request as a whole
        assert created.error_code == ErrorCode.NONE
    assert topic["name"] not in broker.catalog.topics or topic["name"] == "here.it.is"


def test_a_negative_number_of_partitions_makes_no_room_for_others(broker: Broker) -> None:
    refused = create(broker, new("negative", -(10**9)), new("large", 10**9))
    assert {one.error_code for one in refused} == {ErrorCode.POLICY_VIOLATION}
    assert not broker.catalog.topics


def test_a_topic_named_twice_is_refused_and_the_others_are_created(broker: Broker) -> None:
    results = {
        one.name: (one.error_code, one.error_message)
        for one in create(broker, new("a"), new("a", 2), new("b"))
    }
    assert results == {
        "a": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        "b": (ErrorCode.NONE, None),
    }
    assert list(broker.catalog.topics) == ["b"]


@pytest.mark.parametrize("name", INTERNAL_TOPICS)
def test_an_internal_topic_created_by_a_client_is_as_the_broker_would_make_it(
    broker: Broker, name: str
) -> None:
    (created,) = create(broker, new(name, -1, -1))
    assert created.num_partitions == 50
    topic = broker.catalog.topics[name]
    assert topic.internal
    assert (topic.partitions, topic.configs) == broker.config.internal_topic(name)
    assert broker.config.log_config(topic).internal


def test_partitions_are_added(broker: Broker) -> None:
    create(broker, new("t", 2))
    assert grow(broker, "t", 4) == (ErrorCode.NONE, None)
    assert grow(broker, "t", 6, [(1,), (1,)]) == (ErrorCode.NONE, None)
    assert broker.catalog.topics["t"].partitions == 6
    for total, assignments, code, message in (
        (6, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 6 partition(s)."),
        (
            5,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 6 partition(s); 5 would not be an increase.",
        ),
        (
            8,
            [(1,)],
            INVALID_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            7,
            [(2,)],
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
    ):
        assert grow(broker, "t", total, assignments) == (code, message)
    assert grow(broker, "unknown", 7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert broker.catalog.topics["t"].partitions == 6


def test_topics_are_deleted_by_name_and_by_id_with_their_records(broker: Broker) -> None:
    create(broker, new("a"), new("b"))
    a, b = broker.catalog.topics["a"], broker.catalog.topics["b"]
    for topic in (a, b):
        log = broker.topic_logs.log(topic, 0)
        assert log is not None
        log.append(
            record_batch.build([(None, b"x")], timestamp_ms=broker.clock.wall_ms()),
            broker.clock.wall_ms(),
        )
    results = delete(broker, ("a", None), (None, b.topic_id))
    assert [(one.name, one.topic_id, one.error_code) for one in results] == [
        ("a", a.topic_id, ErrorCode.NONE),
        ("b", b.topic_id, ErrorCode.NONE),
    ]
    assert not broker.catalog.topics
    assert broker.topic_logs.partition(a.topic_id, 0) == ErrorCode.UNKNOWN_TOPIC_ID
    create(broker, new("a"))
    again = broker.topic_logs.log(broker.catalog.topics["a"], 0)
    assert again is not None
    assert again.end_offset == 0


def test_deletions_that_are_unclear_delete_nothing(broker: Broker) -> None:
    create(broker, new("t"), new("__consumer_offsets", -1, -1))
    topic_id = broker.catalog.topics["t"].topic_id

    def messages(*topics: tuple[str | None, UUID | None]) -> list[tuple]:
        return [(one.error_code, one.error_message) for one in delete(broker, *topics)]

    invalid = ErrorCode.INVALID_REQUEST
    assert messages(("t", topic_id)) == [
        (invalid, "You may not specify both topic name and topic id.")
    ]
    assert messages((None, None)) == [(invalid, "Neither topic name nor id were specified.")]
    assert messages(("t", None), ("t", None)) == [(invalid, "Duplicate topic name.")]
    assert messages((None, topic_id), (None, topic_id)) == [(invalid, "Duplicate topic id.")]
    for both_ways in ((("t", None), (None, topic_id)), ((None, topic_id), ("t", None))):
        assert messages(*both_ways) == [
            (invalid, "The provided topic name maps to an ID that was already supplied.")
        ]
    assert messages(("unknown", None)) == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    ]
    assert messages((None, uuid4())) == [
        (ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    ]
    assert messages(("__consumer_offsets", None))[0][0] == invalid
    assert sorted(broker.catalog.topics) == ["__consumer_offsets", "t"]


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [
        (6, ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."),
        (2, ErrorCode.INVALID_REQUEST, None),  # it has no messages
    ],
)
def test_deletion_can_be_switched_off(
    tmp_path: Path, version: int, code: ErrorCode, message: str | None
) -> None:
    broker = Broker(Config({"delete.topic.enable": "false"}), tmp_path)
    create(broker, new("t"))
    (refused,) = delete(broker, ("t", None), version=version)
    assert (refused.error_code, refused.error_message) == (code, message)
    assert "t" in broker.catalog.topics
    broker.close()


def test_metadata_describes_topics_by_name_by_id_and_all(broker: Broker) -> None:
    create(broker, new("a", 2), new("b"))
    a = broker.catalog.topics["a"]
    assert {topic.name for topic in metadata(broker, None)} == {"a", "b"}
    for (found,) in (metadata(broker, ["a"]), metadata(broker, ids=[a.topic_id])):
        assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, "a", a.topic_id)
        assert not found.is_internal
        assert [
            (one.partition_index, one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes)
            for one in found.partitions
        ] == [(0, 1, 0, (1,), (1,)), (1, 1, 0, (1,), (1,))]
        assert found.topic_authorized_operations == -(2**31)
    assert metadata(broker) == []


def test_the_metadata_of_all_topics_follows_changes_in_every_version(broker: Broker) -> None:
    def described(version: int) -> dict[str, int]:
        topics = answer(broker, 3, version, topics=None).topics
        return {topic.name: len(topic.partitions) for topic in topics}

    def in_all_versions(expected: dict[str, int]) -> None:
        for version in (*range(1, 14), *range(13, 0, -1)):
            assert described(version) == expected
            assert len(broker.catalog.descriptions) <= MAX_METADATA_VERSIONS

    in_all_versions({})
    create(broker, new("a", 2), new("b"))
    in_all_versions({"a": 2, "b": 1})
    grow(broker, "a", 300)
    in_all_versions({"a": 300, "b": 1})
    delete(broker, ("b", None))
    create(broker, new("c"))
    in_all_versions({"a": 300, "c": 1})


def test_metadata_tells_where_the_broker_is_and_who_it_is(broker: Broker) -> None:
    response = answer(broker, 3)
    assert [(one.node_id, one.host, one.port, one.rack) for one in response.brokers] == [
        (1, HOST, PORT, None)
    ]
    assert (response.controller_id, response.cluster_id) == (1, broker.catalog.cluster_id)


def test_unknown_topics_are_created_when_both_sides_allow_it(
    broker: Broker, tmp_path: Path
) -> None:
    unknown_id = uuid4()
    unknown, bad, by_id = metadata(broker, ["t", "no good"], [unknown_id])
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (bad.error_code, bad.name) == (INVALID_NAME, "no good")
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        unknown_id,
    )
    assert not broker.catalog.topics

    created, bad, by_id, internal = metadata(
        broker, ["t.1", "no good"], [unknown_id], auto_create=True
    ) + metadata(broker, ["__consumer_offsets"], auto_create=True)
    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 3)
    assert (bad.error_code, by_id.error_code) == (INVALID_NAME, ErrorCode.UNKNOWN_TOPIC_ID)
    assert (internal.is_internal, len(internal.partitions)) == (True, 50)
    (colliding,) = metadata(broker, ["t_1"], auto_create=True)
    assert colliding.error_code == INVALID_NAME

    forbidding = Broker(Config({"auto.create.topics.enable": "false"}), tmp_path / "other")
    assert (
        metadata(forbidding, ["t"], auto_create=True)[0].error_code
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    forbidding.close()


def test_the_cluster_is_described_to_those_who_ask_for_brokers(broker: Broker) -> None:
    def described(endpoint_type: int):
        return answer(
            broker,
            60,
            include_cluster_authorized_operations=True,
            endpoint_type=endpoint_type,
            include_fenced_brokers=True,
        )

    cluster = described(1)
    assert [(one.broker_id, one.host, one.port, one.is_fenced) for one in cluster.brokers] == [
        (1, HOST, PORT, False)
    ]
    assert (cluster.controller_id, cluster.cluster_id) == (1, broker.catalog.cluster_id)
    assert described(2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert described(3).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def pages(broker: Broker, names: Sequence[str], limit: int) -> Iterator[list[tuple]]:
    cursor = None
    while True:
        topics = [{"name": name} for name in names]
        response = answer(broker, 75, topics=topics, response_partition_limit=limit, cursor=cursor)
        yield [
            (one.name, one.error_code, [part.partition_index for part in one.partitions])
            for one in response.topics
        ]
        following = response.next_cursor
        if following is None:
            return
        cursor = {"topic_name": following.topic_name, "partition_index": following.partition_index}


def test_topics_are_described_page_by_page(broker: Broker) -> None:
    create(broker, new("b", 3), new("a", 2), new("c", 1))
    ok = ErrorCode.NONE
    assert list(pages(broker, [], 2)) == [
        [("a", ok, [0, 1])],
        [("b", ok, [0, 1])],
        [("b", ok, [2]), ("c", ok, [0])],
    ]
    assert list(pages(broker, [], 2000)) == [
        [("a", ok, [0, 1]), ("b", ok, [0, 1, 2]), ("c", ok, [0])]
    ]
    assert list(pages(broker, ["c", "nope", "no good"], 5)) == [
        [
            ("c", ok, [0]),
            ("no good", INVALID_NAME, []),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ]
    ]
    assert list(pages(broker, ["a"], 0)) == [[("a", ok, [0])], [("a", ok, [1])]]


def test_log_directories_tell_sizes_and_room(broker: Broker, tmp_path: Path) -> None:
    create(broker, new("t", 2), new("empty"))
    log = broker.topic_logs.log(broker.catalog.topics["t"], 1)
    assert log is not None
    data = record_batch.build([(None, b"x")], timestamp_ms=broker.clock.wall_ms())
    log.append(data, broker.clock.wall_ms())

    def sizes(topics: list | None) -> dict[str, dict[int, int]]:
        (result,) = answer(broker, 35, topics=topics).results
        assert result.log_dir == str(tmp_path)
        assert result.total_bytes >= result.usable_bytes > 0
        return {
            topic.name: {one.partition_index: one.partition_size for one in topic.partitions}
            for topic in result.topics
        }

    assert sizes(None) == {"t": {0: 0, 1: len(data)}, "empty": {0: 0}}
    some = {"topic": "t", "partitions": (1, 7)}
    assert sizes([some, {"topic": "unknown", "partitions": (0,)}]) == {"t": {1: len(data)}}
