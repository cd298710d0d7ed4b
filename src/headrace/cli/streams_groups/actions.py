"""The actions of ``headrace streams-groups``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from headrace.admin import AdminClient, GroupListing, StreamsGroupDescription, StreamsTasks
from headrace.cli.consumer_groups.offsets import committed_offsets
from headrace.cli.groups.admin import GROUPS_AT_ONCE, connected, timeout_s
from headrace.cli.groups.deletion import delete_groups
from headrace.cli.groups.offsets import latest_offsets
from headrace.cli.groups.results import (
    GROUP,
    PARTITION,
    TOPIC,
    PartitionKey,
    fail_with,
    partition_key,
    reason_of,
)
from headrace.cli.progress import in_steps
from headrace.cli.tables import Column, as_json, one_line, table

_ROLES = ("active", "standby", "warmup")


def act(options: Namespace) -> None:
    """Execute the action, and print its results.

    :param options: as :func:`headrace.cli.streams_groups.command.check` leaves them
    :raises Failure: it failed, wholly or in part
    """
    with connected(options) as admin:
        _ACTIONS[options.action](admin, options)


def _list(admin: AdminClient, options: Namespace) -> None:
    groups = _streams_groups(admin, options, options.states)
    if options.json:
        print(as_json({"group": one.group_id, "state": one.state} for one in groups))
    elif options.state is None:
        for one in groups:
            print(one_line(one.group_id))
    else:
        print(table([GROUP, Column("STATE", None)], [(one.group_id, one.state) for one in groups]))


def _streams_groups(
    admin: AdminClient, options: Namespace, states: Sequence[str] = ()
) -> list[GroupListing]:
    """List the streams groups by group id.

    :raises KafkaException: a broker refuses or does not answer
    """
    result = admin.list_all_groups(
        states=states, types=["streams"], request_timeout=timeout_s(options)
    ).result()
    if result.errors:
        raise result.errors[0]
    return list(result.valid)


def _describe(admin: AdminClient, options: Namespace) -> None:
    group_ids = sorted(options.group)
    if options.all_groups:
        group_ids = [group.group_id for group in _streams_groups(admin, options)]
    failures: list[str] = []
    objects: list[dict[str, Any]] = []
    for some in in_steps(group_ids, GROUPS_AT_ONCE, "describing groups"):
        groups = []
        described = admin.describe_streams_groups(some, request_timeout=timeout_s(options))
        for future in described.values():
            try:
                groups.append(future.result())
            except KafkaException as error:
                failures.append(reason_of(error))
        if options.members:
            shown = [_show_members(group, options) for group in groups]
        elif options.state is not None:
            shown = [_show_state(group, options) for group in groups]
        else:
            shown = _show_offsets(admin, groups, failures, options)
        objects += [one for of_group in shown for one in of_group]
    if options.json:
        print(as_json(objects))
    fail_with(failures)


def _show_offsets(
    admin: AdminClient,
    groups: Sequence[StreamsGroupDescription],
    failures: list[str],
    options: Namespace,
) -> list[list[dict[str, Any]]]:
    """Print the offsets of groups.

    The ends are read after the committed offsets, so that no lag is negative.
    """
    committed = committed_offsets(admin, [group.group_id for group in groups], failures, options)
    answered = [group for group in groups if group.group_id in committed]
    partitions = {
        group.group_id: _partitions(group, committed[group.group_id]) for group in answered
    }
    ends = latest_offsets(admin, {key for keys in partitions.values() for key in keys}, options)
    shown = []
    for group in answered:
        of_group = {partition_key(one): one for one in committed[group.group_id]}
        rows = [
            _offset(group.group_id, key, of_group.get(key), ends.get(key))
            for key in partitions[group.group_id]
        ]
        if not options.json:
            _print_state_hint(group)
            _print_offsets(rows, options)
        shown.append(rows)
    return shown


def _partitions(
    group: StreamsGroupDescription, committed: Sequence[TopicPartition]
) -> list[PartitionKey]:
    """Return the partitions that members read or have committed, sorted."""
    read = (one for member in group.members for one in member.assignment.topic_partitions)
    return sorted({partition_key(one) for one in (*read, *committed)})


def _offset(
    group_id: str, key: PartitionKey, committed: TopicPartition | None, end_offset: int | None
) -> dict[str, Any]:
    offset = None if committed is None else committed.offset
    known = offset is not None and end_offset is not None
    return {
        "group": group_id,
        "topic": key[0],
        "partition": key[1],
        "current_offset": offset,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "log_end_offset": end_offset,
        "offset_lag": end_offset - offset if known else None,  # type: ignore[operator]
    }


def _print_offsets(rows: Sequence[Mapping[str, Any]], options: Namespace) -> None:
    columns = [GROUP, TOPIC, PARTITION]
    names = ["group", "topic", "partition"]
    if options.verbose:
        columns += [Column("CURRENT-OFFSET"), Column("LEADER-EPOCH"), Column("LOG-END-OFFSET")]
        names += ["current_offset", "leader_epoch", "log_end_offset"]
    columns.append(Column("OFFSET-LAG", None))
    lines = [[row[name] for name in (*names, "offset_lag")] for row in rows]
    print(f"\n{table(columns, lines)}")


def _show_members(group: StreamsGroupDescription, options: Namespace) -> list[dict[str, Any]]:
    if not options.json:
        _print_state_hint(group)
        columns = [GROUP, Column("MEMBER"), Column("PROCESS"), Column("CLIENT-ID")]
        rows: list[list[object]] = [
            [group.group_id, one.member_id, one.process_id, one.client_id] for one in group.members
        ]
        if options.verbose:
            columns[1:1] = [Column("TARGET-ASSIGNMENT-EPOCH", 25), Column("TOPOLOGY-EPOCH")]
            columns[4:4] = [Column("MEMBER-EPOCH")]
            for row, one in zip(rows, group.members, strict=True):
                row[1:1] = [group.target_assignment_epoch, one.topology_epoch]
                row[4:4] = [one.member_epoch]
        columns.append(Column("ASSIGNMENTS", None))
        for row, one in zip(rows, group.members, strict=True):
            row.append(_tasks(one.tasks, one.target_tasks if options.verbose else None))
        print(f"\n{table(columns, rows)}")
    return [
        {
            "group": group.group_id,
            "member": one.member_id,
            "process": one.process_id,
            "host": one.host,
            "client_id": one.client_id,
            "member_epoch": one.member_epoch,
            "topology_epoch": one.topology_epoch,
            "target_assignment_epoch": group.target_assignment_epoch,
            "tasks": _by_role(one.tasks),
            "target_tasks": _by_role(one.target_tasks),
        }
        for one in group.members
    ]


def _by_role(tasks: StreamsTasks) -> dict[str, dict[str, list[int]]]:
    return {
        role: {id_: list(numbers) for id_, numbers in getattr(tasks, role).items()}
        for role in _ROLES
    }


def _tasks(tasks: StreamsTasks, target: StreamsTasks | None) -> str | None:
    """Format tasks as Kafka's tool does: ``ACTIVE: 0:[0,1]; STANDBY: 1:[0]``. None if there are
    none.
    """
    told = [_roles(tasks, "")]
    if target is not None:
        told.append(_roles(target, "TARGET-"))
    return " ".join(filter(None, told)) or None


def _roles(tasks: StreamsTasks, prefix: str) -> str:
    parts = []
    for role in _ROLES:
        listed = ",".join(
            f"{id_}:[{','.join(map(str, numbers))}]"
            for id_, numbers in sorted(getattr(tasks, role).items())
        )
        if listed:
            parts.append(f"{prefix}{role.upper()}: {listed};")
    return " ".join(parts)


def _show_state(group: StreamsGroupDescription, options: Namespace) -> list[dict[str, Any]]:
    node = group.coordinator
    if not options.json:
        _print_state_hint(group)
        columns = [GROUP, Column("COORDINATOR (ID)", 25), Column("STATE", 20)]
        coordinator = f"{node.host}:{node.port}  ({node.id})"
        row: list[object] = [group.group_id, coordinator, group.state_name]
        if options.verbose:
            columns += [Column("GROUP-EPOCH"), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
            row += [group.group_epoch, group.target_assignment_epoch]
        columns.append(Column("#MEMBERS", None))
        row.append(len(group.members))
        print(f"\n{table(columns, [row])}")
    return [
        {
            "group": group.group_id,
            "coordinator": {"id": node.id, "host": node.host, "port": node.port},
            "state": group.state_name,
            "group_epoch": group.group_epoch,
            "target_assignment_epoch": group.target_assignment_epoch,
            "topology_epoch": group.topology_epoch,
            "members": len(group.members),
        }
    ]


def _delete(admin: AdminClient, options: Namespace) -> None:
    group_ids = options.group
    if options.all_groups:
        group_ids = [group.group_id for group in _streams_groups(admin, options)]
    delete_groups(admin, group_ids, admin.describe_streams_groups, "streams groups", options)


_ACTIONS: Mapping[str, Callable[[AdminClient, Namespace], None]] = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
}


def _print_state_hint(group: StreamsGroupDescription) -> None:
    if group.state_name == "Empty":
        hint = f"Streams group '{one_line(group.group_id)}' has no active members."
    elif group.state_name in ("NotReady", "Assigning", "Reconciling"):
        hint = f"Warning: Streams group '{one_line(group.group_id)}' is rebalancing."
    else:
        return
    print(f"\n{hint}", file=sys.stderr)
