"""The rules of authorization: the permissions that each API requires, in the order in which they
are checked, and what a missing one does.

The registry of APIs has the rules of each API; ``docs/behaviour/security.md`` prints them as a
table. The step *authorize* (:mod:`headrace.handlers.authorization`) carries out two kinds:

* :class:`Whole`: without the permission the whole request is refused.
* :class:`Each`: items of an array without the permission are refused, each on its own. The handler
  serves the others.

The handler itself asks for a permission of the third kind, :class:`Inside`, because that decides
about parts of what it does: what it lists, names or creates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import CLUSTER_NAME, ResourceType

Need = tuple[Operation, ResourceType]
"""A permission: an operation on a resource."""


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
        ``topic_id`` and ``resource_type`` are understood
    :ivar unless: a permission on the cluster that is enough for all items
    :ivar once: leave items that are named twice to the handler, which refuses them
    :ivar loggers: False to leave the loggers of a broker to the handler, which refuses them
    """

    needs: tuple[Need, ...]
    array: str
    field: str
    unless: Operation | None = None
    once: bool = False
    loggers: bool = True

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
) -> Each:
    """Require an operation on the resource of each item of an array."""
    return Each(((operation, resource_type),), array, field, unless, once)


def each_config(operation: Operation, *, once: bool = False, loggers: bool = True) -> Each:
    """Require an operation on the owner of the configs of each resource of a request: a topic, a
    group, or the cluster.
    """
    needs = ((operation, TOPIC), (operation, GROUP), (operation, CLUSTER))
    return Each(needs, "resources", "resource_type", once=once, loggers=loggers)


def inside(operation: Operation, resource_type: ResourceType, effect: str) -> Inside:
    """Note a permission that the handler asks for."""
    return Inside((operation, resource_type), effect)


NOTHING: Rules = ()
"""Everybody may send the request."""
