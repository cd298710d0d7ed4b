"""The actions of ``headrace consumer-groups``: list, describe and delete.

The actions that change offsets are in :mod:`headrace.cli.consumer_groups.offsets`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import TopicPartition

from headrace.admin import AdminClient, ConsumerGroupDescription, GroupListing, MemberDescription
from headrace.cli.groups.admin import (
    Action,
    all_consumer_groups,
    chosen_consumer_groups,
    run_action,
)
from headrace.cli.groups.deletion import delete_groups
from headrace.cli.groups.describing import GroupOffsets, Objects, Show, describe_groups
from headrace.cli.groups.results import (
    GROUP,
    PARTITION,
    TOPIC,
    PartitionKey,
    assignment,
    by_topic,
    partition_key,
)
from headrace.cli.tables import Column, as_json, one_line, table

from .offsets import delete_offsets, reset_offsets

_LIST_WIDTH = 15
_LIST_GAP = 10
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@dataclass(frozen=True, slots=True)
class _Row:
    """The progress of a group in one partition.

    :param committed: the committed offset; None if there is none
    :param end_offset: None if the partition does not exist or has no leader
    :param member: the member it is assigned to; None if there is none
    """

    group_id: str
    partition: TopicPartition
    committed: TopicPartition | None
    end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The records from the committed offset to the end; None if either is unknown."""
        if self.committed is None or self.end_offset is None:
            return None
        return int(self.end_offset - self.committed.offset)


def _list(admin: AdminClient, options: Namespace) -> None:
    groups = all_consumer_groups(admin, options, options.states, options.types)
    if options.json:
        objects = [
            {"group": one.group_id, "type": _type(one), "state": one.state} for one in groups
        ]
        print(as_json(objects))
        return
    if options.state is None and options.type is None:
        for one in groups:
            print(one_line(one.group_id))
        return
    width = _LIST_GAP + max([_LIST_WIDTH, *(len(one.group_id) for one in groups)])
    columns, rows = [Column("GROUP", width)], [[one.group_id] for one in groups]
    for wanted, title, value in (
        (options.type, "TYPE", _type),
        (options.state, "STATE", lambda one: one.state),
    ):
        if wanted is not None:
            columns.append(Column(title, 20))
            for row, one in zip(rows, groups, strict=True):
                row.append(value(one))
    print(table(columns, rows))


def _describe(admin: AdminClient, options: Namespace) -> None:
    group_ids = chosen_consumer_groups(admin, options)
    show = Show(_show_offsets, _show_members, _show_state)
    describe_groups(admin, group_ids, admin.describe_consumer_groups, show, options)


def _show_offsets(offsets: GroupOffsets, options: Namespace) -> Objects:
    rows = _rows(offsets.group, offsets.committed, offsets.ends)
    if not options.json:
        _print_state_hint(offsets.group)
        if rows:
            _print_offsets(rows, options)
    return [_as_object(row) for row in rows]


def _rows(
    group: ConsumerGroupDescription,
    committed: Sequence[TopicPartition],
    ends: Mapping[PartitionKey, int],
) -> list[_Row]:
    """Return the partitions of each member, most partitions first, then the unassigned ones."""
    found = {partition_key(one): one for one in committed}
    rows, assigned = [], set()

    def row(partition: TopicPartition, member: MemberDescription | None) -> _Row:
        key = partition_key(partition)
        return _Row(group.group_id, partition, found.get(key), ends.get(key), member)

    for member in sorted(
        group.members, key=lambda one: (-len(one.assignment.topic_partitions), one.member_id)
    ):
        for partition in sorted(member.assignment.topic_partitions, key=partition_key):
            assigned.add(partition_key(partition))
            rows.append(row(partition, member))
    rows += [
        row(one, None)
        for one in sorted(committed, key=partition_key)
        if partition_key(one) not in assigned
    ]
    return rows


def _print_offsets(rows: Sequence[_Row], options: Namespace) -> None:
    columns = [
        GROUP,
        TOPIC,
        PARTITION,
        Column("CURRENT-OFFSET"),
        Column("LOG-END-OFFSET"),
        Column("LAG"),
        Column("CONSUMER-ID"),
        Column("HOST"),
        Column("CLIENT-ID", None),
    ]
    lines = []
    for row in rows:
        one, member = row.committed, row.member
        line: list[object] = [row.group_id, row.partition.topic, row.partition.partition]
        if options.verbose:
            line.append(one.leader_epoch if one else None)
        line += [one.offset if one else None, row.end_offset, row.lag]
        line += [member.member_id, member.host, member.client_id] if member else [None] * 3
        lines.append(line)
    if options.verbose:
        columns.insert(3, Column("LEADER-EPOCH"))
    print(f"\n{table(columns, lines)}")


def _as_object(row: _Row) -> dict[str, Any]:
    one, member = row.committed, row.member
    return {
        "group": row.group_id,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "leader_epoch": one.leader_epoch if one else None,
        "current_offset": one.offset if one else None,
        "log_end_offset": row.end_offset,
        "lag": row.lag,
        "consumer_id": member.member_id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def _show_members(group: ConsumerGroupDescription, options: Namespace) -> Objects:
    if not options.json:
        _print_state_hint(group)
        _print_members(group, options)
    return [
        {
            "group": group.group_id,
            "consumer_id": one.member_id,
            "group_instance_id": one.group_instance_id,
            "host": one.host,
            "client_id": one.client_id,
            "current_epoch": one.member_epoch,
            "assignment": by_topic(one.assignment.topic_partitions),
            "target_epoch": group.target_assignment_epoch,
            "target_assignment": by_topic(_target(one))
            if one.target_assignment is not None
            else None,
            "upgraded": one.upgraded,
        }
        for one in group.members
    ]


def _print_members(group: ConsumerGroupDescription, options: Namespace) -> None:
    columns = [GROUP, Column("CONSUMER-ID")]
    lines: list[list[object]] = [[group.group_id, one.member_id] for one in group.members]

    def add(column: Column, values: Sequence[object]) -> None:
        columns.append(column)
        for line, value in zip(lines, values, strict=True):
            line.append(value)

    if any(one.group_instance_id for one in group.members):
        add(Column("GROUP-INSTANCE-ID", 17), [one.group_instance_id or "" for one in group.members])
    add(Column("HOST"), [one.host for one in group.members])
    add(Column("CLIENT-ID"), [one.client_id for one in group.members])
    add(Column("#PARTITIONS"), [len(one.assignment.topic_partitions) for one in group.members])
    if options.verbose:
        add(Column("CURRENT-EPOCH"), [one.member_epoch for one in group.members])
        add(
            Column("CURRENT-ASSIGNMENT", 20),
            [assignment(one.assignment.topic_partitions) for one in group.members],
        )
        add(Column("TARGET-EPOCH"), [group.target_assignment_epoch for _ in group.members])
        add(Column("TARGET-ASSIGNMENT", 20), [assignment(_target(one)) for one in group.members])
        if {True, False} <= {one.upgraded for one in group.members}:
            add(Column("UPGRADED"), [str(one.upgraded).lower() for one in group.members])
    print(f"\n{table(columns, lines)}")


def _show_state(group: ConsumerGroupDescription, options: Namespace) -> Objects:
    node = group.coordinator
    if not options.json:
        _print_state_hint(group)
        columns = [
            GROUP,
            Column("COORDINATOR (ID)", 25),
            Column("ASSIGNMENT-STRATEGY", 20),
            Column("STATE", 20),
            Column("#MEMBERS", None),
        ]
        row: list[object] = [
            group.group_id,
            (f"{node.host}:{node.port}  ({node.id})"),
            group.partition_assignor or None,
            group.state_name,
            len(group.members),
        ]
        if options.verbose:
            columns[4:4] = [Column("GROUP-EPOCH"), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
            row[4:4] = [group.group_epoch, group.target_assignment_epoch]
        print(f"\n{table(columns, [row])}")
    return [
        {
            "group": group.group_id,
            "coordinator": {"id": node.id, "host": node.host, "port": node.port},
            "assignment_strategy": group.partition_assignor or None,
            "state": group.state_name,
            "group_epoch": group.group_epoch,
            "target_assignment_epoch": group.target_assignment_epoch,
            "members": len(group.members),
        }
    ]


def _delete(admin: AdminClient, options: Namespace) -> None:
    group_ids = chosen_consumer_groups(admin, options)
    delete_groups(admin, group_ids, admin.describe_consumer_groups, "consumer groups", options)


_ACTIONS: Mapping[str, Action] = {
    "list": _list,
    "describe": _describe,
    "reset-offsets": reset_offsets,
    "delete-offsets": delete_offsets,
    "delete": _delete,
}

execute = partial(run_action, _ACTIONS)


def _type(group: GroupListing) -> str:
    return group.type.capitalize()


def _target(member: MemberDescription) -> list[TopicPartition]:
    return (
        list(member.target_assignment.topic_partitions)
        if member.target_assignment is not None
        else []
    )


def _print_state_hint(group: ConsumerGroupDescription) -> None:
    if group.state_name == "Empty":
        print(
            f"\nConsumer group '{one_line(group.group_id)}' has no active members.", file=sys.stderr
        )
    elif group.state_name in _REBALANCING:
        print(
            f"\nWarning: Consumer group '{one_line(group.group_id)}' is rebalancing.",
            file=sys.stderr,
        )
