"""Deletion of groups of one kind."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from headrace.admin import AdminClient
from headrace.cli.progress import in_steps

from .admin import GROUPS_AT_ONCE, timeout_s
from .results import print_deleted, reason_of


def delete_groups(
    admin: AdminClient,
    group_ids: Sequence[str],
    describe: Callable[..., Mapping[str, Future[Any]]],
    kind: str,
    options: Namespace,
) -> None:
    """Delete groups that can be described as groups of their kind, and print the results.

    :param describe: describes groups of the kind; fails for others
    :param kind: what to call the groups, such as ``consumer groups``
    :raises Failure: some are not deleted
    """
    reasons: dict[str, str | None] = {}
    for some in in_steps(group_ids, GROUPS_AT_ONCE, "deleting groups"):
        described = describe(some, request_timeout=timeout_s(options))
        errors = {group_id: future.exception() for group_id, future in described.items()}
        there = [group_id for group_id, error in errors.items() if error is None]
        if there:
            deleted = admin.delete_consumer_groups(there, request_timeout=timeout_s(options))
            errors.update({group_id: future.exception() for group_id, future in deleted.items()})
        reasons.update(
            {group_id: reason_of(error) if error else None for group_id, error in errors.items()}
        )
    print_deleted(kind, reasons, options)
