"""``headrace quotas``: list, set and remove the quotas of users, client ids and addresses."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence

from headrace.security.quota_entities import TYPES, Entity, entity_of

from .clients import Cluster, errors, security
from .errors import BadUsage
from .nouns import Noun
from .options import DRY_RUN, YES, arg, repeatable
from .output import Output, Row

NOUN = Noun()
Names = Sequence[tuple[str, str | None]]
"""Types and names of an entity; None for the default."""
_DEFAULT = "<default>"


_ENTITY = [
    declaration
    for kind, what in zip(TYPES, ("a user", "a client id", "an address"), strict=True)
    for declaration in (
        repeatable(
            f"--{kind}", "NAME", what, dest="entity", type=lambda name, kind=kind: (kind, name)
        ),
        arg(
            f"--{kind}-default",
            dest="entity",
            action="append_const",
            const=(kind, None),
            help=f"each {what.partition(' ')[2]} without a quota of its own",
        ),
    )
]


def _quota(text: str) -> tuple[str, float]:
    """Parse ``KEY=NUMBER``.

    :raises ArgumentTypeError: it is not one
    """
    key, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not key or not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not of the form KEY=NUMBER")
    return key, value


@NOUN.cluster_verb(
    "list",
    "list the quotas of all entities that have the names",
    *_ENTITY,
    examples="headrace quotas list\nheadrace quotas list --user alice -o json",
)
async def list_quotas(cluster: Cluster, output: Output, *, entity: Names) -> None:
    """Print quotas."""
    described = await security.describe_quotas(cluster, _names(entity))
    output.rows(
        [
            {**_row(of_entity), "quota": key, "value": value}
            for of_entity, values in sorted(described.items(), key=str)
            for key, value in sorted(values.items())
        ],
        nothing="there are no quotas",
    )


def _names(entity: Names) -> dict[str, str | None]:
    """Return type → name.

    :raises BadUsage: a type has two names
    """
    names = dict(entity)
    if len(names) < len(entity):
        raise BadUsage("name one user, one client id or one address at a time")
    return names


def _row(entity: Entity) -> Row:
    names = {kind: _DEFAULT if name is None else name for kind, name in entity}
    return {kind.replace("-", "_"): names.get(kind) for kind in TYPES}


@NOUN.cluster_verb(
    "set",
    "set quotas: bytes and connections are per second, 100 of request_percentage a whole broker",
    arg("values", "KEY=NUMBER", "quotas", nargs="+", type=_quota),
    *_ENTITY,
    examples="headrace quotas set producer_byte_rate=1048576 consumer_byte_rate=2097152 "
    "--user alice\n"
    "headrace quotas set request_percentage=50 --client-id-default\n"
    "headrace quotas set controller_mutation_rate=10 --user alice --client-id loader\n"
    "headrace quotas set connection_creation_rate=20 --ip 10.0.0.7",
)
async def set_quotas(
    cluster: Cluster, output: Output, *, values: Sequence[tuple[str, float]], entity: Names
) -> None:
    """Set quotas of an entity.

    :raises Failure: the broker refuses
    """
    await _alter(cluster, output, dict(values), entity, None)


@NOUN.cluster_verb(
    "remove",
    "remove quotas",
    arg("keys", "KEY", "quotas", nargs="+"),
    *_ENTITY,
    DRY_RUN,
    YES,
    examples="headrace quotas remove producer_byte_rate --user alice",
)
async def remove_quotas(
    cluster: Cluster, output: Output, *, keys: Sequence[str], entity: Names
) -> None:
    """Remove quotas of an entity.

    :raises Failure: the broker refuses
    """
    await _alter(cluster, output, dict.fromkeys(keys), entity, "Remove these quotas?")


async def _alter(
    cluster: Cluster,
    output: Output,
    changes: Mapping[str, float | None],
    entity: Names,
    question: str | None,
) -> None:
    if not entity:
        raise BadUsage("name a user, a client id, both, or an ip: --user alice, --ip-default")
    altered = entity_of(_names(entity))

    async def execute() -> None:
        errors.raised(await security.alter_quotas(cluster, {altered: changes}))

    await output.change(
        {
            key: {
                **_row(altered),
                "quota": key,
                "value": value,
                "result": "removed" if value is None else "set",
            }
            for key, value in changes.items()
        },
        execute,
        question,
    )
