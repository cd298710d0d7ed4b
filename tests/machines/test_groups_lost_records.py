"""Groups after a start that could not read one of their records: the damage stays with its key."""

from __future__ import annotations

import pytest

from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.records import (
    CONSUMER_RECORDS,
    SHARE_RECORDS,
)
from headrace.protocol.errors import Refusal
from tests.machines.group_desk import Desk


@pytest.fixture
def desk(monkeypatch):
    """A consumer group and a share group of one member each, and records that can be lost."""
    desk = Desk()
    desk.observes = False
    desk.add_topic("t", 4)
    desk.consume("m", 0, ["t"])
    desk.beat("m", 0, ["t"])
    desk.beat("m", 2)
    real = GroupCoordinator.decode

    def restart_without(kind):
        def decode(key, value):
            record = real(key, value)
            return None if isinstance(record, kind) else record

        monkeypatch.setattr(GroupCoordinator, "decode", staticmethod(decode))
        desk.restart()
        monkeypatch.setattr(GroupCoordinator, "decode", staticmethod(real))

    desk.restart_without = restart_without
    return desk


@pytest.mark.parametrize("kind", [CONSUMER_RECORDS.member, CONSUMER_RECORDS.current])
def test_a_member_of_a_consumer_group_joins_again_and_gets_its_partitions(desk, kind):
    desk.restart_without(kind)
    assert isinstance(desk.consume("m", 2), Refusal)
    reply = desk.consume("m", 0, ["t"])
    assert desk.by_name(reply.assigned) == {"t": [0, 1, 2, 3]}


def test_partitions_of_a_member_that_is_lost_go_to_others(desk):
    desk.restart_without(CONSUMER_RECORDS.member)
    reply = desk.consume("n", 0, ["t"])
    assert desk.by_name(reply.assigned) == {"t": [0, 1, 2, 3]}


def test_a_static_member_without_assignment_leaves_after_its_session(desk):
    desk.consume("m", -1)
    desk.consume("m", 0, ["t"], instance="i")
    desk.restart_without(CONSUMER_RECORDS.current)
    assert isinstance(desk.consume("o", 0, ["t"], instance="i"), Refusal)  # "m" may be alive
    desk.pass_ms(45_000)
    reply = desk.consume("o", 0, ["t"], instance="i")
    assert desk.by_name(reply.assigned) == {"t": [0, 1, 2, 3]}


@pytest.mark.parametrize("kind", [SHARE_RECORDS.member, SHARE_RECORDS.current])
def test_a_member_of_a_share_group_joins_again(desk, kind):
    desk.restart_without(kind)
    group = desk.coordinator.groups["s"]
    assert group.state.members.keys() == group.state.current.keys()
    assert isinstance(desk.beat("m", 2), Refusal)
    reply = desk.beat("m", 0, ["t"])
    assert reply.assigned == {desk.id_of("t"): (0, 1, 2, 3)}
