"""What administrators ask of configs: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from headrace.net.listener_security import ListenerSecurities
from headrace.protocol.api import DescribeConfigsResponse, IncrementalAlterConfigsRequest
from headrace.protocol.configs import ConfigOperation, ConfigSource, ConfigType, why_malformed
from headrace.protocol.configuration import parts
from headrace.protocol.errors import ErrorCode, Refusal, failure_of, invalid_config, invalid_request
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, Catalog, Topic
from headrace.topics.topic_logs import TopicLogs
from headrace.topics.topic_rules import check_topic_name

from . import broker_loggers, rules
from .broker_config import Config
from .keys import ConfigKey, config_keys, integer, render

DescribedConfig: TypeAlias = DescribeConfigsResponse.DescribeConfigsResourceResult
"""A config with its value, its synonyms and its documentation, as in the response."""

Layer = tuple[str, str, ConfigSource]
"""The name, the value and the source of a config, which is in effect unless another one is before
it.
"""

_TYPES = ("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
"""Config types, in the order of their numbers in DescribeConfigs, which begin with 1."""

ConfigChange: TypeAlias = IncrementalAlterConfigsRequest.AlterableConfig
"""A change of one config, as the request has it."""

Values: TypeAlias = Mapping[str, str | None]
"""The configs to set, with None for those to remove."""

_UNNAMED: Mapping[int, str] = {
    ConfigType.TOPIC: "Default topic resources are not allowed.",
    ConfigType.GROUP: "Default group resources are not allowed.",
    ConfigType.CLIENT_METRICS: "Subscription name can't be empty",
}
"""The errors of changes of a resource without a name."""


@dataclass(frozen=True)
class ConfigAdministration:
    """Describes and alters the configs of topics, of this broker and its loggers, of groups, and of
    subscriptions of client metrics.
    """

    config: Config
    catalog: Catalog
    topic_logs: TopicLogs
    security: ListenerSecurities

    # Descriptions ---------------------------------------------------------------------------------

    def describe(
        self, resource_type: int, name: str, facts: Mapping[str, str]
    ) -> Iterator[DescribedConfig] | Refusal:
        """Describe the configs of a resource, or return its error.

        :param facts: configs of this broker that hold whatever was configured
        """
        node = str(self.config.node_id)
        message = f"Unknown resource type {resource_type}"
        if resource_type == ConfigType.TOPIC:
            topic = self.catalog.topics.get(name)
            if topic is not None:
                return self.describe_topic(topic)
            return check_topic_name(name) or Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if resource_type == ConfigType.BROKER:
            if name == "":
                return self._describe_all_brokers()
            if name == node:
                return self._describe_broker(facts)
            message = _wrong_id(name, "Broker", f"broker id, expected {node} or empty string, but")
        elif resource_type == ConfigType.BROKER_LOGGER:
            if name == node:
                return _describe_broker_loggers()
            message = "Broker id must not be empty"
            if name:
                message = _wrong_id(name, "Broker", f"broker id, expected {node} but")
        elif resource_type == ConfigType.CLIENT_METRICS:
            if name:
                return self._describe_client_metrics(name)
            message = "Client metrics subscription name must not be empty"
        elif resource_type == ConfigType.GROUP:
            if name:
                return self._describe_group(name)
            message = "Group name must not be empty"
        return invalid_request(message)

    def describe_topic(
        self, topic: Topic, *, all_synonyms: bool = False
    ) -> Iterator[DescribedConfig]:
        """Describe all configs of a topic, sorted by name.

        :param all_synonyms: see :meth:`_layers`
        """
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        for key in config_keys("topic").values():
            layers = self._layers(key, topic.configs, source, all_synonyms=all_synonyms)
            yield from _describe(key, layers, self.config.topic_value(topic, key.name))

    def _describe_broker(self, facts: Mapping[str, str]) -> Iterator[DescribedConfig]:
        """Describe all configs of this broker."""
        for name, key in config_keys("broker").items():
            if name in facts:
                layers = [(name, facts[name], ConfigSource.STATIC_BROKER_CONFIG)]
            else:
                layers = list(self._broker_layers(name))
            yield from _describe(key, layers)
        for name, of_listener in self.config.listener_configs():
            key = config_keys("broker")[of_listener.key]
            # The values of a mechanism are secrets, as in Kafka.
            key = replace(key, name=name, type="PASSWORD" if of_listener.mechanism else key.type)
            layers = [(name, text, source) for source, text in self.config.layers(name)]
            yield from _describe(key, layers)

    def _describe_all_brokers(self) -> Iterator[DescribedConfig]:
        """Describe the configs that were set at run time for all brokers."""
        keys, source = config_keys("broker"), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        for name, value in sorted(self.config.cluster_configs().items()):
            yield from _describe(keys[name], [(name, value, source)])

    def _describe_client_metrics(self, name: str) -> Iterator[DescribedConfig]:
        """Describe the configs of a subscription of client metrics."""
        configs = self.catalog.configs(ConfigType.CLIENT_METRICS.kind, name)
        for key in config_keys("client-metrics").values():
            layers = self._layers(key, configs, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
            yield from _describe(key, layers, configs.get(key.name, key.default))

    def _describe_group(self, group_id: str) -> Iterator[DescribedConfig]:
        """Describe all configs of a group, sorted by name. Its own are shown as set: the value in
        effect may be clamped.
        """
        configs = self.catalog.configs(ConfigType.GROUP.kind, group_id)
        for _, key in sorted(config_keys("group").items()):
            layers = self._layers(key, configs, ConfigSource.DYNAMIC_GROUP_CONFIG)
            if not key.synonyms and key.default is not None:
                layers.append((key.name, key.default, ConfigSource.DEFAULT_CONFIG))
            yield from _describe(key, layers)

    def _broker_layers(self, name: str) -> Iterator[Layer]:
        key = config_keys("broker")[name]
        for source, text in self.config.layers(name):
            yield name, render(key.parse(text)), source

    def _layers(
        self,
        key: ConfigKey,
        configs: Mapping[str, str],
        source: ConfigSource,
        *,
        all_synonyms: bool = False,
    ) -> list[Layer]:
        """Return the value that a resource itself has, and those of the broker.

        :param configs: those that the resource itself has
        :param all_synonyms: also name broker configs in other units (``log.retention.hours``) while
            the first synonym (``log.retention.ms``) has no value. In Kafka CreateTopics has the
            sources of these values, and DescribeConfigs calls them defaults.
        """
        layers = []
        if key.name in configs:
            layers.append((key.name, render(key.parse(configs[key.name])), source))
        of_broker = [list(self._broker_layers(synonym.name)) for synonym in key.synonyms]
        if all_synonyms or any(of_broker[:1]):
            layers += chain.from_iterable(of_broker)
        return layers

    # Changes --------------------------------------------------------------------------------------

    def alter(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Generator[None, None, list[Refusal | None]]:
        """Change the configs of resources, or only validate the changes. Yield between pieces of
        work.

        :param replaces: the changes, which all set a value, are all configs that a resource is to
            have
        :returns: the error of each resource, None for success
        """
        requested = [
            ((resource.resource_type, resource.resource_name), resource.configs)
            for resource in resources
        ]
        times = Counter(place for place, _ in requested)
        twice = invalid_request("Each resource must appear at most once.")
        results: list[Refusal | None] = []
        for part in chunks(requested, MAX_TOPICS_PER_TRANSACTION):
            planned = [
                (place, twice if times[place] > 1 else self._plan(*place, changes, replaces))
                for place, changes in part
            ]
            failed = None
            if not validate_only:
                failed = yield from self._carry_out(
                    {place: values for place, values in planned if not isinstance(values, Refusal)}
                )
            results += [values if isinstance(values, Refusal) else failed for _, values in planned]
            yield
        return results

    def _plan(
        self, number: int, name: str, changes: Sequence[ConfigChange], replaces: bool
    ) -> Values | Refusal:
        """Return the values to store for a resource, or the error of its changes.

        :param number: of a :class:`.ConfigType`, or an unknown one
        """
        message = why_malformed(changes)
        if message is not None:
            return invalid_request(message)
        refusal = self._check_resource(number, name)
        if refusal is not None:
            return refusal
        config_type = ConfigType(number)
        if config_type is ConfigType.BROKER_LOGGER and replaces:
            return invalid_request(f"Unknown resource type {config_type}")
        if config_type is ConfigType.BROKER and not name:
            present = self.config.cluster_configs()
        else:
            present = self.catalog.configs(config_type.kind, name)
        values: dict[str, str | None] = dict.fromkeys(present if replaces else ())
        for change in changes:
            value: str | Refusal | None = None
            if change.config_operation == ConfigOperation.SET:
                value = change.value
            elif change.config_operation != ConfigOperation.DELETE:
                value = self._edit_list(config_type, name, change)
            if isinstance(value, Refusal):
                return value
            values[change.name] = value
        if config_type is ConfigType.BROKER_LOGGER:
            return broker_loggers.check(values) or values
        if config_type is ConfigType.BROKER:
            return (
                rules.check_broker_changes(name, values, self.config)
                or self.security.check_changes(values)
                or values
            )
        merged = {**present, **values}
        configs = {key: text for key, text in merged.items() if text is not None}
        return self.config.check(config_type.kind, configs) or values

    def _check_resource(self, number: int, name: str) -> Refusal | None:
        """Return the error if there is no such resource."""
        node_id = self.config.node_id
        message = None if name else _UNNAMED.get(number)
        if number == ConfigType.TOPIC and name:
            refusal = check_topic_name(name)
            if refusal is None and name not in self.catalog.topics:
                return Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
                )
            return refusal
        if number == ConfigType.BROKER_LOGGER:
            if integer(name, "INT") != node_id:
                message = _wrong_id(name, "Node", f"node id. Expected {node_id}, but")
        elif number == ConfigType.BROKER:
            if name not in ("", str(node_id)):
                message = _wrong_id(name, "Node", f"broker id, expected {node_id}, but")
        elif number not in _UNNAMED:
            message = f"Unknown resource type {number}"
        return None if message is None else invalid_request(message)

    def _edit_list(self, config_type: ConfigType, name: str, change: ConfigChange) -> str | Refusal:
        """Return the value of a LIST config after APPEND or SUBTRACT."""
        operation = ConfigOperation(change.config_operation)
        if config_type is ConfigType.BROKER_LOGGER:
            return invalid_request(
                f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
            )
        key = config_keys(config_type.kind).get(change.name)
        message = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        if config_type is ConfigType.CLIENT_METRICS:
            # As in Kafka, whose controller knows no types of these.
            return invalid_config(message)
        if key is None:
            return invalid_config(f"Unknown {config_type.kind} config name: {change.name}")
        if key.type != "LIST":
            if config_type is ConfigType.BROKER:
                message = (
                    f"Config value {operation.name.lower()} is not allowed for config key: "
                    f"{change.name}"
                )
            return invalid_config(message)
        if config_type is ConfigType.TOPIC:
            text = self.config.topic_value(self.catalog.topics[name], change.name)
        elif config_type is ConfigType.GROUP:
            text = self.config.group_value(name, change.name)
        else:
            text = self.config.get_str(change.name)
        before, named = parts(text), parts(change.value)
        if operation is ConfigOperation.APPEND:
            after = before + [entry for entry in named if entry not in before]
        else:
            after = [entry for entry in before if entry not in named]
        return render(tuple(after))

    def _carry_out(
        self, changed: Mapping[tuple[int, str], Values]
    ) -> Generator[None, None, Refusal | None]:
        """Store changes in one transaction, and apply them to loggers, listeners and open logs.
        Levels of loggers are not stored. Return the error if the database fails.

        :param changed: by type and name of the resource
        """
        stored = {
            (ConfigType(number).kind, name): values
            for (number, name), values in changed.items()
            if number != ConfigType.BROKER_LOGGER
        }
        if stored and (failed := failure_of(self.catalog.alter_configs, stored)):
            return failed
        of_brokers: list[str] = []
        for (number, _), values in changed.items():
            if number == ConfigType.BROKER_LOGGER:
                broker_loggers.apply(values)
            elif number == ConfigType.BROKER:
                of_brokers += values
        if of_brokers:
            self.config.refresh()
            self.security.reload(of_brokers)
            yield from self.topic_logs.apply_broker_config()
            return None
        for number, name in changed:
            topic = self.catalog.topics.get(name) if number == ConfigType.TOPIC else None
            if topic is not None:
                self.topic_logs.apply_topic_config(topic)
            yield
        return None


def _wrong_id(name: str, node: str, unexpected: str) -> str:
    """Return the error of the name of a resource that is not this broker's id."""
    if integer(name, "INT") is None:
        return f"{node} id must be an integer, but it is: {name}"
    return f"Unexpected {unexpected} received {name}"


# Descriptions -------------------------------------------------------------------------------------


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


def _describe_broker_loggers() -> Iterator[DescribedConfig]:
    """Describe the levels of the loggers."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    for name, level in broker_loggers.levels():
        yield DescribedConfig(name=name, value=level, config_source=source, documentation="")
