"""Descriptions of configs for DescribeConfigs: their values, and where these come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from headrace.protocol.api import DescribeConfigsResponse
from headrace.protocol.configs import ConfigSource
from headrace.topics.settings import ConfiguredTopic

from . import broker_loggers
from .broker_config import Config
from .keys import ConfigKey, config_keys, render
from .security import listener_key

DescribedConfig: TypeAlias = DescribeConfigsResponse.DescribeConfigsResourceResult
"""A config with its value, its synonyms and its documentation, as in the response."""

Layer = tuple[str, str, ConfigSource]
"""The name, the value and the source of a config, which is in effect unless another one is before
it.
"""

_TYPES = ("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
"""Config types, in the order of their numbers in DescribeConfigs, which begin with 1."""


def _describe(
    key: ConfigKey, layers: Sequence[Layer], value: str | None = None
) -> Iterator[DescribedConfig]:
    """Describe a config, an internal one only while it is set. The values of passwords are not
    shown.

    :param layers: all values by precedence
    :param value: if it is not the first of these
    """
    source = layers[0][2] if layers else ConfigSource.DEFAULT_CONFIG
    if key.internal and source == ConfigSource.DEFAULT_CONFIG:
        return
    if value is None and layers:
        value = layers[0][1]
    is_password = key.type == "PASSWORD"
    yield DescribedConfig(
        name=key.name,
        value=None if is_password else value,
        read_only=not key.dynamic,
        config_source=source,
        is_sensitive=is_password,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name, None if is_password else text, source
            )
            for name, text, source in layers
        ],
        config_type=_TYPES.index(key.type) + 1,
        documentation=key.documentation or "Has no effect here.",
    )


def _own_layers(
    key: ConfigKey, configs: Mapping[str, str], source: ConfigSource
) -> Iterator[Layer]:
    """Yield the value that a resource itself has."""
    if key.name in configs:
        yield key.name, render(key.parse(configs[key.name])), source


def _broker_layers(config: Config, names: Iterable[str]) -> Iterator[Layer]:
    keys = config_keys("broker")
    for name in names:
        for source, text in config.layers(name):
            yield name, render(keys[name].parse(text)), source


def describe_topic(
    config: Config, topic: ConfiguredTopic, *, all_synonyms: bool = False
) -> Iterator[DescribedConfig]:
    """Describe all configs of a topic, sorted by name.

    :param all_synonyms: also name broker configs in other units (``log.retention.hours``) while the
        first synonym (``log.retention.ms``) has no value. In Kafka CreateTopics has the sources of
        these values, and DescribeConfigs calls them defaults.
    """
    for key in config_keys("topic").values():
        layers = list(_own_layers(key, topic.configs, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        synonyms = [synonym.name for synonym in key.synonyms]
        if all_synonyms or any(any(config.layers(first)) for first in synonyms[:1]):
            layers += _broker_layers(config, synonyms)
        yield from _describe(key, layers, config.topic_value(topic, key.name))


def describe_broker(config: Config, facts: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """Describe all configs of this broker.

    :param facts: values that hold whatever was configured, such as the listeners
    """
    for name, key in config_keys("broker").items():
        if name in facts:
            layers = [(name, facts[name], ConfigSource.STATIC_BROKER_CONFIG)]
        else:
            layers = list(_broker_layers(config, [name]))
        yield from _describe(key, layers)
    for name in config.listener_configs():
        of_listener = listener_key(name)
        assert of_listener is not None
        key = config_keys("broker")[of_listener.key]
        # The values of a mechanism are secrets, as in Kafka.
        key = replace(key, name=name, type="PASSWORD" if of_listener.mechanism else key.type)
        yield from _describe(key, [(name, text, source) for source, text in config.layers(name)])


def describe_all_brokers(configs: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """Describe the configs that were set at run time for all brokers."""
    keys, source = config_keys("broker"), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    for name, value in sorted(configs.items()):
        yield from _describe(keys[name], [(name, value, source)])


def describe_client_metrics(configs: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """Describe the configs of a subscription of client metrics.

    :param configs: those that were set
    """
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    for name, key in config_keys("client-metrics").items():
        layers = list(_own_layers(key, configs, source))
        yield from _describe(key, layers, configs.get(name, key.default))


def describe_broker_loggers() -> Iterator[DescribedConfig]:
    """Describe the levels of the loggers."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    for name, level in broker_loggers.levels():
        yield DescribedConfig(name=name, value=level, config_source=source, documentation="")


def describe_group(config: Config, configs: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """Describe all configs of a group, sorted by name.

    :param configs: those that were set for the group itself, which are shown as set: the value in
        effect may be clamped
    """
    for _, key in sorted(config_keys("group").items()):
        layers = list(_own_layers(key, configs, ConfigSource.DYNAMIC_GROUP_CONFIG))
        layers += _broker_layers(config, [synonym.name for synonym in key.synonyms])
        if not key.synonyms and key.default is not None:
            layers.append((key.name, key.default, ConfigSource.DEFAULT_CONFIG))
        yield from _describe(key, layers)
