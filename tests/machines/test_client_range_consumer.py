"""A share consumer whose brokers answer as the test says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.errors import RequestRefused
from headrace.client.share.membership import trouble_of
from headrace.client.share.node import ShareNode
from headrace.client.share.range_consumer import RangeConsumer
from headrace.client.share.spans import PartitionSpans, add, drop
from headrace.client.share.types import Acknowledgement, AcknowledgeType
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition
from tests.support import story

TOPIC_ID = UUID(int=1)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> RangeConsumer:
    """A member that holds the offsets 0 to 9 of a partition at the brokers 1 and 2, which accept
    all outcomes.
    """
    consumer = RangeConsumer("nowhere:9092", "g", ["t"])
    consumer._membership.topics[TOPIC_ID] = TopicMetadata("t", TOPIC_ID, {0: 1, 1: 2})
    for partition in (0, 1):
        add(consumer._node(partition + 1).held, {(TOPIC_ID, partition): [(0, 9)]})

    async def send(node: ShareNode, *key: Any) -> PartitionSpans:
        return node._waiting.pop(key)[0]

    monkeypatch.setattr(ShareNode, "_send", send)
    return consumer


@story
async def test_what_was_acquired_of_a_deleted_topic_says_nothing_about_a_new_one(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    """The new topic has the same name, and the member holds the same offsets of it."""

    async def fetch(node: ShareNode, wanted: Collection[TopicIdPartition], *_: object) -> Any:
        ((topic_id, _),) = wanted
        return SimpleNamespace(
            responses=[SimpleNamespace(topic_id=topic_id, partitions=[acquired(0)])]
        )

    monkeypatch.setattr(ShareNode, "fetch", fetch)
    outcomes: list[Acknowledgement] = []
    for topic_id in (TOPIC_ID, UUID(int=2)):
        consumer._membership.topics[topic_id] = TopicMetadata("t", topic_id, {0: 1})
        consumer._membership.assignment = frozenset({(topic_id, 0)})
        (run,) = (await consumer.acquire()).ranges
        outcomes.append(
            Acknowledgement(
                run.topic,
                run.partition,
                run.first_offset,
                run.last_offset,
                AcknowledgeType.ACCEPT,
                run.topic_id,
            )
        )
    held = consumer._node(1).held
    for outcome, topic_id in zip(outcomes, (TOPIC_ID, UUID(int=2)), strict=True):
        (accepted,) = await consumer.acknowledge([outcome])
        assert accepted.topic_id == topic_id
    drop(held, {(TOPIC_ID, 0): [(0, 9)]})  # which the broker no longer has
    assert await consumer.acknowledge(outcomes[:1]) == []


@story
async def test_records_that_come_again_were_lost(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    """Their locks have timed out at the broker, or at the one that has led the partition before."""
    consumer._membership.assignment = frozenset({(TOPIC_ID, 0)})
    lost: list[object] = []
    for node in consumer._nodes.values():
        node._on_lost = lambda *loss: lost.append(loss)

    async def fetch(*_: object) -> Any:
        return SimpleNamespace(
            responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=[acquired(0)])]
        )

    monkeypatch.setattr(ShareNode, "fetch", fetch)
    for leader in (1, 2):
        consumer._membership.topics[TOPIC_ID] = TopicMetadata("t", TOPIC_ID, {0: leader})
        await consumer.acquire()
        assert lost.pop() == ({(TOPIC_ID, 0): [(0, 9)]}, "the lock has timed out")
        assert (TOPIC_ID, 0) in consumer._node(leader).held


@story
async def test_records_stay_held_when_their_locks_are_renewed_or_a_few_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
):
    node, partition = RangeConsumer("nowhere:9092", "g", ["t"])._node(1), (TOPIC_ID, 0)
    add(node.held, {partition: [(0, 9)]})
    code = ErrorCode.NONE

    def refused(*spans: tuple[int, int]) -> PartitionSpans:
        settled = SimpleNamespace(partition_index=0, error_code=code, error_message=None)
        topic = SimpleNamespace(topic_id=TOPIC_ID, partitions=[settled])
        response = SimpleNamespace(responses=[topic])
        return node._settle(AcknowledgeType.RENEW, {partition: [*spans]}, response, {}, True)

    assert not refused((0, 4))
    code = ErrorCode.INVALID_RECORD_STATE
    assert refused((0, 9)) == {partition: [(0, 9)]}
    assert node.held[partition] == [(0, 9)]


@story
async def test_locks_are_renewed_while_a_broker_does_not_answer(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    renewals: asyncio.Queue[int] = asyncio.Queue()

    async def send(node: ShareNode, *key: Any) -> PartitionSpans:
        del node._waiting[key]
        renewals.put_nowait(node._node_id)
        if node._node_id == 1:
            await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(ShareNode, "_send", send)
    for node in consumer._nodes.values():
        node.lock_timeout_ms = 60
    renewing = asyncio.create_task(consumer.keep_locks())
    seen = [await renewals.get() for _ in range(9)]
    assert seen.count(2) >= 3
    renewing.cancel()


@story
async def test_a_broker_that_does_not_answer_does_not_delay_another(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    """The locks at the other one would time out."""
    others: asyncio.Queue[AcknowledgeType] = asyncio.Queue()

    async def send(node: ShareNode, *key: Any) -> PartitionSpans:
        if node._node_id == 1:
            await asyncio.Event().wait()
        others.put_nowait(key[0])
        return {}

    monkeypatch.setattr(ShareNode, "_send", send)
    accept = [Acknowledgement("t", 1, 0, 9, AcknowledgeType.ACCEPT)]
    for call, sent in (
        (consumer.renew(), AcknowledgeType.RENEW),
        (consumer.acknowledge(accept), AcknowledgeType.ACCEPT),
    ):
        asking = asyncio.create_task(call)
        assert await others.get() == sent
        asking.cancel()


def acquired(partition: int, code: ErrorCode = ErrorCode.NONE) -> Any:
    """Return a partition of a ShareFetch response, with ten records unless it has an error."""
    run = SimpleNamespace(first_offset=0, last_offset=9, delivery_count=1)
    return SimpleNamespace(
        partition_index=partition,
        error_code=code,
        acquired_records=[] if code else [run],
        records=b"",
    )


@pytest.mark.parametrize("is_whole_request", [True, False])
@story
async def test_an_error_of_one_broker_does_not_lose_the_records_of_another(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch, is_whole_request: bool
):
    consumer._membership.assignment = frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)})
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def fetch(node: ShareNode, *_: object) -> Any:
        if node._node_id == 2 and is_whole_request:
            raise RequestRefused("ShareFetch", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        partition = acquired(0) if node._node_id == 1 else acquired(1, refusal)
        return SimpleNamespace(
            responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=[partition])]
        )

    monkeypatch.setattr(ShareNode, "fetch", fetch)
    found = await consumer.acquire()
    assert [(one.partition, one.first_offset, one.last_offset) for one in found.ranges] == [
        (0, 0, 9)
    ]
    assert not found.complete
    with pytest.raises(RequestRefused):
        await consumer.acquire()
    assert (await consumer.acquire()).ranges


@story
async def test_an_error_of_one_partition_does_not_lose_the_records_of_another(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    consumer._membership.topics[TOPIC_ID] = TopicMetadata("t", TOPIC_ID, {0: 1, 1: 1})
    consumer._membership.assignment = frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)})

    async def fetch(node: ShareNode, *_: object) -> Any:
        partitions = [acquired(0), acquired(1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        return SimpleNamespace(
            responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=partitions)]
        )

    monkeypatch.setattr(ShareNode, "fetch", fetch)
    assert len((await consumer.acquire()).ranges) == 1
    with pytest.raises(RequestRefused):
        await consumer.acquire()


@story
async def test_a_broker_that_does_not_answer_does_not_hold_back_the_records_of_another(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    consumer._membership.assignment = frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)})
    consumer._node(1).lock_timeout_ms = 60_000
    answers, asked = asyncio.Event(), []

    async def fetch(node: ShareNode, *_: object) -> Any:
        asked.append(node._node_id)
        if node._node_id == 2:
            await answers.wait()
        partition = acquired(node._node_id - 1)
        return SimpleNamespace(
            responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=[partition])]
        )

    monkeypatch.setattr(ShareNode, "fetch", fetch)
    for _ in range(2):
        found = await consumer.acquire(max_wait_ms=0)
        assert [one.partition for one in found.ranges] == [0]
        assert not found.complete
    answers.set()
    partitions = {one.partition for one in (await consumer.acquire(max_wait_ms=0)).ranges}
    partitions |= {one.partition for one in (await consumer.acquire(max_wait_ms=0)).ranges}
    assert partitions == {0, 1}
    assert asked.count(2) == 2


@story
async def test_a_close_ends_a_request_that_is_not_answered(
    consumer: RangeConsumer, monkeypatch: pytest.MonkeyPatch
):
    consumer._membership.assignment = frozenset({(TOPIC_ID, 1)})
    consumer._node(1).lock_timeout_ms = 60
    ended = asyncio.Event()

    async def fetch(node: ShareNode, *_: object) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(ShareNode, "fetch", fetch)
    assert not (await consumer.acquire(max_wait_ms=0)).ranges
    await consumer.close()
    assert ended.is_set()
    assert not consumer._fetches


def test_the_trouble_of_all_members_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    clusters = [Cluster("node1:1,node2:2") for _ in range(2)]
    one, other = map(trouble_of, clusters)
    with caplog.at_level(logging.INFO, "headrace.client"):
        one.end("heartbeat")
        one.begin("heartbeat", "group g: no broker answers")
        other.begin("session", "group h: no broker answers")
        one.begin("heartbeat", "group g: COORDINATOR_NOT_AVAILABLE")
        one.end("heartbeat")
        assert other.is_on
        other.end("session")
        other.begin("session", "lost records", is_told=True)
        other.forget("session")
    assert not one.is_on
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "group g: no broker answers"),
        ("INFO", "share groups of node1:1,node2:2: in order again"),
    ]
    assert trouble_of(Cluster("node3:3")) is not one
