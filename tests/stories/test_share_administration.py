"""Offsets of share groups over the wire: altering, deleting and describing them, and a restart."""

from __future__ import annotations

import pytest

import headrace
from tests.group_client import GroupClient
from tests.stories.conftest import GROUP_CONFIGS

pytestmark = pytest.mark.broker

NOT_HOSTED = (3, "This server does not host this topic-partition.")
NOT_EMPTY = (68, "The group is not empty.")
NOTHING = (None, 3, "There is no offset information to delete.")


def test_setting_offsets_makes_a_group(client, group_id, topic):
    name, topic_id = topic
    answer = client.alter_share_offsets(
        group_id, (name, {0: 7, 2: -1, 3: 1, -1: 1}), ("nope", {0: 1})
    )
    assert answer == {
        name: {0: (0, None), 2: (0, None), 3: NOT_HOSTED, -1: NOT_HOSTED},
        "nope": {0: NOT_HOSTED},
    }
    assert client.listed(types=("share",))[group_id] == ("share", "Empty", "share")
    group = client.share_described(group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 1, 1)
    # past the end: the lag is negative
    assert client.share_offsets(group_id) == {name: {0: (7, -7), 2: (-1, -1)}}
    joined = client.beat(group_id, "m", 0, (name,))
    assert [(one.topic_id, one.partitions) for one in joined.assignment.topic_partitions] == [
        (topic_id, (0, 1, 2))
    ]
    assert joined.member_epoch == 2
    assert client.share_offsets(group_id) == {name: {0: (7, -7), 1: (-1, -1), 2: (-1, -1)}}


def test_nothing_to_set_makes_no_group(client, group_id, topic):
    assert client.alter_share_offsets(group_id) == {}
    assert client.alter_share_offsets(group_id, ("nope", {0: 1}), (topic[0], {9: 1})) == {
        "nope": {0: NOT_HOSTED},
        topic[0]: {9: NOT_HOSTED},
    }
    assert client.alter_share_offsets(group_id, (topic[0], {})) == {topic[0]: {}}
    assert client.share_described(group_id).error_code == 69


def test_offsets_may_be_set_again_and_again(client, group_id, topic):
    for offset in (5, 0, -1, 1000, -5):
        assert client.alter_share_offsets(group_id, (topic[0], {1: offset})) == {
            topic[0]: {1: (0, None)}
        }
        assert client.share_offsets(group_id) == {
            topic[0]: {1: (offset, -1 if offset == -1 else -offset)}
        }
    # a topic that is named twice is taken as named once
    assert client.alter_share_offsets(group_id, (topic[0], {0: 1}), (topic[0], {1: 2})) == {
        topic[0]: {0: (0, None), 1: (0, None)}
    }
    assert client.share_offsets(group_id) == {topic[0]: {0: (1, -1), 1: (2, -2)}}


def test_deleting_offsets(client, group_id, topic):
    name, topic_id = topic
    other = f"{name}-other"
    client.create_topic(other)
    client.alter_share_offsets(group_id, (name, {0: 7, 1: 8}))
    answer = client.delete_share_offsets(group_id, name, "nope", other, name)
    assert answer == {name: (topic_id, 0, None), "nope": (None, *NOT_HOSTED), other: NOTHING}
    assert client.share_offsets(group_id) == {}
    assert client.share_offsets(group_id, {name: (0, 1)}) == {name: {0: (-1, -1), 1: (-1, -1)}}
    assert client.delete_share_offsets(group_id, name) == {name: NOTHING}
    assert client.delete_share_offsets(group_id) == {}
    assert client.share_described(group_id).group_state == "Empty"


def test_a_group_with_members_keeps_its_offsets(client, group_id, topic):
    client.beat(group_id, "m", 0, (topic[0],))
    for asked in ((), ((topic[0], {0: 1}),), (("nope", {0: 1}),)):
        assert client.alter_share_offsets(group_id, *asked) == NOT_EMPTY
    for asked in ((), (topic[0],), ("nope",)):
        assert client.delete_share_offsets(group_id, *asked) == NOT_EMPTY
    client.beat(group_id, "m", -1)
    assert client.alter_share_offsets(group_id, (topic[0], {0: 1})) == {topic[0]: {0: (0, None)}}


def test_only_share_groups_have_share_offsets(client, group_id, topic):
    client.commit(9, group_id, topic[0], {0: 1})
    refused = (69, f"Group {group_id} is not a share group.")
    for asked in ((), ((topic[0], {0: 1}),), (("nope", {0: 1}),)):
        assert client.alter_share_offsets(group_id, *asked) == refused
    assert (
        client.delete_share_offsets(group_id)
        == client.delete_share_offsets(group_id, topic[0])
        == refused
    )
    assert client.delete_share_offsets(f"{group_id}-x", topic[0]) == (
        69,
        f"Group {group_id}-x not found.",
    )
    assert client.alter_share_offsets("", (topic[0], {0: 1})) == (24, "The group id is invalid.")
    assert client.delete_share_offsets("", topic[0]) == (24, "The group id is invalid.")


def test_deleting_a_group_deletes_its_offsets(client, group_id, topic):
    client.alter_share_offsets(group_id, (topic[0], {0: 7}))
    assert client.delete(group_id, group_id, "") == {group_id: 0, "": 69}
    assert client.share_offsets(group_id, {topic[0]: (0,)}) == {topic[0]: {0: (-1, -1)}}
    assert client.share_described(group_id).error_code == 69


def test_set_offsets_survive_a_restart(tmp_path):
    with (
        headrace.Broker(tmp_path, GROUP_CONFIGS) as broker,
        GroupClient(broker.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        client.alter_share_offsets("kept", ("t", {0: 3, 2: 4}))
        client.alter_share_offsets("lost", ("t", {0: 3}))
        client.delete_share_offsets("lost", "t")
        client.alter_share_offsets("gone", ("t", {0: 3}))
        client.delete("gone")
    with (
        headrace.Broker(tmp_path, GROUP_CONFIGS) as broker,
        GroupClient(broker.bootstrap_servers) as client,
    ):
        assert client.share_offsets("kept") == {"t": {0: (3, -3), 2: (4, -4)}}
        assert client.share_offsets("lost") == {}
        assert client.listed().keys() == {"kept", "lost"}
