"""Lag snapshots of a cluster, against headrace and Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.admin import AdminClient
from headrace.client import (
    Acknowledgement,
    AcknowledgeType,
    Cluster,
    Connection,
    ConnectionFailed,
    RangeConsumer,
    RequestRefused,
    TopicMetadata,
)
from headrace.client.coordinators import ask_brokers
from headrace.client.lag.model import LagQuery, rows
from headrace.client.lag.snapshot import parts, select_groups
from headrace.protocol.errors import ErrorCode
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    produce,
    share_from_earliest,
    take,
)
from tests.support import unique, wait_until

HOUR_MS = 3_600_000

Row = SimpleNamespace
"""A flat row of a snapshot."""


class Lags:
    """A client that takes snapshots of the broker under test."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
        self.warnings: list[str] = []
        self.now_ms = 0

    def __call__(
        self,
        *groups: str,
        between: Callable[[], object] = lambda: None,
        many: bool = False,
        **query: Any,
    ) -> dict[tuple[str, str | None, int | None], Row]:
        """Return the rows of groups by group, topic and partition.

        :param between: called after the groups are listed
        """

        async def take_one() -> list[Row]:
            async with Cluster(self.bootstrap_servers) as cluster:
                wanted = LagQuery(groups=groups, **query)
                listed, self.warnings = await select_groups(cluster, wanted)
                between()
                self.now_ms = int(time.time() * 1000)
                taken: list[Row] = []
                async for part in parts(cluster, listed, wanted, self.now_ms):
                    taken += [Row(**row) for row in rows(part)]
                    self.warnings += part.warnings
                return taken

        taken = asyncio.run(take_one())
        found = {(row.group_id, row.topic, row.partition): row for row in taken}
        assert len(found) == len(taken) or many, "a row for each group and partition"
        return found

    def commit(
        self, group_id: str, topic: str, offsets: Mapping[int, int], metadata: str = ""
    ) -> None:
        """Commit for a group without members."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        partitions = [
            TopicPartition(topic, number, offset, metadata) for number, offset in offsets.items()
        ]
        asked = [ConsumerGroupTopicPartitions(group_id, partitions)]

        def is_committed() -> bool:
            answer = self.admin.alter_consumer_group_offsets(asked)[group_id].result(PATIENCE_S)
            return not any(partition.error for partition in answer.topic_partitions)

        # The coordinator of Apache Kafka may learn of a new topic later.
        wait_until(is_committed, PATIENCE_S, "committed offsets")

    def start_at(self, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the start offsets of a share group without members."""
        starts = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]

        def is_set() -> bool:
            futures = self.admin.alter_share_group_offsets(group_id, starts).values()
            return not any(future.exception(PATIENCE_S) for future in futures)

        wait_until(is_set, PATIENCE_S, "start offsets")


@pytest.fixture
def lags(bootstrap_servers: str) -> Iterator[Lags]:
    made = Lags(bootstrap_servers)
    yield made
    made.admin.close()


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic with ten records in partition 0, one for each of the last ten hours; none in
    partition 1.
    """
    name = create_topic(bootstrap_servers, unique("topic"), partitions=2)
    fill(bootstrap_servers, name, range(10, 0, -1))
    return name


def fill(bootstrap_servers: str, topic: str, hours_ago: Sequence[int], **configs: object) -> None:
    """Produce a record of each age to partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, **configs})
    for hours in hours_ago:
        producer.produce(
            topic, b"x" * 50, partition=0, timestamp=int(time.time() * 1000) - hours * HOUR_MS
        )
    assert producer.flush(PATIENCE_S) == 0


def hours(row: Row) -> int:
    assert row.time_lag_ms is not None
    return round(row.time_lag_ms / HOUR_MS)


def test_a_group_that_only_commits(lags: Lags, topic: str, group_id: str) -> None:
    lags.commit(group_id, topic, {0: 4, 1: 0}, "noted")
    rows = lags(group_id)
    assert rows.keys() == {(group_id, topic, 0), (group_id, topic, 1)}
    row = rows[group_id, topic, 0]
    assert row.cluster and row.snapshot_time_ms == lags.now_ms
    assert (row.group_type, row.group_state, row.member_id) == ("classic", "Empty", None)
    assert (row.start_offset, row.committed_offset, row.leader_epoch) == (None, 4, None)
    assert (row.end_offset, row.last_stable_offset, row.lag, row.metadata) == (10, 10, 6, "noted")
    assert hours(row) == 6
    caught_up = rows[group_id, topic, 1]
    assert (
        caught_up.committed_offset,
        caught_up.end_offset,
        caught_up.lag,
        caught_up.time_lag_ms,
    ) == (0, 0, 0, 0)
    assert lags.warnings == []
    assert lags(group_id, time_lag=False)[group_id, topic, 0].time_lag_ms is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_their_partitions(
    bootstrap_servers: str,
    lags: Lags,
    topic: str,
    group_id: str,
    protocol: str,
) -> None:
    with consumer(
        bootstrap_servers, group_id, client_id="worker-7", group_protocol=protocol
    ) as source:
        source.subscribe([topic])
        source.commit(message=take(source, 4)[-1], asynchronous=False)
        wait_until(lambda: len(source.assignment()) == 2, PATIENCE_S, "an assignment")
        rows = wait_until(
            lambda: (found := lags(group_id))[group_id, topic, 0].group_state == "Stable" and found,
            PATIENCE_S,
            "a stable group",
        )
        described = lags.admin.describe_consumer_groups([group_id])[group_id].result(PATIENCE_S)
    begun, without_commit = rows[group_id, topic, 0], rows[group_id, topic, 1]
    assert {one.group_type for one in rows.values()} == {protocol}
    assert (begun.committed_offset, begun.lag, begun.leader_epoch, hours(begun)) == (4, 6, 0, 6)
    assert (without_commit.committed_offset, without_commit.lag, without_commit.time_lag_ms) == (
        None,
        0,
        0,
    )
    assert without_commit.end_offset == 0 and without_commit.client_id == "worker-7"
    (member,) = described.members
    for row in (begun, without_commit):
        assert (row.member_id, row.host) == (member.member_id, member.host)


def test_a_member_without_a_partition_and_a_group_without_anything(
    bootstrap_servers: str, lags: Lags, group_id: str
) -> None:
    name = create_topic(bootstrap_servers, unique("topic"))
    idle = unique("group")
    with consumer(bootstrap_servers, group_id, client_id="first") as one:
        one.subscribe([name])
        with consumer(bootstrap_servers, group_id, client_id="second") as other:
            other.subscribe([name])

            def settled() -> dict[Any, Row] | None:
                one.poll(0.05), other.poll(0.05)
                rows = lags(group_id, many=True)
                return (
                    rows
                    if {row.group_state for row in rows.values()} == {"Stable"} and len(rows) == 2
                    else None
                )

            rows = wait_until(settled, PATIENCE_S, "two members, one with a partition")
        assert {row.client_id for row in rows.values()} == {"first", "second"}
        assert {key[1:] for key in rows} == {(name, 0), (None, None)}
        assert {
            row.group_id for row in lags(group_id, topics=(name,)).values() if row.topic is None
        } == set()
    (left,) = lags(group_id).values()
    assert (left.topic, left.partition, left.member_id, left.lag) == (None, None, None, None)
    assert left.group_state == "Empty"
    assert lags(idle) == {}
    assert lags.warnings == [f"group '{idle}' does not exist: correct its id or type"]


def test_a_share_group_with_accepted_rejected_and_released_records(
    bootstrap_servers: str,
    lags: Lags,
    topic: str,
    group_id: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    share_from_earliest(bootstrap_servers, group_id)

    async def work() -> dict[tuple[str, str | None, int | None], Row]:
        cluster = Cluster(bootstrap_servers, client_id="packer")
        async with RangeConsumer(cluster, group_id, [topic]) as source:
            assert await source.wait_for_assignment(int(PATIENCE_S * 1000))
            held = 0
            while held < 10:
                held += sum(
                    one.count
                    for one in (await source.acquire(max_records=10, max_wait_ms=500)).ranges
                )
            for first, last, kind in (
                (6, 6, "REJECT"),
                (0, 3, "ACCEPT"),
                (8, 9, "ACCEPT"),
                (4, 4, "RELEASE"),
            ):
                await source.acknowledge(
                    [Acknowledgement(topic, 0, first, last, AcknowledgeType[kind])]
                )
            return await asyncio.to_thread(lags, group_id)

    rows = asyncio.run(work())
    row, untouched = rows[group_id, topic, 0], rows[group_id, topic, 1]
    offsets = lags.admin.list_share_group_offsets([group_id])[group_id].result(PATIENCE_S)
    (start_offset, lag) = next(
        (info.start_offset, info.lag)
        for partition, info in offsets.items()
        if partition.partition == 0
    )
    assert (row.group_type, row.group_state, row.client_id) == ("share", "Stable", "packer")
    assert (row.lag, row.end_offset, row.committed_offset) == (3, 10, None)
    assert (row.start_offset, row.lag) == (start_offset, lag)
    assert row.start_offset is not None and row.delivery_complete_count == 10 - row.start_offset - 3
    assert hours(row) == 10 - row.start_offset
    assert (untouched.start_offset, untouched.lag, untouched.time_lag_ms) == (None, 0, 0)
    assert untouched.end_offset == 0


def test_a_share_group_whose_offsets_were_set(lags: Lags, topic: str, group_id: str) -> None:
    lags.start_at(group_id, topic, {0: 7, 1: 3})
    rows = lags(group_id)
    set_back, beyond = rows[group_id, topic, 0], rows[group_id, topic, 1]
    assert (set_back.start_offset, set_back.lag, set_back.delivery_complete_count) == (7, 3, 0)
    assert (set_back.group_state, hours(set_back)) == ("Empty", 3)
    assert (beyond.start_offset, beyond.lag, beyond.end_offset) == (3, 0, 0)


def test_nobody_is_ahead_of_the_end_while_all_go_on(
    bootstrap_servers: str, lags: Lags, group_id: str
) -> None:
    name = create_topic(bootstrap_servers, unique("topic"))
    stop = threading.Event()

    def race() -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        source = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group_id})
        offset = 0
        while not stop.is_set():
            producer.produce(name, b"x")
            producer.flush()
            offset += 1
            source.commit(offsets=[TopicPartition(name, 0, offset)], asynchronous=False)
        source.close()

    thread = threading.Thread(target=race)
    thread.start()
    try:
        wait_until(lambda: (group_id, name, 0) in lags(group_id), PATIENCE_S, "a commit")
        rows = [lags(group_id)[group_id, name, 0] for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert rows[-1].end_offset != rows[0].end_offset
    for row in rows:
        assert (
            row.committed_offset is not None
            and row.end_offset is not None
            and row.last_stable_offset is not None
        )
        assert row.committed_offset <= row.last_stable_offset <= row.end_offset
        assert row.lag == row.end_offset - row.committed_offset


def test_the_numbers_of_a_share_group_agree_while_it_works(
    bootstrap_servers: str, lags: Lags, group_id: str
) -> None:
    name = create_topic(bootstrap_servers, unique("topic"))
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, name, [b"x"] * 300)

    async def work() -> list[Row]:
        rows = []
        async with RangeConsumer(bootstrap_servers, group_id, [name]) as source:
            assert await source.wait_for_assignment(int(PATIENCE_S * 1000))
            snapshots = [asyncio.create_task(asyncio.to_thread(lags, group_id))]
            done = 0
            while done < 300:
                for one in (await source.acquire(max_records=20, max_wait_ms=100)).ranges:
                    for offset in range(one.first_offset, one.last_offset + 1):
                        kind = AcknowledgeType.ACCEPT if offset % 3 else AcknowledgeType.REJECT
                        await source.acknowledge([Acknowledgement(name, 0, offset, offset, kind)])
                        done += 1
                if snapshots[-1].done():
                    rows += (await snapshots[-1]).values()
                    snapshots.append(asyncio.create_task(asyncio.to_thread(lags, group_id)))
            rows += (await snapshots[-1]).values()
            rows += (await asyncio.to_thread(lags, group_id)).values()
        return rows

    rows = asyncio.run(work())
    assert len(rows) >= 2 and (rows[-1].lag, rows[-1].time_lag_ms) == (0, 0)
    for row in rows:
        if row.start_offset is not None:
            assert (
                row.end_offset == 300
                and row.delivery_complete_count is not None
                and row.lag is not None
            )
            assert row.lag == 300 - row.start_offset - row.delivery_complete_count >= 0
    told = [row.lag for row in rows if row.lag is not None]
    assert told == sorted(told, reverse=True)


def test_an_open_transaction_holds_back_the_lag_of_readers_of_committed_records(
    bootstrap_servers: str, lags: Lags, topic: str, group_id: str
) -> None:
    lags.commit(group_id, topic, {0: 8})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("txn")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    committed = lags(group_id, read_committed=True)[group_id, topic, 0]
    uncommitted = lags(group_id)[group_id, topic, 0]
    assert (
        committed.lag,
        committed.end_offset,
        committed.last_stable_offset,
        hours(committed),
    ) == (2, 15, 10, 2)
    assert (uncommitted.lag, hours(uncommitted)) == (7, 2)

    lags.commit(group_id, topic, {0: 12})  # by one who reads all
    assert lags(group_id, read_committed=True)[group_id, topic, 0].lag == 0
    lags.commit(group_id, topic, {0: 10})
    producer.abort_transaction(PATIENCE_S)
    fill(bootstrap_servers, topic, [0])
    committed = wait_until(
        lambda: (
            (row := lags(group_id, read_committed=True)[group_id, topic, 0]).last_stable_offset
            == 17
            and row
        ),
        PATIENCE_S,
        "the end of the transaction",
    )
    assert (committed.lag, hours(committed)) == (7, 0)
    only_aborted = lags(group_id, read_committed=True, topics=(topic,))[group_id, topic, 0]
    assert only_aborted.lag == 7


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_time_lag_in_the_middle_of_batches_of_any_codec(
    bootstrap_servers: str, lags: Lags, group_id: str, codec: str
) -> None:
    name = create_topic(bootstrap_servers, unique("topic"))
    fill(
        bootstrap_servers, name, range(300, 0, -1), **{"compression.type": codec, "linger.ms": 200}
    )
    others = [unique("group") for _ in range(3)]
    for group, offset in zip([group_id, *others], (0, 123, 123, 299), strict=True):
        lags.commit(group, name, {0: offset})
    rows = lags(group_id, *others)
    assert [hours(rows[group, name, 0]) for group in [group_id, *others]] == [300, 177, 177, 1]


def test_time_lag_by_the_brokers_clock(bootstrap_servers: str, lags: Lags, group_id: str) -> None:
    name = create_topic(bootstrap_servers, unique("topic"), message_timestamp_type="LogAppendTime")
    fill(bootstrap_servers, name, range(10, 0, -1))
    lags.commit(group_id, name, {0: 5})
    row = lags(group_id)[group_id, name, 0]
    assert row.lag == 5 and row.time_lag_ms is not None and row.time_lag_ms < HOUR_MS


def test_records_that_were_deleted_are_not_waited_for(
    lags: Lags, topic: str, group_id: str
) -> None:
    lags.commit(group_id, topic, {0: 2})
    lags.admin.delete_records([TopicPartition(topic, 0, 7)])[TopicPartition(topic, 0)].result(
        PATIENCE_S
    )
    row = lags(group_id)[group_id, topic, 0]
    assert (row.lag, hours(row)) == (3, 3)
    lags.admin.delete_records([TopicPartition(topic, 0, 10)])[TopicPartition(topic, 0)].result(
        PATIENCE_S
    )
    for query in ({}, {"time_lag": False}, {"read_committed": True}):
        assert lags(group_id, **query)[group_id, topic, 0].lag == 0


def test_a_share_group_does_not_wait_for_records_that_were_deleted(
    lags: Lags, topic: str, group_id: str
) -> None:
    lags.start_at(group_id, topic, {0: 2})
    for deleted, lag in ((7, 3), (10, 0)):
        lags.admin.delete_records([TopicPartition(topic, 0, deleted)])[
            TopicPartition(topic, 0)
        ].result(PATIENCE_S)
        assert lags(group_id)[group_id, topic, 0].lag == lag


def test_a_partition_without_a_commit_is_unknown_unless_it_is_empty(
    bootstrap_servers: str, lags: Lags, topic: str, group_id: str
) -> None:
    with consumer(bootstrap_servers, group_id) as member:
        member.subscribe([topic])
        wait_until(
            lambda: member.poll(0.1) and len(member.assignment()) == 2, PATIENCE_S, "an assignment"
        )
        rows = wait_until(
            lambda: (found := lags(group_id)).keys() >= {(group_id, topic, 1)} and found,
            PATIENCE_S,
            "the assignment of the group",
        )
        plain = lags(group_id, time_lag=False)
    for seen in (rows, plain):
        assert [seen[group_id, topic, n].lag for n in (0, 1)] == [None, 0]
    assert [rows[group_id, topic, n].time_lag_ms for n in (0, 1)] == [None, 0]


def test_markers_and_aborted_records_at_the_end_are_not_waited_for(
    bootstrap_servers: str, lags: Lags, topic: str, group_id: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("txn")})
    producer.init_transactions(PATIENCE_S)
    shared = unique("share")
    lags.commit(group_id, topic, {0: 10})

    def transact(count: int) -> None:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"x", partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def lag(**query: Any) -> int | None:
        return lags(group_id, **query)[group_id, topic, 0].lag

    def ended_at(end: int) -> None:
        wait_until(
            lambda: lags(group_id)[group_id, topic, 0].last_stable_offset == end,
            PATIENCE_S,
            "the end of the transaction",
        )

    transact(3)
    assert (lag(), lag(read_committed=True)) == (3, 0), "it may still be committed"
    producer.commit_transaction(PATIENCE_S)
    ended_at(14)
    assert (lag(), lag(read_committed=True)) == (4, 4)
    lags.commit(group_id, topic, {0: 13})
    lags.start_at(shared, topic, {0: 13})
    assert (lag(), lag(read_committed=True)) == (0, 0), "a marker is left"
    assert lags(shared)[shared, topic, 0].lag == 0
    assert lag(time_lag=False) == 1, "without a look at the records"

    transact(2)
    assert lag() == 2, "the marker before an open transaction is none of its records"
    producer.abort_transaction(PATIENCE_S)
    ended_at(17)
    assert (lag(), lag(read_committed=True)) == (0, 0)
    row = lags(group_id)[group_id, topic, 0]
    assert (row.committed_offset, row.end_offset, row.time_lag_ms) == (13, 17, 0)
    assert lags(shared)[shared, topic, 0].lag == 4, "share groups get aborted records"
    fill(bootstrap_servers, topic, [2])
    row = lags(group_id)[group_id, topic, 0]
    assert (row.lag, hours(row)) == (5, 2)


def test_a_topic_that_was_deleted(
    bootstrap_servers: str, lags: Lags, topic: str, group_id: str
) -> None:
    lags.commit(group_id, topic, {0: 2})
    with consumer(bootstrap_servers, group_id) as source:
        source.subscribe([topic])
        take(source, 1)
        wait_until(lambda: len(source.assignment()) == 2, PATIENCE_S, "an assignment")
        lags.admin.delete_topics([topic])[topic].result(PATIENCE_S)
        wait_until(
            lambda: topic not in lags.admin.list_topics(timeout=PATIENCE_S).topics,
            PATIENCE_S,
            "the deletion",
        )
        rows = lags(group_id)
        assert {row.end_offset for row in rows.values()} == {None}
        assert {row.lag for row in rows.values()} == {None}
        assert {row.topic for row in rows.values()} <= {topic, None}


def test_which_groups_and_topics(bootstrap_servers: str, lags: Lags, topic: str) -> None:
    prefix = unique("team")
    second = create_topic(bootstrap_servers, unique("topic"))
    for name in ("a", "b"):
        lags.commit(f"{prefix}-{name}", topic, {0: 1})
        lags.commit(f"{prefix}-{name}", second, {0: 0})
    pattern = f"{prefix}-.*"

    def seen(**query: Any) -> set[tuple[str | None, ...]]:
        return {(group.removeprefix(prefix), name) for group, name, _ in lags(**query)}

    assert seen(groups_pattern=pattern) == {
        ("-a", topic),
        ("-a", second),
        ("-b", topic),
        ("-b", second),
    }
    assert seen(groups_pattern=f"{prefix}-a", topics=(second,)) == {("-a", second)}
    assert seen(groups_pattern=pattern, topics_pattern=f"{second[:-1]}.") == {
        ("-a", second),
        ("-b", second),
    }
    assert seen(groups_pattern=pattern, group_types=("share",)) == set()
    assert {f"{prefix}-a", f"{prefix}-b"} <= {
        group for group, _, _ in lags(group_types=("classic",))
    }


def test_groups_that_vanish_or_are_forbidden_leave_the_others_alone(
    lags: Lags, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanishing, forbidden = unique("group"), unique("group")
    for group in (group_id, vanishing, forbidden):
        lags.commit(group, topic, {0: 1})

    async def ask(*arguments: Any, **options: Any) -> Any:
        answers = await ask_brokers(*arguments, **options)
        refusal = RequestRefused("asking", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return {key: refusal if key == forbidden else answer for key, answer in answers.items()}

    monkeypatch.setattr("headrace.client.groups.ask_brokers", ask)
    monkeypatch.setattr("headrace.client.offsets.ask_brokers", ask)

    def delete() -> None:
        lags.admin.delete_consumer_groups([vanishing])[vanishing].result(PATIENCE_S)

    rows = lags(group_id, vanishing, forbidden, between=delete)
    assert rows.keys() == {(group_id, topic, 0)}
    assert sorted(one.split("'")[1] for one in lags.warnings) == sorted([vanishing, forbidden])
    assert "GROUP_AUTHORIZATION_FAILED" in " ".join(lags.warnings)


def test_a_partition_without_a_leader_and_a_broker_that_is_away(
    lags: Lags, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lags.commit(group_id, topic, {0: 1, 1: 0})
    metadata = Cluster.metadata

    async def half_blind(self: Cluster, *arguments: Any, **options: Any) -> Any:
        found = await metadata(self, *arguments, **options)
        return {
            name: TopicMetadata(one.name, one.topic_id, {0: 4711, 1: -1})
            if isinstance(one, TopicMetadata)
            else one
            for name, one in found.items()
        }

    monkeypatch.setattr(Cluster, "metadata", half_blind)
    rows = lags(group_id)
    assert {row.committed_offset for row in rows.values()} == {0, 1}
    assert {(row.end_offset, row.lag, row.time_lag_ms) for row in rows.values()} == {
        (None, None, None)
    }
    assert lags.warnings == ["broker 4711 is not in the cluster's metadata"]


def test_many_groups_cost_few_requests(
    lags: Lags, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [unique("group") for _ in range(40)]
    for number, group in enumerate(groups):
        lags.commit(group, topic, {0: number % 10, 1: 0})
    sent: list[str] = []
    send = Connection.ask

    async def counted(self: Connection, payload: Any, **options: Any) -> Any:
        sent.append(type(payload).__name__.removesuffix("Request"))
        return await send(self, payload, **options)

    monkeypatch.setattr(Connection, "ask", counted)
    rows = lags(*groups)
    assert [hours(rows[group, topic, 0]) for group in groups] == [
        10 - number % 10 for number in range(40)
    ]
    monkeypatch.undo()
    assert sorted(one for one in sent if one not in ("ApiVersions", "Metadata")) == [
        "DescribeCluster",
        "DescribeGroups",
        "Fetch",
        "ListGroups",
        "ListOffsets",
        "ListOffsets",
        "ListOffsets",
        "OffsetFetch",
    ]


def test_a_cluster_that_is_not_there() -> None:
    with pytest.raises(ConnectionFailed, match=r"no broker answers at 127\.0\.0\.1:1"):
        Lags("127.0.0.1:1")("g")
