"""The actions of ``headrace consumer-groups`` that change committed offsets: reset-offsets and
delete-offsets.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

from headrace.admin import AdminClient
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.groups.admin import (
    GROUPS_AT_ONCE,
    chosen_consumer_groups,
    other_groups,
    timeout_s,
)
from headrace.cli.groups.offsets import (
    committed_offsets,
    earliest_offsets,
    existing_partitions,
    has_no_log,
    latest_offsets,
    offsets_since,
    with_scope,
)
from headrace.cli.groups.options import MAX_PARTITION
from headrace.cli.groups.results import (
    PARTITION,
    TOPIC,
    PartitionKey,
    assignment,
    fail_with,
    is_error,
    partition_key,
    print_reset,
    reason_of,
    warn,
)
from headrace.cli.progress import in_steps
from headrace.cli.tables import Column, as_json, one_line, table, terminal_text
from headrace.epoch import since_epoch_ms

Plan = dict[str, dict[PartitionKey, int]]
"""Group id → partition → offset."""

_INACTIVE = ("Empty", "Dead")
_GROUP_ERRORS = (
    "INVALID_GROUP_ID",
    "GROUP_ID_NOT_FOUND",
    "GROUP_AUTHORIZATION_FAILED",
    "NON_EMPTY_GROUP",
)


def reset_offsets(admin: AdminClient, options: Namespace) -> None:
    """Print the new offsets of groups without members; with ``--execute``, commit them.

    :raises Failure: some offsets could not be determined or committed
    """
    group_ids = sorted(chosen_consumer_groups(admin, options))
    file = _read_plan(options) if options.from_file is not None else None
    named = [
        partition_key(one)
        for one in existing_partitions(admin, with_scope({}, options.scope), options)
    ]
    now_ms = int(time.time() * 1000)
    failures: list[str] = []
    rows: list[tuple[str, str, int, int]] = []
    for some in in_steps(group_ids, GROUPS_AT_ONCE, "resetting groups"):
        inactive = _inactive(admin, some, failures, options)
        plan = _plan(admin, inactive, named, file, now_ms, failures, options)
        if options.execute:
            _commit(admin, plan, failures, options)
        rows += [
            (group_id, *key, offset)
            for group_id, of_group in plan.items()
            for key, offset in of_group.items()
        ]
    if options.export:
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows(
            rows if len(options.group) != 1 else [row[1:] for row in rows]
        )
        text = sink.getvalue()
        sys.stdout.write(terminal_text(text) if sys.stdout.isatty() else text)
    else:
        print_reset(rows, options)
    fail_with(failures)


def _inactive(
    admin: AdminClient, group_ids: Sequence[str], failures: list[str], options: Namespace
) -> list[str]:
    """Return the groups without members. A missing group is among them: the reset creates it."""
    described = admin.describe_consumer_groups(group_ids, request_timeout=timeout_s(options))
    errors = {group_id: future.exception() for group_id, future in described.items()}
    missing = [
        group_id
        for group_id, error in errors.items()
        if error and is_error(error, "GROUP_ID_NOT_FOUND")
    ]
    of_others = other_groups(admin, options) if missing else frozenset()
    found = []
    for group_id, error in errors.items():
        state = described[group_id].result().state_name if error is None else None
        if group_id in missing and group_id in of_others:
            failures.append(f"Group {group_id} is not a consumer group.")
        elif group_id in missing or state in _INACTIVE:
            found.append(group_id)
        elif error is not None:
            failures.append(reason_of(error))
        else:
            failures.append(
                f"Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
    return found


def _plan(
    admin: AdminClient,
    group_ids: Sequence[str],
    named: Iterable[PartitionKey],
    file: Plan | None,
    now_ms: int,
    failures: list[str],
    options: Namespace,
) -> Plan:
    """Return the new offsets of groups, as far as they can be determined.

    :param named: the partitions of ``--topic``
    :param file: the content of ``--from-file``
    :param failures: gets the reason for each offset left out
    """
    committed: Plan = {}
    if options.all_topics or options.to_current or options.shift_by is not None:
        by_group = committed_offsets(admin, group_ids, failures, options)
        committed = {
            group_id: {partition_key(one): one.offset for one in partitions}
            for group_id, partitions in by_group.items()
        }
        group_ids = list(committed)
    if file is not None:
        failures += [
            f"No reset plan for group {one} found." for one in group_ids if one not in file
        ]
        wanted = {group_id: set(file[group_id]) for group_id in group_ids if group_id in file}
    else:
        wanted = {
            one: {*named, *(committed[one] if options.all_topics else ())} for one in group_ids
        }
    partitions = {key for keys in wanted.values() for key in keys}
    destination = _destinations(admin, partitions, committed, file, now_ms, options)
    plan: Plan = {}
    for group_id, keys in wanted.items():
        plan[group_id] = {}
        for key in sorted(keys):
            offset = destination(group_id, key)
            if isinstance(offset, str):
                failures.append(offset)
            else:
                plan[group_id][key] = offset
    return plan


def _destinations(
    admin: AdminClient,
    partitions: Iterable[PartitionKey],
    committed: Plan,
    file: Plan | None,
    now_ms: int,
    options: Namespace,
) -> Callable[[str, PartitionKey], int | str]:
    """Return a function of group and partition: the new offset, or the reason why there is none.

    The logs are asked once, for all groups.
    """
    if options.to_current:
        ends = latest_offsets(admin, partitions, options)
        return lambda group_id, key: committed[group_id].get(key, ends.get(key, has_no_log(key)))
    if options.to_earliest:
        found = earliest_offsets(admin, partitions, options)
    elif options.to_latest:
        found = latest_offsets(admin, partitions, options)
    elif options.to_datetime is not None:
        found = offsets_since(admin, partitions, since_epoch_ms(options.to_datetime), options)
    elif options.by_duration is not None:
        since_ms = now_ms - int(options.by_duration.total_seconds() * 1000)
        found = offsets_since(admin, partitions, since_ms, options)
    else:
        return _within_logs(admin, partitions, committed, file, options)
    return lambda _, key: found.get(key, has_no_log(key))


def _within_logs(
    admin: AdminClient,
    partitions: Iterable[PartitionKey],
    committed: Plan,
    file: Plan | None,
    options: Namespace,
) -> Callable[[str, PartitionKey], int | str]:
    """Return a function like :func:`_destinations` for ``--to-offset``, ``--shift-by`` and
    ``--from-file``; an offset outside of the log becomes the nearest inside.
    """
    starts = earliest_offsets(admin, partitions, options)
    ends = latest_offsets(admin, partitions, options)

    def destination(group_id: str, key: PartitionKey) -> int | str:
        name = f"{key[0]}-{key[1]}"
        if file is not None:
            offset = file[group_id][key]
        elif options.shift_by is None:
            offset = options.to_offset
        elif key in committed[group_id]:
            offset = committed[group_id][key] + options.shift_by
        else:
            return (
                f"Cannot shift offset for partition {name} since there is no current committed "
                f"offset"
            )
        if key not in starts or key not in ends:
            return has_no_log(key)
        if offset > ends[key]:
            warn(
                f"New offset ({offset}) is higher than latest offset for topic partition {name}. "
                f"Value will be set to {ends[key]}."
            )
        elif offset < starts[key]:
            warn(
                f"New offset ({offset}) is lower than earliest offset for topic partition {name}. "
                f"Value will be set to {starts[key]}."
            )
        return int(max(starts[key], min(offset, ends[key])))

    return destination


def _commit(admin: AdminClient, plan: Plan, failures: list[str], options: Namespace) -> None:
    """Commit the offsets of ``plan``, and remove the refused ones from it."""
    under_way: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
    for group_id, offsets in plan.items():
        if not offsets:
            continue
        asked = ConsumerGroupTopicPartitions(
            group_id, [TopicPartition(*key, offset) for key, offset in offsets.items()]
        )
        try:
            futures = admin.alter_consumer_group_offsets(
                [asked], request_timeout=timeout_s(options)
            )
        except ValueError as error:  # librdkafka rejects the empty group id
            failures.append(f"Group '{group_id}' was not reset: {error}")
            offsets.clear()
            continue
        under_way[group_id] = futures[group_id]
    for group_id, future in under_way.items():
        try:
            answer = future.result().topic_partitions or ()
        except KafkaException as error:
            failures.append(f"Group '{group_id}' was not reset: {reason_of(error)}")
            plan[group_id].clear()
            continue
        for one in answer:
            if one.error is not None:
                reason = reason_of(KafkaException(one.error))
                failures.append(
                    f"Group '{group_id}', {one.topic}-{one.partition} was not reset: {reason}"
                )
                del plan[group_id][partition_key(one)]


def _read_plan(options: Namespace) -> Plan:
    """Read a file of ``--export``: lines of [group,]topic,partition,offset.

    The group may be missing if the command names one group.

    :raises BadUsage: the file cannot be read, or has another format
    """
    try:
        # A quoted group id may contain newlines.
        with options.from_file.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise BadUsage(
            f"cannot read {options.from_file}: {' '.join(str(error).split())}"
        ) from error
    plan: Plan = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        fields = [*options.group, *line] if len(options.group) == 1 and len(line) == 3 else line
        try:
            group_id, topic, partition, offset = fields
            if not 0 <= int(partition) <= MAX_PARTITION:
                raise ValueError
            plan.setdefault(group_id, {})[topic.strip(), int(partition)] = int(offset)
        except ValueError:
            raise BadUsage(
                f"line {number} of {options.from_file} is not "
                f"[group,]topic,partition,offset: {','.join(line)}"
            ) from None
    return plan


def delete_offsets(admin: AdminClient, options: Namespace) -> None:
    """Delete committed offsets of a group (KIP-496).

    A topic of ``--topic`` without partition numbers stands for all its partitions.

    :raises Failure: some offsets were not deleted
    """
    (group_id,) = options.group
    if group_id in other_groups(admin, options):  # a broker would delete those of streams groups
        raise Failure(f"Group {group_id} is not a consumer group")
    wanted = with_scope({}, options.scope)
    errors: dict[PartitionKey, BaseException | None] = {}
    keys = {(topic, number) for topic, numbers in wanted.items() for number in numbers or ()}
    whole = [topic for topic, numbers in wanted.items() if numbers is None]
    topics = (
        admin.describe_topics(TopicCollection(whole), request_timeout=timeout_s(options))
        if whole
        else {}
    )
    for topic, future in topics.items():
        if (error := future.exception()) is not None:
            errors[topic, -1] = error
        else:
            keys |= {(topic, partition.id) for partition in future.result().partitions}
    if keys:
        asked = [TopicPartition(*key) for key in sorted(keys)]
        futures = admin.delete_consumer_group_offsets(
            group_id, asked, request_timeout=timeout_s(options)
        )
        errors.update({partition_key(one): future.exception() for one, future in futures.items()})
    _print_deleted_offsets(group_id, errors, options)


def _print_deleted_offsets(
    group_id: str, errors: Mapping[PartitionKey, BaseException | None], options: Namespace
) -> None:
    rows = [
        (topic, number if number >= 0 else None, None if error is None else reason_of(error))
        for (topic, number), error in sorted(errors.items(), key=lambda item: item[0])
    ]
    if options.json:
        print(
            as_json(
                {"topic": topic, "partition": number, "error": reason}
                for topic, number, reason in rows
            )
        )
    else:
        if not any(errors.values()):
            print(f"Request succeeded for deleting offsets from group {one_line(group_id)}.")
        lines = [(*row[:2], "Successful" if row[2] is None else f"Error: {row[2]}") for row in rows]
        print(f"\n{table([TOPIC, PARTITION, Column('STATUS', None)], lines)}")
    where: dict[str, list[PartitionKey]] = {}
    for key, error in errors.items():
        if error is not None:
            where.setdefault(reason_of(error), []).append(key)
    of_group = {
        reason_of(error) for error in errors.values() if error and is_error(error, *_GROUP_ERRORS)
    }
    fail_with(
        reason if reason in of_group else f"{_names(keys)}: {reason}"
        for reason, keys in where.items()
    )


def _names(keys: Iterable[PartitionKey]) -> str:
    """Format partitions as ``orders:0,1;returns``; the number -1 stands for a missing topic."""
    without = sorted(topic for topic, number in keys if number < 0)
    return ";".join(
        filter(None, [assignment(TopicPartition(*key) for key in keys if key[1] >= 0), *without])
    )
