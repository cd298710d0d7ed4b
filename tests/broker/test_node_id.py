"""A broker whose ``node.id`` is 0: what its responses say about nodes, and how they are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import HeadraceProcess
from tests.wire_client import Connection, connection

pytestmark = pytest.mark.broker

BROKER, BROKER_LOGGER = 4, 8
SET = 0
METADATA = "__cluster_metadata"


@pytest.fixture(scope="module")
def client() -> Iterator[Connection]:
    process = HeadraceProcess(configs={"node.id": "0"})
    process.start()
    try:
        with connection(process.bootstrap_servers) as opened:
            yield opened
    finally:
        process.stop()


def test_metadata(client: Connection) -> None:
    client.create_topic("t", 2)
    for topics in (None, [{"topic_id": None, "name": "t"}]):
        response = client.ask(
            3,
            12,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        assert response.controller_id == 0
        assert [node.node_id for node in response.brokers] == [0]
        (topic,) = response.topics
        assert [(one.leader_id, one.replica_nodes, one.isr_nodes) for one in topic.partitions] == [
            (0, (0,), (0,))
        ] * 2
    (topic,) = client.ask(
        75, 0, topics=[{"name": "t"}], response_partition_limit=9, cursor=None
    ).topics
    assert [(one.leader_id, one.replica_nodes, one.isr_nodes) for one in topic.partitions] == [
        (0, (0,), (0,))
    ] * 2


def test_the_cluster(client: Connection) -> None:
    cluster = client.ask(
        60,
        2,
        endpoint_type=1,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=False,
    )
    assert (cluster.controller_id, [one.broker_id for one in cluster.brokers]) == (0, [0])
    (coordinator,) = client.ask(10, 6, key_type=0, coordinator_keys=["g"]).coordinators
    assert (coordinator.error_code, coordinator.node_id) == (0, 0)
    asked = [{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]
    quorum = client.ask(55, 2, topics=asked)
    assert [node.node_id for node in quorum.nodes] == [0]
    ((partition,),) = (topic.partitions for topic in quorum.topics)
    assert (partition.leader_id, partition.current_voters[0].replica_id) == (0, 0)


def named_configs(client: Connection, kind: int, name: str) -> Any:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (result,) = client.ask(
        32, 4, resources=asked, include_synonyms=False, include_documentation=False
    ).results
    return result


def test_configs(client: Connection) -> None:
    for kind in (BROKER, BROKER_LOGGER):
        assert named_configs(client, kind, "0").error_code == 0
    refused = named_configs(client, BROKER, "1")
    expected = "Unexpected broker id, expected 0 or empty string, but received 1"
    assert (refused.error_code, refused.error_message) == (42, expected)
    values = {one.name: one.value for one in named_configs(client, BROKER, "0").configs}
    assert (values["node.id"], values["broker.id"]) == ("0", "0")
    change = [{"name": "message.max.bytes", "config_operation": SET, "value": "4000"}]
    errors = [
        client.ask(
            44,
            1,
            resources=[{"resource_type": BROKER, "resource_name": name, "configs": change}],
            validate_only=False,
        )
        .responses[0]
        .error_message
        for name in ("1", "0")
    ]
    assert errors == ["Unexpected broker id, expected 0, but received 1", None]
    values = {one.name: one.value for one in named_configs(client, BROKER, "0").configs}
    assert values["message.max.bytes"] == "4000"
    listed = client.ask(74, 1, resource_types=[BROKER, BROKER_LOGGER]).config_resources
    assert {(one.resource_type, one.resource_name) for one in listed} == {
        (BROKER, "0"),
        (BROKER_LOGGER, "0"),
    }


def test_replicas(client: Connection) -> None:
    def create(name: str, *brokers: int) -> str | None:
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": brokers}],
            "configs": [],
        }
        response = client.ask(19, 7, topics=[topic], timeout=30_000, validate_only=False)
        message: str | None = response.topics[0].error_message
        return message

    begins = "The manual partition assignment includes"
    assert create("of-0", 0) is None
    assert create("of-1", 1) == f"{begins} broker 1, but no such broker is registered."
    assert create("twice", 0, 0) == f"{begins} the broker 0 more than once."
