"""Changes of configs at run time, for AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode, Refusal
from headrace.security.acls import CLUSTER_NAME, ResourceType
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, CatalogError
from headrace.topics.topic_rules import check_topic_name

from . import broker_loggers, client_metrics, rules
from .cluster_rules import check_min_insync_replicas
from .keys import broker_id, config_keys, render

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""The resource types with configs, in Kafka's numbers."""

_KINDS = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: broker_loggers.KIND,
    CLIENT_METRICS: client_metrics.KIND,
    GROUP: "group",
}
_OWNERS = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP} | dict.fromkeys(
    (BROKER, BROKER_LOGGER, CLIENT_METRICS), ResourceType.CLUSTER
)


def owner_of_configs(resource_type: int, name: str) -> tuple[ResourceType, str] | None:
    """Return the resource on which a client needs permissions for configs; None if there are no
    configs of this type.
    """
    owner = _OWNERS.get(resource_type)
    if owner is None:
        return None
    return owner, CLUSTER_NAME if owner == ResourceType.CLUSTER else name


class ConfigOperation(IntEnum):
    """An operation on a config; APPEND and SUBTRACT are for lists (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one config."""

    name: str
    operation: int
    value: str | None


class ConfigResource(NamedTuple):
    """A topic, a broker, the loggers of a broker, a subscription of client metrics, or a group.

    :param type: :data:`TOPIC`, :data:`BROKER`, :data:`BROKER_LOGGER`, :data:`CLIENT_METRICS` or
        :data:`GROUP`
    """

    type: int
    name: str


Changes = Mapping[str, str | None] | Refusal


class Plan(NamedTuple):
    """The changes that a request has for a resource.

    :ivar malformed: the error of changes that no resource can have, or None
    :ivar changes: takes the kind, name and present configs of the resource; returns the configs to
        set, with None for those to remove
    """

    malformed: Refusal | None
    changes: Callable[[str, str, Mapping[str, str]], Changes]


def is_refused_early(resource_type: int, changes: Sequence[ConfigChange]) -> bool:
    """Return whether changes are refused before permissions are checked. As in Kafka, these are
    malformed changes and changes of an unknown type of resource.
    """
    return _check_operations(changes) is not None or resource_type not in _KINDS


def alter(
    broker: Broker, resources: Sequence[tuple[ConfigResource, Plan]], *, validate_only: bool
) -> Generator[None, None, list[Refusal]]:
    """Change the configs of resources by their plans, or only validate the changes. Yield between
    pieces of work.

    :returns: the result for each resource, with code NONE for success
    """
    times = Counter(resource for resource, _ in resources)
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    results: list[Refusal] = []
    for first in range(0, len(resources), MAX_TOPICS_PER_TRANSACTION):
        some = resources[first : first + MAX_TOPICS_PER_TRANSACTION]
        planned = [
            twice if times[resource] > 1 else _plan(broker, resource, plan)
            for resource, plan in some
        ]
        if not validate_only:
            changed = {
                resource: changes
                for (resource, _), changes in zip(some, planned, strict=True)
                if not isinstance(changes, Refusal)
            }
            failed = _store(broker, changed)
            if failed is not None:
                planned = [one if isinstance(one, Refusal) else failed for one in planned]
            else:
                yield from _apply(broker, changed)
        results += [one if isinstance(one, Refusal) else Refusal(ErrorCode.NONE) for one in planned]
        yield
    return results


def _plan(broker: Broker, resource: ConfigResource, plan: Plan) -> Changes:
    """Return the valid changes of a resource, or its error."""
    refusal = plan.malformed or _check_resource(broker, resource)
    if refusal is not None:
        return refusal
    kind, name = _KINDS[resource.type], resource.name
    is_cluster = resource.type == BROKER and not name
    present = broker.config.cluster_configs() if is_cluster else broker.catalog.configs(kind, name)
    changes = plan.changes(kind, name, present)
    if isinstance(changes, Refusal):
        return changes
    return _check_changes(broker, kind, name, present, changes) or changes


def _store(
    broker: Broker, changed: Mapping[ConfigResource, Mapping[str, str | None]]
) -> Refusal | None:
    """Store changes in one transaction; return the error if that fails. Levels of loggers are not
    stored.
    """
    stored = {
        (_KINDS[one.type], one.name): changes
        for one, changes in changed.items()
        if one.type != BROKER_LOGGER
    }
    if not stored:
        return None
    try:
        broker.catalog.alter_many(stored)
    except CatalogError as error:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if any(resource.type == BROKER for resource in changed):
        broker.config.refresh()
        broker.security.reload(
            name
            for resource, changes in changed.items()
            if resource.type == BROKER
            for name in changes
        )
    return None


def _apply(
    broker: Broker, changed: Mapping[ConfigResource, Mapping[str, str | None]]
) -> Generator[None, None, None]:
    """Apply stored changes to loggers and open logs."""
    for resource, changes in changed.items():
        if resource.type == BROKER_LOGGER:
            broker_loggers.apply(changes)
    if any(resource.type == BROKER for resource in changed):
        yield from broker.topic_logs.apply_broker_config()
        return
    for resource in changed:
        topic = broker.catalog.topics.get(resource.name) if resource.type == TOPIC else None
        if topic is not None:
            broker.apply_topic_config(topic)
        yield


def _check_resource(broker: Broker, resource: ConfigResource) -> Refusal | None:
    name = resource.name
    if resource.type == TOPIC:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        refusal = check_topic_name(name)
        if refusal is None and name not in broker.catalog.topics:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return refusal
    message = None
    if resource.type == GROUP:
        message = None if name else "Default group resources are not allowed."
    elif resource.type == CLIENT_METRICS:
        message = None if name else "Subscription name can't be empty"
    elif resource.type == BROKER_LOGGER:
        message = broker_loggers.check_name(name, broker.node_id)
    elif resource.type != BROKER:
        message = f"Unknown resource type {resource.type}"
    elif name and broker_id(name) is None:
        message = f"Node id must be an integer, but it is: {name}"
    elif name not in ("", str(broker.node_id)):
        message = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def _check_changes(
    broker: Broker,
    kind: str,
    name: str,
    present: Mapping[str, str],
    changes: Mapping[str, str | None],
) -> Refusal | None:
    if kind == "broker":
        refusal = check_min_insync_replicas(name, changes)
        if refusal is not None:
            return refusal
        settings = {key: value for key, value in changes.items() if value is not None}
        return rules.check_broker_changes(
            settings, broker.config.value, default=name == ""
        ) or broker.security.check_changes(changes)
    if kind == broker_loggers.KIND:
        return broker_loggers.check(changes)
    after = {**present, **changes}
    return broker.config.check(
        kind, {key: value for key, value in after.items() if value is not None}
    )


def replacement(changes: Sequence[ConfigChange]) -> Plan:
    """Return the plan of AlterConfigs: replace all configs of a resource."""

    def plan(kind: str, name: str, present: Mapping[str, str]) -> Changes:
        if kind == broker_loggers.KIND:
            unknown = f"Unknown resource type {BROKER_LOGGER}"
            return Refusal(ErrorCode.INVALID_REQUEST, unknown)
        removed: dict[str, str | None] = dict.fromkeys(present)
        return removed | {change.name: change.value for change in changes}

    return Plan(_check_operations(changes), plan)


def increment(broker: Broker, changes: Sequence[ConfigChange]) -> Plan:
    """Return the plan of IncrementalAlterConfigs: change only the named configs."""

    def plan(kind: str, name: str, present: Mapping[str, str]) -> Changes:
        planned: dict[str, str | None] = {}
        for change in changes:
            if change.operation == ConfigOperation.SET:
                planned[change.name] = change.value
            elif change.operation == ConfigOperation.DELETE:
                planned[change.name] = None
            else:
                edited = _edit_list(broker, kind, name, change)
                if isinstance(edited, Refusal):
                    return edited
                planned[change.name] = edited
        return planned

    return Plan(_check_operations(changes), plan)


def _check_operations(changes: Sequence[ConfigChange]) -> Refusal | None:
    message = None
    unknown = next(
        (change.operation for change in changes if change.operation not in list(ConfigOperation)),
        None,
    )
    without_value = [
        one.name for one in changes if one.value is None and one.operation != ConfigOperation.DELETE
    ]
    if len({change.name for change in changes}) < len(changes):
        message = "Error due to duplicate config keys"
    elif unknown is not None:
        message = f"Unknown config operation {unknown}"
    elif without_value:
        message = f"Null value not supported for : {', '.join(without_value)}"
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def _edit_list(broker: Broker, kind: str, name: str, change: ConfigChange) -> str | Refusal:
    """Return the value of a LIST config after APPEND or SUBTRACT."""
    operation = ConfigOperation(change.operation)
    if kind == broker_loggers.KIND:
        message = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    key = config_keys(kind).get(change.name)
    not_a_list = f"Can't {operation.name} to key {change.name} because its type is not LIST."
    if kind == client_metrics.KIND:  # as in Kafka, whose controller does not know their types
        return Refusal(ErrorCode.INVALID_CONFIG, not_a_list)
    if key is None:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {change.name}")
    if key.type != "LIST":
        if kind == "broker":
            message = (
                f"Config value {operation.name.lower()} is not allowed for config key: "
                f"{change.name}"
            )
        else:
            message = not_a_list
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    if kind == "topic":
        text = broker.config.topic_value(broker.catalog.topics[name], change.name)
    elif kind == "group":
        text = broker.config.group_value(name, change.name)
    else:
        text = broker.config.get_str(change.name)
    before = _split(text or "")
    named = _split(change.value or "")
    if operation == ConfigOperation.APPEND:
        after = before + tuple(one for one in named if one not in before)
    else:
        after = tuple(one for one in before if one not in named)
    return render(after)


def _split(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",")) if text.strip() else ()
