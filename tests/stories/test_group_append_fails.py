"""Groups on a full disk: a request is told of it, nothing changes, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import kio.schema.heartbeat.v4.request as heartbeats
import kio.schema.join_group.v9.request as joins
import kio.schema.leave_group.v5.request as leaves
import kio.schema.sync_group.v5.request as syncs
import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.errors import ErrorCode, StorageError
from headrace.handlers import handler
from headrace.handlers.context import RequestContext
from headrace.log import segment

from .share_stage import story

GROUP = "g"
MINUTE = timedelta(minutes=1)
OLD, NEW = RequestContext(3, "c", "/h", 1, "h", 1), RequestContext(9, "c", "/h", 1, "h", 1)

Disk = Callable[[bool], None]


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Have the disk refuse all writes, or none."""
    real, is_full = segment.pwritev, [False]

    def pwritev(fd: int, buffers: Any, position: int) -> int:
        if is_full[0]:
            raise OSError(28, "No space left on device")
        return real(fd, buffers, position)

    monkeypatch.setattr(segment, "pwritev", pwritev)
    return lambda full: is_full.__setitem__(0, full)


def begun(data_dir: Path) -> Broker:
    broker = Broker(Config({"group.initial.rebalance.delay.ms": "0"}), data_dir)
    broker.start()
    return broker


def ask(broker: Broker, api_key: int, request: Any, context: RequestContext = NEW) -> Any:
    """The future of an answer."""
    return handler(api_key)(broker, request, context).future()


def join(broker: Broker, member_id: str = "", instance: str | None = None) -> Any:
    request = joins.JoinGroupRequest(
        group_id=GROUP,
        session_timeout=MINUTE,
        rebalance_timeout=MINUTE,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=(joins.JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    return ask(broker, 11, request, OLD)


def sync(broker: Broker, member_id: str, generation_id: int, *members: str) -> Any:
    given = tuple(
        syncs.SyncGroupRequestAssignment(member_id=one, assignment=one.encode()) for one in members
    )
    request = syncs.SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation_id,
        member_id=member_id,
        assignments=given,
        protocol_type="consumer",
        protocol_name="range",
    )
    return ask(broker, 14, request)


def leave(broker: Broker, *member_ids: str) -> Any:
    members = tuple(leaves.MemberIdentity(member_id=member_id) for member_id in member_ids)
    return ask(broker, 13, leaves.LeaveGroupRequest(group_id=GROUP, members=members))


def beat(broker: Broker, member_id: str, generation_id: int, instance: str | None = None) -> int:
    request = heartbeats.HeartbeatRequest(
        group_id=GROUP, generation_id=generation_id, member_id=member_id, group_instance_id=instance
    )
    return handler(12)(broker, request, NEW).error_code


async def stable(broker: Broker) -> list[str]:
    """The ids of two members that are in a stable group, the leader's first."""
    leader = (await join(broker)).member_id
    both = [join(broker), join(broker, leader)]
    follower = (await both[0]).member_id
    generation_id = (await both[1]).generation_id
    assigned = [sync(broker, follower, generation_id)]
    assigned.append(sync(broker, leader, generation_id, leader, follower))
    assert {one.error_code for one in await asyncio.gather(*assigned)} == {ErrorCode.NONE}
    return [leader, follower]


def described(broker: Broker) -> tuple[str, int, set[str]]:
    (group,) = broker.groups.groups.values()
    return group.state_name, group.generation_id, set(group.members.by_id)


def found_by_a_restart(data_dir: Path) -> tuple[str, int, set[str]]:
    async def found() -> tuple[str, int, set[str]]:
        broker = begun(data_dir)
        try:
            return described(broker)
        finally:
            broker.close()

    return asyncio.run(found())


def test_leaving(tmp_path: Path, fill: Disk) -> None:
    async def told() -> tuple[str, int, set[str]]:
        broker = begun(tmp_path)
        members = await stable(broker)
        before = described(broker)
        fill(True)
        with pytest.raises(StorageError):
            await leave(broker, *members)
        assert described(broker) == before
        broker.close()
        return before

    before = asyncio.run(asyncio.wait_for(told(), 30))
    fill(False)
    assert found_by_a_restart(tmp_path) == before


@story
async def test_who_waits_is_told_and_may_ask_again(tmp_path: Path, fill: Disk) -> None:
    broker = begun(tmp_path)
    leader, follower = await stable(broker)
    parked = join(broker, leader)
    await asyncio.sleep(0.01)
    fill(True)
    with pytest.raises(StorageError):
        await leave(broker, leader, follower)
    with pytest.raises(StorageError):
        await parked
    fill(False)
    again = join(broker, leader)
    assert (await leave(broker, follower)).error_code == ErrorCode.NONE
    joined = await again
    assert joined.error_code == ErrorCode.NONE
    assert [member.member_id for member in joined.members] == [leader]
    broker.close()


@story
async def test_a_static_member_that_could_not_come_back_is_who_it_was(
    tmp_path: Path, fill: Disk
) -> None:
    broker = begun(tmp_path)
    joined = await join(broker, instance="one")
    member_id, generation_id = joined.member_id, joined.generation_id
    assert (await sync(broker, member_id, generation_id, member_id)).error_code == ErrorCode.NONE
    fill(True)
    with pytest.raises(StorageError):
        await join(broker, instance="one")
    fill(False)
    assert beat(broker, member_id, generation_id, "one") == ErrorCode.NONE
    back = await join(broker, instance="one")
    assert back.error_code == ErrorCode.NONE
    fenced = beat(broker, member_id, generation_id, "one")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    broker.close()
