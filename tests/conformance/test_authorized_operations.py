"""Authorized operations (KIP-430) without an authorizer: all that a resource supports, to those who
ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.consumers import ConsumerMember
from tests.conformance.world import Topic, World, outcome
from tests.support import unique

NOT_ASKED = -(2**31)
TOPIC = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
GROUP = 0b1101_0100_1000
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
CLUSTER = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""
UNKNOWN_TOPIC, NO_SUCH_GROUP = "UNKNOWN_TOPIC_OR_PARTITION", "GROUP_ID_NOT_FOUND"


def metadata(
    world: World, version: int, topics: Sequence[str] | None, *, asks: bool = True, **more: bool
) -> Any:
    named = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
    return world.connection.ask(
        3,
        version,
        topics=named,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=asks,
        **{"include_cluster_authorized_operations": False, **more},
    )


@pytest.mark.parametrize("version", range(8, 14))
def test_topics_in_metadata(world: World, topic: Topic, version: int) -> None:
    def told(*names: str, asks: bool = True) -> dict[str, tuple[str, int]]:
        return {
            one.name: (outcome(one.error_code), one.topic_authorized_operations)
            for one in metadata(world, version, names or None, asks=asks).topics
        }

    assert told(topic.name) == {topic.name: ("OK", TOPIC)}
    assert told(topic.name, asks=False) == {topic.name: ("OK", NOT_ASKED)}
    assert told()[topic.name] == ("OK", TOPIC)
    assert told(asks=False)[topic.name] == ("OK", NOT_ASKED)
    assert told("nope", "in valid") == {
        "nope": (UNKNOWN_TOPIC, TOPIC),
        "in valid": ("INVALID_TOPIC_EXCEPTION", TOPIC),
    }


@pytest.mark.parametrize("version", [8, 9, 10])
def test_the_cluster_in_metadata(world: World, version: int) -> None:
    for asks, expected in ((True, CLUSTER), (False, NOT_ASKED)):
        answer = metadata(
            world, version, [], asks=False, include_cluster_authorized_operations=asks
        )
        assert answer.cluster_authorized_operations == expected


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(world: World, version: int) -> None:
    for asks, expected in ((True, CLUSTER), (False, NOT_ASKED)):
        answer = world.connection.ask(
            60,
            version,
            include_cluster_authorized_operations=asks,
            endpoint_type=1,
            include_fenced_brokers=False,
        )
        assert answer.cluster_authorized_operations == expected


@pytest.mark.parametrize("version", range(3, 7))
def test_classic_groups(world: World, version: int) -> None:
    group = ClassicGroup(world)
    group.join(subscription("t"))

    def told(*, asks: bool) -> list[int]:
        answer = world.ask(
            15, version, groups=[group.id, "nope"], include_authorized_operations=asks
        )
        found = {one.group_id: one.authorized_operations for one in answer.groups}
        return [found[group.id], found["nope"]]

    not_found = GROUP if version < 6 else NOT_ASKED
    assert told(asks=True) == [GROUP, not_found]
    assert told(asks=False) == [NOT_ASKED, NOT_ASKED]


def test_consumer_and_share_groups(world: World, topic: Topic) -> None:
    consumers = ConsumerMember(world, unique("consumers")).join(topic)
    share_group = world.group()
    share_group.join(topic)
    for api_key, group_id in ((69, consumers.group_id), (77, share_group.id)):
        for asks, expected in ((True, GROUP), (False, NOT_ASKED)):
            answer = world.ask(
                api_key,
                1,
                group_ids=[group_id, "nope", ""],
                include_authorized_operations=asks,
            )
            told = {
                one.group_id: (outcome(one.error_code), one.authorized_operations)
                for one in answer.groups
            }
            assert told == {
                group_id: ("OK", expected),
                "nope": (NO_SUCH_GROUP, NOT_ASKED),
                "": ("INVALID_GROUP_ID", NOT_ASKED),
            }


def test_pages_of_topics_always_have_them(world: World, topic: Topic) -> None:
    answer = world.ask(
        75,
        0,
        topics=[{"name": name} for name in (topic.name, "nope", "in valid")],
        response_partition_limit=100,
    )
    assert {one.name: one.topic_authorized_operations for one in answer.topics} == {
        topic.name: TOPIC,
        "nope": TOPIC,
        "in valid": TOPIC,
    }
