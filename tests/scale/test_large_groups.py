"""Groups with many members or partitions, and many share groups, beside an honest client."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from headrace import ShareConsumer
from tests.clients.confluent import PATIENCE_S, create_topic, produce
from tests.scale.broker import FACTOR, Broker
from tests.wire_client import Connection, connection

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(3600)]

CLASSIC_MEMBERS = min(200 * FACTOR, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - 1_000)
"""Each has a connection of its own, as its JoinGroup waits for the others."""
SHARE_GROUPS = 200 * FACTOR
SHARE_MEMBERS = min(200 * FACTOR, 1_000)
"""The most that ``group.share.max.size`` may be is 1,000."""
PARTITIONS = 10_000
METADATA = b"m" * 60
ASSIGNMENT = b"a" * 60


def join(client: Connection, member_id: str = "") -> tuple[int, int, int]:
    return client.send_message(
        11,
        3,
        group_id="classic",
        session_timeout=1_800_000,
        rebalance_timeout=1_800_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": METADATA}],
    )


def sync(
    client: Connection, joined: Any, assignments: Sequence[dict[str, Any]] = ()
) -> tuple[int, int, int]:
    return client.send_message(
        14,
        2,
        group_id="classic",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=list(assignments),
    )


def members_of(client: Connection) -> int:
    described = client.ask(15, 2, groups=["classic"])
    return len(described.groups[0].members)


def test_members_of_one_classic_group(broker: Broker) -> None:
    count = CLASSIC_MEMBERS
    with ExitStack() as opened:
        admin = opened.enter_context(connection(broker.bootstrap_servers, timeout_s=900))
        leader = opened.enter_context(connection(broker.bootstrap_servers, timeout_s=900))
        first = leader.receive_message(join(leader))
        with broker.measured(f"{count:,} members connect and join"):
            others = [
                opened.enter_context(connection(broker.bootstrap_servers, timeout_s=900))
                for _ in range(count - 1)
            ]
            sent = [join(client) for client in others]
            while members_of(admin) < count:
                time.sleep(0.5)
        with broker.measured("the last JoinGroup, which all wait for"):
            led = leader.receive_message(join(leader, first.member_id))
            joined = [client.receive_message(one) for client, one in zip(others, sent, strict=True)]
        assert len(led.members) == count
        assert {one.generation_id for one in joined} == {led.generation_id}
        with broker.measured("the followers' SyncGroup"):
            sent = [sync(client, one) for client, one in zip(others, joined, strict=True)]
            time.sleep(0.5)
        assignments = [
            {"member_id": one.member_id, "assignment": ASSIGNMENT} for one in (led, *joined)
        ]
        with broker.measured("the leader's SyncGroup, which all wait for"):
            assert leader.receive_message(sync(leader, led, assignments)).assignment == ASSIGNMENT
            for client, one in zip(others, sent, strict=True):
                assert client.receive_message(one).assignment == ASSIGNMENT
        described = broker.ask(f"DescribeGroups of {count:,} members", 15, 5, groups=["classic"])
        assert len(described.groups[0].members) == count
        left = broker.ask(
            f"LeaveGroup of {count:,} members",
            13,
            3,
            group_id="classic",
            members=[{"member_id": one.member_id} for one in (led, *joined)],
        )
        assert {int(one.error_code) for one in left.members} == {0}
        with broker.measured(f"{count:,} members disconnect"):
            opened.close()


def heartbeat(client: Connection, group_id: str, member_id: str, epoch: int) -> Any:
    beaten = client.ask(
        76,
        1,
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=["queue"] if epoch == 0 else None,
    )
    assert beaten.error_code == 0, beaten
    return beaten


def test_share_groups(broker: Broker) -> None:
    group_ids = [f"share-{n}" for n in range(SHARE_GROUPS)]
    with connection(broker.bootstrap_servers, timeout_s=900) as client:
        topic_id = client.create_topic("queue", 4)
        with broker.measured(f"{SHARE_GROUPS:,} share groups of one member"):
            for group_id in group_ids:
                heartbeat(client, group_id, f"member-of-{group_id}", 0)
        with broker.measured(f"ShareFetch of {SHARE_GROUPS:,} share groups"):
            for group_id in group_ids:
                for epoch in (0, -1):
                    fetched = client.ask(
                        78,
                        1,
                        group_id=group_id,
                        member_id=f"member-of-{group_id}",
                        share_session_epoch=epoch,
                        max_bytes=1 << 20,
                        max_records=500,
                        batch_size=500,
                        topics=[
                            {
                                "topic_id": topic_id,
                                "partitions": [
                                    {"partition_index": p, "acknowledgement_batches": []}
                                    for p in range(4)
                                ],
                            }
                        ]
                        if epoch == 0
                        else [],
                    )
                    assert fetched.error_code == 0, fetched
    broker.ask("ListGroups, share", 16, 5, types_filter=["share"])
    described = broker.ask(f"ShareGroupDescribe {SHARE_GROUPS:,}", 77, 1, group_ids=group_ids)
    assert {int(group.error_code) for group in described.groups} == {0}
    offsets = broker.ask(
        f"DescribeShareGroupOffsets {SHARE_GROUPS:,}",
        90,
        0,
        groups=[{"group_id": group_id, "topics": None} for group_id in group_ids],
    )
    assert {len(group.topics) for group in offsets.groups} == {1}
    with (
        connection(broker.bootstrap_servers, timeout_s=900) as client,
        broker.measured(f"{SHARE_GROUPS:,} members leave their share groups"),
    ):
        for group_id in group_ids:
            heartbeat(client, group_id, f"member-of-{group_id}", -1)
    deleted = broker.ask(f"DeleteGroups {SHARE_GROUPS:,}, share", 42, 2, groups_names=group_ids)
    assert {int(one.error_code) for one in deleted.results} == {0}


def test_members_of_one_share_group(broker: Broker) -> None:
    with connection(broker.bootstrap_servers, timeout_s=900) as client:
        client.create_topic("shared", 100)
        with broker.measured(f"{SHARE_MEMBERS:,} members join a share group"):
            for n in range(SHARE_MEMBERS):
                heartbeat(client, "crowd", f"member-{n}", 0)
    described = broker.ask(
        f"ShareGroupDescribe of {SHARE_MEMBERS:,} members", 77, 1, group_ids=["crowd"]
    )
    assert len(described.groups[0].members) == SHARE_MEMBERS


def test_a_share_consumer_of_many_partitions(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "wide", PARTITIONS)
    numbers = range(0, PARTITIONS, PARTITIONS // 20)
    for number in numbers:
        produce(servers, "wide", [b"%d" % number], number)

    async def consume() -> list[bytes | None]:
        values: list[bytes | None] = []
        conf = {"bootstrap.servers": servers, "group.id": "wide"}
        async with (
            asyncio.timeout(PATIENCE_S),
            ShareConsumer(conf, ["wide"], start="earliest") as queue,
        ):
            while len(values) < len(numbers):
                records = await queue.poll()
                await queue.accept(records)
                values += [record.value for record in records]
            assert len(queue.assignment) == PARTITIONS
        return values

    with broker.measured(f"a share consumer of {PARTITIONS:,} partitions"):
        values = asyncio.run(consume())
    assert sorted(values) == sorted(b"%d" % number for number in numbers)
