"""The actions of ``headrace quotas``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from functools import partial

from confluent_kafka import KafkaException

from headrace.admin import AdminClient
from headrace.cli.groups.admin import Action, run_action, timeout_s
from headrace.cli.groups.results import fail_with, reason_of
from headrace.cli.tables import Column, as_json, table
from headrace.security.quota_entities import CLIENT_ID, IP, USER, entity_of

_DEFAULT = "<default>"


def _list(admin: AdminClient, options: Namespace) -> None:
    """Print the quotas of all entities, or of those that have the names in the options."""
    asked = admin.describe_client_quotas(options.names, request_timeout=timeout_s(options))
    found = asked.result()
    rows = [
        (dict(entity), key, value)
        for entity, values in sorted(found.items(), key=repr)
        for key, value in sorted(values.items())
    ]
    if options.json:
        print(
            as_json({"entity": entity, "quota": key, "value": value} for entity, key, value in rows)
        )
        return
    columns = [
        *(Column(name, 20) for name in ("USER", "CLIENT-ID", "IP")),
        Column("QUOTA", 26),
        Column("VALUE", None),
    ]
    shown = [
        (*(_name(entity, kind) for kind in (USER, CLIENT_ID, IP)), key, _number(value))
        for entity, key, value in rows
    ]
    print(table(columns, shown))


def _name(entity: Mapping[str, str | None], kind: str) -> str:
    """Return the name of a type in an entity, as the table has it."""
    if kind not in entity:
        return "-"
    name = entity[kind]
    return _DEFAULT if name is None else name


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _alter(admin: AdminClient, options: Namespace) -> None:
    """Set or remove quotas of an entity.

    :raises Failure: the broker refuses
    """
    entity = entity_of(options.names)
    changed = admin.alter_client_quotas(
        {entity: options.changes}, request_timeout=timeout_s(options)
    )
    try:
        changed[entity].result()
    except KafkaException as error:
        fail_with([reason_of(error)])
    done = "Set" if options.action == "set" else "Removed"
    print(f"{done}: {', '.join(options.changes)}.")


_ACTIONS: Mapping[str, Action] = {"list": _list, "set": _alter, "remove": _alter}
"""The actions by name."""

execute = partial(run_action, _ACTIONS)
