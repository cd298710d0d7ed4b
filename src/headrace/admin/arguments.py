"""Checks of the arguments of admin calls, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

V = TypeVar("V")

WantedPartitions = Mapping[str, Sequence[TopicPartition] | None]
"""Group id → partitions to ask about; None for all that have an offset."""


def checked_list(name: str, values: Iterable[V]) -> list[V]:
    """Return ``values`` as a list.

    :param name: the name of the argument, for error texts
    :raises TypeError: it is a string
    :raises ValueError: it is empty
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"'{name}' must be a list, not a string")
    found = list(values)
    if not found:
        raise ValueError(f"'{name}' cannot be empty")
    return found


def checked_names(name: str, values: Iterable[str], *, may_be_empty: bool = False) -> list[str]:
    """Return a list of distinct strings.

    :param name: the name of the argument, for error texts
    :param may_be_empty: allow ``""``, which is a valid group id in Kafka
    :raises TypeError: it is not a list of strings
    :raises ValueError: it has no element, an empty one, or duplicates
    """
    strings = checked_list(name, values)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"'{name}' must be made of strings")
        if not string and not may_be_empty:
            raise ValueError(f"'{name}' cannot have an empty name")
    if len(set(strings)) != len(strings):
        raise ValueError(f"'{name}' must not have duplicates")
    return strings


def checked_partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return a list of distinct partitions, each with a topic and a number.

    :raises TypeError: it is not a list of ``TopicPartition``
    :raises ValueError: it is empty, has duplicates, or an element lacks its topic or number
    """
    partitions = checked_list("partitions", values)
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise TypeError("Element of 'partitions' must be of type TopicPartition")
        if not partition.topic or partition.partition < 0:
            raise ValueError(
                "Element of 'partitions' must have a topic and a partition that is not negative"
            )
    if len(set(partitions)) != len(partitions):
        raise ValueError("'partitions' must not have duplicates")
    return partitions


def checked_request(
    request: Iterable[str | ConsumerGroupTopicPartitions],
    *,
    may_be_empty: bool = False,
    may_repeat: bool = False,
) -> WantedPartitions:
    """Return the groups, and the partitions of each, that a call for offsets asks about.

    :param request: group ids, or groups with partitions
    :param may_be_empty: allow the group id ``""``
    :param may_repeat: allow a group more than once; its last mention counts
    :raises TypeError: see :func:`checked_names` and :func:`checked_partitions`
    :raises ValueError: likewise
    """
    group_ids: list[str] = []
    wanted: dict[str, list[TopicPartition] | None] = {}
    for group in checked_list("request", request):
        if isinstance(group, ConsumerGroupTopicPartitions):
            group_id, partitions = group.group_id, group.topic_partitions
        else:
            group_id, partitions = group, None
        group_ids.append(group_id)
        wanted[group_id] = None if partitions is None else checked_partitions(partitions)
    checked_names("request", wanted if may_repeat else group_ids, may_be_empty=may_be_empty)
    return wanted
