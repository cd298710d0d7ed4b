"""What administrators ask of configs: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.net.listener_security import ListenerSecurities
from headrace.protocol.api import IncrementalAlterConfigsRequest
from headrace.protocol.configs import ConfigOperation, ConfigType, why_malformed
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, Catalog, CatalogError
from headrace.topics.settings import ConfiguredTopic
from headrace.topics.topic_logs import TopicLogs
from headrace.topics.topic_rules import check_topic_name

from . import broker_loggers, rules
from .broker_config import Config
from .described import (
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_broker_loggers,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from .keys import broker_id, config_keys, render

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

    def of_new_topic(self, topic: ConfiguredTopic) -> list[DescribedConfig]:
        """Describe the configs of a topic with all their synonyms."""
        return list(describe_topic(self.config, topic, all_synonyms=True))

    def describe(
        self, resource_type: int, name: str, facts: Mapping[str, str]
    ) -> list[DescribedConfig] | Refusal:
        """Describe the configs of a resource, or return its error.

        :param facts: configs of this broker that hold whatever was configured
        """
        config, catalog = self.config, self.catalog
        node = str(config.node_id)
        message = f"Unknown resource type {resource_type}"
        if resource_type == ConfigType.TOPIC:
            topic = catalog.topics.get(name)
            if topic is not None:
                return list(describe_topic(config, topic))
            return check_topic_name(name) or Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if resource_type == ConfigType.BROKER:
            if name == "":
                return list(describe_all_brokers(config.cluster_configs()))
            if name == node:
                return list(describe_broker(config, facts))
            message = _wrong_id(name, "Broker", f"broker id, expected {node} or empty string, but")
        elif resource_type == ConfigType.BROKER_LOGGER:
            if name == node:
                return list(describe_broker_loggers())
            message = "Broker id must not be empty"
            if name:
                message = _wrong_id(name, "Broker", f"broker id, expected {node} but")
        elif resource_type == ConfigType.CLIENT_METRICS:
            if name:
                return list(
                    describe_client_metrics(catalog.configs(ConfigType.CLIENT_METRICS.kind, name))
                )
            message = "Client metrics subscription name must not be empty"
        elif resource_type == ConfigType.GROUP:
            if name:
                return list(describe_group(config, catalog.configs(ConfigType.GROUP.kind, name)))
            message = "Group name must not be empty"
        return Refusal(ErrorCode.INVALID_REQUEST, message)

    # Changes --------------------------------------------------------------------------------------

    def alter(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
        *,
        replaces: bool,
        validate_only: bool,
    ) -> Generator[None, None, list[Refusal]]:
        """Change the configs of resources, or only validate the changes. Yield between pieces of
        work.

        :param replaces: the changes, which all set a value, are all configs that a resource is to
            have
        :returns: the result for each resource, with code NONE for success
        """
        requested = [
            ((resource.resource_type, resource.resource_name), resource.configs)
            for resource in resources
        ]
        times = Counter(place for place, _ in requested)
        twice = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        results: list[Refusal] = []
        for first in range(0, len(requested), MAX_TOPICS_PER_TRANSACTION):
            planned = [
                (place, twice if times[place] > 1 else self._plan(*place, changes, replaces))
                for place, changes in requested[first : first + MAX_TOPICS_PER_TRANSACTION]
            ]
            done = Refusal(ErrorCode.NONE)
            if not validate_only:
                done = yield from self._carry_out(
                    {place: values for place, values in planned if not isinstance(values, Refusal)}
                )
            results += [values if isinstance(values, Refusal) else done for _, values in planned]
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
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        refusal = self._check_resource(number, name)
        if refusal is not None:
            return refusal
        config_type = ConfigType(number)
        if config_type is ConfigType.BROKER_LOGGER and replaces:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {config_type}")
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
                rules.check_min_insync_replicas(name, values)
                or rules.check_broker_changes(_set(values), self.config, default=name == "")
                or self.security.check_changes(values)
                or values
            )
        return self.config.check(config_type.kind, _set({**present, **values})) or values

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
            if broker_id(name) != node_id:
                message = _wrong_id(name, "Node", f"node id. Expected {node_id}, but")
        elif number == ConfigType.BROKER:
            if name not in ("", str(node_id)):
                message = _wrong_id(name, "Node", f"broker id, expected {node_id}, but")
        elif number not in _UNNAMED:
            message = f"Unknown resource type {number}"
        return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)

    def _edit_list(self, config_type: ConfigType, name: str, change: ConfigChange) -> str | Refusal:
        """Return the value of a LIST config after APPEND or SUBTRACT."""
        operation = ConfigOperation(change.config_operation)
        if config_type is ConfigType.BROKER_LOGGER:
            message = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        key = config_keys(config_type.kind).get(change.name)
        message = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        if config_type is ConfigType.CLIENT_METRICS:
            # As in Kafka, whose controller knows no types of these.
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if key is None:
            message = f"Unknown {config_type.kind} config name: {change.name}"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if key.type != "LIST":
            if config_type is ConfigType.BROKER:
                message = (
                    f"Config value {operation.name.lower()} is not allowed for config key: "
                    f"{change.name}"
                )
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if config_type is ConfigType.TOPIC:
            text = self.config.topic_value(self.catalog.topics[name], change.name)
        elif config_type is ConfigType.GROUP:
            text = self.config.group_value(name, change.name)
        else:
            text = self.config.get_str(change.name)
        before, named = _split(text), _split(change.value)
        if operation is ConfigOperation.APPEND:
            after = before + tuple(entry for entry in named if entry not in before)
        else:
            after = tuple(entry for entry in before if entry not in named)
        return render(after)

    def _carry_out(
        self, changed: Mapping[tuple[int, str], Values]
    ) -> Generator[None, None, Refusal]:
        """Store changes in one transaction, and apply them to loggers, listeners and open logs.
        Levels of loggers are not stored. Return the error if the database fails, else code NONE.

        :param changed: by type and name of the resource
        """
        stored = {
            (ConfigType(number).kind, name): values
            for (number, name), values in changed.items()
            if number != ConfigType.BROKER_LOGGER
        }
        try:
            if stored:
                self.catalog.alter_configs(stored)
        except CatalogError as error:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        of_brokers = []
        for (number, _), values in changed.items():
            if number == ConfigType.BROKER_LOGGER:
                broker_loggers.apply(values)
            elif number == ConfigType.BROKER:
                of_brokers += list(values)
        if any(number == ConfigType.BROKER for number, _ in changed):
            self.config.refresh()
            self.security.reload(of_brokers)
            yield from self.topic_logs.apply_broker_config()
            return Refusal(ErrorCode.NONE)
        for number, name in changed:
            topic = self.catalog.topics.get(name) if number == ConfigType.TOPIC else None
            if topic is not None:
                self.topic_logs.apply_topic_config(topic)
            yield
        return Refusal(ErrorCode.NONE)


def _wrong_id(name: str, node: str, unexpected: str) -> str:
    """Return the error of the name of a resource that is not this broker's id."""
    if broker_id(name) is None:
        return f"{node} id must be an integer, but it is: {name}"
    return f"Unexpected {unexpected} received {name}"


def _set(values: Values) -> dict[str, str]:
    """Return the configs that have a value."""
    return {name: value for name, value in values.items() if value is not None}


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",")) if text and text.strip() else ()
