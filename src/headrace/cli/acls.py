"""``headrace acls``: add, list and remove ACLs."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from enum import IntEnum
from itertools import product
from typing import Any

from headrace.protocol.authorized_operations import Operation
from headrace.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
)

from .clients import Cluster, security
from .errors import BadUsage
from .nouns import Noun
from .options import DRY_RUN, YES, Declaration, arg, one_of, repeatable, switch
from .output import Output, Row

NOUN = Noun()
Resources = Sequence[tuple[ResourceType, str]]
_OPERATIONS = [code for code in Operation if Operation.ALL <= code <= Operation.IDEMPOTENT_WRITE]
_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


def _operation(text: str) -> Operation:
    words = {code.name.replace("_", ""): code for code in _OPERATIONS}
    try:
        return words[text.upper().replace("-", "").replace("_", "")]
    except KeyError:
        names = ", ".join(code.name.lower().replace("_", "-") for code in _OPERATIONS)
        raise ArgumentTypeError(f"{text!r} is not an operation: {names}") from None


_RESOURCES = [
    repeatable(
        f"--{resource_type.name.lower().replace('_', '-')}",
        "NAME",
        f"a {resource_type.name.lower().replace('_', ' ')}; * for all",
        dest="resources",
        type=lambda name, kind=resource_type: (kind, name),
    )
    for resource_type in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
] + [
    arg(
        "--cluster",
        dest="resources",
        action="append_const",
        const=(ResourceType.CLUSTER, CLUSTER_NAME),
        help="the cluster",
    )
]
_ENTRIES = (
    repeatable(
        "--operation",
        "OPERATION",
        "read, write, create, describe, alter, delete, all …",
        dest="operations",
        type=_operation,
    ),
    repeatable("--host", "ADDRESS", "an address of clients", dest="hosts"),
)


def _pattern(name: str, pattern_type: PatternType, help_text: str) -> Declaration:
    return arg(
        name,
        dest="pattern_type",
        action="store_const",
        const=pattern_type,
        help=help_text,
    )


_PREFIXED = _pattern("--prefixed", PatternType.PREFIXED, "the names are prefixes")
_PRINCIPALS = "a principal such as User:alice; User:* for all"


@NOUN.cluster_verb(
    "add",
    "add ACLs",
    arg("principals", "PRINCIPAL", _PRINCIPALS, nargs="+"),
    *_RESOURCES,
    _PREFIXED,
    *_ENTRIES,
    switch("--deny", "deny instead of allow"),
    switch("--producer", "what producers need on topics and transactional ids"),
    switch("--consumer", "what consumers need on topics and groups"),
    examples="headrace acls add User:alice --operation read --topic orders\n"
    "headrace acls add User:alice --consumer --topic orders --group packers\n"
    "headrace acls add User:bob --operation all --topic team- --prefixed",
)
async def add_acls(
    cluster: Cluster,
    output: Output,
    *,
    principals: Sequence[str],
    resources: Resources,
    pattern_type: PatternType | None,
    operations: Sequence[Operation],
    hosts: Sequence[str],
    deny: bool,
    producer: bool,
    consumer: bool,
) -> None:
    """Add an ACL for each principal, resource, operation and host.

    :raises Failure: some are refused
    """
    needs = [_PRODUCER] * producer + [_CONSUMER] * consumer
    if bool(needs) == bool(operations):
        raise BadUsage("give an --operation, --producer or --consumer")
    for resource_type, name in resources:
        if needs and not any(resource_type in of_role for of_role in needs):
            who = " or ".join(["producer"] * producer + ["consumer"] * consumer)
            raise BadUsage(f"a {who} needs nothing on {resource_type.name} '{name}'")
    permission = Permission.DENY if deny else Permission.ALLOW
    pattern = pattern_type or PatternType.LITERAL
    added = [
        Acl(resource_type, name, pattern, principal, host, operation, permission)
        for (resource_type, name), principal, host in product(
            resources, principals, hosts or (ANY_HOST,)
        )
        for operation in operations
        or [code for of_role in needs for code in of_role.get(resource_type, ())]
    ]
    if not added:
        raise BadUsage("name a resource that it holds for, as with --topic NAME")
    outcomes = await security.create_acls(cluster, list(dict.fromkeys(added)))
    rows = [
        {**_row(acl), "result": "added" if error is None else "refused"}
        for acl, error in outcomes.items()
    ]
    output.rows(rows, problems=filter(None, outcomes.values()))


def _row(acl: Acl) -> Row:
    return {
        "principal": acl.principal,
        "permission": _name(Permission, acl.permission),
        "operation": _name(Operation, acl.operation),
        "resource_type": _name(ResourceType, acl.resource_type),
        "resource_name": acl.name,
        "pattern_type": _name(PatternType, acl.pattern_type),
        "host": acl.host,
    }


def _name(numbers: type[IntEnum], number: int) -> str:
    return next((code.name for code in numbers if code == number), str(number))


_FILTER = (
    arg("principals", "PRINCIPAL", f"{_PRINCIPALS} (default: any)", nargs="*"),
    *_RESOURCES,
    one_of(
        _PREFIXED,
        _pattern("--match", PatternType.MATCH, "all ACLs that hold for the names"),
    ),
    *_ENTRIES,
)


async def _matching(
    cluster: Cluster,
    *,
    principals: Sequence[str],
    resources: Resources,
    pattern_type: PatternType | None,
    operations: Sequence[Operation],
    hosts: Sequence[str],
) -> list[Acl]:
    """Return the ACLs that meet a condition; what is empty holds for all."""
    if pattern_type is PatternType.MATCH and not resources:
        raise BadUsage("--match takes a resource, as with --topic NAME")
    pattern = pattern_type or (PatternType.LITERAL if resources else PatternType.ANY)
    named: Sequence[tuple[ResourceType, str | None]] = resources or [(ResourceType.ANY, None)]
    any_text: Sequence[None] = (None,)
    matching: set[Acl] = set()
    for (resource_type, name), principal, operation, host in product(
        named, principals or any_text, operations or (Operation.ANY,), hosts or any_text
    ):
        condition = AclFilter(resource_type, name, pattern, principal, host, operation)
        matching.update(await security.describe_acls(cluster, condition))
    return sorted(matching)


@NOUN.cluster_verb(
    "list",
    "list ACLs",
    *_FILTER,
    examples="headrace acls list\nheadrace acls list User:alice\n"
    "headrace acls list --topic orders --match",
)
async def list_acls(cluster: Cluster, output: Output, **conditions: Any) -> None:
    """Print the ACLs that meet the conditions."""
    matching = await _matching(cluster, **conditions)
    output.rows(list(map(_row, matching)), nothing="there are no such ACLs")


@NOUN.cluster_verb(
    "remove",
    "remove the ACLs that list prints for the same options",
    *_FILTER,
    DRY_RUN,
    YES,
    examples="headrace acls remove User:alice --topic orders\n"
    "headrace acls remove --topic orders --dry-run",
)
async def remove_acls(cluster: Cluster, output: Output, **conditions: Any) -> None:
    """Remove the ACLs that meet the conditions.

    :raises Failure: some are refused
    """
    if not conditions["principals"] and not conditions["resources"]:
        raise BadUsage("name a principal or a resource whose ACLs to remove")
    matching = await _matching(cluster, **conditions)
    rows = {AclFilter(*acl): {**_row(acl), "result": "removed"} for acl in matching}
    await output.change(
        rows,
        lambda: security.delete_acls(cluster, list(rows)),
        "Remove these ACLs?",
    )
