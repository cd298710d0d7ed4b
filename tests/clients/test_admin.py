"""headrace's admin client, against headrace and Apache Kafka: confluent-kafka's convention over the
requests of headrace.client.
"""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, ResourceType

from headrace.admin import AdminClient, SharePartitionOffsetInfo
from tests.clients.confluent import PATIENCE_S, consumer, create_topic, produce, take
from tests.clients.conftest import code_of
from tests.support import free_port_pair, unique, wait_until


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": [bootstrap_servers], "client.id": "tests"}) as opened:
        yield opened


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: str) -> str:
    """A topic with five records in the first of its two partitions."""
    create_topic(bootstrap_servers, topic_name, partitions=2)
    produce(bootstrap_servers, topic_name, [b"x"] * 5, partition=0)
    return topic_name


@pytest.fixture
def committed(admin: AdminClient, topic: str, group_id: str) -> str:
    """A group without members, with offsets 3 and 0 in two partitions and metadata in one."""
    partitions = [TopicPartition(topic, 0, 3, "noted", 0), TopicPartition(topic, 1, 0)]
    asked = ConsumerGroupTopicPartitions(group_id, partitions)
    altered = admin.alter_consumer_group_offsets([asked])[group_id].result(PATIENCE_S)
    assert [partition.error for partition in altered.topic_partitions] == [None, None]
    return group_id


@pytest.fixture
def shared(admin: AdminClient, topic: str, group_id: str) -> str:
    """A share group without members, at offset 2 of the first partition."""
    to = TopicPartition(topic, 0, 2)

    def altered() -> bool:  # a new topic takes a moment to reach the coordinator
        return admin.alter_share_group_offsets(group_id, [to])[to].exception(PATIENCE_S) is None

    wait_until(altered, PATIENCE_S, "the offset to be set")
    return group_id


# Consumer groups ----------------------------------------------------------------------------------


def offsets(
    admin: AdminClient, group: str | ConsumerGroupTopicPartitions, **options: Any
) -> list[tuple[Any, ...]]:
    (future,) = admin.list_consumer_group_offsets([group], **options).values()
    return [
        (partition.topic, partition.partition, partition.offset, partition.metadata)
        + (partition.leader_epoch,)
        for partition in future.result(PATIENCE_S).topic_partitions
    ]


def test_committed_offsets(admin: AdminClient, topic: str, committed: str) -> None:
    assert offsets(admin, committed) == [(topic, 0, 3, "noted", 0), (topic, 1, 0, None, None)]
    partitions = [TopicPartition(topic, 9), TopicPartition(topic, 1)]
    some = ConsumerGroupTopicPartitions(committed, partitions)
    assert offsets(admin, some) == [(topic, 1, 0, None, None), (topic, 9, -1, None, None)]
    stranger = unique("group")
    futures = admin.list_consumer_group_offsets([committed, stranger])
    assert len(futures[committed].result(PATIENCE_S).topic_partitions) == 2
    assert futures[stranger].result(PATIENCE_S).topic_partitions == []


def test_offsets_of_an_open_transaction_are_waited_for(
    admin: AdminClient, bootstrap_servers: str, topic: str, committed: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("txn")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    with consumer(bootstrap_servers, committed) as source:
        metadata = source.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], metadata, PATIENCE_S)
    assert (topic, 0, 3, "noted", 0) in offsets(admin, committed)
    asked = ConsumerGroupTopicPartitions(committed, [TopicPartition(topic, 0)])
    late = admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=0.1)
    assert code_of(late[committed]) == KafkaError.UNSTABLE_OFFSET_COMMIT
    patient = admin.list_consumer_group_offsets(
        [asked], require_stable=True, request_timeout=PATIENCE_S
    )[committed]
    producer.commit_transaction(PATIENCE_S)
    assert [partition.offset for partition in patient.result(PATIENCE_S).topic_partitions] == [4]


def test_offsets_are_deleted_unless_a_member_subscribes(
    admin: AdminClient, bootstrap_servers: str, topic: str, committed: str
) -> None:
    here, nowhere = TopicPartition(topic, 0), TopicPartition(topic, 9)
    futures = admin.delete_consumer_group_offsets(committed, [here, nowhere])
    assert futures[here].result(PATIENCE_S) is None
    assert code_of(futures[nowhere]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert offsets(admin, committed) == [(topic, 1, 0, None, None)]
    with consumer(bootstrap_servers, committed) as source:
        source.subscribe([topic])
        take(source, 1)
        refused = admin.delete_consumer_group_offsets(committed, [here])[here]
        assert code_of(refused) == KafkaError.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_group_with_a_member_is_described(
    admin: AdminClient, bootstrap_servers: str, topic: str, committed: str
) -> None:
    configs = {"client_id": "worker-7", "group_instance_id": "seven"}
    with consumer(bootstrap_servers, committed, **configs) as source:
        source.subscribe([topic])
        take(source, 1)
        missing = unique("group")
        futures = admin.describe_groups([committed, missing])
        assert code_of(futures[missing]) == KafkaError.GROUP_ID_NOT_FOUND
        group = futures[committed].result(PATIENCE_S)
        inherited = admin.describe_consumer_groups([committed])[committed].result(PATIENCE_S)
    assert (group.type, group.state, group.assignor) == ("classic", "Stable", "range")
    (member,) = group.members
    assert (member.client_id, member.instance_id) == ("worker-7", "seven")
    assert [member.member_id for member in inherited.members] == [member.member_id]


# Share groups -------------------------------------------------------------------------------------


def test_share_groups(admin: AdminClient, topic: str, shared: str) -> None:
    missing = unique("group")
    described = admin.describe_groups([shared, missing])
    assert described[shared].result(PATIENCE_S).state == "Empty"
    assert code_of(described[missing]) == KafkaError.GROUP_ID_NOT_FOUND
    listed = admin.list_all_groups(types=["share"], states=["Empty"]).result(PATIENCE_S)
    assert (shared, []) in [(group.group_id, listed.errors) for group in listed.valid]
    future = admin.list_share_group_offsets([shared])[shared]
    at = TopicPartition(topic, 0)
    assert future.result(PATIENCE_S)[at] == SharePartitionOffsetInfo(2, 0, 3)
    assert admin.delete_share_group_offsets(shared, [topic])[topic].result(PATIENCE_S) is None
    deleted = admin.delete_share_groups([shared, missing])
    assert deleted[shared].result(PATIENCE_S) is None
    assert code_of(deleted[missing]) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_share_groups_are_altered_in_both_forms(
    admin: AdminClient, topic: str, shared: str
) -> None:
    here, nowhere = TopicPartition(topic, 0, 4), TopicPartition(topic, 9, 0)
    futures = admin.alter_share_group_offsets(shared, [here, nowhere])
    assert futures[here].result(PATIENCE_S) is None
    assert code_of(futures[nowhere]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    request = ConsumerGroupTopicPartitions(shared, [TopicPartition(topic, 0, 1)])
    assert admin.alter_share_group_offsets([request])[shared].result(PATIENCE_S) is request
    infos = admin.list_share_group_offsets([shared])[shared].result(PATIENCE_S)
    assert infos[here].start_offset == 1
    request = ConsumerGroupTopicPartitions(shared, [nowhere])
    refused = admin.alter_share_group_offsets([request])[shared]
    assert code_of(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART
    requests = [
        ConsumerGroupTopicPartitions(shared, [here]),
        ConsumerGroupTopicPartitions("other", [TopicPartition(topic, 0, -5)]),
    ]
    with pytest.raises(ValueError, match="negative"):
        admin.alter_share_group_offsets(requests)
    infos = admin.list_share_group_offsets([shared])[shared].result(PATIENCE_S)
    assert infos[here].start_offset == 1


def test_configs_of_a_group_are_set(admin: AdminClient, group_id: str) -> None:
    name = "share.auto.offset.reset"
    admin.set_group_config(group_id, {name: "earliest"}).result(PATIENCE_S)
    resource = ConfigResource(ResourceType.GROUP, group_id)

    def value() -> str | None:
        configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return str(configs[name].value)

    wait_until(lambda: value() == "earliest", PATIENCE_S, "the config to reach the broker")
    refused = admin.set_group_config(group_id, {name: "never"})
    assert code_of(refused) == KafkaError.INVALID_CONFIG


# The client itself --------------------------------------------------------------------------------


def test_several_threads_may_ask_at_once(admin: AdminClient, shared: str) -> None:
    counts: list[int] = []

    def ask() -> None:
        for _ in range(5):
            futures = admin.list_share_group_offsets([shared])
            counts.append(len(futures[shared].result(PATIENCE_S)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 20


@pytest.mark.parametrize("listens", [False, True])
def test_a_broker_that_does_not_answer_is_reported_in_time(listens: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        conf = {"socket.connection.setup.timeout.ms": int(5000 * PATIENCE_S), "log_level": 0}
        conf["bootstrap.servers"] = f"127.0.0.1:{silent.getsockname()[1]}"
        with AdminClient(conf) as admin:
            described = admin.describe_groups(["g"], request_timeout=0.2)["g"]
            listed = admin.list_all_groups(request_timeout=0.2)
            assert code_of(described) == KafkaError._TRANSPORT
            assert code_of(listed) == KafkaError._TRANSPORT
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=0.2)


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
        admin.list_all_groups()

    forgotten = AdminClient({"bootstrap.servers": bootstrap_servers})
    forgotten.list_share_group_offsets([group_id])[group_id].result(PATIENCE_S)
    del forgotten
    gc.collect()
    assert threads() == before


def test_closing_fails_what_is_under_way() -> None:
    nobody = f"127.0.0.1:{free_port_pair()}"
    admin = AdminClient({"bootstrap.servers": nobody, "log_level": 0})
    future = admin.describe_groups(["g"])["g"]
    admin.close()
    admin.close()
    assert code_of(future) in (KafkaError._FAIL, KafkaError._TRANSPORT)


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    here = TopicPartition("t", 0, 5)
    for call in (
        lambda: admin.describe_groups([]),
        lambda: admin.describe_groups(["a"], types=[]),
        lambda: admin.describe_groups(["a", "a"]),
        lambda: admin.describe_groups(["a"], request_timeout=-1),
        lambda: admin.list_share_group_offsets([ConsumerGroupTopicPartitions("g", [])]),
        lambda: admin.list_consumer_group_offsets(["g", ConsumerGroupTopicPartitions("g")]),
        lambda: admin.alter_share_group_offsets("", [here]),
        lambda: admin.alter_share_group_offsets("g", [TopicPartition("t", 0)]),
        lambda: admin.alter_share_group_offsets("g", [here, here]),
        lambda: admin.alter_share_group_offsets([ConsumerGroupTopicPartitions("g")]),
        lambda: admin.delete_share_group_offsets("g", []),
        lambda: admin.delete_consumer_group_offsets("g", []),
    ):
        with pytest.raises(ValueError):
            call()
    for wrong in (
        lambda: admin.describe_groups("group"),
        lambda: admin.delete_share_groups([1]),  # type: ignore[list-item]
        lambda: admin.list_all_groups(types="share"),
        lambda: admin.list_consumer_group_offsets("group"),
        lambda: admin.alter_share_group_offsets("group"),  # type: ignore[arg-type]
        lambda: admin.alter_share_group_offsets(["group"]),  # type: ignore[list-item]
        lambda: admin.alter_share_group_offsets("g", [("t", 0, 5)]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config is for Kafka's Java clients: use sasl.us"),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism GSSAPI is not supported here",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_at_once(conf: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaException) as refused:
        AdminClient({"bootstrap.servers": "127.0.0.1:1", **conf})
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    assert text in refused.value.args[0].str()
