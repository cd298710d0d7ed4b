"""headrace's admin client on share groups, against headrace and Apache Kafka."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headrace.admin import AdminClient, SharePartitionOffsetInfo
from tests.clients.confluent import (
    PATIENCE_S,
    consumer,
    create_topic,
    poll_share,
    produce,
    share_consumer,
    share_from_earliest,
    take,
)
from tests.clients.conftest import code_of
from tests.support import free_port_pair, unique, wait_until


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": [bootstrap_servers], "client.id": "tests"}) as opened:
        yield opened


def drain(bootstrap_servers: str, group_id: str, topic: str, count: int) -> None:
    """Accept `count` records as the only member, and leave."""
    seen = []
    with share_consumer(bootstrap_servers, group_id, [topic]) as source:

        def accept(message: Message) -> None:
            seen.append(message.offset())
            source.acknowledge(message, AcknowledgeType.ACCEPT)

        poll_share(source, lambda: len(seen) >= count, accept)
        source.commit_sync(PATIENCE_S)


@pytest.fixture
def drained(bootstrap_servers: str, topic_name: str, group_id: str) -> str:
    """A group without members that has accepted 10 records of partition 0 of two."""
    create_topic(bootstrap_servers, topic_name, partitions=2)
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic_name, [b"x"] * 10, partition=0)
    drain(bootstrap_servers, group_id, topic_name, 10)
    return group_id


def offsets(admin: AdminClient, group_id: str) -> dict[tuple[str, int], SharePartitionOffsetInfo]:
    infos = admin.list_share_group_offsets([group_id])[group_id].result(PATIENCE_S)
    return {(partition.topic, partition.partition): info for partition, info in infos.items()}


def test_a_group_with_a_member_is_described(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name, partitions=2)
    share_from_earliest(bootstrap_servers, group_id)
    with share_consumer(bootstrap_servers, group_id, [topic_name], client_id="packer-7") as source:

        def assigned() -> Any:
            source.poll(0.1)
            if not _has_members(admin, group_id):
                return None
            group = admin.describe_share_groups([group_id])[group_id].result(PATIENCE_S)
            return group if len(group.members[0].assignment.topic_partitions) == 2 else None

        group = wait_until(assigned, PATIENCE_S, "a member with an assignment")
        (member,) = group.members
        assert (group.group_id, group.state, group.assignor) == (
            group_id,
            ConsumerGroupState.STABLE,
            "simple",
        )
        assert f"{group.coordinator.host}:{group.coordinator.port}" == bootstrap_servers
        assert group.coordinator.id == 1
        assert group.group_epoch >= group.assignment_epoch >= 1
        assert group.authorized_operations is None
        assert (member.client_id, member.host, member.rack_id) == ("packer-7", "/127.0.0.1", None)
        assert member.subscribed_topics == (topic_name,)
        assert 1 <= member.member_epoch <= group.group_epoch
        assert sorted((p.topic, p.partition) for p in member.assignment.topic_partitions) == [
            (topic_name, 0),
            (topic_name, 1),
        ]


def _has_members(admin: AdminClient, group_id: str) -> bool:
    try:
        return bool(admin.describe_share_groups([group_id])[group_id].result(PATIENCE_S).members)
    except KafkaException as refusal:
        if refusal.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise
        return False


def test_offsets_and_lag_are_told_of_all_partitions_or_some(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, drained: str
) -> None:
    assert offsets(admin, drained)[topic_name, 0].lag == 0
    produce(bootstrap_servers, topic_name, [b"y"] * 3, partition=0)
    found = offsets(admin, drained)
    assert found[topic_name, 0].lag == 3
    assert found[topic_name, 0].leader_epoch == 0
    assert (
        found[topic_name, 1] == SharePartitionOffsetInfo(None, None, None)
        or found[topic_name, 1].lag == 0
    )
    one = ConsumerGroupTopicPartitions(drained, [TopicPartition(topic_name, 0)])
    infos = admin.list_share_group_offsets([one])[drained].result(PATIENCE_S)
    assert [(p.topic, p.partition, info.lag) for p, info in infos.items()] == [(topic_name, 0, 3)]


def test_offsets_of_several_groups_come_each_in_its_future(
    admin: AdminClient, drained: str
) -> None:
    stranger = unique("group")
    futures = admin.list_share_group_offsets([drained, stranger])
    assert futures[drained].result(PATIENCE_S)
    assert futures[stranger].result(PATIENCE_S) == {}


def test_offsets_are_altered_where_the_topic_exists(
    admin: AdminClient, topic_name: str, drained: str
) -> None:
    nowhere = TopicPartition(unique("missing"), 0, 1)
    futures = admin.alter_share_group_offsets(
        drained, [TopicPartition(topic_name, 0, 4), TopicPartition(topic_name, 9, 0), nowhere]
    )
    assert futures[TopicPartition(topic_name, 0)].result(PATIENCE_S) is None
    assert code_of(futures[TopicPartition(topic_name, 9)]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert code_of(futures[nowhere]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    info = offsets(admin, drained)[topic_name, 0]
    assert (info.start_offset, info.lag) == (4, 6)


def test_deleted_offsets_are_gone(admin: AdminClient, topic_name: str, drained: str) -> None:
    missing = unique("missing")
    futures = admin.delete_share_group_offsets(drained, [topic_name, missing])
    assert futures[topic_name].result(PATIENCE_S) is None
    assert code_of(futures[missing]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert offsets(admin, drained) == {}
    stranger = unique("group")
    assert code_of(admin.delete_share_group_offsets(stranger, [topic_name])[topic_name]) == (
        KafkaError.GROUP_ID_NOT_FOUND
    )


def test_a_group_with_members_is_left_alone(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    with share_consumer(bootstrap_servers, group_id, [topic_name]) as source:

        def joined() -> bool:
            source.poll(0.1)
            return _has_members(admin, group_id)

        wait_until(joined, PATIENCE_S, "the member to join")
        to = TopicPartition(topic_name, 0, 0)
        assert (
            code_of(admin.alter_share_group_offsets(group_id, [to])[to])
            == KafkaError.NON_EMPTY_GROUP
        )
        deleted = admin.delete_share_group_offsets(group_id, [topic_name])
        assert code_of(deleted[topic_name]) == KafkaError.NON_EMPTY_GROUP
        assert (
            code_of(admin.delete_share_groups([group_id])[group_id]) == KafkaError.NON_EMPTY_GROUP
        )


def test_share_groups_are_listed_and_deleted(admin: AdminClient, drained: str) -> None:
    def listed(**filters: Any) -> dict[str, ConsumerGroupState]:
        result = admin.list_share_groups(**filters).result(PATIENCE_S)
        assert not result.errors
        return {group.group_id: group.state for group in result.valid}

    assert listed()[drained] is ConsumerGroupState.EMPTY
    assert drained in listed(states={ConsumerGroupState.EMPTY})
    assert drained not in listed(states={ConsumerGroupState.STABLE})
    stranger = unique("group")
    futures = admin.delete_share_groups([drained, stranger])
    assert futures[drained].result(PATIENCE_S) is None
    assert code_of(futures[stranger]) == KafkaError.GROUP_ID_NOT_FOUND
    assert drained not in listed()


def test_a_group_of_another_type_is_not_taken_for_a_share_group(
    admin: AdminClient, bootstrap_servers: str, topic_name: str, group_id: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    produce(bootstrap_servers, topic_name, [b"x"])
    with consumer(bootstrap_servers, group_id) as source:
        source.subscribe([topic_name])
        source.commit(message=take(source, 1)[0], asynchronous=False)
    assert (
        code_of(admin.describe_share_groups([group_id])[group_id]) == KafkaError.GROUP_ID_NOT_FOUND
    )
    assert code_of(admin.delete_share_groups([group_id])[group_id]) == KafkaError.GROUP_ID_NOT_FOUND
    assert group_id not in [
        group.group_id for group in admin.list_share_groups().result(PATIENCE_S).valid
    ]
    assert group_id in [
        group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid
    ]


def test_confluent_kafkas_own_calls_are_there(
    admin: AdminClient, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name)
    assert topic_name in admin.list_topics(timeout=PATIENCE_S).topics


def test_several_threads_may_ask_at_once(admin: AdminClient, drained: str) -> None:
    found: list[int] = []

    def ask() -> None:
        for _ in range(5):
            found.append(len(offsets(admin, drained)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20 and set(found) == {found[0]}


def test_a_broker_that_is_not_there_is_reported_in_time() -> None:
    nobody = f"127.0.0.1:{free_port_pair()}"
    with AdminClient({"bootstrap.servers": nobody, "log_level": 0}) as admin:
        future = admin.describe_share_groups(["g"], request_timeout=0.3)["g"]
        assert code_of(future) == KafkaError._TRANSPORT
        assert code_of(admin.list_share_groups(request_timeout=0.3)) == KafkaError._TRANSPORT


def test_a_broker_that_does_not_answer_is_reported_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        patient = {"socket.connection.setup.timeout.ms": int(5000 * PATIENCE_S), "log_level": 0}
        with AdminClient(
            {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}", **patient}
        ) as admin:
            described = admin.describe_share_groups(["g"], request_timeout=0.2)["g"]
            listed = admin.list_share_groups(request_timeout=0.2)
            assert code_of(described) == KafkaError._TRANSPORT
            assert code_of(listed) == KafkaError._TRANSPORT


def test_its_thread_ends_with_it(bootstrap_servers: str, group_id: str) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "headrace-admin"]

    before = threads()
    with AdminClient({"bootstrap.servers": bootstrap_servers}) as admin:
        assert threads() == before
        admin.list_share_group_offsets([group_id])[group_id].result(PATIENCE_S)
        assert len(threads()) == len(before) + 1
    assert threads() == before
    with pytest.raises(RuntimeError, match="closed"):
        admin.list_share_groups()

    forgotten = AdminClient({"bootstrap.servers": bootstrap_servers})
    forgotten.list_share_group_offsets([group_id])[group_id].result(PATIENCE_S)
    del forgotten
    gc.collect()
    assert threads() == before


def test_closing_fails_what_is_under_way() -> None:
    nobody = f"127.0.0.1:{free_port_pair()}"
    admin = AdminClient({"bootstrap.servers": nobody, "log_level": 0})
    future = admin.describe_share_groups(["g"])["g"]
    admin.close()
    admin.close()
    assert code_of(future) in (KafkaError._FAIL, KafkaError._TRANSPORT)


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    here = TopicPartition("t", 0, 5)
    for call in (
        lambda: admin.describe_share_groups([]),
        lambda: admin.describe_share_groups([""]),
        lambda: admin.describe_share_groups(["a", "a"]),
        lambda: admin.describe_share_groups(["a"], request_timeout=-1),
        lambda: admin.list_share_group_offsets([ConsumerGroupTopicPartitions("g", [])]),
        lambda: admin.alter_share_group_offsets("", [here]),
        lambda: admin.alter_share_group_offsets("g", [TopicPartition("t", 0)]),
        lambda: admin.alter_share_group_offsets("g", [here, here]),
        lambda: admin.delete_share_group_offsets("g", []),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: admin.describe_share_groups("group"),
        lambda: admin.delete_share_groups([1]),  # type: ignore[list-item]
        lambda: admin.list_share_groups(states={"Empty"}),  # type: ignore[arg-type]
        lambda: admin.alter_share_group_offsets("g", [("t", 0, 5)]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError):
            call()
