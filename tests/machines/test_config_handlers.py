"""The handlers of configs: described, changed, refused, and in effect at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.protocol.errors import ErrorCode
from tests.handler_client import HOST, PORT, answer

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OK = (ErrorCode.NONE, None)
INVALID = ErrorCode.INVALID_REQUEST
LONG_NUMBER = "9" * 5000  # more digits than Python converts


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(Config({"log.retention.bytes": "77"}), tmp_path)
    broker.catalog.create_topic("t", 1)
    broker.catalog.alter_configs({("broker", "1"): {"sasl.jaas.config": "secret"}})
    broker.config.refresh()
    yield broker
    broker.close()


def described(
    broker: Broker, kind: int, name: str, keys: Sequence[str] | None = None, **flags: bool
) -> Any:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = answer(
        broker,
        32,
        resources=[asked],
        include_synonyms=flags.get("synonyms", True),
        include_documentation=flags.get("documentation", False),
    ).results
    return result


def values(broker: Broker, kind: int, name: str, *keys: str) -> list[tuple[str | None, int]]:
    found = {one.name: one for one in described(broker, kind, name, keys).configs}
    return [(found[key].value, found[key].config_source) for key in keys]


def change(
    broker: Broker,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    asked = {"resource_type": kind, "resource_name": name, "configs": configs}
    (result,) = answer(broker, 44, resources=[asked], validate_only=validate_only).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def replace(
    broker: Broker, kind: int, name: str, **configs: str | None
) -> tuple[ErrorCode, str | None]:
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    asked = {"resource_type": kind, "resource_name": name, "configs": given}
    (result,) = answer(broker, 33, resources=[asked]).responses
    return result.error_code, result.error_message


def test_a_topic_config_says_where_its_value_comes_from(broker: Broker) -> None:
    assert values(broker, TOPIC, "t", "retention.bytes", "flush.messages") == [
        ("77", 4),
        (str(2**63 - 1), 5),
    ]
    assert change(broker, BROKER, "", ("log.retention.bytes", SET, "88")) == OK
    assert change(broker, BROKER, "1", ("log.retention.bytes", SET, "99")) == OK
    assert change(broker, TOPIC, "t", ("retention.bytes", SET, "5")) == OK
    (config,) = described(broker, TOPIC, "t", ["retention.bytes"]).configs
    assert (config.value, config.config_source, config.config_type, config.read_only) == (
        "5",
        1,
        5,
        False,
    )
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        ("retention.bytes", "5", 1),
        ("log.retention.bytes", "99", 2),
        ("log.retention.bytes", "88", 3),
        ("log.retention.bytes", "77", 4),
        ("log.retention.bytes", "-1", 5),
    ]
    assert values(broker, BROKER, "1", "log.retention.bytes") == [("99", 2)]
    assert values(broker, BROKER, "", "log.retention.bytes") == [("88", 3)]


def test_a_topic_config_set_in_hours_has_its_source_in_the_response_to_its_creation(
    tmp_path: Path,
) -> None:
    broker = Broker(Config({"log.retention.hours": "2"}), tmp_path)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": []}
    (created,) = answer(broker, 19, 7, topics=[topic], validate_only=False).topics
    sources = {one.name: (one.value, one.config_source) for one in created.configs}
    assert sources["retention.ms"] == ("7200000", 4)
    assert values(broker, TOPIC, "t", "retention.ms") == [("7200000", 5)]
    broker.close()


def test_documentation_and_synonyms_come_when_asked_for(broker: Broker) -> None:
    (config,) = described(
        broker, TOPIC, "t", ["retention.ms"], synonyms=False, documentation=True
    ).configs
    assert config.synonyms == []
    assert "kept" in config.documentation
    (config,) = described(broker, TOPIC, "t", ["retention.ms"]).configs
    assert config.documentation is None


def test_all_configs_are_described_but_for_internal_ones_and_secrets(broker: Broker) -> None:
    topic = {one.name for one in described(broker, TOPIC, "t").configs}
    assert len(topic) == 37
    assert "internal.segment.bytes" not in topic
    brokers = {one.name: one for one in described(broker, BROKER, "1", []).configs}
    assert len(brokers) == 352
    assert (brokers["sasl.jaas.config"].value, brokers["sasl.jaas.config"].is_sensitive) == (
        None,
        True,
    )
    assert [one.value for one in brokers["sasl.jaas.config"].synonyms] == [None]
    assert brokers["advertised.listeners"].value == f"PLAINTEXT://{HOST}:{PORT}"
    assert brokers["log.dirs"].value == str(broker.data_dir)
    assert brokers["node.id"].value == "1"
    assert (brokers["num.partitions"].read_only, brokers["log.retention.ms"].read_only) == (
        True,
        False,
    )
    assert len(described(broker, GROUP, "g").configs) == 23


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (
            TOPIC,
            "",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (BROKER, "2", INVALID, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", INVALID, "Broker id must be an integer, but it is: x"),
        (GROUP, "", INVALID, "Group name must not be empty"),
        (7, "x", INVALID, "Unknown resource type 7"),
    ],
)
def test_what_cannot_be_described(
    broker: Broker, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    result = described(broker, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (
            TOPIC,
            "unknown",
            [("a", SET, "1")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'unknown' does not exist.",
        ),
        (
            TOPIC,
            "",
            [("retention.ms", SET, "1")],
            INVALID,
            "Default topic resources are not allowed.",
        ),
        (
            TOPIC,
            "a b",
            [],
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, "
            "'.', '_' and '-'",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, None)],
            INVALID,
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
            INVALID,
            "Error due to duplicate config keys",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", APPEND, "5")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "-5")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (TOPIC, "t", [("retention.ms", 9, "5")], INVALID, "Unknown config operation 9"),
        (
            GROUP,
            "",
            [("share.isolation.level", SET, "x")],
            INVALID,
            "Default group resources are not allowed.",
        ),
        (
            GROUP,
            "g",
            [("bogus.x", SET, "1")],
            ErrorCode.INVALID_CONFIG,
            "Unknown group config name: bogus.x",
        ),
        (BROKER, "2", [], INVALID, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "x", [], INVALID, "Node id must be an integer, but it is: x"),
        (BROKER, LONG_NUMBER, [], INVALID, f"Node id must be an integer, but it is: {LONG_NUMBER}"),
        (
            LOGGER,
            LONG_NUMBER,
            [],
            INVALID,
            f"Node id must be an integer, but it is: {LONG_NUMBER}",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, LONG_NUMBER)],
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {LONG_NUMBER} for configuration retention.ms: Not a number of type "
            "LONG",
        ),
        (
            BROKER,
            "1",
            [("log.retention.ms", APPEND, "5")],
            ErrorCode.INVALID_CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (
            BROKER,
            "",
            [("listeners", SET, "x")],
            INVALID,
            (
                "Cannot update these configs at default cluster level, broker id must be "
                "specified: [listeners]"
            ),
        ),
        (5, "x", [], INVALID, "Unknown resource type 5"),
    ],
)
def test_what_cannot_be_changed(
    broker: Broker,
    kind: int,
    name: str,
    changes: Sequence[tuple[str, int, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    assert change(broker, kind, name, *changes) == (code, message)
    assert broker.catalog.configs("topic", "t") == {}


def test_lists_are_appended_to_and_subtracted_from_their_default_too(broker: Broker) -> None:
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (DELETE, None, "delete"),
    ):
        assert change(broker, TOPIC, "t", ("cleanup.policy", operation, value)) == OK
        assert values(broker, TOPIC, "t", "cleanup.policy")[0][0] == expected


def test_what_is_only_validated_is_not_changed(broker: Broker) -> None:
    assert change(broker, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True) == OK
    assert broker.catalog.configs("topic", "t") == {}


def test_altering_replaces_all_configs(broker: Broker) -> None:
    assert replace(broker, TOPIC, "t", retention_ms="5", flush_ms="6") == OK
    assert replace(broker, TOPIC, "t", flush_ms="7") == OK
    assert broker.catalog.configs("topic", "t") == {"flush.ms": "7"}
    assert replace(broker, TOPIC, "t", flush_ms="x")[0] == ErrorCode.INVALID_CONFIG
    assert replace(broker, TOPIC, "t", flush_ms=None) == (
        INVALID,
        "Null value not supported for : flush.ms",
    )
    assert broker.catalog.configs("topic", "t") == {"flush.ms": "7"}
    assert replace(broker, TOPIC, "t") == OK
    assert broker.catalog.configs("topic", "t") == {}


def test_a_resource_named_twice_is_refused(broker: Broker) -> None:
    resource = {"resource_type": TOPIC, "resource_name": "t"}
    assert [
        (result.error_code, result.error_message)
        for result in answer(
            broker, 33, resources=[resource, resource], validate_only=True
        ).responses
    ] == [(INVALID, "Each resource must appear at most once.")] * 2


def test_changes_reach_logs_that_are_open(broker: Broker) -> None:
    log = broker.topic_logs.log(broker.catalog.topics["t"], 0)
    assert log is not None
    assert log.config.retention_bytes == 77
    change(broker, TOPIC, "t", ("max.message.bytes", SET, "1000"))
    assert log.config.max_message_bytes == 1000
    change(broker, BROKER, "", ("log.retention.bytes", SET, "88"))
    assert (log.config.retention_bytes, log.config.max_message_bytes) == (88, 1000)


def test_configs_set_at_run_time_survive_a_restart(tmp_path: Path) -> None:
    broker = Broker(Config(), tmp_path)
    broker.catalog.create_topic("t", 1)
    change(broker, BROKER, "1", ("log.retention.ms", SET, "1234"))
    change(broker, GROUP, "g", ("share.record.lock.duration.ms", SET, "20000"))
    change(broker, TOPIC, "t", ("retention.bytes", SET, "5"))
    broker.close()
    again = Broker(Config(), tmp_path)
    assert again.config.get_int("log.retention.ms") == 1234
    assert again.config.group_int("g", "share.record.lock.duration.ms") == 20000
    config = again.config.log_config(again.catalog.topics["t"])
    assert (config.retention_ms, config.retention_bytes) == (1234, 5)
    assert values(again, GROUP, "g", "share.record.lock.duration.ms") == [("20000", 8)]
    again.close()
    bounded = Broker(Config({"group.share.min.record.lock.duration.ms": "25000"}), tmp_path)
    assert bounded.config.group_int("g", "share.record.lock.duration.ms") == 25000
    assert values(bounded, GROUP, "g", "share.record.lock.duration.ms") == [("20000", 8)]
    assert change(bounded, GROUP, "g", ("share.isolation.level", SET, "read_committed")) == (
        ErrorCode.INVALID_CONFIG,
        "share.record.lock.duration.ms must be in the range 25000 to 60000 inclusive.",
    )
    assert change(bounded, GROUP, "g", ("share.record.lock.duration.ms", DELETE, None)) == OK
    bounded.close()


def test_what_has_configs_is_listed(broker: Broker) -> None:
    change(broker, GROUP, "g", ("share.isolation.level", SET, "read_committed"))

    def listed(*kinds: int, version: int = 1) -> tuple[ErrorCode, set[tuple[int, str]]]:
        response = answer(broker, 74, version, resource_types=kinds)
        return response.error_code, {
            (one.resource_type, one.resource_name) for one in response.config_resources
        }

    everything = {(GROUP, "g"), (BROKER, "1"), (LOGGER, "1"), (TOPIC, "t")}
    assert listed() == (ErrorCode.NONE, everything)
    assert listed(GROUP, BROKER) == (ErrorCode.NONE, {(GROUP, "g"), (BROKER, "1")})
    assert listed(99) == (ErrorCode.UNSUPPORTED_VERSION, set())
    assert listed(version=0) == (ErrorCode.NONE, set())
