"""Groups over the wire, in every version: offsets, the classic protocol, share groups, and how they
meet.
"""

from __future__ import annotations

import uuid

import pytest

import headrace
from tests.group_client import FIND_COORDINATOR, GroupClient
from tests.stories.conftest import GROUP_CONFIGS
from tests.support import wait_until

pytestmark = pytest.mark.broker

# --- offsets ---


@pytest.mark.parametrize("version", range(2, 11))
def test_what_is_committed_in_any_version_is_fetched_in_any(client, group_id, topic, version):
    name, topic_id = topic
    codes = client.commit(version, group_id, topic_id if version >= 10 else name, {0: 7, 2: 9})
    assert codes == {0: 0, 2: 0}
    expected = {0: (7, "at 7", 0), 2: (9, "at 9", 0)}
    for fetch_version in range(1, 11):
        asked = topic_id if fetch_version >= 10 else name
        assert client.fetch(fetch_version, group_id, {asked: [0, 1, 2]}) == {
            asked: expected | {1: (-1, "", 0)}
        }
        if fetch_version >= 2:
            assert client.fetch(fetch_version, group_id, None) == {asked: expected}
            assert client.fetch(fetch_version, group_id, {}) == {}
    assert client.listed()[group_id] == ("", "Empty", "classic")


def test_a_group_without_offsets_is_no_error(client, group_id, topic):
    name, topic_id = topic
    for version in range(2, 11):
        asked = topic_id if version >= 10 else name
        assert client.fetch(version, group_id, None) == {}
        assert client.fetch(version, group_id, {asked: [0, 9]}) == {
            asked: {0: (-1, "", 0), 9: (-1, "", 0)}
        }
    assert client.fetch(9, group_id, {"nope": [0]}) == {"nope": {0: (-1, "", 0)}}
    unknown = uuid.uuid4()
    assert client.fetch(10, group_id, {unknown: [0]}) == {unknown: {0: (-1, "", 100)}}
    assert group_id not in client.listed()


def test_commits_that_are_refused(client, group_id, topic):
    name, topic_id = topic
    assert client.commit(9, group_id, "nope", {0: 1}) == {0: 3}
    assert client.commit(10, group_id, uuid.uuid4(), {0: 1}) == {0: 100}
    assert client.commit(9, group_id, name, {9: 1, 0: 1, -1: 1}) == {9: 3, 0: 0, -1: 3}
    assert client.commit(9, group_id, name, {0: 1}, metadata="x" * 4097) == {0: 12}
    assert client.commit(9, group_id, name, {0: -5}, metadata=None) == {0: 0}
    assert client.fetch(9, group_id, {name: [0]}) == {name: {0: (-5, "", 0)}}
    assert client.commit(8, f"{group_id}-2", name, {0: 1}, generation_id=3) == {0: 22}
    assert client.commit(9, f"{group_id}-2", name, {0: 1}, generation_id=3) == {0: 69}
    assert client.commit(10, group_id, topic_id, {0: 1}, member_id="who", generation_id=1) == {
        0: 25
    }


def test_offsets_go_with_their_topic(client, group_id, topic):
    name, _ = topic
    client.commit(9, group_id, name, {0: 1})
    client.delete_topic(name)
    assert client.fetch(9, group_id, None) == {}
    client.create_topic(name)
    assert client.fetch(9, group_id, {name: [0]}) == {name: {0: (-1, "", 0)}}


# --- the classic protocol ---


@pytest.mark.parametrize("version", range(10))
def test_two_members_of_any_version(client, another, group_id, version):
    first = client.join(version, group_id)
    assert (first.error_code, first.generation_id, first.leader) == (0, 1, first.member_id)
    other = client.join(9, group_id, protocol_type="connect")
    assert other.error_code == 23
    another.send_join(min(version, 3), group_id)
    while client.heartbeat(min(version, 4), group_id, first.member_id, 1) != 27:
        pass
    first = client.join(version, group_id, first.member_id)
    second = another.joined()
    assert (first.generation_id, second.generation_id, second.leader) == (2, 2, first.member_id)
    assert (first.protocol_name, second.members) == ("range", ())
    assert {member.member_id: member.metadata for member in first.members} == {
        first.member_id: b"range",
        second.member_id: b"range",
    }
    given = [(first.member_id, b"one"), (second.member_id, b"two")]
    assert client.sync(min(version, 5), group_id, first.member_id, 2, given).assignment == b"one"
    assert another.sync(min(version, 5), group_id, second.member_id, 2).assignment == b"two"
    described = client.described(min(version, 6), group_id)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert {
        m.member_id: (m.client_id, m.client_host, m.member_assignment) for m in described.members
    } == {
        first.member_id: ("story", "/127.0.0.1", b"one"),
        second.member_id: ("story", "/127.0.0.1", b"two"),
    }
    assert client.delete(group_id) == {group_id: 68}
    top, members = client.leave(min(version, 5), group_id, first.member_id)
    assert top == 0
    assert members in ([], [0])
    assert another.heartbeat(4, group_id, second.member_id, 2) == 27
    assert another.leave(5, group_id, second.member_id, "who") == (0, [0, 25])
    assert client.listed()[group_id] == ("consumer", "Empty", "classic")
    assert client.leave(2, group_id, "who") == (25, [])
    assert client.delete(group_id, version=0) == {group_id: 0}
    assert client.delete(group_id) == {group_id: 69}


def test_a_client_that_vanishes_while_it_waits_does_not_hold_up_the_others(
    client, another, group_id
):
    first = client.join(3, group_id)
    another.send_join(3, group_id)
    while client.heartbeat(4, group_id, first.member_id, 1) != 27:
        pass
    another.connection.close()
    again = client.join(3, group_id, first.member_id)
    assert again.generation_id == 2
    assert (
        client.sync(5, group_id, first.member_id, 2, [(first.member_id, b"all")]).assignment
        == b"all"
    )


def test_who_is_not_there(client, group_id):
    assert client.join(9, "").error_code == 24
    assert client.join(9, group_id, "who").error_code == 25
    assert client.sync(5, group_id, "who", 1).error_code == 25
    assert client.heartbeat(4, group_id, "who", 1) == 25
    assert client.heartbeat(4, "", "who", 1) == 24
    assert client.leave(5, group_id, "who") == (0, [25])
    assert (
        client.described(6, group_id).error_code,
        client.described(6, group_id).group_state,
    ) == (69, "Dead")
    assert client.described(6, group_id).error_message == f"Group {group_id} not found."
    assert (
        client.described(5, group_id).error_code,
        client.described(5, group_id).group_state,
    ) == (0, "Dead")
    assert client.delete(group_id) == {group_id: 69}


def test_lists_can_be_filtered(client, group_id, topic):
    client.commit(9, group_id, topic[0], {0: 1})
    assert group_id in client.listed(states=("empty",))
    assert group_id not in client.listed(states=("Stable",))
    assert client.listed(states=("Bogus",)) == client.listed(types=("bogus",)) == {}
    assert group_id in client.listed(types=("Classic",))
    assert group_id not in client.listed(types=("share",))


# --- share groups ---


def test_a_share_group_from_joining_to_deletion(client, group_id, topic):
    name, topic_id = topic
    epoch, partitions = client.join_share(group_id, "m", name)
    assert (epoch, partitions) == (2, {topic_id: (0, 1, 2)})
    group = client.share_described(group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        2,
        2,
        "simple",
    )
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == (
        "m",
        2,
        "story",
        "/127.0.0.1",
    )
    assert member.subscribed_topic_names == (name,)
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.topic_id, assigned.partitions) == (
        name,
        topic_id,
        (0, 1, 2),
    )
    assert client.share_offsets(group_id) == {name: {0: (-1, -1), 1: (-1, -1), 2: (-1, -1)}}
    assert client.delete(group_id) == {group_id: 68}
    left = client.beat(group_id, "m", -1)
    assert (left.error_code, left.member_epoch, left.assignment) == (0, -1, None)
    assert client.listed(types=("share",))[group_id] == ("share", "Empty", "share")
    assert client.delete(group_id) == {group_id: 0}
    assert client.share_offsets(group_id) == {}
    assert client.share_described(group_id).error_code == 69


def test_share_offsets_of_what_does_not_exist(client, group_id, topic):
    assert client.share_offsets(group_id) == {}
    asked = {"nope": (0,), topic[0]: (0, 9)}
    assert client.share_offsets(group_id, asked) == {
        "nope": {0: (-1, -1)},
        topic[0]: {0: (-1, -1), 9: (-1, -1)},
    }
    assert client.share_offsets(group_id, {topic[0]: (0,)}, version=0) == {
        topic[0]: {0: (-1, None)}
    }


def test_a_deleted_topic_leaves_its_share_groups(client, group_id, topic):
    name, _ = topic
    epoch, _ = client.join_share(group_id, "m", name)
    client.delete_topic(name)
    assert client.share_offsets(group_id) == {}
    gone = client.beat(group_id, "m", epoch)
    assert (gone.member_epoch, gone.assignment.topic_partitions) == (epoch + 1, ())
    topic_id = client.create_topic(name, 1)
    (assigned,) = client.beat(group_id, "m", epoch + 1).assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic_id, (0,))


def test_types_do_not_mix(client, group_id, topic):
    name, _ = topic
    classic, share = f"{group_id}-classic", f"{group_id}-share"
    client.commit(9, classic, name, {0: 1})
    client.join_share(share, "m", name)
    refused = client.beat(classic, "m", 0, (name,))
    assert (refused.error_code, refused.error_message) == (
        69,
        f"Group {classic} is not a share group.",
    )
    described = client.share_described(classic)
    assert (described.error_code, described.error_message) == (
        69,
        f"Group {classic} is not a share group.",
    )
    assert client.share_described("").error_code == 24
    assert client.join(9, share).error_code == 23
    assert client.sync(5, share, "m", 1, protocol_type=None, protocol_name=None).error_code == 23
    assert client.sync(5, share, "m", 1).error_code == client.heartbeat(4, share, "m", 1) == 25
    assert client.leave(2, share, "m") == (25, [])
    assert client.leave(5, share, "m", "n") == (0, [25, 25])
    assert client.commit(9, share, name, {0: 1}) == {0: 69}
    assert client.fetch(9, share, {name: [0]}) == {name: {0: (-1, "", 0)}}
    assert client.fetch(9, share, None) == {}
    described = client.described(6, share)
    assert (described.error_code, described.error_message, described.group_state) == (
        69,
        f"Group {share} is not a classic group.",
        "Dead",
    )
    assert client.share_offsets(classic) == {}


# --- where the coordinator is ---


def test_the_coordinator_is_this_broker(broker, client):
    host, port = broker.bootstrap_servers.split(":")
    share_key = "AAAAAAAAAAAAAAAAAAAAAA"
    for version in range(4):
        answer = client.ask(FIND_COORDINATOR, version, key="g", key_type=0)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (
            0,
            1,
            host,
            int(port),
        )
    for version in range(4, 7):
        answer = client.ask(FIND_COORDINATOR, version, key_type=0, coordinator_keys=("g", ""))
        assert [
            (one.key, one.error_code, one.node_id, one.port) for one in answer.coordinators
        ] == [("g", 0, 1, int(port)), ("", 0, 1, int(port))]
    keys = {
        f"g:{share_key}:0": 0,
        f"a:b:{share_key}:0": 0,
        f"g:{share_key}:-1": 0,
        "a:b": 42,
        f"a:{share_key}:x": 42,
        f":{share_key}:0": 42,
        "a:short:0": 42,
        "": 42,
    }
    answer = client.ask(FIND_COORDINATOR, 6, key_type=2, coordinator_keys=tuple(keys))
    assert {one.key: one.error_code for one in answer.coordinators} == keys
    assert {one.node_id for one in answer.coordinators if one.error_code} == {-1}
    (refused,) = client.ask(FIND_COORDINATOR, 6, key_type=3, coordinator_keys=("g",)).coordinators
    assert refused.error_code == 42


def test_a_member_of_a_new_share_group_has_its_partitions_with_the_first_answer(client, group_id):
    topic_id = client.create_topic(f"{group_id}-topic")
    answer = client.beat(group_id, "m", 0, (f"{group_id}-topic",))
    assert [(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions] == [
        (topic_id, (0, 1, 2))
    ]


# --- a restart ---


def test_groups_are_found_again(tmp_path, group_id):
    share = f"{group_id}-share"
    with (
        headrace.Broker(tmp_path, GROUP_CONFIGS) as broker,
        GroupClient(broker.bootstrap_servers) as client,
    ):
        topic_id = client.create_topic("t")
        joined = client.join(9, group_id)
        client.sync(5, group_id, joined.member_id, 1, [(joined.member_id, b"all")])
        client.commit(9, group_id, "t", {0: 5}, member_id=joined.member_id, generation_id=1)
        epoch, partitions = client.join_share(share, "m", "t")
        before = client.listed(), client.described(6, group_id), client.share_described(share)
    with (
        headrace.Broker(tmp_path, GROUP_CONFIGS) as broker,
        GroupClient(broker.bootstrap_servers) as client,
    ):
        assert (
            client.listed(),
            client.described(6, group_id),
            client.share_described(share),
        ) == before
        assert client.heartbeat(4, group_id, joined.member_id, 1) == 0
        assert client.sync(5, group_id, joined.member_id, 1).assignment == b"all"
        assert client.fetch(9, group_id, None) == {"t": {0: (5, "at 5", 0)}}
        answer = client.beat(share, "m", epoch)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, epoch, None)
        assert (
            client.beat(share, "m", 0, ("t",)).assignment.topic_partitions[0].topic_id == topic_id
        )
        assert partitions == {topic_id: (0, 1, 2)}


@pytest.mark.slow
def test_ten_thousand_groups_with_one_offset_each(tmp_path):
    config = GROUP_CONFIGS | {"offsets.retention.check.interval.ms": 1_000}
    with (
        headrace.Broker(tmp_path, config) as broker,
        GroupClient(broker.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        for number in range(10_000):
            client.commit(2, f"g{number}", "t", {0: number}, retention_ms=3_600_000)
        client.commit(9, "g-other", "t", {0: 1})
        assert len(client.listed()) == 10_001
    with (
        headrace.Broker(tmp_path, config) as broker,
        GroupClient(broker.bootstrap_servers) as client,
    ):
        groups = client.listed()
        assert len(groups) == 10_001
        assert client.fetch(9, "g9999", None) == {"t": {0: (9999, "at 9999", 0)}}
        for number in range(10_000):
            client.commit(2, f"g{number}", "t", {0: number}, retention_ms=0)
        wait_until(lambda: client.listed().keys() == {"g-other"}, 60, "the end of all that is over")
        assert client.fetch(9, "g9999", None) == {}
