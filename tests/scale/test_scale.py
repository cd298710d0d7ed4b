"""Every API about many topics, partitions, groups or members, beside an honest client.

The assertions are on the broker's own measure of its event loop, which is less disturbed by other
processes than the honest client's latencies; these are printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scale.broker import FACTOR, Broker
from tests.wire_client import batch, connection

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(3600)]

TOPICS = 2_000 * FACTOR
GROUPS = 200 * FACTOR
MEMBERS = 200 * FACTOR
PARTITION_REQUESTS = 2 * FACTOR
PARTITIONS_PER_REQUEST = 10_000
NAMES_PER_REQUEST = 10_000
"""The most topics in one request."""
NEW_PARTITIONS = min(500 * FACTOR, 2_000)
"""Partitions that get their first record in one request."""
NAMED = min(1_000 * FACTOR, 10_000)
"""Partitions, or names, in requests that only look them up."""


def names(prefix: str, count: int) -> Iterator[list[str]]:
    """Yield the names of ``count`` topics in requests of at most ``NAMES_PER_REQUEST``."""
    for first in range(0, count, NAMES_PER_REQUEST):
        yield [f"{prefix}{n}" for n in range(first, min(first + NAMES_PER_REQUEST, count))]


def new(name: str, partitions: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


def codes(results: Any) -> set[int]:
    return {int(one.error_code) for one in results}


METADATA = {
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def test_topics(broker: Broker) -> None:
    for some in names("topic-", TOPICS):
        created = broker.ask(
            f"CreateTopics {len(some):,}", 19, 5, topics=[new(name) for name in some]
        )
        assert created is None or codes(created.topics) == {0}
    asked = [{"name": name} for name in next(names("auto-", TOPICS))]
    made = broker.ask(
        f"Metadata, creates {len(asked):,}",
        3,
        9,
        topics=asked,
        allow_auto_topic_creation=True,
        **METADATA,
    )
    assert codes(made.topics) == {0}
    for again in ("", ", again"):
        broker.ask(
            f"Metadata, all{again}", 3, 9, topics=None, allow_auto_topic_creation=False, **METADATA
        )
    some = next(names("topic-", TOPICS))
    described = broker.ask(
        f"DescribeConfigs {len(some):,}",
        32,
        4,
        resources=[
            {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in some
        ],
        include_synonyms=True,
    )
    assert described is None or codes(described.results) == {0}
    change = {"name": "retention.ms", "config_operation": 0, "value": "1000000"}
    altered = broker.ask(
        f"IncrementalAlterConfigs {len(some):,}",
        44,
        1,
        resources=[
            {"resource_type": 2, "resource_name": name, "configs": [change]} for name in some
        ],
    )
    assert codes(altered.responses) == {0}
    grown = broker.ask(
        f"CreatePartitions {len(some):,}",
        37,
        3,
        topics=[{"name": name, "count": 2, "assignments": None} for name in some],
        timeout=60_000,
    )
    assert codes(grown.results) == {0}
    broker.ask("DescribeTopicPartitions", 75, 0, topics=[])
    with connection(broker.bootstrap_servers) as client:
        for name in some[:500]:
            assert client.produce(name, batch([b"a"])) == (0, 0)
    broker.ask("DescribeLogDirs, all", 35, 4, topics=None)
    deleted_records = broker.ask(
        "DeleteRecords 500",
        21,
        2,
        topics=[
            {"name": name, "partitions": [{"partition_index": 0, "offset": 1}]}
            for name in some[:500]
        ],
        timeout=60_000,
    )
    assert {int(one.partitions[0].error_code) for one in deleted_records.topics} == {0}
    for prefix, count in (("topic-", TOPICS), ("auto-", min(TOPICS, NAMES_PER_REQUEST))):
        for some in names(prefix, count):
            deleted = broker.ask(
                f"DeleteTopics {len(some):,}", 20, 5, topic_names=some, timeout=60_000
            )
            assert codes(deleted.responses) == {0}


def test_partitions(broker: Broker) -> None:
    topics = 10
    for n in range(PARTITION_REQUESTS):
        wanted = [new(f"wide-{n}-{m}", PARTITIONS_PER_REQUEST // topics) for m in range(topics)]
        created = broker.ask("CreateTopics, 10,000 partitions", 19, 5, topics=wanted)
        assert codes(created.topics) == {0}
    for again in ("", ", again"):
        broker.ask(
            f"Metadata, {PARTITION_REQUESTS * PARTITIONS_PER_REQUEST:,} partitions{again}",
            3,
            9,
            topics=None,
            allow_auto_topic_creation=False,
            **METADATA,
        )
    latest = [
        {"partition_index": p, "timestamp": -1} for p in range(PARTITIONS_PER_REQUEST // topics)
    ]
    broker.ask(
        "ListOffsets, 1,000 partitions",
        2,
        7,
        replica_id=-1,
        topics=[{"name": "wide-0-0", "partitions": latest}],
    )
    some = [f"wide-{n}-{m}" for n in range(PARTITION_REQUESTS) for m in range(topics)]
    broker.ask(
        f"DeleteTopics, {PARTITION_REQUESTS * PARTITIONS_PER_REQUEST:,} partitions",
        20,
        5,
        topic_names=some,
        timeout=60_000,
    )


def test_new_partitions(broker: Broker) -> None:
    """The first record of a partition creates a directory and files."""
    with connection(broker.bootstrap_servers) as client:
        client.create_topic("fresh", NEW_PARTITIONS)
    records = batch([b"a"])
    for what in ("new partitions", "partitions, again"):
        produced = broker.ask(
            f"Produce to {NEW_PARTITIONS:,} {what}",
            0,
            9,
            acks=-1,
            timeout=60_000,
            topic_data=[
                {
                    "name": "fresh",
                    "partition_data": [
                        {"index": p, "records": records} for p in range(NEW_PARTITIONS)
                    ],
                }
            ],
        )
        answers = produced.responses[0].partition_responses
        assert [answer.index for answer in answers] == list(range(NEW_PARTITIONS))
        assert codes(answers) == {0}
    deleted = broker.ask(
        f"DeleteRecords in {NEW_PARTITIONS:,} partitions",
        21,
        2,
        topics=[
            {
                "name": "fresh",
                "partitions": [{"partition_index": p, "offset": 1} for p in range(NEW_PARTITIONS)],
            }
        ],
        timeout=60_000,
    )
    assert {int(one.low_watermark) for one in deleted.topics[0].partitions} == {1}


def test_look_ups(broker: Broker) -> None:
    """Requests that name many partitions, groups or transactions."""
    with connection(broker.bootstrap_servers) as client:
        client.create_topic("named", NAMED)
    partitions = range(NAMED)
    names = [f"name-{n}" for n in range(NAMED)]
    begun = {"transactional_id": "large", "transaction_timeout": 600_000}
    broker.ask(
        f"Fetch of {NAMED:,} partitions",
        1,
        12,
        max_bytes=1 << 20,
        topics=[
            {
                "topic": "named",
                "partitions": [
                    {"partition": p, "fetch_offset": 0, "partition_max_bytes": 1000}
                    for p in partitions
                ],
            }
        ],
    )
    committed = [{"partition_index": p, "committed_offset": 1} for p in partitions]
    broker.ask(
        f"OffsetCommit of {NAMED:,} partitions",
        8,
        8,
        group_id="committer",
        member_id="",
        topics=[{"name": "named", "partitions": committed}],
    )
    deleted = broker.ask(
        f"OffsetDelete of {NAMED:,} partitions",
        47,
        0,
        group_id="committer",
        topics=[{"name": "named", "partitions": [{"partition_index": p} for p in partitions]}],
    )
    assert not deleted.error_code
    found = broker.ask(f"FindCoordinator of {NAMED:,} groups", 10, 5, coordinator_keys=names)
    assert codes(found.coordinators) == {0}
    broker.ask(
        f"OffsetForLeaderEpoch of {NAMED:,} partitions",
        23,
        4,
        replica_id=-1,
        topics=[
            {
                "topic": "named",
                "partitions": [{"partition": p, "leader_epoch": 0} for p in partitions],
            }
        ],
    )
    broker.ask(
        f"DescribeProducers of {NAMED:,} partitions",
        61,
        0,
        topics=[{"name": "named", "partition_indexes": list(partitions)}],
    )
    broker.ask(f"DescribeTransactions of {NAMED:,}", 65, 0, transactional_ids=names)
    with connection(broker.bootstrap_servers) as client:
        producer = client.ask(22, 4, **begun)
    added = broker.ask(
        f"AddPartitionsToTxn of {NAMED:,} partitions",
        24,
        3,
        v3_and_below_transactional_id="large",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": "named", "partitions": list(partitions)}],
    )
    results = added.results_by_topic_v3_and_below[0].results_by_partition
    assert {int(one.partition_error_code) for one in results} == {0}
    ended = broker.ask(
        f"EndTxn of {NAMED:,} partitions",
        26,
        3,
        transactional_id="large",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert not ended.error_code
    with (
        connection(broker.bootstrap_servers) as client,
        broker.measured(f"the markers of {NAMED:,} partitions"),
    ):
        deadline = time.monotonic() + 300
        while client.ask(22, 4, **begun).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_groups(broker: Broker) -> None:
    with connection(broker.bootstrap_servers) as client:
        client.create_topic("committed", 10)
        partitions = [{"partition_index": p, "committed_offset": 1} for p in range(10)]
        for n in range(GROUPS):
            client.ask(
                8,
                8,
                group_id=f"group-{n}",
                member_id="",
                topics=[{"name": "committed", "partitions": partitions}],
            )
    group_ids = [f"group-{n}" for n in range(GROUPS)]
    listed = broker.ask("ListGroups", 16, 5)
    assert len(listed.groups) >= GROUPS
    broker.ask(f"DescribeGroups {GROUPS:,}", 15, 5, groups=group_ids)
    fetched = broker.ask(
        f"OffsetFetch of {GROUPS:,} groups",
        9,
        8,
        groups=[{"group_id": group_id, "topics": None} for group_id in group_ids],
    )
    assert codes(fetched.groups) == {0}
    asked = [{"name": "committed", "partition_indexes": [0, 1]}]
    fetched = broker.ask(
        f"OffsetFetch of {NAMED:,} groups, by topic",
        9,
        9,
        groups=[
            {"group_id": f"group-{n}", "member_id": None, "member_epoch": -1, "topics": asked}
            for n in range(NAMED)
        ],
    )
    assert codes(fetched.groups) == {0}
    broker.ask(f"ConsumerGroupDescribe {GROUPS:,}", 69, 1, group_ids=group_ids)
    broker.ask("DeleteTopics, with offsets", 20, 5, topic_names=["committed"], timeout=60_000)
    deleted = broker.ask(f"DeleteGroups {GROUPS:,}", 42, 2, groups_names=group_ids)
    assert len(deleted.results) == GROUPS


def test_members_of_one_consumer_group(broker: Broker) -> None:
    """The consumer protocol (KIP-848): each member joins with one heartbeat."""
    with connection(broker.bootstrap_servers) as client:
        client.create_topic("shared", 100)
    with (
        connection(broker.bootstrap_servers, timeout_s=900) as client,
        broker.measured(f"{MEMBERS:,} members join a consumer group"),
    ):
        for n in range(MEMBERS):
            joined = client.ask(
                68,
                1,
                group_id="large",
                member_id=f"member-{n}",
                member_epoch=0,
                rebalance_timeout=300_000,
                subscribed_topic_names=["shared"],
            )
            assert joined.error_code == 0, joined
    broker.ask("ConsumerGroupDescribe", 69, 1, group_ids=["large"])
