"""The partitions that a command on groups names, the offsets of their logs, and committed
offsets.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.admin import AdminClient
from headrace.cli.errors import Failure

from .admin import timeout_s
from .results import PartitionKey, is_error, partition_key, reason_of, warn

_NO_OFFSET = -1
_NO_LOG = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "LEADER_NOT_AVAILABLE")

_Spec: Any = OffsetSpec  # its functions are untyped


def existing_partitions(
    admin: AdminClient, wanted: Mapping[str, set[int] | None], options: Namespace
) -> list[TopicPartition]:
    """Return the wanted partitions, in order.

    :param wanted: topic → partition numbers, or None for all
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
        numbers = existing if chosen is None else chosen
        partitions += [TopicPartition(topic, number) for number in sorted(numbers)]
    return partitions


def with_scope(
    wanted: Mapping[str, set[int] | None], scope: Iterable[tuple[str, Sequence[int] | None]]
) -> dict[str, set[int] | None]:
    """Add the partitions of ``--topic`` to ``wanted``; see :func:`existing_partitions`.

    :param scope: topic and partition numbers, or None for all
    """
    both = dict(wanted)
    for topic, numbers in scope:
        earlier = both.get(topic, set())
        both[topic] = None if numbers is None or earlier is None else earlier | set(numbers)
    return both


def earliest_offsets(
    admin: AdminClient, partitions: Iterable[PartitionKey], options: Namespace
) -> dict[PartitionKey, int]:
    """Return the log start offset of each partition that exists and has a leader."""
    return _list_offsets(admin, partitions, _Spec.earliest(), options)


def latest_offsets(
    admin: AdminClient, partitions: Iterable[PartitionKey], options: Namespace
) -> dict[PartitionKey, int]:
    """Return the end offset of each partition that exists and has a leader."""
    return _list_offsets(admin, partitions, _Spec.latest(), options)


def offsets_since(
    admin: AdminClient, partitions: Iterable[PartitionKey], timestamp_ms: int, options: Namespace
) -> dict[PartitionKey, int]:
    """Return the offset of each partition's first record at or after a time.

    A partition without such a record gets its end offset, with a warning.

    :param timestamp_ms: since the epoch
    """
    offsets = _list_offsets(admin, partitions, _Spec.for_timestamp(max(0, timestamp_ms)), options)
    unanswered = sorted(key for key, offset in offsets.items() if offset == _NO_OFFSET)
    for topic, partition in unanswered:
        warn(
            f"Partition {partition} from topic {topic} is empty. Falling back to latest "
            f"known offset."
        )
    return {**offsets, **latest_offsets(admin, unanswered, options)}


def committed_offsets(
    admin: AdminClient, group_ids: Sequence[str], failures: list[str], options: Namespace
) -> dict[str, list[TopicPartition]]:
    """Return the committed offsets of groups, from one request to each coordinator.

    Groups whose coordinator refuses are left out.

    :param failures: gets the reason for each group left out
    """
    if not group_ids:
        return {}
    found = {}
    for group_id, future in admin.list_consumer_group_offsets(
        group_ids, request_timeout=timeout_s(options)
    ).items():
        try:
            found[group_id] = [
                one for one in future.result().topic_partitions or () if one.offset >= 0
            ]
        except KafkaException as error:
            failures.append(f"{group_id}: {reason_of(error)}")
    return found


def has_no_log(partition: PartitionKey) -> str:
    """Return the failure for a partition without known offsets."""
    return f"The partition {partition[0]}-{partition[1]} does not exist or has no leader"


def _list_offsets(
    admin: AdminClient, partitions: Iterable[PartitionKey], spec: OffsetSpec, options: Namespace
) -> dict[PartitionKey, int]:
    asked = {TopicPartition(*key): spec for key in sorted(partitions)}
    if not asked:
        return {}
    found: dict[PartitionKey, int] = {}
    for one, future in admin.list_offsets(asked, request_timeout=timeout_s(options)).items():
        try:
            found[partition_key(one)] = int(future.result().offset)
        except KafkaException as error:
            if not is_error(error, *_NO_LOG):
                raise
    return found
