"""``min.insync.replicas`` belongs to the cluster (KIP-966): where its value comes from, and who may
change it.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.world import Topic, World, outcome

TOPIC, BROKER = 2, 4
TOPIC_CONFIG, ONE_BROKER, ALL_BROKERS, AT_START, DEFAULT = 1, 2, 3, 4, 5
"""Sources of values."""
SET, DELETE = 0, 1
NAME = "min.insync.replicas"
OF_THE_CLUSTER = [(NAME, "1", ALL_BROKERS), (NAME, "1", DEFAULT)]


def described(world: World, resource_type: int, name: str) -> Any:
    """Return value, source and synonyms of the config of a resource."""
    asked = {"resource_type": resource_type, "resource_name": name, "configuration_keys": [NAME]}
    (result,) = world.ask(32, 4, resources=[asked], include_synonyms=True).results
    (one,) = result.configs
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms]
    return one.value, one.config_source, synonyms


def alter(world: World, broker: str, operation: int, value: str | None) -> str:
    """Send IncrementalAlterConfigs for one broker, or for all; return the error."""
    change = {"name": NAME, "config_operation": operation, "value": value}
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": [change]}
    (one,) = world.ask(44, 1, resources=[resource]).responses
    return outcome(one.error_code, one.error_message or None)


def test_the_value_comes_from_the_cluster(world: World, topic: Topic) -> None:
    assert described(world, TOPIC, topic.name) == ("1", ALL_BROKERS, OF_THE_CLUSTER)
    assert described(world, BROKER, "1") == ("1", ALL_BROKERS, OF_THE_CLUSTER)
    assert described(world, BROKER, "") == ("1", ALL_BROKERS, OF_THE_CLUSTER[:1])


def test_a_topic_has_its_own_value(world: World) -> None:
    topic = world.topic(min_insync_replicas="2")
    own = [(NAME, "2", TOPIC_CONFIG), *OF_THE_CLUSTER]
    assert described(world, TOPIC, topic.name) == ("2", TOPIC_CONFIG, own)


def test_who_may_change_it(world: World, topic: Topic) -> None:
    of_a_broker = (
        "INVALID_CONFIG: Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    )
    assert [alter(world, "1", SET, "1"), alter(world, "1", DELETE, None)] == [of_a_broker] * 2
    assert alter(world, "", DELETE, None) == (
        "INVALID_CONFIG: Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    )
    assert alter(world, "", SET, "1") == "OK"
    assert described(world, TOPIC, topic.name) == ("1", ALL_BROKERS, OF_THE_CLUSTER)


def test_replacing_the_configs_of_the_cluster_may_not_remove_it(world: World) -> None:
    """AlterConfigs removes what it does not name."""

    def replace(**configs: str) -> str:
        named = [{"name": name.replace("_", "."), "value": configs[name]} for name in configs]
        resource = {"resource_type": BROKER, "resource_name": "", "configs": named}
        (one,) = world.ask(33, 2, resources=[resource]).responses
        return outcome(one.error_code, one.error_message or None)

    refused = (
        "INVALID_CONFIG: Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    )
    assert [replace(), replace(log_retention_ms="3600000")] == [refused] * 2
    assert replace(min_insync_replicas="1") == "OK"
