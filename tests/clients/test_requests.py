"""The requests of headrace.client, against headrace and Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from headrace.client import ClientError, Cluster, RangeConsumer
from headrace.client.config import read_config
from headrace.client.configs import (
    ConfigType,
    alter_configs,
    describe_config,
    describe_configs,
    list_config_resources,
)
from headrace.client.connection import Connection
from headrace.client.errors import UnknownTopic, error_line, has_code, raised
from headrace.client.groups import (
    _classic_assignment,
    delete_groups,
    describe_group,
    describe_groups,
    list_groups,
)
from headrace.client.offsets import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    ListedOffset,
    alter_share_offsets,
    commit_offsets,
    committed_offsets,
    delete_offsets,
    delete_share_offsets,
    list_offsets,
    share_offsets,
)
from headrace.client.security import (
    MECHANISMS,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
    alter_quotas,
    alter_users,
    create_acls,
    delete_acls,
    describe_acls,
    describe_quotas,
    describe_users,
)
from headrace.client.topics import (
    NewTopic,
    create_partitions,
    create_topic,
    delete_records,
    delete_topics,
    describe_topics,
)
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition
from headrace.secure_broker import SecureBroker
from headrace.security.acls import Acl, AclFilter, PatternType, Permission, ResourceType
from tests.clients.confluent import PATIENCE_S, consumer, produce, take
from tests.clients.confluent import create_topic as topic_of
from tests.support import story, unique

SCRAM_SHA_256 = MECHANISMS["SCRAM-SHA-256"]


@pytest.fixture
def topic(bootstrap_servers: str, topic_name: str) -> str:
    """A topic with five records in the first of its two partitions."""
    topic_of(bootstrap_servers, topic_name, partitions=2)
    produce(bootstrap_servers, topic_name, [b"x"] * 5, partition=0)
    return topic_name


@story
async def test_the_life_of_a_topic(bootstrap_servers: str, topic_name: str) -> None:
    async with Cluster(bootstrap_servers) as cluster:
        new = NewTopic(topic_name, partitions=2, configs={"retention.ms": "1000000"})
        await create_topic(cluster, new)
        with pytest.raises(ClientError, match=f"creating topic '{topic_name}': TOPIC_ALREADY_EX"):
            await create_topic(cluster, new)
        await create_partitions(cluster, topic_name, 3)

        async def partitions() -> int:
            described = (await describe_topics(cluster, [topic_name]))[topic_name]
            return 0 if isinstance(described, ClientError) else len(described.partitions)

        async with asyncio.timeout(PATIENCE_S):
            while await partitions() != 3:  # metadata follows the controller
                await asyncio.sleep(0.05)
        missing = unique("missing")
        deleted = await delete_topics(cluster, [topic_name, missing])
        assert deleted[topic_name] is None
        assert has_code(deleted[missing], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@story
async def test_offsets_are_listed_where_they_are_and_records_deleted(
    bootstrap_servers: str, topic: str
) -> None:
    async with Cluster(bootstrap_servers) as cluster:
        missing = unique("missing")
        listed = await list_offsets(
            cluster, {(topic, 0): LATEST, (topic, 1): EARLIEST, (missing, 0): LATEST}
        )
        assert listed[topic, 0] == ListedOffset(5, None, 0)
        assert listed[topic, 1] == ListedOffset(0, None, 0)
        assert isinstance(listed[missing, 0], UnknownTopic)
        no_leader = await list_offsets(cluster, {(topic, 9): LATEST}, attempts=1)
        assert str(no_leader[topic, 9]) == f"partition {topic}-9 has no leader"
        deleted = await delete_records(cluster, {(topic, 0): 3, (topic, 1): 7})
        assert deleted[topic, 0] == 3
        assert has_code(deleted[topic, 1], ErrorCode.OFFSET_OUT_OF_RANGE)


@story
async def test_configs(bootstrap_servers: str, topic: str, group_id: str) -> None:
    async with Cluster(bootstrap_servers) as cluster:
        await alter_configs(cluster, ConfigType.TOPIC, topic, {"retention.ms": "1000000"})
        names = ["retention.ms", "no.such.config"]
        for _ in range(100):  # configs take a moment to reach a broker
            configs = await describe_config(cluster, ConfigType.TOPIC, topic, names)
            if configs == {"retention.ms": "1000000"}:
                break
            await asyncio.sleep(0.05)
        assert configs == {"retention.ms": "1000000"}
        missing = unique("missing")
        described = await describe_configs(cluster, ConfigType.TOPIC, [topic, missing])
        of_topic = described[topic]
        assert not isinstance(of_topic, ClientError)
        assert [config.name for config in of_topic if config.is_dynamic] == ["retention.ms"]
        assert has_code(described[missing], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        with pytest.raises(ClientError, match="there is no broker 77: the cluster has 1"):
            await describe_configs(cluster, ConfigType.BROKER, ["77"])
        await alter_configs(
            cluster, ConfigType.GROUP, group_id, {"share.auto.offset.reset": "earliest"}
        )
        assert group_id in await list_config_resources(cluster, ConfigType.GROUP)
        loggers = raised(await describe_configs(cluster, ConfigType.BROKER_LOGGER, ["1"]))
        assert loggers["1"]


@story
async def test_committed_offsets(bootstrap_servers: str, topic: str, group_id: str) -> None:
    async with Cluster(bootstrap_servers) as cluster:
        outcomes = await commit_offsets(
            cluster,
            group_id,
            {(topic, 0): 3, (topic, 1): 0, (unique("missing"), 0): 1},
        )
        assert [error is None for error in outcomes.values()] == [True, True, False]
        stranger = unique("group")
        committed = await committed_offsets(
            cluster, {group_id: None, stranger: [(topic, 0)]}, require_stable=True
        )
        assert committed == {
            group_id: {
                (topic, 0): CommittedOffset(3),
                (topic, 1): CommittedOffset(0),
            },
            stranger: {},
        }
        deleted = await delete_offsets(cluster, group_id, [(topic, 0), (topic, 9)])
        assert deleted[topic, 0] is None
        assert has_code(deleted[topic, 9], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert raised(await committed_offsets(cluster, [group_id]))[group_id].keys() == {(topic, 1)}
        assert await delete_groups(cluster, [group_id], ("share",)) != {group_id: None}
        assert await delete_groups(cluster, [group_id]) == {group_id: None}


@story
async def test_offsets_of_a_share_group(bootstrap_servers: str, topic: str, group_id: str) -> None:
    async with Cluster(bootstrap_servers) as cluster:
        for _ in range(100):  # a new topic takes a moment to reach the coordinator
            altered = await alter_share_offsets(cluster, group_id, {(topic, 0): 2, (topic, 9): 0})
            if altered[topic, 0] is None:
                break
            await asyncio.sleep(0.05)
        assert altered[topic, 0] is None
        assert has_code(altered[topic, 9], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        (progress,) = raised(await share_offsets(cluster, [group_id])).values()
        offset = progress[topic, 0]
        assert not isinstance(offset, ClientError)
        assert (offset.start_offset, offset.lag) == (2, 3)
        missing = unique("missing")
        deleted = await delete_share_offsets(cluster, group_id, [topic, missing])
        assert deleted[topic] is None
        assert has_code(deleted[missing], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await delete_groups(cluster, [group_id], ("share",)) == {group_id: None}


@pytest.fixture
def worker(
    request: pytest.FixtureRequest, bootstrap_servers: str, topic: str, group_id: str
) -> Iterator[Consumer]:
    """The only member of a group, which has read a record."""
    configs = {"client_id": "worker-7", "group_protocol": request.param}
    with consumer(bootstrap_servers, group_id, **configs) as source:
        source.subscribe([topic])
        take(source, 1)
        yield source


@pytest.mark.parametrize("worker", ["classic", "consumer"], indirect=True)
def test_groups_of_both_consumer_protocols_have_one_description(
    bootstrap_servers: str, topic: str, group_id: str, worker: Consumer
) -> None:
    async def look() -> None:
        async with Cluster(bootstrap_servers) as cluster:
            missing = unique("missing")
            described = await describe_groups(
                cluster, [group_id, missing], authorized_operations=True
            )
            assert has_code(described[missing], ErrorCode.GROUP_ID_NOT_FOUND)
            assert await describe_group(cluster, missing) is None
            group = described[group_id]
            assert not isinstance(group, ClientError)
            (member,) = group.members
            assert (group.state, group.protocol_type) == ("Stable", "consumer")
            assert group.coordinator is not None
            assert f"{group.coordinator.host}:{group.coordinator.port}" == bootstrap_servers
            assert group.authorized_operations is not None
            assert Operation.DELETE in group.authorized_operations
            assert (member.client_id, member.host) == ("worker-7", "/127.0.0.1")
            assert sorted(member.assignment) == [(topic, 0), (topic, 1)]
            if group.type == "classic":
                assert (group.assignor, group.group_epoch, member.epoch) == ("range", None, None)
            else:
                assert (group.assignor, group.type) == ("uniform", "consumer")
                assert member.epoch == group.group_epoch
                assert member.subscribed_topics == (topic,)
                assert sorted(member.target_assignment or ()) == [(topic, 0), (topic, 1)]
            listed = await list_groups(cluster, types=[group.type], states=["Stable"])
            assert group_id in [other.group_id for other in listed.groups]
            assert (listed.errors, listed.advice) == ((), None)

    asyncio.run(look())


@story
async def test_a_share_group_is_described(
    bootstrap_servers: str, topic: str, group_id: str
) -> None:
    async with (
        Cluster(bootstrap_servers) as cluster,
        RangeConsumer(bootstrap_servers, group_id, [topic]) as packer,
    ):
        while len(packer.assignment) < 2:
            await packer.acquire(max_wait_ms=100)
        group = await describe_group(cluster, group_id)
        assert group is not None
        (member,) = group.members
        assert (group.type, group.state, group.assignor) == ("share", "Stable", "simple")
        assert member.epoch is not None and member.epoch <= (group.group_epoch or 0)
        assert (member.subscribed_topics, sorted(member.assignment)) == (
            (topic,),
            [(topic, 0), (topic, 1)],
        )
        refused = await delete_groups(cluster, [group_id])
        assert has_code(refused[group_id], ErrorCode.NON_EMPTY_GROUP)


@story
async def test_quotas(bootstrap_servers: str) -> None:
    entity = (("client-id", unique("client")),)
    async with Cluster(bootstrap_servers) as cluster:
        outcomes = await alter_quotas(cluster, {entity: {"producer_byte_rate": 1000.0}})
        assert outcomes == {entity: None}
        for _ in range(100):  # quotas take a moment to reach a broker
            described = await describe_quotas(cluster, dict(entity))
            if described:
                break
            await asyncio.sleep(0.05)
        assert described == {entity: {"producer_byte_rate": 1000.0}}
        outcomes = await alter_quotas(cluster, {entity: {"no_such_quota": 1.0}})
        assert has_code(outcomes[entity], ErrorCode.INVALID_REQUEST)


@story
async def test_users(bootstrap_servers: str) -> None:
    user = unique("user")
    async with Cluster(bootstrap_servers) as cluster:
        upsertion = ScramUpsertion(user, SCRAM_SHA_256, b"secret", 4096)
        assert "secret" not in repr(upsertion)
        assert await alter_users(cluster, [upsertion]) == {user: None}
        for _ in range(100):  # credentials take a moment to reach a broker
            described = await describe_users(cluster, [user])
            if not isinstance(described[user], ClientError):
                break
            await asyncio.sleep(0.05)
        assert described == {user: (ScramCredential(SCRAM_SHA_256, 4096),)}
        deletion = ScramDeletion(user, SCRAM_SHA_256)
        assert await alter_users(cluster, [deletion]) == {user: None}
        outcomes = await alter_users(cluster, [deletion])
        assert has_code(outcomes[user], ErrorCode.RESOURCE_NOT_FOUND)


def test_acls_and_what_a_list_leaves_out_for_lack_of_them() -> None:
    async def look(broker: SecureBroker) -> None:
        acl = Acl(
            ResourceType.GROUP, "g", PatternType.LITERAL, "User:alice", "*", 8, Permission.ALLOW
        )
        of_alice = AclFilter(principal="User:alice")
        async with (
            read_config(broker.client_config()).cluster() as cluster,
            read_config(broker.client_config("alice")).cluster() as of_user,
        ):
            for group_id in ("g", "hidden"):
                await alter_configs(
                    cluster, ConfigType.GROUP, group_id, {"share.auto.offset.reset": "earliest"}
                )
                await create_topic(cluster, NewTopic(f"of-{group_id}"))
                await alter_share_offsets(cluster, group_id, {(f"of-{group_id}", 0): 0})
            listed = await list_groups(of_user)
            assert (listed.groups, listed.errors) == ((), ())
            assert listed.advice == (
                "groups may be missing: the user needs the permission DESCRIBE on the cluster, or "
                "on each group"
            )
            assert await create_acls(cluster, [acl]) == {acl: None}
            listed = await list_groups(of_user)
            assert [group.group_id for group in listed.groups] == ["g"]
            assert listed.advice is not None
            assert await describe_acls(cluster, of_alice) == [acl]
            with pytest.raises(ClientError, match=r"needs the permission DESCRIBE on the cluster$"):
                await describe_acls(of_user)
            broker.allow("alice", "DESCRIBE", "BROKER", "kafka-cluster")
            listed = await list_groups(of_user)
            assert [group.group_id for group in listed.groups] == ["g", "hidden"]
            assert listed.advice is None
            refused = await create_acls(of_user, [acl])
            assert str(refused[acl]).endswith("the user needs the permission ALTER on the cluster")
            deleted = raised(await delete_acls(cluster, [of_alice]))
            assert acl in deleted[of_alice] and len(deleted[of_alice]) == 2

    with SecureBroker() as broker:
        asyncio.run(look(broker))


@pytest.mark.pure
@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ClientError("a\x1b[31mb\nc"), r"a\x1b[31mb\nc"),
        (FileNotFoundError(2, "ignored", "/no/file"), "No such file or directory: /no/file"),
        (KafkaException(KafkaError(3, "Broker: Unknown topic\n  x")), "Unknown topic x"),
        (KafkaError(KafkaError._TRANSPORT, "Local: down"), "down"),
        (
            KafkaException(KafkaError(KafkaError.SECURITY_DISABLED, "No Authorizer.")),
            "No Authorizer: set authorizer.class.name on the brokers",
        ),
        (ValueError("one\n two\x07"), r"one two\x07"),
    ],
)
def test_an_error_is_one_line(error: BaseException, line: str) -> None:
    assert error_line(error) == line


@pytest.mark.pure
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ()),
        (b"\0\3\0\0\0\0", ()),
        (b"\0\3\0\0\0\1\0\1t\0\0\0\2\0\0\0\5\0\0\0\1\0\0\0\0", (("t", 5), ("t", 1))),
        (b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\5", ()),
        (b"\0\0\x7f\0\0\1\0\1t", ()),
        (b"\0\0\0\0\0\1\0\1\xff\0\0\0\0", ()),
        (b"something else", ()),
    ],
)
def test_assignments_are_read_from_what_the_leader_wrote(
    data: bytes, expected: tuple[TopicPartition, ...]
) -> None:
    assert _classic_assignment(data) == expected


def test_many_groups_cost_few_requests(
    bootstrap_servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look() -> None:
        group_ids = [unique("group") for _ in range(40)]
        async with Cluster(bootstrap_servers) as cluster:
            for group_id in group_ids:
                await commit_offsets(cluster, group_id, {(topic, 0): 1})
        sent: list[str] = []
        send = Connection.ask

        async def counted(self: Connection, payload: Any, **options: Any) -> Any:
            sent.append(type(payload).__name__.removesuffix("Request"))
            return await send(self, payload, **options)

        monkeypatch.setattr(Connection, "ask", counted)
        async with Cluster(bootstrap_servers) as cluster:
            committed = raised(await committed_offsets(cluster, group_ids))
            assert all(
                offsets == {(topic, 0): CommittedOffset(1)} for offsets in committed.values()
            )
            described = raised(await describe_groups(cluster, group_ids))
            assert {group.protocol_type for group in described.values()} == {""}
        assert sorted(name for name in sent if name != "ApiVersions") == [
            "ConsumerGroupDescribe",
            "DescribeGroups",
            "FindCoordinator",
            "OffsetFetch",
        ]

    asyncio.run(look())
