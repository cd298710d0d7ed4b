"""The actions of ``headrace streams-groups``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import TopicPartition

from headrace.admin import AdminClient, StreamsGroupDescription, StreamsTasks
from headrace.cli.groups.admin import Action, listed_groups, run_action
from headrace.cli.groups.deletion import delete_groups
from headrace.cli.groups.describing import GroupOffsets, Objects, Show, describe_groups
from headrace.cli.groups.results import GROUP, PARTITION, TOPIC, PartitionKey, partition_key
from headrace.cli.tables import Column, as_json, one_line, table

_TYPES = ("streams",)
_ROLES = ("active", "standby", "warmup")


def _list(admin: AdminClient, options: Namespace) -> None:
    groups = listed_groups(admin, options, options.states, _TYPES)
    if options.json:
        print(as_json({"group": one.group_id, "state": one.state} for one in groups))
    elif options.state is None:
        for one in groups:
            print(one_line(one.group_id))
    else:
        print(table([GROUP, Column("STATE", None)], [(one.group_id, one.state) for one in groups]))


def _chosen_groups(admin: AdminClient, options: Namespace) -> list[str]:
    """Return the ids of the groups of the command: those named, or all."""
    if options.all_groups:
        return [group.group_id for group in listed_groups(admin, options, types=_TYPES)]
    return list(options.group)


def _describe(admin: AdminClient, options: Namespace) -> None:
    group_ids = _chosen_groups(admin, options)
    show = Show(_show_offsets, _show_members, _show_state)
    describe_groups(admin, group_ids, admin.describe_streams_groups, show, options)


def _show_offsets(offsets: GroupOffsets, options: Namespace) -> Objects:
    group, committed, assigned, ends = offsets
    found = {partition_key(one): one for one in committed}
    rows = [
        _offset(group.group_id, key, found.get(key), ends.get(key))
        for key in sorted({*found, *map(partition_key, assigned)})
    ]
    if not options.json:
        _print_state_hint(group)
        _print_offsets(rows, options)
    return rows


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


def _show_members(group: StreamsGroupDescription, options: Namespace) -> Objects:
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


def _show_state(group: StreamsGroupDescription, options: Namespace) -> Objects:
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
    group_ids = _chosen_groups(admin, options)
    delete_groups(admin, group_ids, admin.describe_streams_groups, "streams groups", options)


_ACTIONS: Mapping[str, Action] = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
}

execute = partial(run_action, _ACTIONS)


def _print_state_hint(group: StreamsGroupDescription) -> None:
    if group.state_name == "Empty":
        hint = f"Streams group '{one_line(group.group_id)}' has no active members."
    elif group.state_name in ("NotReady", "Assigning", "Reconciling"):
        hint = f"Warning: Streams group '{one_line(group.group_id)}' is rebalancing."
    else:
        return
    print(f"\n{hint}", file=sys.stderr)
