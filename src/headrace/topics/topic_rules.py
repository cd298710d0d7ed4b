"""Creation of topics, and its rules: names, numbers of partitions, replica assignments. Messages
are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headrace.protocol.errors import ErrorCode, Refusal, failure_of, invalid_request
from headrace.protocol.topic_names import why_illegal

from .catalog import Catalog, Topic, fold

if TYPE_CHECKING:
    from headrace.protocol.api import CreatePartitionsRequest, CreateTopicsRequest

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's own: the partitions that one request may create."""
TOO_MANY_PARTITIONS = Refusal(
    ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
)

_DUPLICATE = invalid_request("Duplicate topic name.")

T = TypeVar(
    "T", "CreateTopicsRequest.CreatableTopic", "CreatePartitionsRequest.CreatePartitionsTopic"
)


def check_topic_name(name: str) -> Refusal | None:
    """Return the error for an invalid topic name, None for a valid one."""
    why = why_illegal(name)
    if why is None:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def unique_topics(topics: Iterable[T]) -> tuple[list[T], dict[str, Refusal]]:
    """Return the topics that a request names once, and the errors of the others by name."""
    times = Counter(topic.name for topic in topics)
    unique = [topic for topic in topics if times[topic.name] == 1]
    return unique, {name: _DUPLICATE for name, count in times.items() if count > 1}


def check_new_topic_name(name: str, twin: str | None) -> Refusal | None:
    """Return the error for creating a topic with this name, None if it can be created.

    :param twin: the name of an existing topic that is equal except for '.' in place of '_', as in
        metric names; None if there is none
    """
    if name == "__cluster_metadata":
        return invalid_request(f"Creation of internal topic {name} is prohibited.")
    if refusal := check_topic_name(name):
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
    topic: CreateTopicsRequest.CreatableTopic, default: int, node_id: int
) -> int | Refusal:
    """Return the number of partitions of a requested topic, or the error for the request.

    :param default: the default number of partitions
    :param node_id: the id of this node
    """
    if topic.assignments:
        return _assigned_count(topic, node_id)
    partitions, replication_factor = topic.num_partitions, topic.replication_factor
    if replication_factor < -1 or replication_factor == 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < -1 or partitions == 0:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replication_factor > 1:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only 1 "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    return default if partitions == -1 else partitions


def _assigned_count(topic: CreateTopicsRequest.CreatableTopic, node_id: int) -> int | Refusal:
    for number, name in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if number != -1:
            return invalid_request(
                f"A manual partition assignment was specified, but {name} was not set to -1."
            )
    seen = set()
    for replicas in topic.assignments:
        partition = replicas.partition_index
        if partition in seen:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        seen.add(partition)
        if refusal := check_assignment(replicas.broker_ids, node_id):
            return refusal
    if seen != set(range(len(seen))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(seen)


def check_assignment(brokers: Sequence[int], node_id: int) -> Refusal | None:
    """Validate a replica assignment; this node is the only valid replica."""
    stranger = next((broker for broker in brokers if broker != node_id), None)
    if not brokers:
        why = "an empty replica list."
    elif stranger is not None:
        why = f"broker {stranger}, but no such broker is registered."
    elif len(brokers) > 1:
        why = f"the broker {node_id} more than once."
    else:
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {why}"
    )


def check_growth(
    topic: CreatePartitionsRequest.CreatePartitionsTopic, partitions: int, node_id: int
) -> Refusal | None:
    """Return the error for growing a topic as requested, None if it can grow.

    :param partitions: the present number of partitions
    :param node_id: the id of this node
    """
    total, assignments = topic.count, topic.assignments
    if total == partitions:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {partitions} partition(s)."
        )
    if total < partitions:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {partitions} partition(s); {total} would not "
            "be an increase.",
        )
    if assignments is None:
        return None
    if len(assignments) != total - partitions:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {total - partitions} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified.",
        )
    refusals = (check_assignment(replicas.broker_ids, node_id) for replicas in assignments)
    return next(filter(None, refusals), None)


@dataclass(slots=True)
class Creation:
    """Topics that are planned one after the other, and then created together."""

    _catalog: Catalog
    _planned: dict[str, Topic] = field(default_factory=dict)

    def check_name(self, name: str) -> Refusal | None:
        """Return the error for a topic of this name, None if it can be planned."""
        planned = self._planned.get(fold(name))
        twin = self._catalog.twin(name) or (None if planned is None else planned.name)
        return check_new_topic_name(name, twin)

    def plan(self, topic: Topic) -> None:
        """Plan a topic whose name and configs have been checked; creation gives it its id."""
        self._planned[fold(topic.name)] = topic

    def create(self) -> dict[str, Topic | Refusal]:
        """Create the planned topics, all of them or none; return the result of each by name.
        Another request may have created some of them since they were planned.
        """
        results: dict[str, Topic | Refusal] = {}
        new: list[Topic] = []
        for topic in self._planned.values():
            if refusal := check_new_topic_name(topic.name, self._catalog.twin(topic.name)):
                results[topic.name] = refusal
            else:
                new.append(topic)
        failed = failure_of(self._catalog.create_topics, new) if new else None
        return results | {topic.name: failed or self._catalog.topics[topic.name] for topic in new}
