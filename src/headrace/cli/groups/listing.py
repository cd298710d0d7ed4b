"""The action of ``headrace groups``: list the groups of all types."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from functools import partial

from headrace.admin import AdminClient
from headrace.cli.tables import Column, as_json, table

from .admin import CONSUMER_PROTOCOLS, Action, run_action, timeout_s
from .results import fail_with, reason_of

_COLUMN_WIDTH = 20


def _list(admin: AdminClient, options: Namespace) -> None:
    """Print the groups of all types."""
    types = [one.lower() for one in options.types]
    result = admin.list_all_groups(types=types, request_timeout=timeout_s(options)).result()
    groups = [
        group
        for group in result.valid
        if (not options.consumer or group.protocol in CONSUMER_PROTOCOLS)
        and options.protocol in (None, group.protocol)
    ]
    if options.json:
        names = ("group", "type", "protocol", "state")
        rows = [(one.group_id, one.type.capitalize(), one.protocol, one.state) for one in groups]
        print(as_json(dict(zip(names, row, strict=True)) for row in rows))
    else:
        lines = [(one.group_id, one.type.capitalize(), one.protocol) for one in groups]
        width = max([_COLUMN_WIDTH, *(len(word) for line in lines for word in line)])
        columns = [Column("GROUP", width), Column("TYPE", width), Column("PROTOCOL", None)]
        print(table(columns, lines))
    fail_with(f"not all brokers answered: {reason_of(error)}" for error in result.errors)


_ACTIONS: Mapping[str, Action] = {"list": _list}

execute = partial(run_action, _ACTIONS)
