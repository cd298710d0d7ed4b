"""The records in flight of a share group, seen and released by a client that is not a member."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import Cluster, RangeConsumer, RequestRefused
from headrace.client.config import read_config
from headrace.client.share.types import Acknowledgement, AcknowledgeType
from headrace.client.share_state import release_records, share_states
from headrace.secure_broker import SecureBroker
from tests.clients.confluent import create_topic, produce, share_from_earliest
from tests.support import story, unique


def _group(bootstrap_servers: str, **configs: str) -> tuple[str, str]:
    topic = create_topic(bootstrap_servers, unique("inspected"))
    group = share_from_earliest(bootstrap_servers, unique("inspectors"), **configs)
    produce(bootstrap_servers, topic, [b"%d" % n for n in range(10)])
    return group, topic


async def _acquired(member: RangeConsumer) -> int:
    while not (found := await member.acquire(max_records=10, max_wait_ms=1000)).ranges:
        pass
    return sum(one.last_offset - one.first_offset + 1 for one in found.ranges)


@story
async def test_offsets_are_acquired_without_their_records(
    bootstrap_servers: str, target: str
) -> None:
    group, topic = await asyncio.to_thread(_group, bootstrap_servers)
    async with RangeConsumer(bootstrap_servers, group, [topic]) as member:
        while not (acquired := await member.acquire(offsets_only=True, max_wait_ms=1000)).ranges:
            pass
        offsets = [o for r in acquired.ranges for o in range(r.first_offset, r.last_offset + 1)]
        assert offsets == list(range(10))
        has_records = target == "kafka"  # it does not know the field
        assert bool(acquired.data) == has_records
        assert member.held() == {(topic, 0): [(0, 9)]}


@story
async def test_every_state_is_told(bootstrap_servers: str, target: str) -> None:
    group, topic = await asyncio.to_thread(
        _group,
        bootstrap_servers,
        **({"share_release_backoff_ms": "60000"} if target == "headrace" else {}),
    )
    key = (topic, 0)
    async with Cluster(bootstrap_servers) as cluster:
        async with RangeConsumer(bootstrap_servers, group, [topic]) as member:
            assert await _acquired(member) == 10
            states = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
            accepted = await member.acknowledge(
                Acknowledgement(topic, 0, 2 * n, 2 * n, kind) for n, kind in enumerate(states)
            )
            assert len(accepted) == 3
            state = (await share_states(cluster, group, [key]))[key]
            starts = (0, 1) if target == "kafka" else (1,)  # it may store it with the next outcome
            assert state.start_offset in starts
            assert state.lag == 8
            if target == "kafka":  # it does not know the question
                assert state.spans is state.end_offset is state.released_count is None
                return
            assert state.spans is not None
            assert [
                (one.first_offset, one.last_offset, one.state, one.delivery_count, one.member_id)
                for one in state.spans
            ] == [
                (1, 1, "locked", 1, member.member_id),
                (2, 2, "waiting", 1, None),
                (3, 3, "locked", 1, member.member_id),
                (4, 4, "finished", 0, None),
                (5, 9, "locked", 1, member.member_id),
            ]
            assert all(
                one.remaining_ms is not None and 0 < one.remaining_ms <= 60_000
                for one in state.spans
                if one.state in ("locked", "waiting")
            )
            assert (state.end_offset, state.released_count, state.archived_count) == (10, 1, 1)
            cut = (await share_states(cluster, group, [key], 2))[key]
            assert cut.spans is not None
            assert len(cut.spans) == 2
        state = (await share_states(cluster, group, [key]))[key]
        assert state.spans is not None
        assert not any(one.state == "locked" for one in state.spans)


@story
async def test_held_records_are_released(bootstrap_servers: str, target: str) -> None:
    group, topic = await asyncio.to_thread(_group, bootstrap_servers)
    key = (topic, 0)
    async with (
        Cluster(bootstrap_servers) as cluster,
        RangeConsumer(bootstrap_servers, group, [topic]) as holder,
    ):
        assert await _acquired(holder) == 10
        if target == "kafka":
            with pytest.raises(RequestRefused, match="NON_EMPTY_GROUP"):
                await release_records(cluster, group, key, 3, 5)
            return
        await release_records(cluster, group, key, 3, 5)
        state = (await share_states(cluster, group, [key]))[key]
        assert state.spans is not None
        assert [
            (span.first_offset, span.last_offset, span.state, span.delivery_count)
            for span in state.spans
        ] == [
            (0, 2, "locked", 1),
            (3, 5, "available", 1),
            (6, 9, "locked", 1),
        ]
        with pytest.raises(RequestRefused, match="INVALID_RECORD_STATE"):
            await release_records(cluster, group, key, 3, 5)
        # The holder's outcome comes too late for them, as after a timeout.
        late = Acknowledgement(topic, 0, 3, 5, AcknowledgeType.ACCEPT)
        assert await holder.acknowledge([late]) == []
        async with RangeConsumer(bootstrap_servers, group, [topic]) as other:
            assert await _acquired(other) == 3


@story
async def test_both_take_the_permissions_of_group_and_topic(
    headrace_secure_broker: SecureBroker,
) -> None:
    broker = headrace_secure_broker

    def prepare() -> None:
        admin = AdminClient(broker.client_config())
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)

    await asyncio.to_thread(prepare)
    key = ("orders", 0)
    async with read_config(broker.client_config("alice")).cluster() as cluster:
        with pytest.raises(RequestRefused, match="GROUP_AUTHORIZATION_FAILED"):
            await share_states(cluster, "workers", [key])
        await asyncio.to_thread(broker.allow, "alice", "DESCRIBE", "GROUP", "workers")
        state = (await share_states(cluster, "workers", [key]))[key]
        assert (state.spans, state.end_offset) == (None, None)  # the topic is not allowed
        await asyncio.to_thread(broker.allow, "alice", "DESCRIBE", "TOPIC", "orders")
        state = (await share_states(cluster, "workers", [key]))[key]
        assert (state.spans, state.end_offset) == ((), 0)
        with pytest.raises(RequestRefused, match="GROUP_AUTHORIZATION_FAILED"):
            await release_records(cluster, "workers", key, 0, 9)
        await asyncio.to_thread(broker.allow, "alice", "READ", "GROUP", "workers")
        with pytest.raises(RequestRefused, match="TOPIC_AUTHORIZATION_FAILED"):
            await release_records(cluster, "workers", key, 0, 9)
        await asyncio.to_thread(broker.allow, "alice", "READ", "TOPIC", "orders")
        with pytest.raises(RequestRefused, match="INVALID_RECORD_STATE"):
            await release_records(cluster, "workers", key, 0, 9)
