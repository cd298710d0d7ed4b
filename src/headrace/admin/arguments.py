"""Arguments of the admin client's calls, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from confluent_kafka import TopicPartition

V = TypeVar("V")


def checked_list(what: str, values: Iterable[V]) -> list[V]:
    """A list that is not empty.

    :param what: the name of the argument
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"'{what}' must be a list, not a string")
    found = list(values)
    if not found:
        raise ValueError(f"'{what}' cannot be empty")
    return found


def checked_names(what: str, values: Iterable[str], *, may_be_empty: bool = False) -> list[str]:
    """Strings that differ from each other.

    :param may_be_empty: one may be ``""``, which is the id of a group as any other to Kafka
    """
    names = checked_list(what, values)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"'{what}' must be made of strings")
        if not name and not may_be_empty:
            raise ValueError(f"'{what}' cannot have an empty name")
    if len(set(names)) != len(names):
        raise ValueError(f"'{what}' must not have duplicates")
    return names


def checked_partitions(values: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Partitions that differ from each other, each with a topic and a number."""
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
