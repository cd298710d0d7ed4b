"""Checks of the arguments of admin calls, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

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


def checked_list(name: str, values: Iterable[Any], kind: type[V]) -> list[V]:
    """Return distinct values of one type as a list.

    :param name: the name of the argument, for error texts
    :raises TypeError: it is a string, or an element has another type
    :raises ValueError: it has no elements, or duplicates
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"'{name}' must be a list, not a string")
    elements = list(values)
    if not elements:
        raise ValueError(f"'{name}' cannot be empty")
    if not all(isinstance(element, kind) for element in elements):
        raise TypeError(f"Element of '{name}' must be of type {kind.__name__}")
    if len(set(elements)) != len(elements):
        raise ValueError(f"'{name}' must not have duplicates")
    return elements


def checked_names(name: str, values: Iterable[str], *, may_be_empty: bool = False) -> list[str]:
    """Return a list of distinct strings.

    :param may_be_empty: allow ``""``, which is a valid group id in Kafka
    :raises TypeError: see :func:`checked_list`
    :raises ValueError: likewise, or one is empty
    """
    names = checked_list(name, values, str)
    if "" in names and not may_be_empty:
        raise ValueError(f"'{name}' cannot have an empty name")
    return names


def checked_partitions(
    values: Iterable[TopicPartition], *, have_offsets: bool = False
) -> dict[partitions.TopicPartition, int]:
    """Return the offset of each of distinct partitions, which have a topic and a number.

    :param have_offsets: their offsets must not be negative
    :raises TypeError: see :func:`checked_list`
    :raises ValueError: likewise, or an element lacks its topic or number
    """
    offsets: dict[partitions.TopicPartition, int] = {}
    for partition in checked_list("partitions", values, TopicPartition):
        if not partition.topic or partition.partition < 0:
            raise ValueError(
                "Element of 'partitions' must have a topic and a partition that is not negative"
            )
        offsets[str(partition.topic), int(partition.partition)] = int(partition.offset)
    if have_offsets and min(offsets.values()) < 0:
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
    if isinstance(request, str | bytes):
        raise TypeError("'request' must be a list, not a string")
    groups = [
        group
        if isinstance(group, ConsumerGroupTopicPartitions)
        else ConsumerGroupTopicPartitions(group)
        for group in request
    ]
    checked_names("request", [group.group_id for group in groups], may_be_empty=may_be_empty)
    return {
        group.group_id: None
        if group.topic_partitions is None
        else list(checked_partitions(group.topic_partitions))
        for group in groups
    }
