"""A broker that nobody has used yet, with the classic protocol alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.streams import DESCRIBE, HEARTBEAT, heartbeat, subtopology
from tests.conformance.world import OK, World, outcome
from tests.conftest import target_of
from tests.peer import KafkaPeer
from tests.support import COMMON_CONFIGS, HeadraceProcess, unique, wait_until

GROUP, TRANSACTION, SHARE = 0, 1, 2
CONFIGS = {**COMMON_CONFIGS, "group.coordinator.rebalance.protocols": "classic"}


@pytest.fixture(scope="module")
def new_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceProcess | KafkaPeer]:
    make = KafkaPeer if target_of(request.config) == "kafka" else HeadraceProcess
    with make(tmp_path_factory.mktemp("new"), CONFIGS) as server:
        yield server


@pytest.fixture
def new_world(new_server: HeadraceProcess | KafkaPeer, target: str) -> Iterator[World]:
    world = World(new_server.bootstrap_servers, target)
    yield world
    world.close()


def internal_topics(world: World) -> set[str]:
    answer = world.connection.ask(3, 12, topics=None, allow_auto_topic_creation=False)
    return {topic.name for topic in answer.topics}


def test_looking_for_a_coordinator_creates_its_topic(new_world: World) -> None:
    assert internal_topics(new_world) == set()
    (refused,) = new_world.connection.ask(
        10, 6, key_type=SHARE, coordinator_keys=["not a share-partition"]
    ).coordinators
    assert outcome(refused.error_code) == "INVALID_REQUEST"
    assert internal_topics(new_world) == set()
    expected = set()
    for key_type, key, topic in (
        (GROUP, "any", "__consumer_offsets"),
        (TRANSACTION, "any", "__transaction_state"),
        (SHARE, f"any:{'A' * 22}:0", "__share_group_state"),
    ):
        assert new_world.find_coordinator(key, key_type)[0] == OK
        expected.add(topic)
        wait_until(lambda: internal_topics(new_world) == expected, 30, topic)


def test_the_consumer_protocol_is_refused_when_it_is_disabled(new_world: World) -> None:
    beat = new_world.ask(
        68,
        1,
        group_id=unique("g"),
        member_id="m",
        member_epoch=0,
        rebalance_timeout=30_000,
        subscribed_topic_names=["t"],
    )
    assert outcome(beat.error_code, beat.error_message) == "UNSUPPORTED_VERSION"
    groups = new_world.ask(69, 1, group_ids=["g", ""]).groups
    assert [outcome(one.error_code, one.error_message) for one in groups] == [
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_VERSION",
    ]


def test_the_streams_protocol_is_refused_when_it_is_disabled(new_world: World) -> None:
    topology = {"epoch": 0, "subtopologies": [subtopology("0", "t")]}
    beat = new_world.ask(HEARTBEAT, 0, **heartbeat(unique("g"), "m", 0, topology=topology))
    assert outcome(beat.error_code, beat.error_message) == "UNSUPPORTED_VERSION"
    asked = {"group_ids": ["g", ""]}
    groups = new_world.ask(DESCRIBE, 0, **asked).groups
    assert [outcome(one.error_code, one.error_message) for one in groups] == [
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_VERSION",
    ]


def test_classic_and_share_groups_are_served_nevertheless(new_world: World) -> None:
    member = ClassicGroup(new_world).join(subscription("t"))
    assert member.heartbeat() == OK
    group = new_world.earliest_group()
    assert group.join(new_world.topic(records=3)).fetch() == "0-2 c1"
