"""The actions of ``headrace share-groups``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException, TopicPartition

from headrace.admin import AdminClient, ShareGroupDescription, SharePartitionOffsetInfo
from headrace.cli.errors import Failure
from headrace.cli.groups.admin import GROUPS_AT_ONCE, Action, run_action, timeout_s
from headrace.cli.groups.offsets import (
    earliest_offsets,
    existing_partitions,
    has_no_log,
    latest_offsets,
    offsets_since,
    with_scope,
)
from headrace.cli.groups.results import (
    GROUP,
    PARTITION,
    TOPIC,
    assignment,
    by_topic,
    fail_with,
    is_error,
    partition_key,
    print_deleted,
    print_reset,
    reason_of,
)
from headrace.cli.progress import in_steps
from headrace.cli.tables import Column, as_json, one_line, table
from headrace.epoch import since_epoch_ms

Offsets = dict[TopicPartition, SharePartitionOffsetInfo]


def _list(admin: AdminClient, options: Namespace) -> None:
    states = {ConsumerGroupState[state.upper()] for state in options.states}
    result = admin.list_share_groups(states=states, request_timeout=timeout_s(options)).result()
    rows = [(group.group_id, _state(group.state)) for group in result.valid]
    if options.json:
        print(as_json({"group": group_id, "state": state} for group_id, state in rows))
    elif options.state is None:
        for group_id, _ in rows:
            print(one_line(group_id))
    else:
        print(table([GROUP, Column("STATE", None)], rows))
    if result.errors:
        raise Failure(f"not all brokers answered: {reason_of(result.errors[0])}")


def _describe(admin: AdminClient, options: Namespace) -> None:
    group_ids = sorted(options.group)
    if options.all_groups:
        group_ids = _all_groups(admin, options)
    show = _show_offsets
    if options.members:
        show = _show_members
    elif options.state is not None:
        show = _show_state
    failures: list[str] = []
    objects: list[dict[str, Any]] = []
    for some in in_steps(group_ids, GROUPS_AT_ONCE, "describing groups"):
        offsets: Mapping[str, Future[Offsets]] = {}
        if show is _show_offsets:
            offsets = admin.list_share_group_offsets(some, request_timeout=timeout_s(options))
        described = admin.describe_share_groups(some, request_timeout=timeout_s(options))
        for group_id, future in described.items():
            try:
                group = future.result()
                found = offsets[group_id].result() if offsets else {}
            except KafkaException as error:
                failures.append(reason_of(error))
                continue
            objects += show(group, found, options)
            failures += [
                f"{partition.topic}-{partition.partition}: {info.error.str()}"
                for partition, info in found.items()
                if info.error is not None
            ]
    if options.json:
        print(as_json(objects))
    fail_with(failures)


def _show_offsets(
    group: ShareGroupDescription, offsets: Offsets, options: Namespace
) -> list[dict[str, Any]]:
    infos = sorted(offsets.items(), key=lambda item: partition_key(item[0]))
    if not infos and not options.json:
        print(f"\nShare group '{one_line(group.group_id)}' has no offset information.")
    elif not options.json:
        columns = [GROUP, TOPIC, PARTITION, Column("START-OFFSET", 13), Column("LAG", None)]
        rows: list[list[object]] = [
            [group.group_id, partition.topic, partition.partition, info.start_offset, info.lag]
            for partition, info in infos
        ]
        if options.verbose:
            columns.insert(3, Column("LEADER-EPOCH", 13))
            for row, (_, info) in zip(rows, infos, strict=True):
                row.insert(3, info.leader_epoch)
        print(f"\n{table(columns, rows)}")
    return [
        {
            "group": group.group_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "leader_epoch": info.leader_epoch,
            "start_offset": info.start_offset,
            "lag": info.lag,
            **({"error": info.error.str()} if info.error is not None else {}),
        }
        for partition, info in infos
    ]


def _show_members(
    group: ShareGroupDescription, offsets: Offsets, options: Namespace
) -> list[dict[str, Any]]:
    if not group.members:
        _print_no_members(group)
    elif not options.json:
        columns = [
            GROUP,
            Column("CONSUMER-ID"),
            Column("HOST"),
            Column("CLIENT-ID"),
            Column("#PARTITIONS", 12),
            Column("ASSIGNMENT", None),
        ]
        rows: list[list[object]] = [
            [
                group.group_id,
                one.member_id,
                one.host,
                one.client_id,
                len(one.assignment.topic_partitions),
                assignment(one.assignment.topic_partitions),
            ]
            for one in group.members
        ]
        if options.verbose:
            columns.insert(5, Column("MEMBER-EPOCH", 13))
            for row, one in zip(rows, group.members, strict=True):
                row.insert(5, one.member_epoch)
        print(f"\n{table(columns, rows)}")
    return [
        {
            "group": group.group_id,
            "consumer_id": one.member_id,
            "host": one.host,
            "client_id": one.client_id,
            "member_epoch": one.member_epoch,
            "assignment": by_topic(one.assignment.topic_partitions),
        }
        for one in group.members
    ]


def _show_state(
    group: ShareGroupDescription, offsets: Offsets, options: Namespace
) -> list[dict[str, Any]]:
    if not group.members:
        _print_no_members(group)
    node = group.coordinator
    if not options.json:
        columns = [GROUP, Column("COORDINATOR (ID)", 25), Column("STATE"), Column("#MEMBERS", None)]
        coordinator = f"{node.host}:{node.port}  ({node.id})"
        row: list[object] = [group.group_id, coordinator, _state(group.state), len(group.members)]
        if options.verbose:
            columns[3:3] = [Column("GROUP-EPOCH", 12), Column("ASSIGNMENT-EPOCH", 17)]
            row[3:3] = [group.group_epoch, group.assignment_epoch]
        print(f"\n{table(columns, [row])}")
    return [
        {
            "group": group.group_id,
            "coordinator": {"id": node.id, "host": node.host, "port": node.port},
            "state": _state(group.state),
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": len(group.members),
        }
    ]


def _reset_offsets(admin: AdminClient, options: Namespace) -> None:
    (group_id,) = options.group
    described = admin.describe_share_groups([group_id], request_timeout=timeout_s(options))
    refusal = described[group_id].exception()
    if refusal is None:
        if described[group_id].result().members:
            raise Failure(f"Share group '{group_id}' is not empty.")
    elif not is_error(refusal, "GROUP_ID_NOT_FOUND"):  # the reset creates a missing group
        raise refusal
    partitions = _partitions_to_reset(admin, group_id, options)
    targets = _targets(admin, partitions, options)
    failures = {}
    if options.execute and targets:
        altered = admin.alter_share_group_offsets(
            group_id, targets, request_timeout=timeout_s(options)
        )
        for partition, future in altered.items():
            if (error := future.exception()) is not None:
                failures[partition] = (
                    f"{partition.topic}-{partition.partition} was not reset: {reason_of(error)}"
                )
    rows = [
        (group_id, one.topic, one.partition, one.offset) for one in targets if one not in failures
    ]
    print_reset(rows, options)
    fail_with(failures.values())


def _partitions_to_reset(
    admin: AdminClient, group_id: str, options: Namespace
) -> list[TopicPartition]:
    """Return the partitions of ``--topic`` and, with ``--all-topics``, those of all topics of the
    group, in order.
    """
    wanted: dict[str, set[int] | None] = {}
    if options.all_topics:
        listed = admin.list_share_group_offsets([group_id], request_timeout=timeout_s(options))
        wanted = dict.fromkeys((partition.topic for partition in listed[group_id].result()), None)
    return existing_partitions(admin, with_scope(wanted, options.scope), options)


def _targets(
    admin: AdminClient, partitions: Iterable[TopicPartition], options: Namespace
) -> list[TopicPartition]:
    """Return the partitions with their new start offsets."""
    keys = [partition_key(one) for one in partitions]
    if options.to_datetime is not None:
        offsets = offsets_since(admin, keys, since_epoch_ms(options.to_datetime), options)
    else:
        find_offsets = earliest_offsets if options.to_earliest else latest_offsets
        offsets = find_offsets(admin, keys, options)
    fail_with(has_no_log(key) for key in keys if key not in offsets)
    return [TopicPartition(*key, offsets[key]) for key in keys]


def _delete_offsets(admin: AdminClient, options: Namespace) -> None:
    (group_id,) = options.group
    futures = admin.delete_share_group_offsets(
        group_id, options.topic, request_timeout=timeout_s(options)
    )
    errors = {topic: future.exception() for topic, future in sorted(futures.items())}
    reasons = {
        topic: None if error is None else reason_of(error) for topic, error in errors.items()
    }
    if options.json:
        print(as_json({"topic": topic, "error": reason} for topic, reason in reasons.items()))
    else:
        rows = [
            (topic, "Successful" if reason is None else f"Error: {reason}")
            for topic, reason in reasons.items()
        ]
        print(f"\n{table([TOPIC, Column('STATUS', None)], rows)}")
    fail_with(f"{topic}: {reason}" for topic, reason in reasons.items() if reason is not None)


def _delete(admin: AdminClient, options: Namespace) -> None:
    group_ids = _all_groups(admin, options) if options.all_groups else options.group
    reasons: dict[str, str | None] = {}
    for some in in_steps(group_ids, GROUPS_AT_ONCE, "deleting groups"):
        for group_id, future in admin.delete_share_groups(
            some, request_timeout=timeout_s(options)
        ).items():
            error = future.exception()
            reasons[group_id] = None if error is None else reason_of(error)
            if error is not None and is_error(error, "NON_EMPTY_GROUP"):
                reasons[group_id] = f"Share group '{group_id}' is not empty."
    print_deleted("share groups", reasons, options)


_ACTIONS: Mapping[str, Action] = {
    "list": _list,
    "describe": _describe,
    "reset-offsets": _reset_offsets,
    "delete-offsets": _delete_offsets,
    "delete": _delete,
}

execute = partial(run_action, _ACTIONS)


def _all_groups(admin: AdminClient, options: Namespace) -> list[str]:
    result = admin.list_share_groups(request_timeout=timeout_s(options)).result()
    if result.errors:
        raise result.errors[0]
    return [group.group_id for group in result.valid]


def _state(state: ConsumerGroupState) -> str:
    return str(state.name).capitalize()


def _print_no_members(group: ShareGroupDescription) -> None:
    print(f"\nShare group '{one_line(group.group_id)}' has no active members.", file=sys.stderr)
