"""The actions of ``headrace acls``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from headrace.cli.groups.admin import Action, run_action, timeout_s
from headrace.cli.tables import as_json, one_line

_CLUSTER, _ALL = "kafka-cluster", "*"
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class Resource(NamedTuple):
    """A resource pattern, as the options name it."""

    type: ResourceType
    name: str
    pattern_type: ResourcePatternType

    def __str__(self) -> str:
        return _pattern(self.type, self.name, self.pattern_type)


class Entry(NamedTuple):
    """An ACL without its resource."""

    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation}, "
            f"permissionType={self.permission})"
        )


Entries = Mapping[Resource, Mapping[Entry, None]]
"""The entries of each resource, in the order of Kafka's tool."""


def _add(admin: Any, options: Namespace) -> None:
    for resource, entries in entries_of(options).items():
        lines = "\n".join(f"\t{one}" for one in entries)
        print(f"Adding ACLs for resource `{resource}`: \n {lines}\n")
        bindings = [_binding(resource, entry) for entry in entries]
        created = admin.create_acls(bindings, request_timeout=timeout_s(options))
        for future in created.values():
            future.result()


def _remove(admin: Any, options: Namespace) -> None:
    filters = []
    for resource, entries in entries_of(options).items():
        what = "\n".join(f"\t{one}" for one in entries)
        if not options.force and not _confirmed(resource, what):
            continue
        filters += [_filter(resource, entry) for entry in entries or (None,)]
    if filters:
        deleted = admin.delete_acls(filters, request_timeout=timeout_s(options))
        for future in deleted.values():
            future.result()


def _confirmed(resource: Resource, what: str) -> bool:
    if what:
        print(
            f"Are you sure you want to remove ACLs: \n {what} \n from resource filter "
            f"`{resource}`? (y/n)"
        )
    else:
        print(f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() == "y"


def _list(admin: Any, options: Namespace) -> None:
    resources = list(_resources(options)) or [
        Resource(ResourceType.ANY, "", _pattern_type(options))
    ]
    rows: list[dict[str, str]] = []
    for principal in options.principal or (None,):
        if principal is not None and not options.json:
            print(f"ACLs for principal `{principal}`")
        found: dict[str, list[Any]] = {}
        for resource in resources:
            condition = _filter(resource, None, principal)
            for acl in admin.describe_acls(condition, request_timeout=timeout_s(options)).result():
                pattern = _pattern(acl.restype, acl.name, acl.resource_pattern_type)
                found.setdefault(pattern, []).append(acl)
        for pattern, acls in found.items():
            rows += map(_row, acls)
            if not options.json:
                lines = "\n".join(f"\t{_shown(acl)}" for acl in acls)
                print(f"Current ACLs for resource `{pattern}`:\n{lines}\n")
    if options.json:
        print(as_json(rows))


def _row(acl: Any) -> dict[str, str]:
    return {
        "resource_type": _type_name(acl.restype),
        "resource": acl.name,
        "pattern_type": acl.resource_pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission_type.name,
    }


def _shown(acl: Any) -> str:
    entry = Entry(acl.principal, acl.host, acl.operation.name, acl.permission_type.name)
    return one_line(str(entry))


def _pattern(resource_type: ResourceType, name: str, pattern_type: ResourcePatternType) -> str:
    return one_line(
        f"ResourcePattern(resourceType={_type_name(resource_type)}, name={name}, "
        f"patternType={pattern_type.name})"
    )


def _type_name(resource_type: ResourceType) -> str:
    """Return Kafka's name of a type; librdkafka names the cluster after the broker."""
    return "CLUSTER" if resource_type == ResourceType.BROKER else str(resource_type.name)


_ACTIONS: Mapping[str, Action] = {"add": _add, "list": _list, "remove": _remove}

execute = partial(run_action, _ACTIONS)


# Options ------------------------------------------------------------------------------------------


def entries_of(options: Namespace) -> Entries:
    """Return the entries for each resource that the options name; none for a resource whose ACLs
    are all to be removed.
    """
    entries: dict[Resource, dict[Entry, None]] = {}
    if options.producer or options.consumer:
        for resource in _resources(options):
            for operation in _operations_of_clients(resource, options):
                entries.setdefault(resource, {}).update(_entries(options, [operation]))
        if options.idempotent:
            cluster = _cluster()
            entries.setdefault(cluster, {}).update(_entries(options, ["IDEMPOTENT_WRITE"]))
        return entries
    for resource in _resources(options):
        entries[resource] = dict(_entries(options, options.operations))
    return entries


def _operations_of_clients(resource: Resource, options: Namespace) -> list[str]:
    """Return the operations that producers or consumers need on a resource."""
    producer, consumer = options.producer, options.consumer
    if resource.type == ResourceType.TOPIC:
        written = ["WRITE", "DESCRIBE", "CREATE"] if producer else []
        return written + (["READ", "DESCRIBE"] if consumer else [])
    if resource.type == ResourceType.GROUP:
        return ["READ"] if consumer else []
    if resource.type == ResourceType.TRANSACTIONAL_ID:
        return ["WRITE", "DESCRIBE"] if producer else []
    return []


def _entries(options: Namespace, operations: Iterable[str]) -> dict[Entry, None]:
    entries: dict[Entry, None] = {}
    for operation in operations:
        for permission, principals, hosts in (
            ("ALLOW", options.allow_principal, options.allow_host),
            ("DENY", options.deny_principal, options.deny_host),
        ):
            for principal in principals:
                for host in hosts or (_ALL,):
                    entries[Entry(principal, host, operation, permission)] = None
    return entries


def _resources(options: Namespace) -> Iterable[Resource]:
    for name, resource_type in _TYPES.items():
        for value in getattr(options, name):
            yield Resource(resource_type, value, _pattern_type(options))
    if options.cluster:
        yield _cluster()


def _cluster() -> Resource:
    return Resource(ResourceType.BROKER, _CLUSTER, ResourcePatternType.LITERAL)


def _pattern_type(options: Namespace) -> ResourcePatternType:
    pattern_type: ResourcePatternType = ResourcePatternType[options.resource_pattern_type.upper()]
    return pattern_type


def _binding(resource: Resource, entry: Entry) -> AclBinding:
    return AclBinding(
        *resource,
        entry.principal,
        entry.host,
        AclOperation[entry.operation],
        AclPermissionType[entry.permission],
    )


def _filter(
    resource: Resource, entry: Entry | None, principal: str | None = None
) -> AclBindingFilter:
    is_any = resource.type == ResourceType.ANY
    make: Any = AclBindingFilter  # its type hints lack None, which stands for all
    condition: AclBindingFilter = make(
        resource.type,
        None if is_any else resource.name,
        ResourcePatternType.ANY if is_any else resource.pattern_type,
        principal if entry is None else entry.principal,
        None if entry is None else entry.host,
        AclOperation.ANY if entry is None else AclOperation[entry.operation],
        AclPermissionType.ANY if entry is None else AclPermissionType[entry.permission],
    )
    return condition
