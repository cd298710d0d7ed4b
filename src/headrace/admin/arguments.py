"""Checks of the arguments of admin calls, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from headrace.protocol import partitions

V = TypeVar("V")

_MAX_REQUEST_TIMEOUT_S = 3600

Groups = Mapping[str, list[partitions.TopicPartition] | None]
"""Group id → partitions to ask about; None for all that have an offset."""


def checked_timeout(request_timeout: float | None) -> float | None:
    """Return ``request_timeout``.

    :raises ValueError: it is not a sensible number of seconds
    """
    if request_timeout is not None and not 0 <= request_timeout <= _MAX_REQUEST_TIMEOUT_S:
        raise ValueError(
            f"request_timeout must be in the range 0..{_MAX_REQUEST_TIMEOUT_S} seconds"
        )
    return request_timeout


def checked_list(name: str, values: Iterable[V]) -> list[V]:
    """Return ``values`` as a list.

    :param name: the name of the argument, for error texts
    :raises TypeError: it is a string
    :raises ValueError: it is empty
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"'{name}' must be a list, not a string")
    elements = list(values)
    if not elements:
        raise ValueError(f"'{name}' cannot be empty")
    return elements


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


def checked_partitions(values: Iterable[TopicPartition]) -> dict[partitions.TopicPartition, int]:
    """Return the offset of each of distinct partitions, which have a topic and a number.

    :raises TypeError: it is not a list of ``TopicPartition``
    :raises ValueError: it is empty, has duplicates, or an element lacks its topic or number
    """
    offsets: dict[partitions.TopicPartition, int] = {}
    for partition in checked_list("partitions", values):
        if not isinstance(partition, TopicPartition):
            raise TypeError("Element of 'partitions' must be of type TopicPartition")
        if not partition.topic or partition.partition < 0:
            raise ValueError(
                "Element of 'partitions' must have a topic and a partition that is not negative"
            )
        key = (str(partition.topic), int(partition.partition))
        if key in offsets:
            raise ValueError("'partitions' must not have duplicates")
        offsets[key] = int(partition.offset)
    return offsets


def checked_offsets(values: Iterable[TopicPartition]) -> dict[partitions.TopicPartition, int]:
    """Return the offset of each of distinct partitions.

    :raises TypeError: see :func:`checked_partitions`
    :raises ValueError: likewise, or an offset is negative
    """
    offsets = checked_partitions(values)
    if min(offsets.values()) < 0:
        raise ValueError("Element of 'partitions' must not have negative value for 'offset' field")
    return offsets


def checked_groups(
    request: Iterable[str | ConsumerGroupTopicPartitions], *, may_be_empty: bool = False
) -> Groups:
    """Return the groups, and the partitions of each, that a call for offsets asks about.

    :param request: group ids, or groups with partitions
    :param may_be_empty: allow the group id ``""``
    :raises TypeError: see :func:`checked_names` and :func:`checked_partitions`
    :raises ValueError: likewise
    """
    group_ids: list[str] = []
    groups: dict[str, list[partitions.TopicPartition] | None] = {}
    for group in checked_list("request", request):
        if not isinstance(group, ConsumerGroupTopicPartitions):
            group = ConsumerGroupTopicPartitions(group)
        of_group = group.topic_partitions
        group_ids.append(group.group_id)
        groups[group.group_id] = None if of_group is None else list(checked_partitions(of_group))
    checked_names("request", group_ids, may_be_empty=may_be_empty)
    return groups
