"""What the commands on groups have in common in what they do.

Kafka's tools end with status 0 after most failures, and print them where the results go. Here
results go to stdout, and what failed ends in a :class:`~headrace.cli.errors.Failure`: one line on
stderr, status 1.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.admin import AdminClient, GroupListing
from headrace.cli.client_options import client_config, must_answer
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.tables import Column, as_json, one_line, table

GROUPS_AT_ONCE = 100
"""How many groups are asked for, or changed, in one go: what is in memory and in flight does not
grow with the rest.
"""

GROUP, TOPIC, PARTITION = Column("GROUP"), Column("TOPIC"), Column("PARTITION", 10)

Key = tuple[str, int]
"""A partition: topic and number."""

_CONSUMER_PROTOCOLS = ("", "consumer")
_LIST_WIDTH = 20
_NO_OFFSET = -1
_NO_LOG = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "LEADER_NOT_AVAILABLE")
_WORDS = {
    "UNKNOWN_TOPIC_OR_PART": "This server does not host this topic-partition.",
    "INVALID_GROUP_ID": "The group id is invalid.",
    "GROUP_ID_NOT_FOUND": "The group id does not exist.",
    "NON_EMPTY_GROUP": "The group is not empty.",
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "Deleting offsets of a topic is forbidden while the consumer group is actively "
        "subscribed to it."
    ),
}
"""What Kafka's tools print where the broker sends no text and librdkafka has another one."""

_Spec: Any = OffsetSpec  # whose functions have no types


@contextmanager
def connected(options: Namespace) -> Iterator[AdminClient]:
    """An admin client of the cluster that the options name. What it raises inside becomes a
    failure.

    :raises Failure: nobody answers there, or a call was refused
    :raises BadUsage: the client configuration is wrong
    """
    config = client_config(options)
    must_answer(config)
    try:
        admin = AdminClient({"log_level": 0, **config})
    except (KafkaException, ValueError) as error:
        raise BadUsage(f"the client configuration is wrong: {reason_of(error)}") from error
    with admin:
        try:
            yield admin
        except KafkaException as error:
            raise Failure(reason_of(error)) from error


def list_groups(options: Namespace) -> None:
    """Print the groups of all types: what ``headrace groups`` does.

    :raises Failure: it cannot be done
    """
    with connected(options) as admin:
        types = [one.lower() for one in options.types]
        result = admin.list_all_groups(types=types, request_timeout=timeout_s(options)).result()
    groups = [
        group
        for group in result.valid
        if (not options.consumer or group.protocol in _CONSUMER_PROTOCOLS)
        and options.protocol in (None, group.protocol)
    ]
    if options.json:
        names = ("group", "type", "protocol", "state")
        rows = [(one.group_id, one.type.capitalize(), one.protocol, one.state) for one in groups]
        print(as_json(dict(zip(names, row, strict=True)) for row in rows))
    else:
        lines = [(one.group_id, one.type.capitalize(), one.protocol) for one in groups]
        width = max([_LIST_WIDTH, *(len(word) for line in lines for word in line)])
        print(
            table([Column("GROUP", width), Column("TYPE", width), Column("PROTOCOL", None)], lines)
        )
    fail_with(f"not all brokers answered: {reason_of(error)}" for error in result.errors)


def timeout_s(options: Namespace) -> float:
    """How long one call may take."""
    return float(options.timeout / 1000)


def partition_key(partition: TopicPartition) -> Key:
    """For sorting, and for looking up what is about the same partition."""
    return str(partition.topic), int(partition.partition)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic, sorted."""
    ordered = sorted(partitions, key=partition_key)
    return {
        topic: [one.partition for one in of_topic]
        for topic, of_topic in groupby(ordered, lambda p: str(p.topic))
    }


def assignment(partitions: Iterable[TopicPartition]) -> str | None:
    """Partitions as Kafka's tools show what is assigned: ``orders:0,1;returns:0``. None for
    none."""
    topics = by_topic(partitions).items()
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics) or None


def existing_partitions(
    admin: AdminClient, wanted: Mapping[str, set[int] | None], options: Namespace
) -> list[TopicPartition]:
    """The partitions wanted, in order.

    :param wanted: topic → numbers of partitions, or None for all
    :raises Failure: a topic or partition does not exist
    """
    if not wanted:
        return []
    topics = admin.describe_topics(
        TopicCollection(list(wanted)), request_timeout=timeout_s(options)
    )
    partitions = []
    for topic, future in sorted(topics.items()):
        try:
            existing = {partition.id for partition in future.result().partitions}
        except KafkaException as error:
            if is_error(error, "UNKNOWN_TOPIC_OR_PART"):
                raise Failure(f"Topic '{topic}' does not exist.") from error
            raise
        chosen = wanted[topic]
        missing = sorted((chosen or set()) - existing)
        if missing:
            named = ", ".join(f'"{topic}-{number}"' for number in missing)
            raise Failure(f"The partitions {named} do not exist")
        partitions += [
            TopicPartition(topic, number)
            for number in sorted(existing if chosen is None else chosen)
        ]
    return partitions


def with_scope(
    wanted: Mapping[str, set[int] | None], scope: Iterable[tuple[str, Sequence[int] | None]]
) -> dict[str, set[int] | None]:
    """``wanted`` and what ``--topic`` names besides, as :func:`existing_partitions` takes it."""
    both = dict(wanted)
    for topic, numbers in scope:
        earlier = both.get(topic, set())
        both[topic] = None if numbers is None or earlier is None else earlier | set(numbers)
    return both


def earliest_offsets(
    admin: AdminClient, partitions: Iterable[Key], options: Namespace
) -> dict[Key, int]:
    """The offset of the first record of each partition that exists and has a leader."""
    return _list_offsets(admin, partitions, _Spec.earliest(), options)


def latest_offsets(
    admin: AdminClient, partitions: Iterable[Key], options: Namespace
) -> dict[Key, int]:
    """The offset after the last record of each partition that exists and has a leader."""
    return _list_offsets(admin, partitions, _Spec.latest(), options)


def offsets_since(
    admin: AdminClient, partitions: Iterable[Key], timestamp_ms: int, options: Namespace
) -> dict[Key, int]:
    """The offset of the first record from a time on, or of the end with a warning."""
    offsets = _list_offsets(admin, partitions, _Spec.for_timestamp(max(0, timestamp_ms)), options)
    unanswered = sorted(key for key, offset in offsets.items() if offset == _NO_OFFSET)
    for topic, partition in unanswered:
        warn(
            f"Partition {partition} from topic {topic} is empty. Falling back to latest "
            f"known offset."
        )
    return {**offsets, **latest_offsets(admin, unanswered, options)}


def _list_offsets(
    admin: AdminClient, partitions: Iterable[Key], spec: OffsetSpec, options: Namespace
) -> dict[Key, int]:
    asked = {TopicPartition(*key): spec for key in sorted(partitions)}
    found: dict[Key, int] = {}
    for one, future in (
        admin.list_offsets(asked, request_timeout=timeout_s(options)).items() if asked else ()
    ):
        try:
            found[partition_key(one)] = int(future.result().offset)
        except KafkaException as error:
            if not is_error(error, *_NO_LOG):
                raise
    return found


def has_no_log(key: Key) -> str:
    """Why nothing is known of the offsets of a partition."""
    return f"The partition {key[0]}-{key[1]} does not exist or has no leader"


def all_consumer_groups(
    admin: AdminClient, options: Namespace, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """The groups of the classic protocol and of the consumer protocol whose members read topics, by
    group id.

    :raises KafkaException: a broker does not tell
    """
    of_types = [one.lower() for one in types or ("classic", "consumer")]
    result = admin.list_all_groups(
        states=states, types=of_types, request_timeout=timeout_s(options)
    ).result()
    if result.errors:
        raise result.errors[0]
    return [group for group in result.valid if group.protocol in _CONSUMER_PROTOCOLS]


def other_groups(admin: AdminClient, options: Namespace) -> frozenset[str]:
    """The ids of the groups that are no consumer groups.

    :raises KafkaException: a broker does not tell
    """
    result = admin.list_all_groups(request_timeout=timeout_s(options)).result()
    if result.errors:
        raise result.errors[0]
    return frozenset(
        group.group_id for group in result.valid if group.protocol not in _CONSUMER_PROTOCOLS
    )


def say_deleted(kind: str, reasons: Mapping[str, str | None], options: Namespace) -> None:
    """Print which groups were deleted.

    :param kind: as in "share groups"
    :param reasons: group id → why not; None where it was
    :raises Failure: not all were
    """
    if options.json:
        print(as_json({"group": group_id, "error": reason} for group_id, reason in reasons.items()))
    elif not reasons:
        print(f"There are no {kind}.", file=sys.stderr)
    else:
        deleted = [
            f"'{one_line(group_id)}'" for group_id, reason in reasons.items() if reason is None
        ]
        if len(deleted) == len(reasons):
            print(f"Deletion of requested {kind} ({', '.join(deleted)}) was successful.")
        elif deleted:
            print(f"These {kind} were deleted successfully: {', '.join(deleted)}")
    fail_with(
        f"Group '{group_id}' could not be deleted: {reason}"
        for group_id, reason in reasons.items()
        if reason
    )


def say_reset(rows: Sequence[tuple[str, str, int, int]], options: Namespace) -> None:
    """Print what was reset, or would be: group, topic, partition, new offset."""
    if options.json:
        names = ("group", "topic", "partition", "new_offset")
        print(as_json(dict(zip(names, row, strict=True)) for row in rows))
    else:
        print(f"\n{table([GROUP, TOPIC, PARTITION, Column('NEW-OFFSET', None)], rows)}")


def warn(text: str) -> None:
    """Say something on stderr that is no failure."""
    print(f"Warn: {one_line(text)}", file=sys.stderr)


def is_error(error: BaseException, *names: str) -> bool:
    """Whether it is one of Kafka's errors with these of librdkafka's names."""
    return isinstance(error, KafkaException) and error.args[0].name() in names


def reason_of(error: BaseException) -> str:
    """What an error says, in one line."""
    if not isinstance(error, KafkaException):
        return " ".join(str(error).split())
    (kafka_error,) = error.args
    text = str(kafka_error.str()).removeprefix("Broker: ")
    if text == str(KafkaError(kafka_error.code()).str()).removeprefix("Broker: "):
        text = _WORDS.get(kafka_error.name(), text)
    return " ".join(text.split())


def fail_with(reasons: Iterable[str]) -> None:
    """End with a failure that names all reasons, if there are any."""
    distinct = list(dict.fromkeys(reasons))
    if distinct:
        raise Failure("; ".join([*(reason.rstrip(".") for reason in distinct[:-1]), distinct[-1]]))
