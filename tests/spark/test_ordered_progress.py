"""The group of a `kafka-ordered` query, with a broker. Needs no JVM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.client import RangeConsumer
from headrace.client.errors import ClientError, raised
from headrace.client.offsets import commit_offsets, committed_offsets
from headrace.spark import SourceError
from headrace.spark.option_parsing import ClusterThread, KafkaOptions
from headrace.spark.ordered import progress
from headrace.spark.ordered.progress import GroupProgress, check_group
from tests.spark.ordered_topics import Topics
from tests.support import unique, wait_until

TIMEOUT_MS = 30_000


@pytest.fixture
def cluster_thread(bootstrap_servers: str) -> Iterator[ClusterThread]:
    made = ClusterThread(KafkaOptions(bootstrap_servers))
    yield made
    made.close(last=made.cluster.close())


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
        answers = cluster_thread.run(committed_offsets(cluster_thread.cluster, {group_id: places}))
        return {partition: at.offset for partition, at in raised(answers)[group_id].items()}

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
            cluster_thread.run(check_group(cluster_thread.cluster, group_id))
    finally:
        consumer.close()

    committer.commit({places[0]: 8, places[1]: 3})
    assert committed() == {places[0]: 8, places[1]: 3, places[3]: 0}
    cluster_thread.run(check_group(cluster_thread.cluster, group_id))


def test_two_queries_of_one_group_are_told_of_each_other_once(
    cluster_thread: ClusterThread,
    bootstrap_servers: str,
    group_id: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(progress, "CHECK_S", 0)
    place = Topics.create(bootstrap_servers, 1).names[0], 0
    fast, slow = (GroupProgress(cluster_thread, group_id) for _ in range(2))
    for offset in range(3):
        fast.commit({place: offset})
    assert not caplog.messages
    slow.commit({place: 9})
    for offset in range(3, 6):
        fast.commit({place: offset})
    (line,) = caplog.messages
    assert line.startswith(
        f"group '{group_id}' has offset 9 of {place[0]}-0, where this query has committed 2: "
        "another one commits to it, too"
    )


def test_a_share_group_has_no_offsets_to_commit(
    cluster_thread: ClusterThread, bootstrap_servers: str, group_id: str
) -> None:
    topics = Topics.create(bootstrap_servers, 1)

    async def join() -> None:
        async with RangeConsumer(bootstrap_servers, group_id, topics.names) as consumer:
            await consumer.acquire(max_records=1, max_wait_ms=100)

    asyncio.run(join())
    with pytest.raises(
        SourceError, match="is a share group, which has no offsets to commit: choose another"
    ):
        cluster_thread.run(check_group(cluster_thread.cluster, group_id))


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_an_open_transaction_are_waited_for(
    cluster_thread: ClusterThread, bootstrap_servers: str, group_id: str, commits: bool
) -> None:
    topics = Topics.create(bootstrap_servers, 1)
    place = (topics.names[0], 0)
    cluster = cluster_thread.cluster
    cluster_thread.run(commit_offsets(cluster, group_id, {place: 3}))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("txn")})
    producer.init_transactions(TIMEOUT_MS / 1000)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group_id})
    producer.send_offsets_to_transaction(
        [TopicPartition(*place, 4)], consumer.consumer_group_metadata(), TIMEOUT_MS / 1000
    )
    consumer.close()

    async def committed(timeout: float) -> Any:
        asked.set()
        answers = await committed_offsets(
            cluster.within(timeout), {group_id: [place]}, require_stable=True
        )
        return answers[group_id]

    asked = threading.Event()
    refusal = cluster_thread.run(committed(1.0))
    assert isinstance(refusal, ClientError)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cluster_thread.run, committed(TIMEOUT_MS / 1000))
        assert asked.wait(TIMEOUT_MS / 1000)
        end = producer.commit_transaction if commits else producer.abort_transaction
        end(TIMEOUT_MS / 1000)
        assert waiting.result()[place].offset == (4 if commits else 3)
