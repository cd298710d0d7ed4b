"""The creation of the internal topics of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, NewTopic, fold
from headrace.broker.config.topic_rules import check_new_topic_name, partition_count
from headrace.broker.limits import MAX_PARTITIONS_PER_REQUEST, MAX_TOPICS_PER_TRANSACTION
from headrace.broker.request_charge import RequestCharge
from headrace.errors import ErrorCode, Refusal
from headrace.groups.records import InternalTopic

_FAILURES_TOLD = 3
_DEFAULT_REPLICATION = -1
_THROTTLED = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


def create_internal_topics(
    broker: Broker, topics: Sequence[InternalTopic], charge: RequestCharge | None
) -> dict[str, Refusal]:
    """Create internal topics of a streams group; return the errors by topic name.

    Topics beyond :data:`MAX_TOPICS_PER_TRANSACTION` are left for the next heartbeat.

    :param charge: the client's quotas; its quota of mutations may refuse a topic for now
    """
    new: list[NewTopic] = []
    taken: dict[str, str] = {}
    failures: dict[str, Refusal] = {}
    partitions = 0
    for topic in topics[:MAX_TOPICS_PER_TRANSACTION]:
        if topic.name in broker.catalog.topics:  # another heartbeat was faster
            continue
        partitions += topic.partitions
        planned = _plan(broker, topic, taken.get(fold(topic.name)), partitions)
        if isinstance(planned, Refusal):
            failures[topic.name] = planned
        elif charge is not None and not charge.admit_auto_creation(planned.partitions):
            failures[topic.name] = _THROTTLED
        else:
            taken[fold(topic.name)] = topic.name
            new.append(planned)
    if new:
        try:
            broker.create_topics(new)
        except CatalogError as error:
            failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            failures.update((topic.name, failed) for topic in new)
    return failures


def _plan(
    broker: Broker, topic: InternalTopic, planned_twin: str | None, partitions: int
) -> NewTopic | Refusal:
    """Return the topic to create, or its error.

    :param partitions: the number of partitions of this topic and of those before it
    """
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        return Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    configs = dict(topic.configs)
    twin = broker.catalog.twin(topic.name) or planned_twin
    refusal = check_new_topic_name(topic.name, twin) or broker.config.check("topic", configs)
    if refusal is not None:
        return refusal
    replication = topic.replication_factor or _DEFAULT_REPLICATION
    count = partition_count(topic.partitions, replication, (), topic.partitions, broker.node_id)
    return count if isinstance(count, Refusal) else NewTopic(topic.name, count, configs)


def creation_failures(failures: Mapping[str, Refusal]) -> str:
    """Return the end of a status that says why topics could not be created; "" without any."""
    if not failures:
        return ""
    listed = [f"{name} ({refusal.message})" for name, refusal in failures.items()]
    more = len(listed) - _FAILURES_TOLD
    told = ", ".join(listed[:_FAILURES_TOLD]) + (f" and {more} more" if more > 0 else "")
    return f"; Creation failed: {told}."
