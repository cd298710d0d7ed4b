"""Requests about a cluster that one node answers: reassignments, directories, elections, the
quorum, features.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from headrace.protocol.errors import ErrorCode
from tests.conformance.world import OK, PATIENCE_S, Topic, World, outcome
from tests.support import unique, wait_until

UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
ASSIGNMENT = "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes "


# --- ListPartitionReassignments, AlterPartitionReassignments ---


@pytest.mark.parametrize("named", [None, [0, 9], []])
def test_no_reassignment_is_in_progress(
    world: World, topic: Topic, named: Sequence[int] | None
) -> None:
    topics = None
    if named is not None:
        topics = [{"name": name, "partition_indexes": named} for name in (topic.name, "nope")]
    listed = world.ask(46, 0, timeout=10_000, topics=topics)
    assert outcome(listed.error_code, listed.error_message) == OK
    assert listed.topics == ()


def reassign(
    world: World,
    topic: str,
    *replicas: Sequence[int] | None,
    version: int = 1,
    first: int = 0,
    allow_factor_change: bool = True,
) -> list[str]:
    """Send AlterPartitionReassignments for partitions of a topic; return their errors."""
    response = world.ask(
        45,
        version,
        timeout=10_000,
        allow_replication_factor_change=allow_factor_change,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "replicas": one}
                    for index, one in enumerate(replicas, first)
                ],
            }
        ],
    )
    assert outcome(response.error_code, response.error_message) == OK
    (answered,) = response.responses
    assert answered.name == topic
    return [outcome(one.error_code, one.error_message) for one in answered.partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_partitions_are_where_they_can_be(world: World, topic: Topic, version: int) -> None:
    assert reassign(world, topic.name, [1], None, [2], version=version) == [
        OK,
        "NO_REASSIGNMENT_IN_PROGRESS",
        f"{ASSIGNMENT}broker 2, but no such broker is registered.",
    ]
    assert reassign(world, topic.name, [], [1, 1], [1, -1], version=version) == [
        f"{ASSIGNMENT}an empty replica list.",
        f"{ASSIGNMENT}the broker 1 more than once.",
        f"{ASSIGNMENT}broker -1, but no such broker is registered.",
    ]
    assert reassign(world, topic.name, [1], None, first=3, version=version) == [
        f"{UNKNOWN}: Unable to find partition {topic.name}:3.",
        f"{UNKNOWN}: Unable to find partition {topic.name}:4.",
    ]
    assert reassign(world, "nope", [1], version=version) == [
        f"{UNKNOWN}: Unable to find a topic named nope."
    ]


# --- AlterReplicaLogDirs ---


def log_dir(world: World) -> str:
    (found,) = world.ask(35, 4, topics=[]).results
    path: str = found.log_dir
    return path


def move(
    world: World, *moves: tuple[str, str, Sequence[int]], version: int = 2
) -> dict[tuple[str, int], str]:
    """Send AlterReplicaLogDirs; return the errors by topic and partition."""
    dirs = [
        {"path": path, "topics": [{"name": name, "partitions": partitions}]}
        for path, name, partitions in moves
    ]
    return {
        (topic.topic_name, one.partition_index): outcome(one.error_code)
        for topic in world.ask(34, version, dirs=dirs).results
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_stay_in_the_only_directory(world: World, topic: Topic, version: int) -> None:
    here = log_dir(world)
    topic.produce(1)
    assert move(world, (here, topic.name, [0, 9]), version=version) == {
        (topic.name, 0): OK,
        (topic.name, 9): UNKNOWN,
    }
    assert move(world, (here, "nope", [0]), version=version) == {("nope", 0): UNKNOWN}
    assert move(world, ("/nowhere", topic.name, [0]), ("/nowhere", "nope", [0])) == {
        (topic.name, 0): "LOG_DIR_NOT_FOUND",
        ("nope", 0): "LOG_DIR_NOT_FOUND",
    }
    assert move(world, (here, "x" * 240, [0]), version=version) == {
        ("x" * 240, 0): "INVALID_TOPIC_EXCEPTION"
    }
    assert move(world) == {}


# --- ElectLeaders ---


def elect(
    world: World,
    partitions: Mapping[str, Sequence[int]] | None,
    *,
    election_type: int = 0,
    version: int = 2,
) -> Any:
    """Return the response to ElectLeaders."""
    asked = None
    if partitions is not None:
        asked = [{"topic": name, "partitions": some} for name, some in partitions.items()]
    return world.ask(
        43, version, election_type=election_type, topic_partitions=asked, timeout=10_000
    )


def elected(response: Any) -> dict[str, list[str]]:
    """Return the errors by topic."""
    return {
        topic.topic: [
            f"{one.partition_id} {outcome(one.error_code, one.error_message)}"
            for one in topic.partition_result
        ]
        for topic in response.replica_election_results
    }


@pytest.mark.parametrize(("version", "election_type"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_no_election_is_needed(
    world: World, topic: Topic, version: int, election_type: int
) -> None:
    response = elect(
        world, {topic.name: [0, 9], "nope": [0]}, election_type=election_type, version=version
    )
    assert elected(response) == {
        topic.name: [
            "0 ELECTION_NOT_NEEDED: Leader election not needed for topic partition.",
            f"9 {UNKNOWN}: No such partition as {topic.name}-9",
        ],
        "nope": [f"0 {UNKNOWN}: No such topic as nope"],
    }


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_type_of_election(world: World, topic: Topic, version: int) -> None:
    response = elect(world, {topic.name: [0, 9]}, election_type=2, version=version)
    assert outcome(response.error_code) == "INVALID_REQUEST"
    refused = "INVALID_REQUEST: Unknown election type 2"
    assert elected(response) == {topic.name: [f"0 {refused}", f"9 {refused}"]}
    for_all = elect(world, None, election_type=2, version=version)
    assert (outcome(for_all.error_code), elected(for_all)) == ("INVALID_REQUEST", {})


def test_electing_the_leaders_of_all_partitions(world: World, topic: Topic) -> None:
    response = elect(world, None)
    assert outcome(response.error_code) == OK
    results = elected(response)
    assert results[topic.name] == []
    assert not any(results.values())
    assert elected(elect(world, {})) == {}


# --- DescribeQuorum ---

METADATA = "__cluster_metadata"


def quorum(world: World, version: int, **partitions: Sequence[int]) -> Any:
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in some]}
        for name, some in partitions.items()
    ]
    return world.ask(55, version, topics=topics)


@pytest.mark.parametrize("version", range(3))
def test_the_node_is_its_own_quorum(
    world: World, differs: Callable[..., Any], version: int
) -> None:
    response = quorum(world, version, **{METADATA: [0]})
    assert outcome(response.error_code, getattr(response, "error_message", None)) == OK
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index, partition.error_code) == (METADATA, 0, 0)
    assert partition.leader_id == 1
    assert partition.high_watermark >= 0
    (voter,) = partition.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset >= partition.high_watermark
    assert partition.observers == ()
    if version >= 1:
        assert voter.last_fetch_timestamp > 1_700_000_000_000
        assert voter.last_caught_up_timestamp > 1_700_000_000_000
    if version >= 2:
        (node,) = response.nodes
        listeners = [one.name for one in node.listeners]
        assert node.node_id == 1
        where = "DescribeQuorum"
        assert listeners == differs(where, kafka=["CONTROLLER"], headrace=[])


def test_the_metadata_log_grows_with_changes(world: World) -> None:
    def end_offset() -> int:
        (topic,) = quorum(world, 2, **{METADATA: [0]}).topics
        return int(topic.partitions[0].high_watermark)

    before = end_offset()
    world.topic()
    assert end_offset() > before


@pytest.mark.parametrize(
    "partitions", [{"nope": [0]}, {METADATA: [1]}, {METADATA: [0, 1]}, {METADATA: [0], "nope": [2]}]
)
def test_only_the_metadata_log_has_a_quorum(
    world: World, partitions: Mapping[str, Sequence[int]]
) -> None:
    response = quorum(world, 2, **partitions)
    assert outcome(response.error_code, response.error_message) == OK
    assert response.nodes == ()
    assert {
        topic.topic_name: [
            f"{one.partition_index} {outcome(one.error_code, one.error_message)}"
            for one in topic.partitions
        ]
        for topic in response.topics
    } == {
        name: [
            f"{index} {UNKNOWN}: This server does not host this topic-partition." for index in some
        ]
        for name, some in partitions.items()
    }


# --- UpdateFeatures ---

UPGRADE, SAFE = 1, 2
FAILED = (
    "INVALID_UPDATE_VERSION: The update failed for all features since the following feature had an "
    "error: "
)
WITHOUT_TYPE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe "
    "or unsafe downgrade."
)


def update(
    world: World, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> Any:
    """Return the response to UpdateFeatures.

    :param updates: feature, level and upgrade type
    """
    return world.ask(
        57,
        version,
        timeout=10_000,
        feature_updates=[
            {
                "feature": name,
                "max_version_level": level,
                "upgrade_type": upgrade_type,
                "allow_downgrade": upgrade_type != UPGRADE,
            }
            for name, level, upgrade_type in updates
        ],
        validate_only=validate_only,
    )


def updated(response: Any) -> str:
    return outcome(response.error_code, response.error_message)


def finalized(world: World) -> dict[str, int]:
    """Return the finalized levels by feature."""
    response = world.ask(18, 4, client_software_name="test", client_software_version="1")
    return {one.name: one.max_version_level for one in response.finalized_features}


def refused(name: str, level: int, why: str) -> str:
    return f"{FAILED}Invalid update version {level} for feature {name}. {why}"


@pytest.fixture
def levels_as_before(world: World) -> Iterator[None]:
    """Restore the levels that a case changes."""
    before = finalized(world)
    yield
    for name, level in before.items():
        if finalized(world).get(name, 0) != level:
            assert updated(update(world, (name, level, UPGRADE))) == OK


def test_levels_that_cannot_be(world: World) -> None:
    for asked, why in (
        (("group.version", 0, UPGRADE), WITHOUT_TYPE),
        (("group.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("group.version", 2, UPGRADE), "Local controller 1 only supports versions 0-1"),
        (("transaction.version", 3, SAFE), "Local controller 1 only supports versions 0-2"),
        (("group.version", 1, 9), "The controller does not support the given upgrade type."),
        (("nope.version", 1, UPGRADE), "Local controller 1 does not support this feature."),
        (("nope.version", 0, SAFE), "Feature nope.version not found."),
    ):
        for validate_only in (True, False):
            answer = updated(update(world, asked, validate_only=validate_only))
            assert answer == refused(asked[0], asked[1], why)
    both = update(world, ("share.version", 2, UPGRADE), ("nope.version", 1, UPGRADE))
    assert updated(both).startswith(f"{FAILED}Invalid update version 1 for feature nope.version.")


@pytest.mark.parametrize("version", range(3))
def test_levels_that_are_as_asked(world: World, version: int) -> None:
    before = finalized(world)
    response = update(world, ("share.version", 2, UPGRADE), version=version)
    assert response.error_code == 0
    if version < 2:
        assert [(one.feature, one.error_code, one.error_message) for one in response.results] == [
            ("share.version", 0, "NONE")
        ]
    assert finalized(world) == before


@pytest.mark.usefixtures("levels_as_before")
def test_a_downgrade_can_be_tried(world: World) -> None:
    before = finalized(world)
    assert updated(update(world, ("share.version", 0, SAFE), validate_only=True)) == OK
    assert finalized(world) == before


@pytest.mark.usefixtures("levels_as_before")
def test_transactions_of_an_older_version(world: World) -> None:
    assert updated(update(world, ("transaction.version", 1, SAFE))) == OK
    assert finalized(world)["transaction.version"] == 1
    again = updated(update(world, ("transaction.version", 2, SAFE)))
    assert again == refused("transaction.version", 2, "Can't downgrade to a newer version.")


@pytest.mark.usefixtures("levels_as_before")
def test_groups_of_a_disabled_protocol_are_refused(world: World, topic: Topic) -> None:
    beat = {
        "group_id": unique("group"),
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [topic.name],
    }
    by_flag = updated(update(world, ("group.version", 0, SAFE), version=0))
    assert by_flag == refused("group.version", 0, WITHOUT_TYPE)
    assert updated(update(world, ("group.version", 0, SAFE))) == OK
    world.topic()  # then the level has reached all parts of the broker
    assert "group.version" not in finalized(world)
    response = world.ask(68, 1, **beat)
    assert outcome(response.error_code, response.error_message) == "UNSUPPORTED_VERSION"
    assert response.member_id is None
    described = world.ask(69, 1, group_ids=["a", "b"])
    assert [outcome(one.error_code, one.error_message) for one in described.groups] == [
        "UNSUPPORTED_VERSION"
    ] * 2
    assert updated(update(world, ("group.version", 1, UPGRADE))) == OK
    world.topic()
    assert outcome(world.ask(68, 1, **beat).error_code) == OK


@pytest.mark.usefixtures("levels_as_before")
def test_share_groups_and_streams_groups_can_be_disabled(world: World) -> None:
    group_id = unique("group")
    assert updated(update(world, ("share.version", 0, SAFE), ("streams.version", 0, SAFE))) == OK
    share = {"group_id": group_id, "member_id": "m", "member_epoch": 0}
    session = {"group_id": group_id, "member_id": "m", "share_session_epoch": 0, "topics": []}
    wait_until(
        lambda: world.ask(76, 1, **share, subscribed_topic_names=["t"]).error_code == UNSUPPORTED,
        PATIENCE_S,
        "the level to reach all parts of the broker",
    )
    no_limit = {"max_bytes": 1, "max_records": 1, "batch_size": 1}
    fetched = world.ask(78, 1, **session, **no_limit)
    assert (fetched.error_code, fetched.error_message) == (UNSUPPORTED, None)
    acknowledged = world.ask(79, 1, **session)
    assert (acknowledged.error_code, acknowledged.error_message) == (UNSUPPORTED, None)
    for api_key in (77, 89):
        (described,) = world.ask(
            api_key, 1 if api_key == 77 else 0, group_ids=["g"], include_authorized_operations=False
        ).groups
        assert (described.error_code, described.error_message) == (UNSUPPORTED, None)
    (offsets,) = world.ask(90, 1, groups=[{"group_id": "g", "topics": None}]).groups
    assert offsets.error_code == UNSUPPORTED
    message = "The version of API is not supported."
    partitions = [{"partition_index": 0, "start_offset": 0}]
    for refused in (
        world.ask(91, 0, group_id="g", topics=[{"topic_name": "t", "partitions": partitions}]),
        world.ask(92, 0, group_id="g", topics=[{"topic_name": "t"}]),
    ):
        assert (refused.error_code, refused.error_message) == (UNSUPPORTED, message)
        assert refused.responses == ()
    beat = world.connection.ask(
        88,
        0,
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout=1000,
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        client_tags=None,
        task_offsets=None,
        task_end_offsets=None,
    )
    assert (beat.error_code, beat.member_id) == (UNSUPPORTED, "")
    assert beat.active_tasks is beat.standby_tasks is beat.warmup_tasks is None
    assert beat.partitions_by_user_endpoint is None
    topology = {"subtopologies": (), "global_stores": ()}
    stored = world.ask(93, 0, group_id=group_id, member_id="m", topology_description=topology)
    assert (stored.error_code, stored.error_message) == (UNSUPPORTED, None)
    left = world.ask(76, 1, group_id=group_id, member_id="m", member_epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (UNSUPPORTED, None, 0)


@pytest.mark.usefixtures("levels_as_before")
def test_dead_letters_need_a_level_of_their_own(world: World) -> None:
    """At level 1 the configs stay, and dead letters are only archived."""
    queue = world.topic(name=unique("dlq."), errors_deadletterqueue_group_enable="true")
    topic = world.topic(records=2)
    group = world.earliest_group(
        errors_deadletterqueue_topic_name=queue.name, share_record_lock_duration_ms="1000"
    )
    assert updated(update(world, ("share.version", 1, SAFE))) == OK
    world.topic()  # then the level has reached all parts of the broker
    assert group.configure("errors.deadletterqueue.copy.record.enable", "true") == OK
    member = group.join(topic)
    assert member.fetch() == "0-1 c1"
    assert member.ack("0-0 reject") == OK
    assert updated(update(world, ("share.version", 2, UPGRADE))) == OK
    world.topic()
    assert member.ack("1-1 reject") == OK
    wait_until(lambda: queue.end_offset(), PATIENCE_S, "the second letter")
    assert queue.end_offset() == 1


# --- UnregisterController ---


def test_the_only_controller_stays(world: World) -> None:
    answer = world.ask(94, 0, controller_id=1)
    assert outcome(answer.error_code, answer.error_message) == (
        "INVALID_REQUEST: Controller cannot unregister itself while it is active."
    )


def test_another_controller_is_not_there(world: World) -> None:
    request = struct.pack(">bib", 0, 7, 0)  # without tagged fields of header and body
    answer = world.connection.call(94, 0, request)
    message = b"Controller ID 7 is not currently registered."
    _, throttle_ms, code, length = struct.unpack_from(">bihB", answer)
    assert (throttle_ms, ErrorCode(code)) == (0, ErrorCode.CONTROLLER_ID_NOT_REGISTERED)
    assert answer[8:] == message + b"\0"
    assert length == len(message) + 1
