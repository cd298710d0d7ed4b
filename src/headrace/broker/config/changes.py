"""Changes of configs at run time, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headrace.net.listener_security import ListenerSecurities
from headrace.protocol.api import IncrementalAlterConfigsRequest
from headrace.protocol.configs import ConfigOperation, ConfigType, why_malformed
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, Catalog, CatalogError
from headrace.topics.topic_logs import TopicLogs
from headrace.topics.topic_rules import check_topic_name

from . import broker_loggers, rules
from .broker_config import Config
from .keys import broker_id, config_keys, render

ConfigChange: TypeAlias = IncrementalAlterConfigsRequest.AlterableConfig
"""A change of one config, as the request has it."""


@dataclass(frozen=True, slots=True)
class ConfiguredBroker:
    """The parts of a broker that its configs concern."""

    config: Config
    catalog: Catalog
    topic_logs: TopicLogs
    security: ListenerSecurities

    @property
    def node_id(self) -> int:
        """The id of the broker."""
        return self.config.node_id


class ConfigResource(NamedTuple):
    """A topic, a broker, the loggers of a broker, a subscription of client metrics, or a group.

    :ivar type: a :class:`.ConfigType`, or an unknown number
    """

    type: int
    name: str


Values: TypeAlias = Mapping[str, str | None]
"""The configs to set, with None for those to remove."""


def alter(
    broker: ConfiguredBroker,
    resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource],
    *,
    replaces: bool,
    validate_only: bool,
) -> Generator[None, None, list[Refusal]]:
    """Change the configs of resources, or only validate the changes. Yield between pieces of work.

    :param replaces: the changes are all configs that a resource is to have
    :returns: the result for each resource, with code NONE for success
    """
    requested = [
        (ConfigResource(resource.resource_type, resource.resource_name), resource.configs)
        for resource in resources
    ]
    times = Counter(resource for resource, _ in requested)
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    results: list[Refusal] = []
    for first in range(0, len(requested), MAX_TOPICS_PER_TRANSACTION):
        planned = [
            (resource, twice if times[resource] > 1 else _plan(broker, resource, changes, replaces))
            for resource, changes in requested[first : first + MAX_TOPICS_PER_TRANSACTION]
        ]
        failure = None
        if not validate_only:
            valid = {
                resource: values for resource, values in planned if not isinstance(values, Refusal)
            }
            failure = _store(broker, valid)
            if failure is None:
                yield from _apply(broker, valid)
        done = failure or Refusal(ErrorCode.NONE)
        results += [values if isinstance(values, Refusal) else done for _, values in planned]
        yield
    return results


def _plan(
    broker: ConfiguredBroker,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    replaces: bool,
) -> Values | Refusal:
    """Return the values to store for a resource, or the error of its changes."""
    message = why_malformed(changes)
    if message is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    refusal = _check_resource(broker, resource)
    if refusal is not None:
        return refusal
    config_type, name = ConfigType(resource.type), resource.name
    if config_type is ConfigType.BROKER and not name:
        present = broker.config.cluster_configs()
    else:
        present = broker.catalog.configs(config_type.kind, name)
    if replaces:
        values = _replacement(config_type, present, changes)
    else:
        values = _edited(broker, config_type, name, changes)
    if isinstance(values, Refusal):
        return values
    return _check_values(broker, config_type, name, present, values) or values


def _store(broker: ConfiguredBroker, changed: Mapping[ConfigResource, Values]) -> Refusal | None:
    """Store changes in one transaction; return the error if that fails. Levels of loggers are not
    stored.
    """
    stored = {
        (ConfigType(resource.type).kind, resource.name): values
        for resource, values in changed.items()
        if resource.type != ConfigType.BROKER_LOGGER
    }
    if not stored:
        return None
    try:
        broker.catalog.alter_many(stored)
    except CatalogError as error:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    of_brokers = [
        values for resource, values in changed.items() if resource.type == ConfigType.BROKER
    ]
    if of_brokers:
        broker.config.refresh()
        broker.security.reload(name for values in of_brokers for name in values)
    return None


def _apply(
    broker: ConfiguredBroker, changed: Mapping[ConfigResource, Values]
) -> Generator[None, None, None]:
    """Apply stored changes to loggers and open logs."""
    for resource, values in changed.items():
        if resource.type == ConfigType.BROKER_LOGGER:
            broker_loggers.apply(values)
    if any(resource.type == ConfigType.BROKER for resource in changed):
        yield from broker.topic_logs.apply_broker_config()
        return
    for resource in changed:
        is_topic = resource.type == ConfigType.TOPIC
        topic = broker.catalog.topics.get(resource.name) if is_topic else None
        if topic is not None:
            broker.topic_logs.apply_topic_config(topic)
        yield


def _check_resource(broker: ConfiguredBroker, resource: ConfigResource) -> Refusal | None:
    name = resource.name
    if resource.type == ConfigType.TOPIC:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        refusal = check_topic_name(name)
        if refusal is None and name not in broker.catalog.topics:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return refusal
    message = None
    if resource.type == ConfigType.GROUP:
        message = None if name else "Default group resources are not allowed."
    elif resource.type == ConfigType.CLIENT_METRICS:
        message = None if name else "Subscription name can't be empty"
    elif resource.type == ConfigType.BROKER_LOGGER:
        message = broker_loggers.check_name(name, broker.node_id)
    elif resource.type != ConfigType.BROKER:
        message = f"Unknown resource type {resource.type}"
    elif name and broker_id(name) is None:
        message = f"Node id must be an integer, but it is: {name}"
    elif name not in ("", str(broker.node_id)):
        message = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def _check_values(
    broker: ConfiguredBroker,
    config_type: ConfigType,
    name: str,
    present: Mapping[str, str],
    values: Values,
) -> Refusal | None:
    """Return the error for the values of a resource, None if they are valid.

    :param present: the configs that the resource has
    """
    if config_type is ConfigType.BROKER_LOGGER:
        return broker_loggers.check(values)
    if config_type is ConfigType.BROKER:
        set_values = {key: value for key, value in values.items() if value is not None}
        return (
            rules.check_min_insync_replicas(name, values)
            or rules.check_broker_changes(set_values, broker.config.value, default=name == "")
            or broker.security.check_changes(values)
        )
    after = {**present, **values}
    return broker.config.check(
        config_type.kind, {key: value for key, value in after.items() if value is not None}
    )


def _replacement(
    config_type: ConfigType, present: Mapping[str, str], changes: Sequence[ConfigChange]
) -> Values | Refusal:
    """Return the values that make the changes all configs of a resource."""
    if config_type is ConfigType.BROKER_LOGGER:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {config_type}")
    removed: dict[str, str | None] = dict.fromkeys(present)
    return removed | {change.name: change.value for change in changes}


def _edited(
    broker: ConfiguredBroker, config_type: ConfigType, name: str, changes: Sequence[ConfigChange]
) -> Values | Refusal:
    """Return the values of the named configs after their changes."""
    values: dict[str, str | None] = {}
    for change in changes:
        if change.config_operation == ConfigOperation.SET:
            values[change.name] = change.value
        elif change.config_operation == ConfigOperation.DELETE:
            values[change.name] = None
        else:
            edited = _edit_list(broker, config_type, name, change)
            if isinstance(edited, Refusal):
                return edited
            values[change.name] = edited
    return values


def _edit_list(
    broker: ConfiguredBroker, config_type: ConfigType, name: str, change: ConfigChange
) -> str | Refusal:
    """Return the value of a LIST config after APPEND or SUBTRACT."""
    operation = ConfigOperation(change.config_operation)
    if config_type is ConfigType.BROKER_LOGGER:
        message = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    key = config_keys(config_type.kind).get(change.name)
    not_a_list = f"Can't {operation.name} to key {change.name} because its type is not LIST."
    if (
        config_type is ConfigType.CLIENT_METRICS
    ):  # as in Kafka, whose controller knows no types of these
        return Refusal(ErrorCode.INVALID_CONFIG, not_a_list)
    if key is None:
        message = f"Unknown {config_type.kind} config name: {change.name}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    if key.type != "LIST":
        if config_type is ConfigType.BROKER:
            not_a_list = (
                f"Config value {operation.name.lower()} is not allowed for config key: "
                f"{change.name}"
            )
        return Refusal(ErrorCode.INVALID_CONFIG, not_a_list)
    if config_type is ConfigType.TOPIC:
        text = broker.config.topic_value(broker.catalog.topics[name], change.name)
    elif config_type is ConfigType.GROUP:
        text = broker.config.group_value(name, change.name)
    else:
        text = broker.config.get_str(change.name)
    before, named = _split(text), _split(change.value)
    if operation is ConfigOperation.APPEND:
        after = before + tuple(entry for entry in named if entry not in before)
    else:
        after = tuple(entry for entry in before if entry not in named)
    return render(after)


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",")) if text and text.strip() else ()
