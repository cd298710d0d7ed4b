"""Config resources besides topics, brokers and groups: loggers, subscriptions of client metrics;
and the synonyms of topic configs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.conformance.world import OK, World, outcome
from tests.support import unique, wait_until

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID, INVALID_CONFIG = "INVALID_REQUEST: ", "INVALID_CONFIG: "
DEFAULT, OF_LOGGER, OF_METRICS = 5, 6, 7
PATIENCE_S = 30

Change = tuple[str, int, str | None]


def describe(
    world: World, kind: int, name: str, keys: Sequence[str] | None = None, version: int = 4
) -> tuple[str, dict[str, Any]]:
    """Return the error and the configs of DescribeConfigs for one resource."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = world.ask(32, version, resources=[resource], include_synonyms=True).results
    error = outcome(result.error_code, result.error_message or None)
    return error, {one.name: one for one in result.configs}


def alter(world: World, kind: int, name: str, *changes: Change, validate_only: bool = False) -> str:
    """Send IncrementalAlterConfigs for one resource; return the error."""
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (answer,) = world.ask(44, 1, resources=[resource], validate_only=validate_only).responses
    return outcome(answer.error_code, answer.error_message or None)


def listed(world: World, version: int, types: Sequence[int] = ()) -> list[tuple[int, str]]:
    response = world.ask(74, version, resource_types=types)
    assert response.error_code == 0
    if version == 0:
        return [(METRICS, one.resource_name) for one in response.config_resources]
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


# --- synonyms of topic configs ---


def test_synonyms_in_other_units_stand_behind_the_first(world: World) -> None:
    topic = world.topic()
    others = ("flush.ms", "segment.jitter.ms", "segment.ms")

    def synonyms(*names: str) -> list[tuple[int, list[tuple[str, str, int]]]]:
        error, configs = describe(world, TOPIC, topic.name, names)
        assert error == OK
        return [
            (
                configs[name].config_source,
                [(one.name, one.value, one.source) for one in configs[name].synonyms],
            )
            for name in names
        ]

    assert synonyms(*others) == [(DEFAULT, [])] * 3
    interval, scheduler = "log.flush.interval.ms", "log.flush.scheduler.interval.ms"
    assert alter(world, BROKER, "1", (interval, SET, "1000000000")) == OK
    try:
        wait_until(
            lambda: (
                synonyms("flush.ms")
                == [(2, [(interval, "1000000000", 2), (scheduler, str(2**63 - 1), DEFAULT)])]
            ),
            PATIENCE_S,
            "the synonyms",
        )
    finally:
        assert alter(world, BROKER, "1", (interval, DELETE, None)) == OK
    wait_until(lambda: synonyms("flush.ms") == [(DEFAULT, [])], PATIENCE_S, "the end of the value")


# --- rates of replication, which kafka-reassign-partitions sets ---


@pytest.mark.parametrize(
    "name",
    [
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_a_throttle_of_replication_is_described_while_it_is_set(world: World, name: str) -> None:
    def described() -> dict[str, Any]:
        error, configs = describe(world, BROKER, "1", [name])
        assert error == OK
        return configs

    assert described() == {}
    assert alter(world, BROKER, "1", (name, SET, "123")) == OK
    try:
        found = wait_until(described, PATIENCE_S, "the new value")[name]
        assert (found.value, found.config_source, found.read_only) == ("123", 2, False)
        assert not found.is_sensitive
        assert [(one.name, one.value, one.source) for one in found.synonyms] == [(name, "123", 2)]
        assert alter(world, BROKER, "1", (name, SET, "-1")) == (
            f"{INVALID}Invalid value -1 for configuration {name}: Value must be at least 0"
        )
    finally:
        assert alter(world, BROKER, "1", (name, DELETE, None)) == OK
    wait_until(lambda: not described(), PATIENCE_S, "the end of the value")


def test_an_internal_config_is_described_if_the_topic_sets_it(world: World) -> None:
    name = "internal.segment.bytes"
    error, configs = describe(world, TOPIC, world.topic(internal_segment_bytes="1048577").name)
    assert error == OK
    found = configs[name]
    assert (found.value, found.config_source) == ("1048577", 1)
    error, configs = describe(world, TOPIC, world.topic().name)
    assert error == OK and name not in configs


# --- loggers ---


@pytest.fixture
def root_level(world: World) -> Iterator[str]:
    """The level of the root logger, which is restored afterwards."""
    _, configs = describe(world, LOGGER, "1", ["root"])
    level: str = configs["root"].value
    yield level
    assert alter(world, LOGGER, "1", ("root", SET, level)) == OK


def test_the_level_of_a_logger_can_be_changed(world: World, root_level: str) -> None:
    error, configs = describe(world, LOGGER, "1")
    assert error == OK
    root = configs["root"]
    assert (root.config_source, root.read_only, root.is_sensitive) == (OF_LOGGER, False, False)
    assert (root.synonyms, root.config_type, root.documentation) == ((), 0, "")
    assert {one.value for one in configs.values()} <= {
        "TRACE",
        "DEBUG",
        "INFO",
        "WARN",
        "ERROR",
        "FATAL",
        "OFF",
        "ALL",
    }
    for level in ("ERROR", "FATAL", "DEBUG", "TRACE"):
        assert alter(world, LOGGER, "1", ("root", SET, level), validate_only=True) == OK
    assert describe(world, LOGGER, "1", ["root"])[1]["root"].value == root_level
    assert alter(world, LOGGER, "1", ("root", SET, "ERROR")) == OK
    assert describe(world, LOGGER, "1", ["root"])[1]["root"].value == "ERROR"


def test_a_logger_follows_its_parent_again(world: World, root_level: str) -> None:
    _, configs = describe(world, LOGGER, "1")
    name = next(name for name in configs if name != "root")
    assert alter(world, LOGGER, "1", (name, SET, "FATAL")) == OK
    assert describe(world, LOGGER, "1", [name])[1][name].value == "FATAL"
    assert alter(world, LOGGER, "1", (name, DELETE, None)) == OK
    assert describe(world, LOGGER, "1", [name])[1][name].value != "FATAL"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            ("root", SET, "debug"),
            "INVALID_CONFIG: Cannot set the log level of root to debug as it is not a supported "
            "log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            ("root", DELETE, None),
            "INVALID_REQUEST: Removing the log level of the root logger is not allowed",
        ),
        (
            ("root", APPEND, "INFO"),
            "INVALID_REQUEST: APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            ("root", SUBTRACT, "INFO"),
            "INVALID_REQUEST: SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
        ),
        (("no.such", SET, "INFO"), "INVALID_CONFIG: Logger no.such does not exist!"),
        (("no.such", DELETE, None), "INVALID_CONFIG: Logger no.such does not exist!"),
        (("root", SET, None), "INVALID_REQUEST: Null value not supported for : root"),
    ],
)
def test_changes_of_loggers_that_are_refused(world: World, change: Change, error: str) -> None:
    assert alter(world, LOGGER, "1", change) == error


def test_loggers_belong_to_this_broker(world: World) -> None:
    info = ("root", SET, "INFO")
    assert (
        alter(world, LOGGER, "2", info)
        == f"{INVALID}Unexpected node id. Expected 1, but received 2"
    )
    for name in ("", "x"):
        message = f"{INVALID}Node id must be an integer, but it is: {name}"
        assert alter(world, LOGGER, name, info) == message
    assert describe(world, LOGGER, "2")[0] == (
        f"{INVALID}Unexpected broker id, expected 1 but received 2"
    )
    assert describe(world, LOGGER, "")[0] == f"{INVALID}Broker id must not be empty"
    assert describe(world, LOGGER, "x")[0] == (
        f"{INVALID}Broker id must be an integer, but it is: x"
    )


def test_all_levels_cannot_be_replaced(world: World) -> None:
    configs = [{"name": "root", "value": "INFO"}]
    resource = {"resource_type": LOGGER, "resource_name": "1", "configs": configs}
    (answer,) = world.ask(33, 2, resources=[resource]).responses
    assert outcome(answer.error_code, answer.error_message) == f"{INVALID}Unknown resource type 8"


# --- subscriptions of client metrics ---


@pytest.fixture
def name(world: World) -> Iterator[str]:
    """A name for a subscription, which is deleted afterwards."""
    name = unique("metrics")
    yield name
    changes = [(key, DELETE, None) for key in ("metrics", "interval.ms", "match")]
    assert alter(world, METRICS, name, *changes) == OK


def configs_of(world: World, name: str) -> dict[str, tuple[str, int]]:
    """Return value and source of each config of a subscription."""
    error, configs = describe(world, METRICS, name)
    assert error == OK
    return {key: (one.value, one.config_source) for key, one in configs.items()}


def settled(world: World, name: str, expected: dict[str, tuple[str, int]]) -> None:
    """Wait until a change of a subscription has reached the broker."""
    wait_until(lambda: configs_of(world, name) == expected, PATIENCE_S, f"{expected}")


def test_a_subscription_is_stored(world: World, name: str) -> None:
    unset = {"metrics": ("", DEFAULT), "interval.ms": ("300000", DEFAULT), "match": ("", DEFAULT)}
    assert configs_of(world, name) == unset
    match = "client_id=a.*,client_software_name=Java"
    changes = (("metrics", SET, "a.,b."), ("interval.ms", SET, "100"), ("match", SET, match))
    assert alter(world, METRICS, name, *changes, validate_only=True) == OK
    assert alter(world, METRICS, name, *changes) == OK
    assert (METRICS, name) in wait_until(
        lambda: [one for one in listed(world, 0) if one[1] == name], PATIENCE_S, "the subscription"
    )
    assert (METRICS, name) in listed(world, 1, [METRICS, GROUP])
    assert (METRICS, name) not in listed(world, 1, [TOPIC])
    synonyms = describe(world, METRICS, name)[1]["interval.ms"].synonyms
    assert [(one.value, one.source) for one in synonyms] == [("100", OF_METRICS)]
    settled(
        world,
        name,
        {
            "metrics": ("a.,b.", OF_METRICS),
            "interval.ms": ("100", OF_METRICS),
            "match": (match, OF_METRICS),
        },
    )
    deleted = [(key, DELETE, None) for key in ("match", "interval.ms")]
    assert alter(world, METRICS, name, ("metrics", SET, "b.,c."), *deleted) == OK
    settled(world, name, {**unset, "metrics": ("b.,c.", OF_METRICS)})
    assert alter(world, METRICS, name, ("metrics", DELETE, None)) == OK
    settled(world, name, unset)
    assert (METRICS, name) not in listed(world, 0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            ("interval.ms", SET, "99"),
            "INVALID_REQUEST: Invalid value 99 for interval.ms, interval must be between 100 and "
            "3600000 (1 hour)",
        ),
        (
            ("interval.ms", SET, "x"),
            "INVALID_CONFIG: Invalid value x for configuration interval.ms: Not a number of type "
            "INT",
        ),
        (("nope", SET, "1"), "INVALID_REQUEST: Unknown client metrics configuration: nope"),
        (("match", SET, "x=1"), "INVALID_CONFIG: Illegal client matching pattern: x=1"),
        (("match", SET, "client_id"), "INVALID_CONFIG: Illegal client matching pattern: client_id"),
        (
            ("match", SET, "client_id="),
            "INVALID_CONFIG: Illegal client matching pattern: client_id=",
        ),
        (
            ("match", SET, "client_id=a=b"),
            "INVALID_CONFIG: Illegal client matching pattern: client_id=a=b",
        ),
        (
            ("match", SET, "client_id=["),
            "INVALID_CONFIG: Illegal client matching pattern: client_id=[",
        ),
        (
            ("metrics", SET, "a,,b"),
            "INVALID_CONFIG: Configuration 'metrics' values must not be empty.",
        ),
        (
            ("metrics", APPEND, "a"),
            "INVALID_CONFIG: Can't APPEND to key metrics because its type is not LIST.",
        ),
        (
            ("nope", SUBTRACT, "a"),
            "INVALID_CONFIG: Can't SUBTRACT to key nope because its type is not LIST.",
        ),
    ],
)
def test_subscriptions_that_are_refused(
    world: World, name: str, change: Change, error: str
) -> None:
    assert alter(world, METRICS, name, change) == error


def test_a_subscription_has_a_name(world: World) -> None:
    assert describe(world, METRICS, "")[0] == (
        f"{INVALID}Client metrics subscription name must not be empty"
    )
    assert alter(world, METRICS, "", ("metrics", SET, "*")) == (
        f"{INVALID}Subscription name can't be empty"
    )


def test_brokers_have_loggers(world: World) -> None:
    assert listed(world, 1, [LOGGER]) == [(LOGGER, "1")]
    assert listed(world, 1, [BROKER]) == [(BROKER, "1")]
