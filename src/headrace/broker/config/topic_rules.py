"""What a topic may be: its name, how many partitions, where its replicas are. Messages are
Kafka's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.broker.limits import MAX_TOPIC_NAME_LENGTH
from headrace.errors import ErrorCode, Refusal

from .broker_config import NODE_ID

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_refusal(name: str) -> Refusal | None:
    """What is wrong with a topic's name."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        why = (
            f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    elif not _LEGAL.fullmatch(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            f"and '-'"
        )
    else:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def new_name_refusal(name: str, twin: str | None) -> Refusal | None:
    """What is wrong with creating a topic of this name.

    :param twin: the topic, if there is one, that has this name when '.' is not told from '_', as in
        metric names
    """
    if name == "__cluster_metadata":
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    refusal = name_refusal(name)
    if refusal is not None:
        return refusal
    if name == twin:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if twin is not None:
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {twin}",
        )
    return None


def partition_count(
    partitions: int,
    replication_factor: int,
    assignments: Sequence[tuple[int, Sequence[int]]],
    default: int,
) -> int | Refusal:
    """How many partitions a new topic gets.

    :param partitions: as asked for; -1 for the default, or when there are assignments
    :param replication_factor: as asked for; -1 for the default, or when there are assignments
    :param assignments: partition numbers with the brokers that shall have them
    :param default: the value of ``num.partitions``
    """
    if assignments:
        return _assigned_count(partitions, replication_factor, assignments)
    if replication_factor < -1 or replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if partitions < -1 or partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        return Refusal(ErrorCode.INVALID_PARTITIONS, message)
    if replication_factor > 1:
        message = (
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of "
            f"{replication_factor} cannot be reached because only 1 broker(s) are "
            f"registered or some brokers have all "
            "their log directories cordoned."
        )
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return default if partitions == -1 else partitions


def _assigned_count(
    partitions: int, replication_factor: int, assignments: Sequence[tuple[int, Sequence[int]]]
) -> int | Refusal:
    for given, name in ((replication_factor, "replication factor"), (partitions, "numPartitions")):
        if given != -1:
            message = f"A manual partition assignment was specified, but {name} was not set to -1."
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    seen = set()
    for partition, brokers in assignments:
        if partition in seen:
            message = f"Found multiple manual partition assignments for partition {partition}"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        seen.add(partition)
        refusal = assignment_refusal(brokers)
        if refusal is not None:
            return refusal
    if seen != set(range(len(seen))):
        message = "partitions should be a consecutive 0-based integer sequence"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return len(seen)


def assignment_refusal(brokers: Sequence[int]) -> Refusal | None:
    """What is wrong with these brokers, the only one of which is this, having a partition."""
    stranger = next((broker for broker in brokers if broker != NODE_ID), None)
    if not brokers:
        why = "an empty replica list."
    elif stranger is not None:
        why = f"broker {stranger}, but no such broker is registered."
    elif len(brokers) > 1:
        why = f"the broker {NODE_ID} more than once."
    else:
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {why}"
    )


def growth_refusal(
    name: str, partitions: int, total: int, assignments: Sequence[Sequence[int]] | None
) -> Refusal | None:
    """What is wrong with letting a topic of ``partitions`` partitions have ``total``.

    :param assignments: for each new partition the brokers that shall have it; None to leave that to
        the broker
    """
    if total == partitions:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {partitions} partition(s)."
        )
    if total < partitions:
        message = (
            f"The topic {name} currently has {partitions} partition(s); {total} would not be an "
            f"increase."
        )
        return Refusal(ErrorCode.INVALID_PARTITIONS, message)
    if assignments is None:
        return None
    if len(assignments) != total - partitions:
        message = (
            f"Attempted to add {total - partitions} additional partition(s), but only "
            f"{len(assignments)} assignment(s) "
            "were specified."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return next(filter(None, map(assignment_refusal, assignments)), None)
