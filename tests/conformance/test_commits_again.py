"""A consumer that repeats OffsetCommit on one connection with other offsets."""

from __future__ import annotations

import pytest

from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.world import OK, PATIENCE_S, Topic, World
from tests.support import wait_until

VERSIONS = (5, 8, 9, 10)
GONE = {9: "UNKNOWN_TOPIC_OR_PARTITION", 10: "UNKNOWN_TOPIC_ID"}


def key(topic: Topic, version: int) -> object:
    return topic.id if version >= 10 else topic.name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", ["", None])
def test_each_commit_counts(
    group: ClassicGroup, topic: Topic, version: int, metadata: str | None
) -> None:
    for offset in (5, 7, 2**40, 0, 7):
        offsets = {0: offset, 2: offset + 1, 1: 3}
        assert group.commit(topic, offsets, version, metadata=metadata) == dict.fromkeys(
            offsets, OK
        )
        assert group.committed == {topic.name: offsets}
    assert group.commit(topic, {1: 4}, version, metadata=metadata) == {1: OK}
    assert group.committed == {topic.name: {0: 7, 2: 8, 1: 4}}


@pytest.mark.parametrize("version", [9, 10])
def test_what_comes_with_an_offset_is_kept(group: ClassicGroup, topic: Topic, version: int) -> None:
    for epoch, metadata in ((-1, ""), (0, ""), (-1, "m"), (0, "n"), (-1, "")):
        assert group.commit(topic, {0: 9}, version, leader_epoch=epoch, metadata=metadata) == {
            0: OK
        }
        assert group.fetch(None, version) == {key(topic, version): {0: (9, epoch, metadata, OK)}}


def test_who_may_commit_is_asked_each_time(group: ClassicGroup, topic: Topic) -> None:
    assert [group.commit(topic, {0: n}) for n in range(3)] == [{0: OK}] * 3
    member = group.join(subscription(topic.name))
    assert [group.commit(topic, {0: n}) for n in range(3, 5)] == [{0: "UNKNOWN_MEMBER_ID"}] * 2
    assert [member.commit(topic, {0: n, 1: n}) for n in range(5, 8)] == [{0: OK, 1: OK}] * 3
    assert group.committed == {topic.name: {0: 7, 1: 7}}
    assert member.leave() == OK
    assert member.commit(topic, {0: 8, 1: 8}) == {0: "UNKNOWN_MEMBER_ID", 1: "UNKNOWN_MEMBER_ID"}
    assert group.commit(topic, {0: 9}) == {0: OK}
    assert group.committed == {topic.name: {0: 9, 1: 7}}


def test_two_groups_and_two_topics_in_turns(world: World, topic: Topic) -> None:
    groups, topics = [ClassicGroup(world) for _ in range(2)], [topic, world.topic(partitions=3)]
    for offset in range(4):
        for number, group in enumerate(groups):
            for one in topics:
                assert group.commit(one, {number: offset, 2: offset}) == {number: OK, 2: OK}
    for number, group in enumerate(groups):
        assert group.committed == {one.name: {number: 3, 2: 3} for one in topics}


def test_partitions_that_are_not_there(group: ClassicGroup, topic: Topic) -> None:
    for offset in range(3):
        assert group.commit(topic, {0: offset, 7: offset}) == {0: OK, 7: GONE[9]}
    assert group.committed == {topic.name: {0: 2}}


@pytest.mark.parametrize("version", [9, 10])
def test_a_topic_that_is_deleted(group: ClassicGroup, topic: Topic, version: int) -> None:
    for offset in range(3):
        assert group.commit(topic, {0: offset}, version) == {0: OK}
    topic.delete()
    wait_until(
        lambda: group.commit(topic, {0: 4}, version) == {0: GONE[version]},
        PATIENCE_S,
        "the topic's end",
    )
    assert group.commit(topic, {0: 5}, version) == {0: GONE[version]}
