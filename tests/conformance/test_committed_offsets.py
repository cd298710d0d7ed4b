"""OffsetCommit, OffsetFetch, OffsetDelete, and offsets that expire (KIP-88, KIP-211, KIP-496)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.conformance.classic import ClassicGroup, fetch, subscription
from tests.conformance.world import OK, PATIENCE_S, Topic, World, outcome
from tests.support import unique, wait_until

MISSING = (-1, -1, "", OK)
UNKNOWN_PARTITION, SUBSCRIBED = "UNKNOWN_TOPIC_OR_PARTITION", "GROUP_SUBSCRIBED_TO_TOPIC"


# --- commit and fetch ---


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_in_one_call(
    group: ClassicGroup, topic: Topic, version: int
) -> None:  # case 57
    key = topic.id if version >= 10 else topic.name
    assert group.commit(topic, {0: 10, 1: 11, 2: 12}, version, metadata="m") == {
        0: OK,
        1: OK,
        2: OK,
    }
    expected = {index: (10 + index, -1, "m", OK) for index in range(3)}
    for fetched in range(2, 11):
        assert group.fetch(None, fetched) == {topic.id if fetched >= 10 else topic.name: expected}
    assert group.fetch({}, version) == {}
    assert group.fetch({key: [2, 9]}, version) == {key: {2: (12, -1, "m", OK), 9: MISSING}}
    nobody = ClassicGroup(group.world)
    assert nobody.fetch(None, version) == {}
    assert nobody.fetch({key: [0]}, version) == {key: {0: MISSING}}
    assert nobody.listed is None


@pytest.mark.parametrize("version", [2, 5, 6, 9, 10])
def test_all_offsets_of_a_large_group(world: World, version: int) -> None:
    topic, group, count = world.topic(150), ClassicGroup(world), 150
    key = topic.id if version >= 10 else topic.name
    group.commit(topic, {index: index for index in range(count)}, version)
    group.commit(topic, {7: 70, 140: 1400}, version, metadata="m")
    expected = {index: (index, -1, "", OK) for index in range(count)}
    expected |= {7: (70, -1, "m", OK), 140: (1400, -1, "m", OK)}
    assert group.fetch(None, version) == {key: expected}


def test_version_1_asks_for_what_it_names(group: ClassicGroup, topic: Topic) -> None:  # case 57
    assert group.commit(topic, {0: 10}, 2) == {0: OK}
    assert group.fetch({topic.name: [0, 1], "nope": [0]}, 1) == {
        topic.name: {0: (10, -1, "", OK), 1: MISSING},
        "nope": {0: MISSING},
    }
    assert group.fetch({}, 1) == {}


def test_a_group_that_its_members_have_left_still_has_its_offsets(
    group: ClassicGroup, topic: Topic
) -> None:
    member = group.join(subscription(topic.name))
    assert member.commit(topic, {1: 7}) == {1: OK}
    assert member.leave() == OK
    assert group.listed == ("Empty", "consumer", "classic")
    assert group.committed == {topic.name: {1: 7}}


def test_several_groups_in_one_request(world: World, topic: Topic) -> None:  # case 58
    one, two, share = ClassicGroup(world), ClassicGroup(world), world.group()
    nobody = unique("nobody")
    share.join(world.topic())
    assert one.commit(topic, {0: 1}) == {0: OK}
    assert two.commit(topic, {0: 2, 1: 3}) == {0: OK, 1: OK}
    for version in (8, 9):
        found = fetch(
            world,
            version,
            {one.id: None, nobody: None, share.id: None, two.id: {topic.name: [0, 2]}},
        )
        assert found == {
            one.id: {topic.name: {0: (1, -1, "", OK)}},
            nobody: {},
            share.id: {},
            two.id: {topic.name: {0: (2, -1, "", OK), 2: MISSING}},
        }
    named = fetch(world, 10, {one.id: None, share.id: {topic.id: [0]}})
    assert named == {one.id: {topic.id: {0: (1, -1, "", OK)}}, share.id: {topic.id: {0: MISSING}}}


def test_topic_ids_that_nobody_knows(group: ClassicGroup, topic: Topic) -> None:  # case 59
    unknown = uuid4()
    assert group.commit(unknown, {0: 1}, 10) == {0: "UNKNOWN_TOPIC_ID"}
    assert group.listed is None
    assert group.commit(topic, {0: 1}, 10) == {0: OK}
    found = group.fetch({unknown: [0], topic.id: [0]}, 10)
    assert found == {
        topic.id: {0: (1, -1, "", OK)},
        unknown: {0: (-1, -1, "", "UNKNOWN_TOPIC_ID")},
    }
    assert list(found) == [topic.id, unknown]


def test_a_topic_that_was_made_again_has_no_offsets(
    world: World, group: ClassicGroup, topic: Topic
) -> None:
    assert group.commit(topic, {0: 1}, 10) == {0: OK}
    topic.delete()
    wait_until(lambda: group.committed == {}, PATIENCE_S, "the tombstones")
    again = world.topic(name=topic.name)
    assert group.fetch({again.id: [0]}, 10) == {again.id: {0: MISSING}}
    assert group.fetch({again.name: [0]}) == {again.name: {0: MISSING}}


# case 60
def test_generations_of_a_group_that_is_not_there(group: ClassicGroup, topic: Topic) -> None:
    for version in range(2, 9):
        assert group.commit(topic, {0: 1}, version, generation=3) == {0: "ILLEGAL_GENERATION"}
    assert group.commit(topic, {0: 1}, 9, generation=3) == {0: "GROUP_ID_NOT_FOUND"}
    assert group.commit(topic, {0: 1}, 10, generation=3) == {0: "GROUP_ID_NOT_FOUND"}
    assert group.listed is None


# case 60
def test_metadata_and_offsets_that_clients_may_choose(group: ClassicGroup, topic: Topic) -> None:
    assert group.commit(topic, {0: 1}, metadata="x" * 4097) == {0: "OFFSET_METADATA_TOO_LARGE"}
    assert group.commit(topic, {0: 1}, metadata="ü" * 4096) == {0: OK}
    assert group.commit(topic, {1: -5}, metadata=None) == {1: OK}
    assert group.commit(topic, {2: 2**63 - 1}, leader_epoch=7) == {2: OK}
    assert group.fetch({topic.name: [0, 1, 2]}) == {
        topic.name: {0: (1, -1, "ü" * 4096, OK), 1: (-5, -1, "", OK), 2: (2**63 - 1, 7, "", OK)}
    }


def test_metadata_that_is_too_large_fails_only_its_partition(
    group: ClassicGroup, topic: Topic
) -> None:
    partitions = [
        {"partition_index": index, "committed_offset": 5, "committed_metadata": metadata}
        for index, metadata in enumerate(["x" * 4097, "x" * 4096, None])
    ]

    def commit(generation: int) -> list[str]:
        response = group.world.ask(
            8,
            9,
            group_id=group.id,
            generation_id_or_member_epoch=generation,
            member_id="",
            topics=[{"name": topic.name, "partitions": partitions}],
        )
        (answered,) = response.topics
        return [outcome(partition.error_code) for partition in answered.partitions]

    assert commit(3) == ["GROUP_ID_NOT_FOUND"] * 3
    assert commit(-1) == ["OFFSET_METADATA_TOO_LARGE", OK, OK]
    assert group.committed == {topic.name: {1: 5, 2: 5}}


def test_partitions_that_are_not_there_are_refused_for_themselves(
    group: ClassicGroup, topic: Topic
) -> None:
    assert group.commit(topic, {9: 1, 0: 1, -1: 1}) == {
        9: UNKNOWN_PARTITION,
        0: OK,
        -1: UNKNOWN_PARTITION,
    }
    assert group.commit("nope", {0: 1}) == {0: UNKNOWN_PARTITION}
    # The group is not asked when no partition is left.
    assert group.commit("nope", {0: 1}, generation=3) == {0: UNKNOWN_PARTITION}


def test_topics_of_which_no_partition_is_named(
    world: World, group: ClassicGroup, topic: Topic
) -> None:
    member = {"group_id": group.id, "member_id": ""}
    one = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    named = [
        {"name": name, "partitions": of}
        for name, of in ((topic.name, []), ("nope", []), (topic.name, [one]))
    ]
    for _ in range(2):  # the second time is like one before
        answer = world.connection.ask(8, 9, topics=named, **member)
        assert sorted((found.name, len(found.partitions)) for found in answer.topics) == [
            ("nope", 0),
            (topic.name, 1),
        ]
        assert world.connection.ask(8, 9, topics=named[:1], **member).topics == ()
    named = [{"name": name, "partitions": []} for name in (topic.name, "nope")]
    nobody = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "group_id": group.id}
    assert [found.name for found in world.connection.ask(28, 2, topics=named, **nobody).topics] == [
        "nope"
    ]
    answer = world.connection.ask(47, 0, group_id=group.id, topics=named)
    assert [(found.name, found.partitions) for found in answer.topics] == [("nope", ())]


def test_the_empty_group_id(world: World, topic: Topic) -> None:
    group = ClassicGroup(world, "")
    assert group.commit(topic, {0: 4}) == {0: OK}
    assert group.committed == {topic.name: {0: 4}}
    assert group.delete() == OK
    assert group.committed == {}


def test_who_may_commit(group: ClassicGroup, topic: Topic) -> None:
    member = group.join(subscription(topic.name))
    for version in (8, 9, 10):
        assert group.commit(topic, {0: 1}, version) == {0: "UNKNOWN_MEMBER_ID"}
        assert group.commit(topic, {0: 1}, version, member_id="who", generation=1) == {
            0: "UNKNOWN_MEMBER_ID"
        }
        assert member.commit(topic, {0: 1}, version, generation=2) == {0: "ILLEGAL_GENERATION"}
        assert member.commit(topic, {0: 1}, version, generation=0) == {0: "ILLEGAL_GENERATION"}
        assert member.commit(topic, {0: version}, version) == {0: OK}
    assert group.committed == {topic.name: {0: 10}}
    # Fetching asks nobody who it is.
    assert group.fetch(None, member_id="who", member_epoch=77) == {
        topic.name: {0: (10, -1, "", OK)}
    }
    assert member.leave() == OK
    assert member.commit(topic, {0: 1}) == {0: "UNKNOWN_MEMBER_ID"}
    assert group.commit(topic, {0: 1}, member_id="who", generation=1) == {0: "UNKNOWN_MEMBER_ID"}
    assert group.commit(topic, {0: 1}, member_id="anybody") == {0: OK}


def test_committing_in_the_midst_of_a_rebalance(group: ClassicGroup, topic: Topic) -> None:
    first = group.join(subscription(topic.name))
    second = group.member(("protocol-0", subscription(topic.name)))
    second.introduce()
    wait_until(lambda: group.state == "PreparingRebalance", PATIENCE_S, "the rebalance")
    assert first.commit(topic, {0: 5}) == {0: OK}
    assert first.heartbeat() == "REBALANCE_IN_PROGRESS"
    first.send_join()
    assert (first.joined(), second.joined()) == (OK, OK)
    assert group.state == "CompletingRebalance"
    assert first.commit(topic, {0: 6}) == {0: "REBALANCE_IN_PROGRESS"}
    assert first.commit(topic, {0: 6}, generation=1) == {0: "ILLEGAL_GENERATION"}


def test_a_fenced_static_member_cannot_commit(group: ClassicGroup, topic: Topic) -> None:
    old = group.join(subscription(topic.name), instance_id="one")
    new = group.member(("protocol-0", subscription(topic.name)), instance_id="one")
    assert new.join() == OK
    assert new.id != old.id
    assert old.commit(topic, {0: 1}) == {0: "FENCED_INSTANCE_ID"}
    assert new.commit(topic, {0: 1}) == {0: OK}
    assert old.heartbeat() == "FENCED_INSTANCE_ID"


# --- delete ---


def test_deleting_offsets_of_what_has_none(world: World, topic: Topic) -> None:  # case 61
    share = world.group()
    share.join(world.topic())
    assert ClassicGroup(world).delete_offsets({topic.name: [0]}) == "GROUP_ID_NOT_FOUND"
    assert ClassicGroup(world).delete_offsets({}) == "GROUP_ID_NOT_FOUND"
    assert ClassicGroup(world).delete_offsets({"nope": [0]}) == "GROUP_ID_NOT_FOUND"
    assert ClassicGroup(world, share.id).delete_offsets({topic.name: [0]}) == "GROUP_ID_NOT_FOUND"
    assert ClassicGroup(world, "").delete_offsets({topic.name: [0]}) == "INVALID_GROUP_ID"


def test_deleting_offsets_of_a_simple_group(group: ClassicGroup, topic: Topic) -> None:  # case 61
    assert group.commit(topic, {0: 1, 1: 2}) == {0: OK, 1: OK}
    for _ in range(2):
        deleted = group.delete_offsets({topic.name: [0, 9], "nope": [0]})
        assert deleted == [
            (topic.name, 9, UNKNOWN_PARTITION),
            (topic.name, 0, OK),
            ("nope", 0, UNKNOWN_PARTITION),
        ]
    assert group.delete_offsets({}) == []
    assert group.committed == {topic.name: {1: 2}}


def test_subscribed_topics_keep_their_offsets(
    world: World, group: ClassicGroup, topic: Topic
) -> None:  # case 62
    other = world.topic()
    member = group.join(subscription(topic.name))
    assert member.commit(topic, {0: 1, 1: 2}) == {0: OK, 1: OK}
    assert member.commit(other, {0: 3}) == {0: OK}
    deleted = group.delete_offsets({topic.name: [0, 1, 2], other.name: [0], "nope": [0]})
    assert isinstance(deleted, list)
    assert sorted(deleted) == sorted(
        [
            *((topic.name, index, SUBSCRIBED) for index in range(3)),
            (other.name, 0, OK),
            ("nope", 0, UNKNOWN_PARTITION),
        ]
    )
    assert group.committed == {topic.name: {0: 1, 1: 2}}
    assert member.leave() == OK
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, OK)]


def test_subscriptions_are_those_of_the_last_generation(
    world: World, group: ClassicGroup, topic: Topic
) -> None:
    other = world.topic()
    first = group.join(subscription(topic.name))
    second = group.member(("protocol-0", subscription(other.name)))
    second.introduce()
    wait_until(lambda: group.state == "PreparingRebalance", PATIENCE_S, "the rebalance")
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, SUBSCRIBED)]
    assert group.delete_offsets({other.name: [0]}) == [(other.name, 0, OK)]
    first.send_join()
    assert (first.joined(), second.joined()) == (OK, OK)
    assert group.state == "CompletingRebalance"
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, SUBSCRIBED)]
    assert group.delete_offsets({other.name: [0]}) == [(other.name, 0, SUBSCRIBED)]


@pytest.mark.parametrize("metadata", [b"", b"range", subscription("t", version=0)[:-1]])
def test_members_that_nobody_understands(
    group: ClassicGroup, topic: Topic, metadata: bytes
) -> None:
    group.join(metadata)
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, SUBSCRIBED)]


def test_subscriptions_of_a_version_to_come(group: ClassicGroup, topic: Topic) -> None:
    group.join(subscription("t", version=77) + b"whatever comes")
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, OK)]


def test_members_that_are_no_consumers(group: ClassicGroup, topic: Topic) -> None:  # case 63
    worker = group.join(subscription("t"), protocol_type="connect")
    assert worker.commit(topic, {0: 1}) == {0: OK}
    assert group.delete_offsets({topic.name: [0], "nope": [0]}) == "NON_EMPTY_GROUP"
    assert worker.leave() == OK
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, OK)]


# --- groups ---


def test_deleting_groups(world: World, group: ClassicGroup, topic: Topic) -> None:  # case 65
    member = group.join(subscription(topic.name))
    assert member.commit(topic, {0: 1}) == {0: OK}
    assert ClassicGroup(world).delete() == "GROUP_ID_NOT_FOUND"
    assert group.delete() == "NON_EMPTY_GROUP"
    assert member.leave() == OK
    assert group.delete() == OK
    assert group.committed == {}
    assert group.listed is None


def test_a_group_outlives_its_offsets(group: ClassicGroup, topic: Topic) -> None:
    assert group.commit(topic, {0: 1}) == {0: OK}
    assert group.delete_offsets({topic.name: [0]}) == [(topic.name, 0, OK)]
    assert group.member(id="who").join_at_once() == "UNKNOWN_MEMBER_ID"
    assert group.listed == ("Empty", "", "classic")


def test_groups_are_listed_by_state_and_type(
    world: World, group: ClassicGroup, topic: Topic
) -> None:  # case 66
    assert group.commit(topic, {0: 1}) == {0: OK}
    filters = ({"states": ["empty"]}, {"states": ["Stable", "EMPTY"]}, {"types": ["Classic"]})
    for found in [world.groups(**one) for one in filters]:
        assert found[group.id] == ("Empty", "", "classic")
    for found in (world.groups(states=["Stable"]), world.groups(types=["Consumer"])):
        assert group.id not in found
    assert world.groups(states=["Bogus"]) == {}
    assert world.groups(types=["bogus"]) == {}


# --- expiration, where offsets are looked at every second ---


def test_a_commit_may_say_how_long_it_is_kept(small_world: World) -> None:  # case 68
    group, topic = ClassicGroup(small_world), small_world.topic(partitions=3)
    for version, partition, retention_ms in ((2, 0, 1500), (3, 1, 0), (4, 2, 3_600_000)):
        assert group.commit(topic, {partition: 5}, version, retention_ms=retention_ms) == {
            partition: OK
        }
    wait_until(
        lambda: group.committed == {topic.name: {2: 5}}, PATIENCE_S, "the end of two offsets"
    )
    assert group.commit(topic, {2: 6}, 2, retention_ms=0) == {2: OK}
    wait_until(lambda: group.listed is None, PATIENCE_S, "the end of the group")
    assert group.committed == {}


def test_an_empty_group_without_offsets_vanishes(small_world: World) -> None:
    group = ClassicGroup(small_world)
    member = group.join(subscription("t"))
    assert group.state == "Stable"
    assert member.leave() == OK
    wait_until(lambda: group.listed is None, PATIENCE_S, "the end of the group")


def test_what_members_are_subscribed_to_does_not_expire(small_world: World) -> None:
    group, topic, other = ClassicGroup(small_world), small_world.topic(), small_world.topic()
    worker_group = ClassicGroup(small_world)
    member = group.join(subscription(topic.name))
    worker = worker_group.join(subscription("t"), protocol_type="connect")
    for one in (topic, other):
        assert member.commit(one, {0: 5}, 2, retention_ms=0) == {0: OK}
        assert worker.commit(one, {0: 5}, 2, retention_ms=0) == {0: OK}
    wait_until(lambda: group.committed == {topic.name: {0: 5}}, PATIENCE_S, "the end of an offset")
    assert worker_group.committed == {topic.name: {0: 5}, other.name: {0: 5}}
