"""What ``headrace share-groups`` does, once its options make sense.

Kafka's tool ends with status 0 after most failures, and prints them where the results go. Here results go to stdout,
and what failed ends in a :class:`~headrace.cli.errors.Failure`: one line on stderr, status 1.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.admin import AdminClient, ShareGroupDescription, ShareMemberDescription, SharePartitionOffsetInfo

from .client_options import client_config, must_answer
from .errors import BadUsage, Failure
from .progress import in_steps
from .tables import Column, as_json, table

_GROUPS_AT_ONCE = 100
_NO_OFFSET = -1
_Spec: Any = OffsetSpec  # whose functions have no types
_GROUP, _TOPIC, _PARTITION = Column("GROUP"), Column("TOPIC"), Column("PARTITION", 10)

Offsets = dict[TopicPartition, SharePartitionOffsetInfo]


def act(options: Namespace) -> None:
    """Do it, and print what came of it.

    :param options: as :func:`headrace.cli.share_groups.check` leaves them
    :raises Failure: it could not be done, or not all of it
    """
    config = client_config(options)
    must_answer(config)
    try:
        admin = AdminClient({"log_level": 0, **config})
    except (KafkaException, ValueError) as error:
        raise BadUsage(f"the client configuration is wrong: {_reason(error)}") from error
    with admin:
        try:
            _ACTIONS[options.action](admin, options)
        except KafkaException as error:
            raise Failure(_reason(error)) from error


def _list(admin: AdminClient, options: Namespace) -> None:
    states = {ConsumerGroupState[state.upper()] for state in options.states}
    result = admin.list_share_groups(states=states, request_timeout=_timeout_s(options)).result()
    rows = [(group.group_id, _state(group.state)) for group in result.valid]
    if options.json:
        print(as_json({"group": group_id, "state": state} for group_id, state in rows))
    elif options.state is None:
        for group_id, _ in rows:
            print(group_id)
    else:
        print(table([_GROUP, Column("STATE", None)], rows))
    if result.errors:
        raise Failure(f"not all brokers answered: {_reason(result.errors[0])}")


def _describe(admin: AdminClient, options: Namespace) -> None:
    group_ids = sorted(options.group)
    if options.all_groups:
        group_ids = _all_groups(admin, options)
    show = _show_members if options.members else _show_state if options.state is not None else _show_offsets
    failures: list[str] = []
    objects: list[dict[str, Any]] = []
    for some in in_steps(group_ids, _GROUPS_AT_ONCE, "describing groups"):
        offsets: Mapping[str, Future[Offsets]] = {}
        if show is _show_offsets:
            offsets = admin.list_share_group_offsets(some, request_timeout=_timeout_s(options))
        for group_id, future in admin.describe_share_groups(some, request_timeout=_timeout_s(options)).items():
            try:
                group = future.result()
                found = offsets[group_id].result() if offsets else {}
            except KafkaException as error:
                failures.append(_reason(error))
                continue
            objects += show(group, found, options)
            failures += [
                f"{partition.topic}-{partition.partition}: {info.error.str()}"
                for partition, info in found.items()
                if info.error is not None
            ]
    if options.json:
        print(as_json(objects))
    _fail_with(failures)


def _show_offsets(group: ShareGroupDescription, offsets: Offsets, options: Namespace) -> list[dict[str, Any]]:
    infos = sorted(offsets.items(), key=lambda item: (item[0].topic, item[0].partition))
    if not infos and not options.json:
        print(f"\nShare group '{group.group_id}' has no offset information.")
    elif not options.json:
        columns = [_GROUP, _TOPIC, _PARTITION, Column("START-OFFSET", 13), Column("LAG", None)]
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


def _show_members(group: ShareGroupDescription, _: Offsets, options: Namespace) -> list[dict[str, Any]]:
    if not group.members:
        _say_that_nobody_is_there(group)
    elif not options.json:
        columns = [
            _GROUP, Column("CONSUMER-ID"), Column("HOST"), Column("CLIENT-ID"), Column("#PARTITIONS", 12),
            Column("ASSIGNMENT", None),
        ]  # fmt: skip
        rows: list[list[object]] = [
            [group.group_id, one.member_id, one.host, one.client_id, len(_assigned(one)), _assignment(one)]
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
            "assignment": _by_topic(_assigned(one)),
        }
        for one in group.members
    ]


def _show_state(group: ShareGroupDescription, _: Offsets, options: Namespace) -> list[dict[str, Any]]:
    if not group.members:
        _say_that_nobody_is_there(group)
    node = group.coordinator
    if not options.json:
        columns = [_GROUP, Column("COORDINATOR (ID)", 25), Column("STATE"), Column("#MEMBERS", None)]
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
    timeout_s = _timeout_s(options)
    described = admin.describe_share_groups([group_id], request_timeout=timeout_s)[group_id]
    if described.exception() is None and described.result().members:
        raise Failure(f"Share group '{group_id}' is not empty.")
    refusal = described.exception()
    if refusal is not None and not _is(refusal, "GROUP_ID_NOT_FOUND"):  # which is no obstacle: it will be created
        raise refusal
    partitions = _partitions_to_reset(admin, group_id, options)
    targets = _targets(admin, partitions, options)
    failures = {}
    if options.execute and targets:
        for partition, future in admin.alter_share_group_offsets(group_id, targets, request_timeout=timeout_s).items():
            if (error := future.exception()) is not None:
                failures[partition] = f"{partition.topic}-{partition.partition} was not reset: {_reason(error)}"
    rows = [(group_id, one.topic, one.partition, one.offset) for one in targets if one not in failures]
    if options.json:
        names = ("group", "topic", "partition", "new_offset")
        print(as_json(dict(zip(names, row, strict=True)) for row in rows))
    else:
        print(f"\n{table([_GROUP, _TOPIC, _PARTITION, Column('NEW-OFFSET', None)], rows)}")
    _fail_with(failures.values())


def _partitions_to_reset(admin: AdminClient, group_id: str, options: Namespace) -> list[TopicPartition]:
    """The partitions named, all partitions of the topics named, and all that the group knows, in order."""
    wanted: dict[str, set[int] | None] = {}
    if options.all_topics:
        known = admin.list_share_group_offsets([group_id], request_timeout=_timeout_s(options))[group_id].result()
        wanted = dict.fromkeys((partition.topic for partition in known), None)
    for topic, numbers in options.scope:
        earlier = wanted.get(topic, set())
        wanted[topic] = None if numbers is None or earlier is None else earlier | set(numbers)
    if not wanted:
        return []
    topics = admin.describe_topics(TopicCollection(list(wanted)), request_timeout=_timeout_s(options))
    partitions = []
    for topic, future in sorted(topics.items()):
        try:
            existing = {partition.id for partition in future.result().partitions}
        except KafkaException as error:
            if _is(error, "UNKNOWN_TOPIC_OR_PART"):
                raise Failure(f"Topic '{topic}' does not exist.") from error
            raise
        chosen = wanted[topic]
        missing = sorted((chosen or set()) - existing)
        if missing:
            named = ", ".join(f'"{topic}-{number}"' for number in missing)
            raise Failure(f"The partitions {named} do not exist")
        partitions += [TopicPartition(topic, number) for number in sorted(existing if chosen is None else chosen)]
    return partitions


def _targets(admin: AdminClient, partitions: Iterable[TopicPartition], options: Namespace) -> list[TopicPartition]:
    """The partitions with the offset to go to."""
    spec = _Spec.earliest() if options.to_earliest else _Spec.latest()
    if options.to_datetime is not None:
        spec = _Spec.for_timestamp(max(0, int(options.to_datetime.timestamp() * 1000)))
    offsets = _list_offsets(admin, partitions, spec, options)
    unanswered = [one for one in offsets if one.offset == _NO_OFFSET]
    for one in unanswered:
        print(
            f"Warn: Partition {one.partition} from topic {one.topic} is empty. Falling back to latest known offset.",
            file=sys.stderr,
        )
    latest = {(one.topic, one.partition): one for one in _list_offsets(admin, unanswered, _Spec.latest(), options)}
    return [latest.get((one.topic, one.partition), one) for one in offsets]


def _list_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, options: Namespace
) -> list[TopicPartition]:
    asked = {TopicPartition(one.topic, one.partition): spec for one in partitions}
    if not asked:
        return []
    futures = admin.list_offsets(asked, request_timeout=_timeout_s(options))
    found = [TopicPartition(one.topic, one.partition, future.result().offset) for one, future in futures.items()]
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _delete_offsets(admin: AdminClient, options: Namespace) -> None:
    (group_id,) = options.group
    futures = admin.delete_share_group_offsets(group_id, options.topic, request_timeout=_timeout_s(options))
    errors = {topic: future.exception() for topic, future in sorted(futures.items())}
    reasons = {topic: None if error is None else _reason(error) for topic, error in errors.items()}
    if options.json:
        print(as_json({"topic": topic, "error": reason} for topic, reason in reasons.items()))
    else:
        rows = [(topic, "Successful" if reason is None else f"Error: {reason}") for topic, reason in reasons.items()]
        print(f"\n{table([_TOPIC, Column('STATUS', None)], rows)}")
    _fail_with(f"{topic}: {reason}" for topic, reason in reasons.items() if reason is not None)


def _delete(admin: AdminClient, options: Namespace) -> None:
    group_ids = _all_groups(admin, options) if options.all_groups else options.group
    reasons: dict[str, str | None] = {}
    for some in in_steps(group_ids, _GROUPS_AT_ONCE, "deleting groups"):
        for group_id, future in admin.delete_share_groups(some, request_timeout=_timeout_s(options)).items():
            error = future.exception()
            reasons[group_id] = None if error is None else _reason(error)
            if error is not None and _is(error, "NON_EMPTY_GROUP"):
                reasons[group_id] = f"Share group '{group_id}' is not empty."
    if options.json:
        print(as_json({"group": group_id, "error": reason} for group_id, reason in reasons.items()))
    else:
        deleted = ", ".join(f"'{group_id}'" for group_id, reason in reasons.items() if reason is None)
        if deleted and len(deleted.split(", ")) == len(reasons):
            print(f"Deletion of requested share groups ({deleted}) was successful.")
        elif deleted:
            print(f"These share groups were deleted successfully: {deleted}")
    _fail_with(f"Group '{group_id}' could not be deleted: {reason}" for group_id, reason in reasons.items() if reason)


_ACTIONS = {
    "list": _list,
    "describe": _describe,
    "reset-offsets": _reset_offsets,
    "delete-offsets": _delete_offsets,
    "delete": _delete,
}


def _all_groups(admin: AdminClient, options: Namespace) -> list[str]:
    result = admin.list_share_groups(request_timeout=_timeout_s(options)).result()
    if result.errors:
        raise result.errors[0]
    return [group.group_id for group in result.valid]


def _timeout_s(options: Namespace) -> float:
    return float(options.timeout / 1000)


def _state(state: ConsumerGroupState) -> str:
    return str(state.name).capitalize()


def _say_that_nobody_is_there(group: ShareGroupDescription) -> None:
    print(f"\nShare group '{group.group_id}' has no active members.", file=sys.stderr)


def _assigned(member: ShareMemberDescription) -> list[TopicPartition]:
    return sorted(member.assignment.topic_partitions, key=lambda one: (one.topic, one.partition))


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    return {
        topic: [one.partition for one in of_topic]
        for topic, of_topic in groupby(partitions, lambda one: str(one.topic))
    }


def _assignment(member: ShareMemberDescription) -> str:
    assigned = _by_topic(_assigned(member))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in assigned.items()) or "-"


def _is(error: BaseException, name: str) -> bool:
    return isinstance(error, KafkaException) and error.args[0].name() == name


def _reason(error: BaseException) -> str:
    """What an error says, in one line."""
    text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return " ".join(str(text).split())


def _fail_with(reasons: Iterable[str]) -> None:
    distinct = list(dict.fromkeys(reasons))
    if distinct:
        raise Failure("; ".join([*(reason.rstrip(".") for reason in distinct[:-1]), distinct[-1]]))
