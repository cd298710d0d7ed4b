"""Classic groups while the disk is full: an error for everybody concerned, and memory that equals
what a restart finds.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.log import segment
from headrace.protocol.errors import ErrorCode
from tests.wire_client import Connection, connection

pytestmark = pytest.mark.broker

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 11, 12, 13, 14, 15
CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
GROUP = "no-space-group"


class Disk:
    """The disk of this process. While it is full, no record of the group is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        real = segment.pwritev

        def pwritev(fd: int, buffers: Any, position: int) -> int:
            if self.is_full and GROUP.encode() in b"".join(map(bytes, buffers)):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, buffers, position)

        monkeypatch.setattr(segment, "pwritev", pwritev)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class Member:
    """A member on a connection of its own."""

    def __init__(self, bootstrap_servers: str, instance_id: str | None = None) -> None:
        self.connection = Connection(bootstrap_servers)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def send_join(self) -> Any:
        return self.connection.send_message(
            JOIN_GROUP,
            9,
            group_id=GROUP,
            session_timeout=30_000,
            rebalance_timeout=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="p",
            protocols=[{"name": "one", "metadata": b"m"}],
        )

    def joined(self, sent: Any) -> ErrorCode:
        response = self.connection.receive_message(sent)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
            self.generation = response.generation_id
        return ErrorCode(response.error_code)

    def introduce(self) -> None:
        """Get a member id (KIP-394)."""
        assert self.joined(self.send_join()) is ErrorCode.MEMBER_ID_REQUIRED

    def send_sync(self, *assigned: Member) -> Any:
        return self.connection.send_message(
            SYNC_GROUP,
            5,
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="p",
            protocol_name="one",
            assignments=[{"member_id": one.member_id, "assignment": b"a"} for one in assigned],
        )

    def synced(self, sent: Any) -> ErrorCode:
        return ErrorCode(self.connection.receive_message(sent).error_code)

    def heartbeat(self) -> ErrorCode:
        response = self.connection.ask(
            HEARTBEAT,
            4,
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(response.error_code)


def leave(admin: Connection, *members: Member) -> ErrorCode:
    leavers = [{"member_id": one.member_id} for one in members]
    response = admin.ask(LEAVE_GROUP, 5, group_id=GROUP, members=leavers)
    return ErrorCode(response.error_code)


def describe(bootstrap_servers: str) -> tuple[str, set[str]]:
    """The group's state and the ids of its members."""
    with connection(bootstrap_servers) as admin:
        (group,) = admin.ask(DESCRIBE_GROUPS, 5, groups=[GROUP]).groups
    return group.group_state, {member.member_id for member in group.members}


def described_after_a_restart(data_dir: Path) -> tuple[str, set[str]]:
    with headrace.Broker(data_dir, CONFIG) as broker:
        return describe(broker.bootstrap_servers)


@contextmanager
def stable_group(bootstrap_servers: str) -> Iterator[tuple[Member, Member]]:
    """A stable group of a leader and another member."""
    leader, follower = Member(bootstrap_servers), Member(bootstrap_servers)
    leader.introduce()
    assert leader.joined(leader.send_join()) is ErrorCode.NONE
    follower.introduce()
    follower_joins = follower.send_join()
    assert leader.joined(leader.send_join()) is ErrorCode.NONE
    assert follower.joined(follower_joins) is ErrorCode.NONE
    follower_syncs = follower.send_sync()
    assert leader.synced(leader.send_sync(leader, follower)) is ErrorCode.NONE
    assert follower.synced(follower_syncs) is ErrorCode.NONE
    try:
        yield leader, follower
    finally:
        leader.connection.close()
        follower.connection.close()


def test_members_that_cannot_leave_are_still_there(tmp_path: Path, disk: Disk) -> None:
    with headrace.Broker(tmp_path, CONFIG) as broker:
        where = broker.bootstrap_servers
        with stable_group(where) as (leader, follower), connection(where) as admin:
            both = {leader.member_id, follower.member_id}
            disk.is_full = True
            assert leave(admin, leader, follower) is ErrorCode.NOT_COORDINATOR
            assert describe(where) == ("Stable", both)
            assert leader.heartbeat() is ErrorCode.NONE
    assert described_after_a_restart(tmp_path) == ("Stable", both)

    disk.is_full = False
    with headrace.Broker(tmp_path, CONFIG) as broker:
        with connection(broker.bootstrap_servers) as admin:
            assert leave(admin, leader, follower) is ErrorCode.NONE
        assert describe(broker.bootstrap_servers) == ("Empty", set())
    assert described_after_a_restart(tmp_path) == ("Empty", set())


def test_a_waiting_join_is_answered_when_the_group_cannot_become_empty(
    tmp_path: Path, disk: Disk
) -> None:
    with headrace.Broker(tmp_path, CONFIG) as broker:
        where = broker.bootstrap_servers
        with stable_group(where) as (leader, follower), connection(where) as admin:
            joins = leader.send_join()  # waits for the follower
            assert not leader.connection.has_response(0.2)
            disk.is_full = True
            assert leave(admin, leader, follower) is ErrorCode.NOT_COORDINATOR
            assert leader.joined(joins) is ErrorCode.NOT_COORDINATOR
            disk.is_full = False
            joins = leader.send_join()
            assert leave(admin, follower) is ErrorCode.NONE
            assert leader.joined(joins) is ErrorCode.NONE


def test_all_who_wait_to_sync_are_answered_when_the_assignment_cannot_be_written(
    tmp_path: Path, disk: Disk
) -> None:
    with (
        headrace.Broker(tmp_path, CONFIG) as broker,
        stable_group(broker.bootstrap_servers) as (leader, follower),
    ):
        before = describe(broker.bootstrap_servers)
        joins = leader.send_join()
        assert follower.joined(follower.send_join()) is ErrorCode.NONE
        assert leader.joined(joins) is ErrorCode.NONE
        disk.is_full = True
        follower_syncs = follower.send_sync()
        assert not follower.connection.has_response(0.3)
        leader_syncs = leader.send_sync(leader, follower)
        assert leader.synced(leader_syncs) is ErrorCode.NOT_COORDINATOR
        assert follower.synced(follower_syncs) is ErrorCode.NOT_COORDINATOR
        assert describe(broker.bootstrap_servers)[0] == "CompletingRebalance"
        disk.is_full = False
        follower_syncs = follower.send_sync()
        assert leader.synced(leader.send_sync(leader, follower)) is ErrorCode.NONE
        assert follower.synced(follower_syncs) is ErrorCode.NONE
        assert describe(broker.bootstrap_servers) == before


def test_a_static_member_that_could_not_come_back_is_the_old_one(
    tmp_path: Path, disk: Disk
) -> None:
    with headrace.Broker(tmp_path, CONFIG) as broker:
        old = Member(broker.bootstrap_servers, "instance")
        new = Member(broker.bootstrap_servers, "instance")
        assert old.joined(old.send_join()) is ErrorCode.NONE
        assert old.synced(old.send_sync(old)) is ErrorCode.NONE
        disk.is_full = True
        assert new.joined(new.send_join()) is ErrorCode.NOT_COORDINATOR
        assert old.heartbeat() is ErrorCode.NONE
        disk.is_full = False
        assert new.joined(new.send_join()) is ErrorCode.NONE
        assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
        assert new.heartbeat() is ErrorCode.NONE
        for member in (old, new):
            member.connection.close()
