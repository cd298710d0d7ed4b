"""The actions of ``headrace users``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.admin import AdminClient
from headrace.cli.groups.admin import Action, run_action, timeout_s
from headrace.cli.groups.results import fail_with, reason_of
from headrace.cli.tables import Column, as_json, table

_MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_NAMES = {mechanism: name for name, mechanism in _MECHANISMS.items()}


def _list(admin: AdminClient, options: Namespace) -> None:
    """Print users, with the mechanisms and iterations of their credentials."""
    found, problems = _describe(admin, options.users, options)
    rows = [
        (name, _NAMES.get(one.mechanism, "?"), one.iterations)
        for name in sorted(found)
        for one in found[name]
    ]
    if options.json:
        names = ("user", "mechanism", "iterations")
        print(as_json(dict(zip(names, row, strict=True)) for row in rows))
    else:
        columns = [Column("USER", 20), Column("MECHANISM"), Column("ITERATIONS", None)]
        print(table(columns, rows))
    fail_with(problems)


def _add(admin: AdminClient, options: Namespace) -> None:
    """Add a user, or change its password."""
    name, mechanism = options.users[0], options.mechanism
    info = ScramCredentialInfo(_MECHANISMS[mechanism], options.iterations)
    change = UserScramCredentialUpsertion(name, info, options.password.encode())
    results = admin.alter_user_scram_credentials([change], request_timeout=timeout_s(options))
    fail_with(_problems(results))
    print(f"{name} logs in with {mechanism}.")


def _delete(admin: AdminClient, options: Namespace) -> None:
    """Delete the credentials of users."""
    found, problems = _describe(admin, options.users, options)
    while found:  # the broker alters a user once in a request
        changes: list[Any] = []
        for name, infos in list(found.items()):
            wanted = [
                one for one in infos if options.mechanism in (None, _NAMES.get(one.mechanism))
            ]
            if not wanted and options.mechanism is not None:
                problems.append(f"{name} has no credential of {options.mechanism}")
            if wanted:
                changes.append(UserScramCredentialDeletion(name, wanted[0].mechanism))
            found[name] = wanted[1:]
            if not found[name]:
                del found[name]
        if changes:
            results = admin.alter_user_scram_credentials(
                changes, request_timeout=timeout_s(options)
            )
            refused = _problems(results)
            problems += refused
            if refused:
                break
    fail_with(problems)
    print(f"Deleted: {', '.join(options.users)}.")


_ACTIONS: Mapping[str, Action] = {"list": _list, "add": _add, "delete": _delete}

execute = partial(run_action, _ACTIONS)


def _describe(
    admin: AdminClient, names: Sequence[str], options: Namespace
) -> tuple[dict[str, Sequence[Any]], list[str]]:
    """Return the credentials of users, and problems with some of them."""
    asked = admin.describe_user_scram_credentials(
        list(names) or None, request_timeout=timeout_s(options)
    )
    if isinstance(asked, Future):
        return {
            name: description.scram_credential_infos for name, description in asked.result().items()
        }, []
    found: dict[str, Sequence[Any]] = {}
    problems = []
    for name, future in asked.items():
        try:
            found[name] = future.result().scram_credential_infos
        except KafkaException as error:
            unknown = error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
            problems.append(f"{name} does not exist" if unknown else f"{name}: {reason_of(error)}")
    return found, problems


def _problems(results: Mapping[str, Future[Any]]) -> list[str]:
    problems = []
    for name, future in results.items():
        try:
            future.result()
        except KafkaException as error:
            problems.append(f"{name}: {reason_of(error)}")
    return problems
