"""headrace's admin client on consumer groups, against headrace and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    Producer,
    TopicPartition,
)

from headrace.admin import AdminClient
from headrace.client import Connection
from headrace.client.group_requests import assigned_partitions
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    produce,
    share_consumer,
    take,
)
from tests.clients.conftest import code_of
from tests.support import unique, wait_until


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": bootstrap_servers, "client.id": "tests"}) as opened:
        yield opened


@pytest.fixture
def committed(admin: AdminClient, bootstrap_servers: str, topic_name: str, group_id: str) -> str:
    """A group without members, with offsets 3 and 0 in two partitions and metadata in one."""
    create_topic(bootstrap_servers, topic_name, partitions=2)
    produce(bootstrap_servers, topic_name, [b"x"] * 5, partition=0)
    commit(
        admin,
        group_id,
        TopicPartition(topic_name, 0, 3, "noted", 0),
        TopicPartition(topic_name, 1, 0),
    )
    return group_id


def commit(admin: AdminClient, group_id: str, *partitions: TopicPartition) -> None:
    asked = ConsumerGroupTopicPartitions(group_id, list(partitions))
    for partition in (
        admin.alter_consumer_group_offsets([asked])[group_id].result(PATIENCE_S).topic_partitions
    ):
        assert partition.error is None


def offsets(
    admin: AdminClient, group: str | ConsumerGroupTopicPartitions, **options: Any
) -> list[tuple[Any, ...]]:
    (future,) = admin.list_consumer_group_offsets([group], **options).values()
    return [
        (one.topic, one.partition, one.offset, one.metadata, one.leader_epoch)
        for one in future.result(PATIENCE_S).topic_partitions
    ]


def test_all_offsets_of_a_group_or_some(
    admin: AdminClient, topic_name: str, committed: str
) -> None:
    assert offsets(admin, committed) == [
        (topic_name, 0, 3, "noted", 0),
        (topic_name, 1, 0, None, None),
    ]
    some = ConsumerGroupTopicPartitions(
        committed, [TopicPartition(topic_name, 1), TopicPartition(topic_name, 9)]
    )
    assert offsets(admin, some) == [(topic_name, 1, 0, None, None), (topic_name, 9, -1, None, None)]


def test_offsets_of_many_groups_come_each_in_its_future(
    admin: AdminClient, topic_name: str, committed: str
) -> None:
    stranger, other = unique("group"), unique("group")
    commit(admin, other, TopicPartition(topic_name, 0, 5))
    futures = admin.list_consumer_group_offsets(
        [committed, stranger, ConsumerGroupTopicPartitions(other)]
    )
    found = {group_id: future.result(PATIENCE_S) for group_id, future in futures.items()}
    assert {group_id: group.group_id for group_id, group in found.items()} == {
        one: one for one in found
    }
    assert [len(found[group_id].topic_partitions) for group_id in (committed, stranger, other)] == [
        2,
        0,
        1,
    ]


def test_many_groups_cost_few_requests(
    admin: AdminClient, topic_name: str, committed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [unique("group") for _ in range(40)]
    for group_id in others:
        commit(admin, group_id, TopicPartition(topic_name, 0, 1))
    admin.list_consumer_group_offsets([committed])[committed].result(PATIENCE_S)  # which connects
    sent: list[str] = []
    send = Connection.request

    async def counted(self: Connection, payload: Any, **options: Any) -> Any:
        sent.append(type(payload).__name__)
        return await send(self, payload, **options)

    monkeypatch.setattr(Connection, "request", counted)
    for future in admin.list_consumer_group_offsets(others).values():
        assert len(future.result(PATIENCE_S).topic_partitions) == 1
    for described in admin.describe_consumer_groups(others).values():
        assert described.result(PATIENCE_S).is_simple_consumer_group
    assert sorted(sent) == [
        "ConsumerGroupDescribeRequest",
        "DescribeGroupsRequest",
        "FindCoordinatorRequest",
        "OffsetFetchRequest",
    ]


def test_offsets_of_an_open_transaction_are_waited_for(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, committed: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("txn")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    with consumer(bootstrap_servers, committed) as source:
        metadata = source.consumer_group_metadata()
        producer.send_offsets_to_transaction(
            [TopicPartition(topic_name, 0, 4)], metadata, PATIENCE_S
        )
    assert (topic_name, 0, 3, "noted", 0) in offsets(admin, committed)
    asked = ConsumerGroupTopicPartitions(committed, [TopicPartition(topic_name, 0)])
    late = admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=0.1)[
        committed
    ]
    assert code_of(late) == KafkaError.UNSTABLE_OFFSET_COMMIT
    patient = admin.list_consumer_group_offsets(
        [asked], require_stable=True, request_timeout=PATIENCE_S
    )[committed]
    producer.commit_transaction(PATIENCE_S)
    assert [one.offset for one in patient.result(PATIENCE_S).topic_partitions] == [4]


def test_offsets_are_deleted(admin: AdminClient, topic_name: str, committed: str) -> None:
    here, never, nowhere = (
        TopicPartition(topic_name, 0),
        TopicPartition(topic_name, 1),
        TopicPartition(topic_name, 9),
    )
    futures = admin.delete_consumer_group_offsets(committed, [here, nowhere])
    assert futures[here].result(PATIENCE_S) is None
    assert code_of(futures[nowhere]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert offsets(admin, committed) == [(topic_name, 1, 0, None, None)]
    for _ in range(2):
        assert (
            admin.delete_consumer_group_offsets(committed, [never])[never].result(PATIENCE_S)
            is None
        )
    stranger = unique("group")
    assert (
        code_of(admin.delete_consumer_group_offsets(stranger, [here])[here])
        == KafkaError.GROUP_ID_NOT_FOUND
    )


def test_offsets_of_a_subscribed_topic_are_kept(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, committed: str
) -> None:
    idle = create_topic(bootstrap_servers, unique("topic"))
    commit(admin, committed, TopicPartition(idle, 0, 0))
    with consumer(bootstrap_servers, committed) as source:
        source.subscribe([topic_name])
        take(source, 1)
        read, unread = TopicPartition(topic_name, 0), TopicPartition(idle, 0)
        futures = admin.delete_consumer_group_offsets(committed, [read, unread])
        assert code_of(futures[read]) == KafkaError.GROUP_SUBSCRIBED_TO_TOPIC
        assert futures[unread].result(PATIENCE_S) is None
    assert [one[:2] for one in offsets(admin, committed)] == [(topic_name, 0), (topic_name, 1)]


def test_a_group_with_a_member_is_described(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, committed: str
) -> None:
    with consumer(
        bootstrap_servers, committed, client_id="worker-7", group_instance_id="seven"
    ) as source:
        source.subscribe([topic_name])
        take(source, 1)
        described = admin.describe_consumer_groups([committed])[committed]
        group = wait_until(lambda: described.result(PATIENCE_S), PATIENCE_S, "a description")
    (member,) = group.members
    assert (group.group_id, group.type, group.is_simple_consumer_group) == (
        committed,
        ConsumerGroupType.CLASSIC,
        False,
    )
    assert (group.state, group.state_name) == (ConsumerGroupState.STABLE, "Stable")
    assert (group.partition_assignor, group.group_epoch, group.target_assignment_epoch) == (
        "range",
        None,
        None,
    )
    assert f"{group.coordinator.host}:{group.coordinator.port}" == bootstrap_servers
    assert (member.client_id, member.group_instance_id, member.host) == (
        "worker-7",
        "seven",
        "/127.0.0.1",
    )
    assert (member.member_epoch, member.upgraded, member.target_assignment) == (None, None, None)
    assert sorted((p.topic, p.partition) for p in member.assignment.topic_partitions) == [
        (topic_name, 0),
        (topic_name, 1),
    ]


def test_what_is_no_consumer_group_is_not_described(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, committed: str
) -> None:
    missing, shared = unique("group"), unique("group")
    with share_consumer(bootstrap_servers, shared, [topic_name]) as source:

        def joined() -> bool:
            source.poll(0.1)
            return shared in [
                group.group_id for group in admin.list_all_groups().result(PATIENCE_S).valid
            ]

        wait_until(joined, PATIENCE_S, "the member to join")
        futures = admin.describe_consumer_groups([missing, committed, shared])
        assert code_of(futures[missing]) == KafkaError.GROUP_ID_NOT_FOUND
        assert code_of(futures[shared]) == KafkaError.GROUP_ID_NOT_FOUND
        assert futures[committed].result(PATIENCE_S).is_simple_consumer_group


def test_all_groups_are_listed_by_type_and_state(admin: AdminClient, committed: str) -> None:
    def listed(**filters: Any) -> list[tuple[str, str, str]]:
        result = admin.list_all_groups(**filters).result(PATIENCE_S)
        assert not result.errors
        return [
            (one.type, one.protocol, one.state) for one in result.valid if one.group_id == committed
        ]

    simple = [("classic", "", "Empty")]
    assert [(one[0].lower(), *one[1:]) for one in listed()] == simple
    assert len(listed(types=["classic"], states=["empty", "Stable"])) == 1
    assert listed(types=["share", "consumer"]) == []
    assert listed(states=["Stable"]) == []


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    here = TopicPartition("t", 0)
    for call in (
        lambda: admin.describe_consumer_groups([]),
        lambda: admin.list_consumer_group_offsets([]),
        lambda: admin.list_consumer_group_offsets(["g", ConsumerGroupTopicPartitions("g")]),
        lambda: admin.delete_consumer_group_offsets("g", []),
        lambda: admin.delete_consumer_group_offsets("g", [here, here]),
    ):
        with pytest.raises(ValueError):
            call()
    for wrong in (
        lambda: admin.list_consumer_group_offsets("group"),
        lambda: admin.list_all_groups(types="share"),
        lambda: admin.delete_consumer_group_offsets("g", [("t", 0)]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\0\3\0\0\0\0", []),
        (b"\0\3\0\0\0\1\0\1t\0\0\0\2\0\0\0\5\0\0\0\1\0\0\0\0", [("t", 5), ("t", 1)]),
        (b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\5", []),
        (b"\0\0\x7f\0\0\1\0\1t", []),
        (b"\0\0\0\0\0\1\0\1\xff\0\0\0\0", []),
        (b"something else", []),
    ],
)
def test_assignments_are_read_from_what_the_leader_wrote(
    data: bytes, expected: list[tuple[str, int]]
) -> None:
    assert list(assigned_partitions(data)) == expected
