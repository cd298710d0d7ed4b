"""Descriptions of configs for DescribeConfigs: their values, and where these come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.topics.settings import ConfiguredTopic

from . import broker_loggers, client_metrics
from .broker_config import (
    DEFAULT,
    DYNAMIC_DEFAULT_BROKER,
    STATIC_BROKER,
    TOPIC_SYNONYMS,
    Config,
)
from .keys import ConfigKey, config_keys, render
from .security import listener_key

MAX_SHARED_DESCRIPTIONS = 100
"""The descriptions of configs that topics with equal configs share in one response."""

DYNAMIC_TOPIC, BROKER_LOGGER, CLIENT_METRICS, GROUP = 1, 6, 7, 8
"""Sources of values in the numbers of DescribeConfigs. The others are in
:mod:`headrace.broker.config.broker_config`.
"""

GROUP_SYNONYMS = {"streams.assignor.name": "group.streams.assignors"}
"""The broker synonyms of group configs whose name is not that of the config after ``group.``."""

UNKNOWN_TYPE = "UNKNOWN"
"""The type of levels of loggers."""

TYPES: Mapping[str, int] = {
    UNKNOWN_TYPE: 0,
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}
"""Config types in the numbers of DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that is in effect unless the list has one before it.

    :param value: None if it must not be shown
    """

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """A config with its value.

    :param value: None if there is none, or if it must not be shown
    :param source: the source of the value, in the numbers of DescribeConfigs
    :param synonyms: all values in order of precedence; the first is in effect
    """

    key: ConfigKey
    value: str | None
    source: int
    synonyms: tuple[Synonym, ...]

    @property
    def sensitive(self) -> bool:
        """True for a password, whose value is never shown."""
        return self.key.type == "PASSWORD"


def _described(key: ConfigKey, value: str | None, synonyms: Iterator[Synonym]) -> DescribedConfig:
    found = tuple(synonyms)
    if key.type == "PASSWORD":
        value, found = None, tuple(Synonym(one.name, None, one.source) for one in found)
    return DescribedConfig(key, value, found[0].source if found else DEFAULT, found)


def _visible(configs: Iterable[DescribedConfig]) -> list[DescribedConfig]:
    """Leave out internal configs that are not set."""
    return [one for one in configs if not one.key.internal or one.source != DEFAULT]


def _broker_synonyms(config: Config, name: str) -> Iterator[Synonym]:
    key = config_keys("broker")[name]
    for source, text in config.layers(name):
        yield Synonym(name, render(key.parse(text)), source)


def describe_topic(
    config: Config, topic: ConfiguredTopic, *, all_synonyms: bool = False
) -> list[DescribedConfig]:
    """Describe all configs of a topic, sorted by name.

    :param all_synonyms: also name broker configs in other units (``log.retention.hours``) while the
        first synonym (``log.retention.ms``) has no value. In Kafka CreateTopics has the sources of
        these values, and DescribeConfigs calls them defaults.
    """

    def synonyms(key: ConfigKey) -> Iterator[Synonym]:
        if key.name in topic.configs:
            yield Synonym(key.name, render(key.parse(topic.configs[key.name])), DYNAMIC_TOPIC)
        broker_names = [broker_name for broker_name, _ in TOPIC_SYNONYMS.get(key.name, ())]
        if all_synonyms or any(any(config.layers(first)) for first in broker_names[:1]):
            for broker_name in broker_names:
                yield from _broker_synonyms(config, broker_name)

    return _visible(
        _described(key, config.topic_value(topic, key.name), synonyms(key))
        for key in config_keys("topic").values()
    )


def describe_broker(config: Config, facts: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe all configs of this broker.

    :param facts: values that hold whatever was configured, such as the listeners
    """

    def described(key: ConfigKey) -> DescribedConfig:
        if key.name in facts:
            fact = facts[key.name]
            return DescribedConfig(
                key, fact, STATIC_BROKER, (Synonym(key.name, fact, STATIC_BROKER),)
            )
        return _described(key, config.get_str(key.name), _broker_synonyms(config, key.name))

    all_brokers = _visible(map(described, config_keys("broker").values()))
    return all_brokers + [_of_listener(config, name) for name in config.listener_configs()]


def _of_listener(config: Config, name: str) -> DescribedConfig:
    """Describe a config of one listener. Its mechanism's values are secrets, as in Kafka."""
    found = listener_key(name)
    assert found is not None
    base = config_keys("broker")[found.key]
    key = replace(base, name=name, type="PASSWORD" if found.mechanism else base.type)
    values = (Synonym(name, text, source) for source, text in config.listener_layers(name))
    return _described(key, next(text for _, text in config.listener_layers(name)), values)


def describe_all_brokers(configs: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe the configs that were set at run time for all brokers."""
    keys = config_keys("broker")
    return [
        _described(keys[name], value, iter((Synonym(name, value, DYNAMIC_DEFAULT_BROKER),)))
        for name, value in sorted(configs.items())
    ]


def describe_client_metrics(configs: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe the configs of a subscription of client metrics.

    :param configs: those that were set
    """

    def synonyms(key: ConfigKey) -> Iterator[Synonym]:
        if key.name in configs:
            yield Synonym(key.name, render(key.parse(configs[key.name])), CLIENT_METRICS)

    return [
        _described(key, configs.get(key.name, key.default), synonyms(key))
        for key in config_keys(client_metrics.KIND).values()
    ]


def describe_broker_loggers() -> list[DescribedConfig]:
    """Describe the levels of the loggers."""
    return [
        DescribedConfig(_logger_key(name), level, BROKER_LOGGER, ())
        for name, level in broker_loggers.levels()
    ]


def _logger_key(name: str) -> ConfigKey:
    return ConfigKey(
        kind=broker_loggers.KIND,
        name=name,
        type=UNKNOWN_TYPE,
        default=None,
        range="",
        dynamic=True,
        internal=False,
        documentation=None,
    )


def describe_group(config: Config, configs: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe all configs of a group.

    :param configs: those that were set for the group itself, which are shown as set: the value in
        effect may be clamped
    """

    def synonyms(key: ConfigKey) -> Iterator[Synonym]:
        if key.name in configs:
            yield Synonym(key.name, render(key.parse(configs[key.name])), GROUP)
        broker_name = GROUP_SYNONYMS.get(key.name, f"group.{key.name}")
        if broker_name in config_keys("broker"):
            yield from _broker_synonyms(config, broker_name)
        elif key.default is not None:
            yield Synonym(key.name, key.default, DEFAULT)

    return _visible(
        _described(key, next(synonyms(key)).value, synonyms(key))
        for key in config_keys("group").values()
    )
