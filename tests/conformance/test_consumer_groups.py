"""Consumer groups of the new protocol (KIP-848): refusals, hand-over, offsets, static members,
change of protocol.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.consumer_protocol import (
    read_assignment,
    write_assignment,
)
from headrace.protocol.primitives import i32
from tests import subscriptions
from tests.conformance.classic import ClassicGroup, subscription
from tests.conformance.consumers import (
    ASK_AGAIN_S,
    ConsumerMember,
    assigned,
    commit,
    describe,
)
from tests.conformance.world import OK, PATIENCE_S, World, outcome
from tests.support import unique, wait_until


@pytest.fixture
def group_id() -> str:
    return unique("consumers")


NO_COMMON_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
FENCED = (
    "FENCED_MEMBER_EPOCH: The consumer group member has a {than} member epoch ({sent}) than "
    "the one known by the group "
    "coordinator ({known}). The member must abandon all its partitions and rejoin."
)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, "INVALID_REQUEST: MemberId can't be empty."),
        ({"group_id": ""}, "INVALID_REQUEST: GroupId can't be empty."),
        ({"instance_id": ""}, "INVALID_REQUEST: InstanceId can't be empty."),
        ({"rack_id": " "}, "INVALID_REQUEST: RackId can't be empty."),
        (
            {"rebalance_timeout": -1},
            "INVALID_REQUEST: RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"topic_partitions": None},
            "INVALID_REQUEST: TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            (
                "INVALID_REQUEST: Either SubscribedTopicNames or SubscribedTopicRegex must be "
                "non-null when (re-)joining."
            ),
        ),
        ({"member_epoch": -2}, "INVALID_REQUEST: InstanceId can't be null."),
        ({"member_epoch": -3}, "INVALID_REQUEST: MemberEpoch is invalid."),
        (
            {"server_assignor": "bogus"},
            (
                "UNSUPPORTED_ASSIGNOR: ServerAssignor bogus is not supported. Supported "
                "assignors: uniform, range."
            ),
        ),
    ],
)
def test_requests_that_are_refused(
    world: World, group_id: str, fields: dict[str, Any], error: str
) -> None:
    assert (
        ConsumerMember(world, group_id).heartbeat(world.topic(), epoch=0, **fields).error == error
    )


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("[", "missing closing ]"),
        ("(", "missing closing )"),
        (")", "regexp/syntax: internal error"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?!a)b", "invalid or unsupported Perl syntax"),
        ("[b-a]", "invalid character class range"),
        ("(?P<n", "invalid named capture"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
        ("a\\", "trailing backslash at end of expression"),
    ],
)
def test_expressions_that_are_refused(world: World, group_id: str, regex: str, reason: str) -> None:
    assert ConsumerMember(world, group_id).heartbeat(epoch=0, regex=regex).error == (
        f"INVALID_REGULAR_EXPRESSION: SubscribedTopicRegex `{regex}` is not a valid regular "
        f"expression: {reason}."
    )


def test_a_group_that_does_not_exist(world: World, group_id: str) -> None:
    member = ConsumerMember(world, group_id)
    assert (
        member.heartbeat(epoch=1).error
        == f"GROUP_ID_NOT_FOUND: Consumer group {group_id} not found."
    )
    assert member.leave().error == f"GROUP_ID_NOT_FOUND: Group {group_id} not found."
    assert outcome(describe(world, group_id).error_code) == "GROUP_ID_NOT_FOUND"


def test_members_and_epochs_that_are_not_known(world: World, group_id: str) -> None:
    member = ConsumerMember(world, group_id).join(world.topic())
    epoch = member.epoch
    stranger = ConsumerMember(world, group_id, "stranger")
    unknown = f"UNKNOWN_MEMBER_ID: Member stranger is not a member of group {group_id}."
    assert [stranger.heartbeat(epoch=1).error, stranger.leave().error] == [unknown, unknown]
    assert member.heartbeat(epoch=99).error == FENCED.format(than="greater", sent=99, known=epoch)
    assert member.heartbeat(epoch=epoch - 1).error == FENCED.format(
        than="smaller", sent=epoch - 1, known=epoch
    )


def test_partitions_are_handed_over_when_they_have_been_given_up(
    world: World, group_id: str
) -> None:
    topic = world.topic(partitions=4)
    first = ConsumerMember(world, group_id).join(topic)
    wait_until(
        lambda: first.follow().assignment == {topic.name: [0, 1, 2, 3]},
        PATIENCE_S,
        "all",
        ASK_AGAIN_S,
    )
    held, epoch = first.assignment, first.epoch
    second = ConsumerMember(world, group_id)
    assert second.heartbeat(topic, epoch=0).assignment == {}
    wait_until(
        lambda: first.heartbeat(owned=held).assignment,
        PATIENCE_S,
        "something to give up",
        ASK_AGAIN_S,
    )
    assert first.assignment == {topic.name: [0, 1]}
    assert first.epoch == epoch
    described = {one.member_id: one for one in describe(world, group_id).members}
    assert assigned(described[first.id]) == [0, 1, 2, 3]  # what it is to give up is still its own
    assert not second.heartbeat(owned={}).assignment
    assert [first.heartbeat(owned=held).epoch, describe(world, group_id).group_state] == [
        epoch,
        "Reconciling",
    ]
    assert first.follow().epoch > epoch
    wait_until(
        lambda: second.follow().assignment == {topic.name: [2, 3]},
        PATIENCE_S,
        "the other half",
        ASK_AGAIN_S,
    )
    assert describe(world, group_id).group_state == "Stable"
    second.leave()
    wait_until(lambda: first.follow().assignment == held, PATIENCE_S, "all again", ASK_AGAIN_S)


def test_as_many_ask_for_one_assignor_as_for_the_other(world: World, group_id: str) -> None:
    topic = world.topic(partitions=2)
    ConsumerMember(world, group_id).join(topic, server_assignor="range")
    assert describe(world, group_id).assignor_name == "range"
    ConsumerMember(world, group_id).heartbeat(topic, epoch=0, server_assignor="uniform")
    assert describe(world, group_id).assignor_name == "uniform"


def test_an_answer_that_was_lost(world: World, group_id: str) -> None:
    topic = world.topic(partitions=2)
    member = ConsumerMember(world, group_id).join(topic)
    before = member.epoch
    more = world.topic()
    wait_until(
        lambda: member.heartbeat(topic, more, epoch=member.epoch).epoch > before,
        PATIENCE_S,
        "it",
        ASK_AGAIN_S,
    )
    again = member.heartbeat(epoch=before, owned={topic.name: [0, 1]})
    assert (again.error, again.epoch) == (OK, member.epoch)


def test_topics_that_come_and_grow(world: World, group_id: str) -> None:
    prefix = unique("pattern")
    topic = world.topic(name=f"{prefix}-a", partitions=2)
    member = ConsumerMember(world, group_id)
    member.topics[topic.name] = topic
    member.join(regex=f"{prefix}-[ab]")
    assert member.assignment == {topic.name: [0, 1]}
    topic.grow(3)
    wait_until(
        lambda: member.follow().assignment == {topic.name: [0, 1, 2]},
        PATIENCE_S,
        "the third",
        ASK_AGAIN_S,
    )
    (described,) = describe(world, group_id).members
    assert (described.subscribed_topic_regex, described.subscribed_topic_names) == (
        f"{prefix}-[ab]",
        (),
    )


def test_static_members(world: World, group_id: str) -> None:
    topic = world.topic(partitions=2)
    member = ConsumerMember(world, group_id, "m", "i").join(topic)
    epoch = member.epoch
    other = ConsumerMember(world, group_id, "n", "i")
    owned_by_m = "cannot join the group because the instance id is owned by m member."
    assert other.heartbeat(topic, epoch=0).error == (
        f"UNRELEASED_INSTANCE_ID: Static member n with instance id i {owned_by_m}"
    )
    fenced = "FENCED_INSTANCE_ID: Static member n with instance id i was fenced by member m."
    assert [other.heartbeat(epoch=epoch).error, other.leave(-2).error] == [fenced, fenced]
    unknown = "UNKNOWN_MEMBER_ID: Instance id j is unknown."
    assert member.heartbeat(epoch=epoch, instance_id="j").error == unknown
    away = member.leave(-2)
    assert (away.error, away.epoch) == (OK, -2)
    assert member.heartbeat(epoch=epoch).error == FENCED.format(
        than="greater", sent=epoch, known=-2
    )
    back = other.heartbeat(topic, epoch=0)
    assert (back.error, back.epoch, back.assignment) == (OK, epoch, {topic.name: [0, 1]})
    (described,) = describe(world, group_id).members
    assert (described.member_id, described.instance_id) == ("n", "i")
    assert other.leave(-2).error == OK
    assert other.leave(-1).error == OK
    assert describe(world, group_id).group_state == "Empty"


def test_offsets_of_members(world: World, group_id: str) -> None:  # case 67
    topic = world.topic()
    member = ConsumerMember(world, group_id).join(topic)
    epoch = member.epoch
    assert member.commit(topic) == OK
    assert member.commit(topic, version=8) == "UNSUPPORTED_VERSION"
    assert [member.commit(topic, epoch=epoch + d) for d in (1, -1)] == ["STALE_MEMBER_EPOCH"] * 2
    assert commit(world, group_id, topic, "", -1) == "UNKNOWN_MEMBER_ID"
    assert member.commit(topic, member_id="stranger") == "UNKNOWN_MEMBER_ID"
    assert member.fetch(topic) == OK
    assert member.fetch(topic, member_id="stranger") == "UNKNOWN_MEMBER_ID"
    assert member.fetch(topic, epoch=epoch + 1) == "STALE_MEMBER_EPOCH"
    member.leave()
    assert commit(world, group_id, topic, "", -1) == OK


def test_an_earlier_epoch_is_good_for_what_is_held_since(world: World, group_id: str) -> None:
    """KIP-1251: each partition has an epoch, of when it was given. What is to be given up is still
    held.
    """
    topic = world.topic(partitions=3)
    first = ConsumerMember(world, group_id).join(topic)
    wait_until(
        lambda: first.follow().assignment == {topic.name: [0, 1, 2]}, PATIENCE_S, "all", ASK_AGAIN_S
    )
    epoch = first.epoch
    second = ConsumerMember(world, group_id)
    second.heartbeat(topic, epoch=0)
    wait_until(
        lambda: first.follow().follow().assignment == {topic.name: [0, 1]},
        PATIENCE_S,
        "two",
        ASK_AGAIN_S,
    )
    assert first.epoch > epoch
    wait_until(
        lambda: second.follow().assignment == {topic.name: [2]}, PATIENCE_S, "one", ASK_AGAIN_S
    )
    ConsumerMember(world, group_id).heartbeat(topic, epoch=0)

    def is_told_to_give_up() -> bool:
        assert first.heartbeat(owned={topic.name: [0, 1]}).error == OK
        return first.assignment == {topic.name: [0]}

    wait_until(is_told_to_give_up, PATIENCE_S, "word of the third", ASK_AGAIN_S)
    codes = [first.commit(topic, epoch=epoch, partition=number) for number in range(3)]
    assert codes == [OK, OK, "STALE_MEMBER_EPOCH"]
    at_once = ClassicGroup(world, group_id).commit(
        topic, {0: 1, 2: 1}, member_id=first.id, generation=epoch
    )
    assert at_once == {0: "STALE_MEMBER_EPOCH", 2: "STALE_MEMBER_EPOCH"}  # all or none
    assert second.commit(topic, epoch=epoch, partition=2) == "STALE_MEMBER_EPOCH"
    assert [first.commit(topic, epoch=epoch - 1, partition=number) for number in (0, 1)] == [
        "STALE_MEMBER_EPOCH"
    ] * 2


def test_groups_are_listed(world: World, group_id: str) -> None:  # case 66
    member = ConsumerMember(world, group_id).join(world.topic())
    for found in (world.groups(types=["Consumer"]), world.groups(states=["stable"])):
        assert found[group_id] == ("Stable", "consumer", "consumer")
    for found in (
        world.groups(types=["classic"]),
        world.groups(states=["Empty"]),
        world.groups(types=["bogus"]),
    ):
        assert group_id not in found
    delete = {"groups_names": [group_id]}
    assert [outcome(one.error_code) for one in world.ask(42, 2, **delete).results] == [
        "NON_EMPTY_GROUP"
    ]
    member.leave()
    assert [outcome(one.error_code) for one in world.ask(42, 2, **delete).results] == [OK]
    assert group_id not in world.groups()


def test_offsets_in_topics_that_members_need_stay(world: World, group_id: str) -> None:  # case 64
    topic, other = world.topic(), world.topic()
    member = ConsumerMember(world, group_id).join(topic)
    assert [member.commit(topic), member.commit(other)] == [OK, OK]

    def delete() -> dict[str, str]:
        asked = [
            {"name": name, "partitions": [{"partition_index": 0}]}
            for name in (topic.name, other.name, "nope")
        ]
        response = world.ask(47, 0, group_id=group_id, topics=asked)
        assert response.error_code == 0
        return {one.name: outcome(one.partitions[0].error_code) for one in response.topics}

    refused = "GROUP_SUBSCRIBED_TO_TOPIC"
    assert delete() == {topic.name: refused, other.name: OK, "nope": "UNKNOWN_TOPIC_OR_PARTITION"}
    member.leave()
    assert delete()[topic.name] == OK


def test_a_classic_group_goes_on_as_a_consumer_group_and_back(world: World, group_id: str) -> None:
    topic = world.topic(partitions=4)
    group = ClassicGroup(world, group_id)
    classic = group.member(("range", subscription(topic.name)))
    assert classic.join() == OK
    assert classic.sync({classic.id: write_assignment(1, {topic.name: range(4)})}) == OK
    assert world.groups()[group_id] == ("Stable", "consumer", "classic")

    def held() -> dict[str, tuple[int, ...]]:
        return read_assignment(bytes(classic.assignment))

    member = ConsumerMember(world, group_id)
    assert member.heartbeat(topic, epoch=0).error == OK
    assert world.groups()[group_id][2] == "consumer"
    described = {one.member_id: one for one in describe(world, group_id).members}
    assert {one.member_type for one in described.values()} == {0, 1}
    assert assigned(described[classic.id]) == [0, 1, 2, 3]
    assert [classic.heartbeat(), classic.sync()] == ["REBALANCE_IN_PROGRESS"] * 2

    def rejoined() -> bool:
        member.follow()
        if classic.heartbeat() == "REBALANCE_IN_PROGRESS":
            classic.protocols = [("range", subscription(topic.name, owned=held()))]
            assert (classic.join(), classic.answer.leader, classic.sync()) == (OK, "", OK)
        return held() == {topic.name: (0, 1)} and member.assignment == {topic.name: [2, 3]}

    wait_until(rejoined, PATIENCE_S, "both to have half", ASK_AGAIN_S)
    static = group.member(instance_id="unknown", id="was-here")
    assert (static.join_at_once(), static.answer.member_id) == ("UNKNOWN_MEMBER_ID", "")
    unknown_protocol = group.member(("roundrobin", subscription(topic.name)))
    for stranger in (unknown_protocol, group.member(protocol_type="connect")):
        assert stranger.join_at_once() == "INCONSISTENT_GROUP_PROTOCOL"

    generation = classic.generation
    member.leave()
    wait_until(
        lambda: world.groups()[group_id][2] == "classic",
        PATIENCE_S,
        "the classic group",
        ASK_AGAIN_S,
    )
    wait_until(
        lambda: classic.heartbeat() == "REBALANCE_IN_PROGRESS",
        PATIENCE_S,
        "the rebalance",
        ASK_AGAIN_S,
    )
    assert classic.join() == OK
    assert classic.generation > generation
    assert classic.sync({classic.id: write_assignment(1, {topic.name: range(4)})}) == OK
    assert held() == {topic.name: (0, 1, 2, 3)}


def test_a_classic_member_takes_the_place_of_the_last_static_one(
    world: World, group_id: str
) -> None:
    """It wants something else than the other had: there is no epoch for it yet, and the group
    rebalances.
    """
    topic, other = world.topic(partitions=2), world.topic()
    member = ConsumerMember(world, group_id, "m", "i").join(topic)
    classic = ClassicGroup(world, group_id).member(
        ("range", subscription(topic.name, other.name)), instance_id="i"
    )
    assert (classic.join_at_once(), classic.generation) == (OK, 0)
    assert world.groups()[group_id] == ("PreparingRebalance", "consumer", "classic")
    assert (classic.join_at_once(), classic.generation) == (OK, member.epoch + 1)


def test_an_empty_group_takes_the_type_of_who_comes_next(world: World, group_id: str) -> None:
    topic = world.topic()
    assert commit(world, group_id, topic, "", -1) == OK
    member = ConsumerMember(world, group_id).join(topic)
    assert world.groups()[group_id][2] == "consumer"
    assert member.fetch(topic) == OK
    member.leave()
    empty = describe(world, group_id)
    assert empty.group_epoch == empty.assignment_epoch > member.epoch
    assert ClassicGroup(world, group_id).member(("range", subscription(topic.name))).join() == OK
    assert world.groups()[group_id][2] == "classic"


def test_a_group_that_cannot_change_its_protocol(world: World, group_id: str) -> None:
    topic = world.topic()
    assert ClassicGroup(world, group_id).member(protocol_type="connect").join() == OK
    assert ConsumerMember(world, group_id).heartbeat(topic, epoch=0).error == (
        f"GROUP_ID_NOT_FOUND: Cannot upgrade classic group {group_id} to consumer group "
        f"because the group does not use "
        "the consumer embedded protocol."
    )


@pytest.mark.slow
def test_a_thousand_members(world: World, group_id: str) -> None:
    topic = world.topic(partitions=100)
    members = [ConsumerMember(world, group_id) for _ in range(1_000)]
    assert {member.heartbeat(topic, epoch=0).error for member in members} == {OK}

    def shared() -> bool:
        held = [
            number
            for member in members
            for number in member.follow().assignment.get(topic.name, [])
        ]
        assert len(held) == len(set(held))
        return len(held) == 100 and describe(world, group_id).group_state == "Stable"

    wait_until(shared, 2 * PATIENCE_S, "a hundred members to have one partition each")
    assert max(sum(map(len, member.assignment.values())) for member in members) == 1
    found = describe(world, group_id)
    assert {member.member_id for member in found.members} == {member.id for member in members}
    assert {member.leave().error for member in members[500:]} == {OK}
    assert len(describe(world, group_id).members) == 500


CUSTOM_ASSIGNOR = (
    "GROUP_ID_NOT_FOUND: Cannot upgrade classic group {} to consumer group because an unsupported "
    "custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade."
)


@pytest.mark.parametrize(
    ("user_data", "is_upgraded"), [(None, True), (b"", True), (b"custom", False)]
)
def test_assignments_with_user_data_of_an_assignor_cannot_be_upgraded(
    world: World, group_id: str, user_data: bytes | None, is_upgraded: bool
) -> None:
    topic, group = world.topic(), ClassicGroup(world, group_id)
    classic = group.member(("range", subscription(topic.name)))
    assert classic.join() == OK
    ends = i32(-1) if user_data is None else i32(len(user_data)) + user_data
    assignment = write_assignment(1, {topic.name: [0]}).removesuffix(i32(-1)) + ends
    assert classic.sync({classic.id: assignment}) == OK
    beat = ConsumerMember(world, group_id).heartbeat(topic, epoch=0)
    assert beat.error == (OK if is_upgraded else CUSTOM_ASSIGNOR.format(group_id))
    assert group.listed is not None
    assert group.listed[2] == ("consumer" if is_upgraded else "classic")


def test_user_data_of_a_subscription_is_no_obstacle(world: World, group_id: str) -> None:
    topic, group = world.topic(), ClassicGroup(world, group_id)
    said = subscriptions.subscription(1, (topic.name,), user_data=b"custom")
    classic = group.member(("range", said))
    assert classic.join() == OK
    assert classic.sync({classic.id: write_assignment(1, {topic.name: [0]})}) == OK
    assert ConsumerMember(world, group_id).heartbeat(topic, epoch=0).error == OK


def test_a_member_id_is_required_before_the_metadata_is_read(world: World, group_id: str) -> None:
    topic = world.topic()
    ConsumerMember(world, group_id).join(topic)
    group = ClassicGroup(world, group_id)
    newcomer = group.member(("range", b"not a subscription"))
    assert newcomer.join_at_once() == "MEMBER_ID_REQUIRED"
    assert newcomer.id
    assert newcomer.join_at_once() == NO_COMMON_PROTOCOL
    static = group.member(("range", b"not a subscription"), instance_id="i")
    assert static.join_at_once() == NO_COMMON_PROTOCOL
    other_type = group.member(("range", b""), protocol_type="connect")
    assert other_type.join_at_once() == NO_COMMON_PROTOCOL
