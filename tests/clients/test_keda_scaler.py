"""`headrace keda-scaler`: a client generated from KEDA's interface, against headrace and Kafka."""

from __future__ import annotations

import asyncio
import math
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from grpc_tools import protoc

from headrace.admin import AdminClient
from headrace.cli.keda.collector import CONSUMER, SHARE, BacklogCollector, BacklogQuery, backlogs
from headrace.client import Cluster, Connection
from headrace.client.config import read_config
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.times import RecordTimes
from headrace.secure_broker import SecureBroker
from tests.cli.command import start
from tests.clients.confluent import (
    PATIENCE_S,
    admin,
    consumer,
    create_topic,
    poll_share,
    produce,
    share_consumer,
    share_from_earliest,
    take,
)
from tests.support import (
    HeadraceProcess,
    free_port_pair,
    story,
    unique,
    wait_until,
    write_properties,
)
from tests.throwaway_ca import ThrowawayCA

UNREACHABLE = "the cluster cannot be reached: the scaler's log has the reason"
PROTO = Path(__file__).with_name("externalscaler.proto")


@pytest.fixture(scope="module")
def keda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The modules that the tools of gRPC generate: messages and stubs."""
    folder = tmp_path_factory.mktemp("keda")
    made = protoc.main(
        [
            "",
            f"-I{PROTO.parent}",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            str(PROTO),
        ]
    )
    assert made == 0
    sys.path.insert(0, str(folder))
    try:
        yield import_module("externalscaler_pb2"), import_module("externalscaler_pb2_grpc")
    finally:
        sys.path.remove(str(folder))


class Scaler:
    """A running scaler, and a client of it as KEDA is one.

    :ivar address: where it listens
    """

    def __init__(self, keda: tuple[ModuleType, ModuleType], *options: str) -> None:
        self._messages, self._stubs = keda
        self._process = start("keda-scaler", "--listen", "127.0.0.1:0", *options)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.startswith("the scaler listens on "), self._process.communicate()
        self.address = line.split()[-1]
        self.channel = grpc.insecure_channel(self.address)
        self.stub = self._stubs.ExternalScalerStub(self.channel)

    def __enter__(self) -> Scaler:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self._process.send_signal(signal.SIGTERM)
        _, said = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, said.decode()

    def ref(self, **metadata: object) -> Any:
        texts = {key: str(value) for key, value in metadata.items()}
        return self._messages.ScaledObjectRef(name="so", namespace="ns", scalerMetadata=texts)

    def active(self, **metadata: object) -> bool:
        return bool(self.stub.IsActive(self.ref(**metadata), timeout=PATIENCE_S).result)

    def value(self, **metadata: object) -> float:
        request = self._messages.GetMetricsRequest(
            scaledObjectRef=self.ref(**metadata), metricName="m"
        )
        (found,) = self.stub.GetMetrics(request, timeout=PATIENCE_S).metricValues
        assert (found.metricName, found.metricValue) == ("m", math.ceil(found.metricValueFloat))
        return float(found.metricValueFloat)

    def refusal(self, **metadata: object) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.active(**metadata)
        return caught.value.code(), caught.value.details()

    def replicas(self, **metadata: object) -> int:
        """Return the replicas that Kubernetes computes."""
        (spec,) = self.stub.GetMetricSpec(self.ref(**metadata)).metricSpecs
        return math.ceil(self.value(**metadata) / spec.targetSizeFloat)


@pytest.fixture(scope="module")
def scaler(keda: tuple[ModuleType, ModuleType], bootstrap_servers: str) -> Iterator[Scaler]:
    with Scaler(keda, "--bootstrap-server", bootstrap_servers) as running:
        yield running


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    return create_topic(bootstrap_servers, unique("work"), partitions=2)


def commit(bootstrap_servers: str, group_id: str, topic: str, *offsets: int) -> None:
    """Commit for a group without members."""
    partitions = [TopicPartition(topic, n, offset) for n, offset in enumerate(offsets)]
    asked = [ConsumerGroupTopicPartitions(group_id, partitions)]

    def is_committed() -> bool:
        answer = admin(bootstrap_servers).alter_consumer_group_offsets(asked)[group_id]
        return not any(one.error for one in answer.result(PATIENCE_S).topic_partitions)

    wait_until(is_committed, PATIENCE_S, "committed offsets")


def test_the_metric_and_its_target(scaler: Scaler) -> None:
    ref = scaler.ref(group="Team A/workers", lagThreshold="2.5")
    (spec,) = scaler.stub.GetMetricSpec(ref).metricSpecs
    assert spec.metricName == "headrace-share-team-a-workers"
    assert (spec.targetSize, spec.targetSizeFloat) == (3, 2.5)


def test_locked_records_are_work(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    """A share group is not scaled to zero while a member holds records, and may have more replicas
    than the topic has partitions.
    """
    share_from_earliest(bootstrap_servers, group_id)
    produce(bootstrap_servers, topic, [b"x"] * 6, partition=0)
    metadata = {"group": group_id, "topics": topic, "lagThreshold": 1}
    held: list[Any] = []
    with share_consumer(bootstrap_servers, group_id, [topic]) as member:
        poll_share(member, lambda: len(held) == 6, held.append)
        # Nothing is accepted yet, so the group has no position: its config says where it began.
        assert scaler.value(**metadata) == 6
        assert scaler.replicas(**metadata) == 6
        for message in held[:5]:
            member.acknowledge(message)
        member.commit_sync(timeout=PATIENCE_S)
        wait_until(lambda: scaler.value(**metadata) == 1, PATIENCE_S, "the lag of what is held")
        assert scaler.active(**metadata)
        # The threshold of activation is no reason to end a worker that holds a record.
        assert scaler.active(**metadata, activationLagThreshold=5)
        member.acknowledge(held[5])
        member.commit_sync(timeout=PATIENCE_S)
        wait_until(lambda: scaler.value(**metadata) == 0, PATIENCE_S, "an empty queue")
        assert not scaler.active(**metadata)


def test_the_activation_threshold_is_for_a_group_without_members(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    produce(bootstrap_servers, topic, [b"x"] * 9, partition=0)
    commit(bootstrap_servers, group_id, topic, 4, 0)
    metadata = {"group": group_id, "groupType": "consumer"}
    assert scaler.value(**metadata) == 5
    assert scaler.active(**metadata, activationLagThreshold=4)
    assert not scaler.active(**metadata, activationLagThreshold=5)
    with consumer(bootstrap_servers, group_id) as member:
        member.subscribe([topic])
        take(member, 1)
        wait_until(
            lambda: scaler.active(**metadata, activationLagThreshold=5), PATIENCE_S, "a member"
        )


def test_a_consumer_group_gets_no_more_replicas_than_partitions(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    produce(bootstrap_servers, topic, [b"x"] * 50, partition=0)
    commit(bootstrap_servers, group_id, topic, 0, 0)
    metadata = {"group": group_id, "groupType": "consumer", "topics": topic}
    assert scaler.replicas(**metadata, lagThreshold=5) == 2
    assert scaler.value(**metadata, lagThreshold=100) == 50


def test_records_that_retention_has_deleted_are_no_work(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    produce(bootstrap_servers, topic, [b"x"] * 9, partition=0)
    commit(bootstrap_servers, group_id, topic, 2, 0)
    shared = unique("share")
    starts = [TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 0)]
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2}) as client:
        for future in client.alter_share_group_offsets(shared, starts).values():
            future.result(PATIENCE_S)
        for deleted, lag in ((5, 4), (9, 0)):
            first = TopicPartition(topic, 0, deleted)
            client.delete_records([first])[first].result(PATIENCE_S)
            for group, kind in ((group_id, "consumer"), (shared, "share")):
                metadata = {"group": group, "groupType": kind}
                wait_until(lambda: scaler.value(**metadata) == lag, PATIENCE_S, str(lag))  # noqa: B023
                assert scaler.active(**metadata) == bool(lag)


@story
async def test_what_no_member_will_read_is_looked_at_once(
    bootstrap_servers: str, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("txn")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(PATIENCE_S)
    await asyncio.to_thread(commit, bootstrap_servers, group_id, topic, 3, 0)
    query = BacklogQuery(group_id, CONSUMER)
    shared = BacklogQuery(unique("new"), SHARE, (topic,))
    sent: list[str] = []
    send = Connection.ask

    async def counted(self: Connection, payload: Any, **options: Any) -> Any:
        sent.append(type(payload).__name__)
        return await send(self, payload, **options)

    monkeypatch.setattr(Connection, "ask", counted)
    async with Cluster(bootstrap_servers) as cluster:
        times = RecordTimes(kept_ms=60_000)

        async def records() -> list[int]:
            results: Any = await backlogs(PartitionLeaders(cluster), times, [query, shared])
            return [results[each].records for each in (query, shared)]

        async def until(expected: list[int]) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while await records() != expected:
                    await asyncio.sleep(0.05)

        await until([3, 1])
        await asyncio.to_thread(commit, bootstrap_servers, group_id, topic, 5, 0)
        await until([0, 1])
        sent.clear()
        assert await records() == [0, 1]
        assert "FetchRequest" not in sent
        producer.begin_transaction()
        for _ in range(2):
            producer.produce(topic, b"x", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        assert await records() == [2, 1], "an open transaction may be committed"
        producer.abort_transaction(PATIENCE_S)
        await until([0, 1])
        produce(bootstrap_servers, topic, [b"x"], partition=0)
        await until([5, 1])


def test_unknown_is_not_zero(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    for kind in ("share", "consumer"):
        metadata = {"group": group_id, "groupType": kind}
        code, why = scaler.refusal(**metadata)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert why == f"group '{group_id}' has no position in any topic: name its topics"
        code, why = scaler.refusal(**metadata, topics=f"{topic},missing")
        assert code is grpc.StatusCode.NOT_FOUND and "topic 'missing' does not exist" in why
        assert scaler.value(**metadata, topics=topic) == 0, "nothing was ever produced"
    produce(bootstrap_servers, topic, [b"x"] * 7, partition=1)
    for kind in ("share", "consumer"):
        metadata = {"group": group_id, "groupType": kind, "topics": topic}
        wait_until(lambda: scaler.value(**metadata) == 1, PATIENCE_S, "one")  # noqa: B023
        assert scaler.active(**metadata), "a member must come to set the position"


def test_a_cluster_that_does_not_answer(keda: tuple[ModuleType, ModuleType]) -> None:
    servers = f"127.0.0.1:{free_port_pair()}"
    with Scaler(keda, "--bootstrap-server", servers, "--timeout", "1") as scaler:
        code, why = scaler.refusal(group="g", topics="t")
        assert (code, why) == (grpc.StatusCode.UNAVAILABLE, UNREACHABLE)


def test_whatever_keeps_a_connection_from_opening_is_told_in_the_same_words(
    keda: tuple[ModuleType, ModuleType],
) -> None:
    """Callers learn nothing of the network around the scaler; its log has the reasons."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = [f"127.0.0.1:{free_port_pair()}", "no.such.host.invalid:9092"]
        servers += [f"127.0.0.1:{silent.getsockname()[1]}"]
        for name in servers:
            with Scaler(keda, "--bootstrap-server", name, "--timeout", "1") as scaler:
                code, why = scaler.refusal(group="g", topics="t")
                assert (code, why) == (grpc.StatusCode.UNAVAILABLE, UNREACHABLE), name


def test_a_broker_that_dies_is_no_reason_to_scale_to_zero(
    keda: tuple[ModuleType, ModuleType],
) -> None:
    """KEDA leaves the replicas as they are after an error."""
    metadata = {"group": "g", "groupType": "consumer", "topics": "t"}
    with HeadraceProcess() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "t")
        produce(servers, "t", [b"x"] * 3)
        commit(servers, "g", "t", 1)
        with Scaler(keda, "--bootstrap-server", servers, "--timeout", "20") as scaler:
            assert scaler.value(**metadata) == 2
            stream = scaler.stub.StreamIsActive(scaler.ref(**metadata), timeout=PATIENCE_S)
            assert next(stream).result is True
            broker.kill()
            wait_until(lambda: is_refused(scaler, metadata), PATIENCE_S, "a refusal")
            stream.cancel()
            with pytest.raises(grpc.RpcError) as caught:
                next(stream)
            assert caught.value.code() is grpc.StatusCode.CANCELLED, "nothing else was told"


def is_refused(scaler: Scaler, metadata: Mapping[str, str]) -> bool:
    """Return whether the scaler does not know the lag."""
    try:
        scaler.value(**metadata)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.UNAVAILABLE
    return False


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ({}, "group is missing"),
        ({"group": "g", "groupType": "x"}, "groupType is 'x', not share or consumer"),
        ({"group": "g", "lagThreshold": "0"}, "lagThreshold is 0"),
        ({"group": "g", "lagThreshold": "-1"}, "lagThreshold is '-1', not a number from 0 on"),
        ({"group": "g", "lagTreshold": "5"}, "unknown metadata: lagTreshold"),
        (
            {"group": "g", "bootstrapServers": "127.0.0.1:1"},
            "unknown metadata: bootstrapServers",
        ),
    ],
)
def test_wrong_metadata(scaler: Scaler, metadata: dict[str, str], complaint: str) -> None:
    code, why = scaler.refusal(**metadata)
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, complaint)


def test_activation_is_pushed(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    """The stream tells the state at once, and then each change."""
    commit(bootstrap_servers, group_id, topic, 0, 0)
    ref = scaler.ref(group=group_id, groupType="consumer", topics=topic)
    stream = scaler.stub.StreamIsActive(ref, timeout=PATIENCE_S)
    assert next(stream).result is False
    produce(bootstrap_servers, topic, [b"x"], partition=1)
    assert next(stream).result is True
    commit(bootstrap_servers, group_id, topic, 0, 1)
    assert next(stream).result is False
    stream.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        next(scaler.stub.StreamMetricSpec(ref))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED, "KEDA then asks GetMetricSpec"


@pytest.mark.slow
@pytest.mark.alone
def test_activation_takes_less_than_a_second(
    scaler: Scaler, bootstrap_servers: str, topic: str, group_id: str
) -> None:
    commit(bootstrap_servers, group_id, topic, 0, 0)
    ref = scaler.ref(group=group_id, groupType="consumer", topics=topic)
    took = []
    for number in range(3):
        stream = scaler.stub.StreamIsActive(ref, timeout=PATIENCE_S)
        assert next(stream).result is False
        produce(bootstrap_servers, topic, [b"x"], partition=0)
        before_s = time.monotonic()
        assert next(stream).result is True
        took.append(time.monotonic() - before_s)
        stream.cancel()
        commit(bootstrap_servers, group_id, topic, number + 1, 0)
    print([f"{seconds:.2f} s" for seconds in took])
    assert min(took) < 1.0


def test_many_scaled_objects_share_the_requests(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look costs a request to each broker and of each kind, however many objects there are."""
    sent: list[str] = []
    send = Connection.ask

    async def counted(connection: Connection, payload: Any, **options: Any) -> Any:
        sent.append(type(payload).__name__.removesuffix("Request"))
        return await send(connection, payload, **options)

    monkeypatch.setattr(Connection, "ask", counted)
    topics = [create_topic(bootstrap_servers, unique("many")) for _ in range(3)]
    queries = [
        BacklogQuery(unique("g"), kind, (topic,))
        for topic in topics
        for kind in (CONSUMER, SHARE)
        for _ in range(20)
    ]

    async def look() -> list[int]:
        collector = BacklogCollector(read_config({"bootstrap.servers": bootstrap_servers}), 60.0)
        try:
            counts = []
            for _ in range(2):
                sent.clear()
                found = await asyncio.gather(*map(collector.backlog, queries))
                assert {one.records for one in found} == {0}
                counts.append(len([one for one in sent if one != "ApiVersions"]))
            return counts
        finally:
            await collector.close()

    first, second = asyncio.run(look())
    assert first <= 12, sent
    assert second == 0, "the answers are younger than the interval"


def test_tls_and_logins(
    keda: tuple[ModuleType, ModuleType], tmp_path: Path, group_id: str, target: str
) -> None:
    """gRPC over TLS with certificates of clients; Kafka's credentials from a mounted file."""
    if target == "kafka":
        pytest.skip("the connections are those of the exporter, tested on Apache Kafka there")
    ca = ThrowawayCA(tmp_path)
    server, client = ca.issue("server"), ca.issue("keda")
    with SecureBroker() as broker:
        config = write_properties(tmp_path / "client.properties", broker.client_config())
        with Scaler(
            keda,
            *("--command-config", str(config), "--bootstrap-server", broker.bootstrap_servers),
            *("--grpc-tls", str(server.both), "--grpc-client-ca", str(ca.certificate)),
            *("--timeout", "20"),
        ) as scaler:
            assert scaler.refusal(group=group_id)[0] is grpc.StatusCode.UNAVAILABLE, "plaintext"
            credentials = grpc.ssl_channel_credentials(
                *(file.read_bytes() for file in (ca.certificate, client.key, client.certificate))
            )
            scaler.channel = grpc.secure_channel(scaler.address, credentials)
            scaler.stub = keda[1].ExternalScalerStub(scaler.channel)
            code, why = scaler.refusal(group=group_id, topics="missing")
            assert code is grpc.StatusCode.NOT_FOUND, why


def test_a_port_in_use_is_one_line(scaler: Scaler) -> None:
    process = start("keda-scaler", "--listen", scaler.address)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert re.fullmatch(r"headrace keda-scaler: cannot listen on [^\n]*\n", said.decode()), said
