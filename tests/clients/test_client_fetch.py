"""The client's Fetch: by topic ids in the newest version, by names where ids are not known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

import headrace
from headrace.client import Cluster, ConnectionFailed, TopicMetadata
from headrace.client.fetch import FetchLimits, FetchPosition, fetch
from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.schema import Message
from tests.clients.confluent import create_topic, produce
from tests.support import set_quotas, story, unique

LIMITS = FetchLimits(max_wait_ms=0, max_bytes=1 << 20, isolation_level=0)


@pytest.fixture
def topics(bootstrap_servers: str) -> list[str]:
    names = [unique("fetched") for _ in range(2)]
    for name in names:
        create_topic(bootstrap_servers, name, 2)
        produce(bootstrap_servers, name, [name.encode(), b"second"], partition=1)
    return names


def fetched(
    bootstrap_servers: str, topics: list[str], topic_ids: Mapping[str, UUID | None] | None = None
) -> tuple[dict[TopicPartition, Any], int | None]:
    """Fetch both partitions of each topic.

    :param topic_ids: ids to use instead of those of the cluster
    :returns: the response, and the version of the request
    """
    versions: list[int | None] = []

    async def run() -> dict[TopicPartition, Any]:
        async with Cluster(bootstrap_servers) as cluster:
            found = await cluster.topics(topics)
            (leader,) = {one for topic in found.values() for one in topic.leaders.values()}
            connection = await cluster.connection(leader)
            ask = connection.ask

            async def counted(request: Message, *, version: int | None, timeout_ms: int) -> Any:
                versions.append(version)
                return await ask(request, version=version, timeout_ms=timeout_ms)

            connection.ask = counted  # type: ignore[assignment]
            ids = ids_of(found) if topic_ids is None else topic_ids
            positions = {
                (topic, partition): FetchPosition(0, 1 << 16)
                for topic in topics
                for partition in range(2)
            }
            return await fetch(connection, positions, ids, LIMITS, timeout_ms=10_000)

    answers = asyncio.run(run())
    (version,) = versions
    return answers, version


def ids_of(topics: Mapping[str, TopicMetadata]) -> dict[str, UUID | None]:
    return {name: topic.topic_id for name, topic in topics.items()}


def values(answers: Mapping[TopicPartition, Any]) -> dict[TopicPartition, list[bytes | None]]:
    return {
        key: [
            record.value
            for position, header in record_batch.headers(answer.records or b"")
            for record in record_batch.records(answer.records[position:][: header.size_bytes])
        ]
        for key, answer in answers.items()
    }


def test_records_by_ids_and_by_names(bootstrap_servers: str, topics: list[str]) -> None:
    expected: dict[TopicPartition, list[bytes]] = {}
    for name in topics:
        expected |= {(name, 0): [], (name, 1): [name.encode(), b"second"]}
    by_ids, newest = fetched(bootstrap_servers, topics)
    by_names, older = fetched(bootstrap_servers, topics, {topics[0]: uuid4()})
    assert (newest, older) == (18, 12)
    assert values(by_ids) == values(by_names) == expected


def test_a_topic_with_another_id(bootstrap_servers: str, topics: list[str]) -> None:
    answers, _ = fetched(bootstrap_servers, topics, {name: uuid4() for name in topics})
    assert {answer.error_code for answer in answers.values()} == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert answers.keys() == {(name, partition) for name in topics for partition in range(2)}


RECORD = b"x" * 12_000
RATE = 10_000
"""The quota in bytes per second: it allows one of the records in a window of two seconds."""


@pytest.mark.broker
def test_a_client_that_exceeds_its_quota_waits() -> None:
    async def run(servers: str) -> list[list[bytes | None]]:
        async with Cluster(servers, client_id="slow") as cluster:
            found = await cluster.topics([topic])
            connection = await cluster.connection(found[topic].leaders[0])
            answers = [
                await fetch(
                    connection,
                    {(topic, 0): FetchPosition(offset, len(RECORD))},
                    ids_of(found),
                    LIMITS,
                    timeout_ms=30_000,
                )
                for offset in range(3)
            ]
        return [values(answer)[topic, 0] for answer in answers]

    with headrace.Broker(config={"quota.window.num": 2}) as broker:
        servers = broker.bootstrap_servers
        topic = create_topic(servers, unique("fetched"))
        for _ in range(3):
            produce(servers, topic, [RECORD])
        set_quotas(servers, {"client-id": "slow"}, consumer_byte_rate=RATE)
        assert asyncio.run(run(servers)) == [[RECORD]] * 3


@story
async def test_a_quota_that_outlasts_the_timeout() -> None:
    async def ask(*_: object, **__: object) -> Any:
        return SimpleNamespace(error_code=0, throttle_time_ms=10_000, responses=())

    connection: Any = SimpleNamespace(address="a:1", version=lambda api: 18, ask=ask)
    with pytest.raises(ConnectionFailed, match=r"a:1 .* quota .* within 9000 ms"):
        await fetch(
            connection, {("t", 0): FetchPosition(0, 1)}, {"t": uuid4()}, LIMITS, timeout_ms=9_000
        )


@story
async def test_a_broker_that_is_silent_about_partitions_is_asked_once() -> None:
    """Also if it names a time that has passed."""
    requests = []

    async def ask(request: Message, **_: object) -> Any:
        requests.append(request)
        return SimpleNamespace(error_code=0, throttle_time_ms=-1, responses=())

    connection: Any = SimpleNamespace(address="a:1", version=lambda api: 18, ask=ask)
    positions = {("t", 0): FetchPosition(0, 1)}
    assert await fetch(connection, positions, {"t": uuid4()}, LIMITS, timeout_ms=500) == {}
    assert len(requests) == 1
