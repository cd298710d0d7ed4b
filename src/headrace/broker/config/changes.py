"""Changing configs while the broker runs: what AlterConfigs and IncrementalAlterConfigs have in
common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.catalog import CatalogError
from headrace.errors import ErrorCode, Refusal

from . import rules as config_rules
from .broker_config import NODE_ID
from .keys import config_keys, render
from .topic_rules import name_refusal

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

TOPIC, BROKER, GROUP = 2, 4, 32
"""The resource types that have configs here, in Kafka's numbers."""

_KINDS = {TOPIC: "topic", BROKER: "broker", GROUP: "group"}


class Operation(IntEnum):
    """What to do with a config; the last two are for lists (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One config to change."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """What has configs: a topic, the broker or a group, by Kafka's number for its kind and its
    name.
    """

    type: int
    name: str


Changes = Mapping[str, str | None] | Refusal
Plan = Callable[[str, str, Mapping[str, str]], Changes]
"""From a resource's kind, name and present configs to the configs to set, or with None to remove.
"""


def alter(
    broker: Broker, resources: Sequence[tuple[Resource, Plan]], *, validate_only: bool
) -> Iterator[Refusal]:
    """Change the configs of resources, each as its plan says, or only check that they could be
    changed.

    :returns: for each resource what was wrong; code NONE when nothing was
    """
    named = [resource for resource, _ in resources]
    for resource, plan in resources:
        if named.count(resource) > 1:
            yield Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            yield _alter(broker, resource, plan, validate_only) or Refusal(ErrorCode.NONE)


def _alter(broker: Broker, resource: Resource, plan: Plan, validate_only: bool) -> Refusal | None:
    refusal = _resource_refusal(broker, resource)
    if refusal is not None:
        return refusal
    kind, name = _KINDS[resource.type], resource.name
    present = broker.catalog.configs(kind, name)
    changes = plan(kind, name, present)
    if isinstance(changes, Refusal):
        return changes
    refusal = _changes_refusal(broker, kind, name, present, changes)
    if refusal is not None or validate_only:
        return refusal
    try:
        broker.catalog.alter_configs(kind, name, changes)
    except CatalogError as error:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if kind == "topic":
        broker.apply_topic_config(broker.catalog.topics[name])
    elif kind == "broker":
        broker.config.refresh()
        for topic in broker.catalog.topics.values():
            broker.apply_topic_config(topic)
    return None


def _resource_refusal(broker: Broker, resource: Resource) -> Refusal | None:
    name = resource.name
    if resource.type == TOPIC:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        refusal = name_refusal(name)
        if refusal is None and name not in broker.catalog.topics:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return refusal
    message = None
    if resource.type == GROUP:
        message = None if name else "Default group resources are not allowed."
    elif resource.type != BROKER:
        message = f"Unknown resource type {resource.type}"
    elif name and not name.removeprefix("-").isdecimal():
        message = f"Node id must be an integer, but it is: {name}"
    elif name not in ("", str(NODE_ID)):
        message = f"Unexpected broker id, expected {NODE_ID}, but received {name}"
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def _changes_refusal(
    broker: Broker,
    kind: str,
    name: str,
    present: Mapping[str, str],
    changes: Mapping[str, str | None],
) -> Refusal | None:
    if kind == "broker":
        settings = {key: value for key, value in changes.items() if value is not None}
        return config_rules.broker_change_refusal(settings, broker.config.value, default=name == "")
    after = {**present, **changes}
    return broker.config.refusal(
        kind, {key: value for key, value in after.items() if value is not None}
    )


def replacement(changes: Sequence[Change]) -> Plan:
    """The plan of AlterConfigs: a resource has these configs and no others."""

    def plan(kind: str, name: str, present: Mapping[str, str]) -> Changes:
        refusal = _malformed(changes)
        if refusal is not None:
            return refusal
        removed: dict[str, str | None] = dict.fromkeys(present)
        return removed | {change.name: change.value for change in changes}

    return plan


def increment(broker: Broker, changes: Sequence[Change]) -> Plan:
    """The plan of IncrementalAlterConfigs: only these configs change."""

    def plan(kind: str, name: str, present: Mapping[str, str]) -> Changes:
        refusal = _malformed(changes)
        if refusal is not None:
            return refusal
        planned: dict[str, str | None] = {}
        for change in changes:
            if change.operation == Operation.SET:
                planned[change.name] = change.value
            elif change.operation == Operation.DELETE:
                planned[change.name] = None
            else:
                edited = _edited(broker, kind, name, change)
                if isinstance(edited, Refusal):
                    return edited
                planned[change.name] = edited
        return planned

    return plan


def _malformed(changes: Sequence[Change]) -> Refusal | None:
    message = None
    unknown = next(
        (change.operation for change in changes if change.operation not in list(Operation)), None
    )
    without_value = [
        one.name for one in changes if one.value is None and one.operation != Operation.DELETE
    ]
    if len({change.name for change in changes}) < len(changes):
        message = "Error due to duplicate config keys"
    elif unknown is not None:
        message = f"Unknown config operation {unknown}"
    elif without_value:
        message = f"Null value not supported for : {', '.join(without_value)}"
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def _edited(broker: Broker, kind: str, name: str, change: Change) -> str | Refusal:
    """The list that a config is, its default counting, after an append or subtract."""
    key = config_keys(kind).get(change.name)
    operation = Operation(change.operation)
    if key is None:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {change.name}")
    if key.type != "LIST":
        if kind == "broker":
            message = (
                f"Config value {operation.name.lower()} is not allowed for config key: "
                f"{change.name}"
            )
        else:
            message = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    if kind == "topic":
        text = broker.config.topic_value(broker.catalog.topics[name], change.name)
    elif kind == "group":
        text = broker.config.group_value(name, change.name)
    else:
        text = broker.config.get_str(change.name)
    before = _split(text or "")
    named = _split(change.value or "")
    if operation == Operation.APPEND:
        after = before + tuple(one for one in named if one not in before)
    else:
        after = tuple(one for one in before if one not in named)
    return render(after)


def _split(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",")) if text.strip() else ()
