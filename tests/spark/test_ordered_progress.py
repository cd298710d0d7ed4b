"""The group of a `kafka-ordered` query, with a broker. Needs no JVM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from headrace.client import ShareConsumer
from headrace.client.offset_commits import committed_offsets
from headrace.spark import SourceError
from headrace.spark.option_parsing import KafkaOptions
from headrace.spark.ordered import progress
from headrace.spark.ordered.progress import GroupProgress, check_group
from headrace.spark.reader.cluster_thread import ClusterThread
from tests.spark.ordered_topics import Topics
from tests.support import wait_until

TIMEOUT_MS = 30_000


@pytest.fixture
def cluster_thread(bootstrap_servers: str) -> Iterator[ClusterThread]:
    made = ClusterThread(KafkaOptions(bootstrap_servers))
    yield made
    made.close()


def test_offsets_are_committed_while_the_group_has_no_members(
    cluster_thread: ClusterThread,
    bootstrap_servers: str,
    group_id: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(progress, "RETRY_S", 0)
    topics = Topics.create(bootstrap_servers, 2, partitions=2)
    places = [(name, partition) for name in topics.names for partition in topics.numbers]

    def committed() -> dict[tuple[str, int], int]:
        return cluster_thread.call(committed_offsets(cluster_thread.cluster, group_id, places))

    committer = GroupProgress(cluster_thread, group_id)
    assert committed() == {}
    committer.commit({places[0]: 7, places[3]: 0})
    assert committed() == {places[0]: 7, places[3]: 0}

    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group_id, "enable.auto.commit": False}
    )
    consumer.subscribe([topics.names[0]])
    try:
        wait_until(
            lambda: consumer.poll(0.1) is not None or consumer.assignment(),
            30,
            "a consumer of the group",
        )
        committer.commit({places[0]: 8, places[1]: 3})
        assert committed() == {places[0]: 7, places[3]: 0}
        assert f"group '{group_id}' has consumers of its own" in caplog.text
        with pytest.raises(SourceError, match="has consumers that commit offsets themselves"):
            cluster_thread.call(check_group(cluster_thread.cluster, group_id, TIMEOUT_MS))
    finally:
        consumer.close()

    committer.commit({places[0]: 8, places[1]: 3})
    assert committed() == {places[0]: 8, places[1]: 3, places[3]: 0}
    cluster_thread.call(check_group(cluster_thread.cluster, group_id, TIMEOUT_MS))


def test_a_share_group_has_no_offsets_to_commit(
    cluster_thread: ClusterThread, bootstrap_servers: str, group_id: str
) -> None:
    topics = Topics.create(bootstrap_servers, 1)

    async def join() -> None:
        async with ShareConsumer(bootstrap_servers, group_id, topics.names) as consumer:
            await consumer.acquire(max_records=1, max_wait_ms=100)

    asyncio.run(join())
    with pytest.raises(
        SourceError, match="is a share group, which has no offsets to commit: choose another"
    ):
        cluster_thread.call(check_group(cluster_thread.cluster, group_id, TIMEOUT_MS))
