"""The rules of authorization: the permissions that each API requires, in the order in which they
are checked, and what a missing one does.

Each handler declares its rules; ``docs/behaviour/security.md`` prints them as a table.

* :class:`Whole`: without the permission the whole request is refused, before its handler is called.
* :class:`Each`: items of an array without the permission are refused, each on its own, where the
  handler asks :meth:`headrace.net.call.Call.allowed`.
* :class:`Inside`: the handler asks for the permission, because it decides about parts of what it
  does: what it lists, names or creates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.protocol.authorized_operations import Operation
from headrace.protocol.configs import ConfigType
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.security.acls import CLUSTER_NAME, ResourceType

Need = tuple[Operation, ResourceType]
"""A permission: an operation on a resource."""
Owner = tuple[ResourceType, str] | None
"""The resource of an item of a request; None if the handler refuses the item."""

ERROR_OF = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for a missing permission on a resource of a type."""
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
}
"""Kafka's messages for requests that are refused. Only some responses have them."""
TOPIC_DENIED = Refusal(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, MESSAGES[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
"""The error of a topic that the client may not use, where the response has a message."""


class Whole(NamedTuple):
    """A permission without which a request is refused.

    :ivar alternatives: one of them is enough
    :ivar names: returns the names of the resources in a request: all must be allowed
    """

    alternatives: tuple[Need, ...]
    names: Callable[[Any], Iterable[str | None]]

    @property
    def all_needs(self) -> tuple[Need, ...]:
        """All permissions that the rule names."""
        return self.alternatives


class Each(NamedTuple):
    """A permission for the items of an array of the request.

    :ivar needs: the permission for an item; several if it depends on the type of the item
    :ivar array: the name of the array
    :ivar field: the field of an item that names its resource; empty if the item is the name.
        ``resource_type`` is understood
    :ivar unless: a permission on the cluster that is enough for all items
    :ivar once: leave items that are named twice to the handler, which refuses them
    :ivar owner: returns the resource of an item, where its type depends on the item
    :ivar ids_from: the first version whose items have topic ids instead of names; None for none
    """

    needs: tuple[Need, ...]
    array: str
    field: str
    unless: Operation | None = None
    once: bool = False
    owner: Callable[[Any], Owner] | None = None
    ids_from: int | None = None

    def name_of(self, item: Any) -> str:
        """Return the name of the resource of an item."""
        name: str = getattr(item, self.field) if self.field else item
        return name

    def identity(self, item: Any) -> Any:
        """Return what is equal for items that name the same resource."""
        if self.field == "resource_type":
            return item.resource_type, item.resource_name
        return getattr(item, self.field) if self.field else item

    @property
    def all_needs(self) -> tuple[Need, ...]:
        """All permissions that the rule names."""
        return self.needs if self.unless is None else (*self.needs, (self.unless, CLUSTER))


class Inside(NamedTuple):
    """A permission that the handler asks for.

    :ivar effect: the effect of a missing permission, for the documentation
    """

    need: Need
    effect: str

    @property
    def all_needs(self) -> tuple[Need, ...]:
        """All permissions that the rule names."""
        return (self.need,)


Rule = Whole | Each | Inside
Rules = tuple[Rule, ...]

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


def on_cluster(*operations: Operation) -> Whole:
    """Require one of these operations on the cluster."""
    needs = tuple((operation, CLUSTER) for operation in operations)
    return Whole(needs, lambda request: (CLUSTER_NAME,))


def on(operation: Operation, resource_type: ResourceType, field: str) -> Whole:
    """Require an operation on the resources that a field of the request names."""

    def names(request: Any) -> Iterable[str | None]:
        value = getattr(request, field)
        return (value,) if isinstance(value, str) else value or ()

    return Whole(((operation, resource_type),), names)


def each(
    operation: Operation,
    resource_type: ResourceType,
    array: str,
    field: str = "",
    *,
    unless: Operation | None = None,
    once: bool = False,
    ids_from: int | None = None,
) -> Each:
    """Require an operation on the resource of each item of an array."""
    needs = ((operation, resource_type),)
    return Each(needs, array, field, unless, once, ids_from=ids_from)


_CONFIG_OWNERS: Mapping[int, ResourceType] = {
    ConfigType.TOPIC: TOPIC,
    ConfigType.GROUP: GROUP,
    ConfigType.BROKER: CLUSTER,
    ConfigType.BROKER_LOGGER: CLUSTER,
    ConfigType.CLIENT_METRICS: CLUSTER,
}


def owner_of_configs(resource: Any) -> Owner:
    """Return the owner of the configs of a resource of a request; None for an unknown type."""
    kind = _CONFIG_OWNERS.get(resource.resource_type)
    if kind is None:
        return None
    return kind, CLUSTER_NAME if kind == CLUSTER else resource.resource_name


def each_config(
    operation: Operation, owner: Callable[[Any], Owner] = owner_of_configs, *, once: bool = False
) -> Each:
    """Require an operation on the owner of the configs of each resource of a request: a topic, a
    group, or the cluster.
    """
    needs = ((operation, TOPIC), (operation, GROUP), (operation, CLUSTER))
    return Each(needs, "resources", "resource_type", once=once, owner=owner)


def inside(operation: Operation, resource_type: ResourceType, effect: str) -> Inside:
    """Note a permission that the handler asks for."""
    return Inside((operation, resource_type), effect)


NOTHING: Rules = ()
"""Everybody may send the request."""
