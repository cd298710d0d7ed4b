"""``describe`` of groups that commit offsets: consumer groups and streams groups."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from headrace.admin import AdminClient
from headrace.cli.progress import in_steps
from headrace.cli.tables import as_json

from .admin import GROUPS_AT_ONCE, timeout_s
from .offsets import committed_offsets, latest_offsets
from .results import PartitionKey, fail_with, partition_key, reason_of

Objects = list[dict[str, Any]]
"""What ``--json`` prints."""


class GroupOffsets(NamedTuple):
    """The offsets of a group.

    :param assigned: the partitions of all members
    :param ends: the end offsets of partitions that exist and have a leader
    """

    group: Any
    committed: Sequence[TopicPartition]
    assigned: Sequence[TopicPartition]
    ends: Mapping[PartitionKey, int]


class Show(NamedTuple):
    """The functions that print a group, or with ``--json`` nothing, and return its objects."""

    offsets: Callable[[GroupOffsets, Namespace], Objects]
    members: Callable[[Any, Namespace], Objects]
    state: Callable[[Any, Namespace], Objects]


def describe_groups(
    admin: AdminClient,
    group_ids: Iterable[str],
    describe: Callable[..., Mapping[str, Future[Any]]],
    show: Show,
    options: Namespace,
) -> None:
    """Describe groups and print them.

    :param describe: describes groups of the kind; fails for others
    :raises Failure: some cannot be described
    """
    failures: list[str] = []
    objects: Objects = []
    for some in in_steps(sorted(group_ids), GROUPS_AT_ONCE, "describing groups"):
        groups = []
        for future in describe(some, request_timeout=timeout_s(options)).values():
            try:
                groups.append(future.result())
            except KafkaException as error:
                failures.append(reason_of(error))
        if options.members:
            shown = [show.members(group, options) for group in groups]
        elif options.state is not None:
            shown = [show.state(group, options) for group in groups]
        else:
            offsets = _offsets(admin, groups, failures, options)
            shown = [show.offsets(of_group, options) for of_group in offsets]
        objects += [one for of_group in shown for one in of_group]
    if options.json:
        print(as_json(objects))
    fail_with(failures)


def _offsets(
    admin: AdminClient, groups: Sequence[Any], failures: list[str], options: Namespace
) -> list[GroupOffsets]:
    """Return the offsets of the groups whose coordinators answer.

    The ends are read after the committed offsets, so that no lag is negative.
    """
    committed = committed_offsets(admin, [group.group_id for group in groups], failures, options)
    ends: dict[PartitionKey, int] = {}
    found = []
    for group in groups:
        if group.group_id in committed:
            members = (member.assignment.topic_partitions for member in group.members)
            assigned = [one for partitions in members for one in partitions]
            found.append(GroupOffsets(group, committed[group.group_id], assigned, ends))
    partitions = {partition_key(one) for of in found for one in (*of.committed, *of.assigned)}
    ends.update(latest_offsets(admin, partitions, options))
    return found
