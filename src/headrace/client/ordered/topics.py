"""The checks of :class:`headrace.client.OrderedConsumer` on its topics and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from headrace.client.errors import ClientError, ConnectionFailed, missing_permission

METADATA_TIMEOUT_S = 10.0
"""The timeout of looking up one topic."""


class InvalidTopics(ClientError):
    """A topic is missing, or the topics are not co-partitioned. The text is one line."""


def checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    """Return the topics, in order.

    :raises ValueError: it is not a list of distinct names, or empty
    """
    if isinstance(topics, str) or not topics or len(set(topics)) != len(topics):
        raise ValueError(f"topics is {topics!r}: give a list of one or more different names")
    return tuple(topics)


def consumer_config(conf: Mapping[str, Any], group_id: str, is_incremental: bool) -> dict[str, Any]:
    """Return the configuration of the inner consumer.

    :param is_incremental: whether the consumer protocol is used (KIP-848)
    :raises ValueError: a property contradicts those that are needed
    """
    # Only the range assignor assigns partition i of every topic to one member.
    assignor = "group.remote.assignor" if is_incremental else "partition.assignment.strategy"
    if str(conf.get(assignor, "range")) != "range":
        raise ValueError(
            f"{assignor} is '{conf[assignor]}': it must be 'range', so that tasks get all "
            f"their inputs"
        )
    return {
        "auto.offset.reset": "earliest",
        # A fetch of inputs at their end delays the fetch of others by at most this time.
        "fetch.wait.max.ms": 100,
        # An input with enough fetched records may soon need more: librdkafka's default pauses it
        # for a second.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 10_000,
        # Detect deleted topics and new partitions sooner than librdkafka's default of 5 minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
        **conf,
        "group.id": group_id,
        "enable.auto.offset.store": False,
        assignor: "range",
    }


def check_co_partitioned(consumer: Consumer, topics: Sequence[str], servers: str) -> None:
    """Check that the topics have equal numbers of partitions. Creates no topic.

    :raises InvalidTopics: a topic is missing, or they differ
    :raises ConnectionFailed: no broker of ``servers`` answers
    """
    counts: dict[str, int] = {}
    for topic in topics:
        try:
            metadata = consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics.get(topic)
        except KafkaException as error:
            raise ConnectionFailed(f"{servers} cannot be reached: {error.args[0].str()}") from None
        if metadata is None:
            raise InvalidTopics(f"topic '{topic}' is missing in the metadata of {servers}")
        if metadata.error is not None:
            needs = missing_permission(metadata.error.code(), f"DESCRIBE on topic '{topic}'")
            reason = metadata.error.str() + (f": {needs}" if needs else "")
            raise InvalidTopics(f"topic '{topic}' cannot be read: {reason}")
        counts[topic] = len(metadata.partitions)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{topic}' has {count}" for topic, count in counts.items())
        raise InvalidTopics(
            f"the topics are not co-partitioned: of partitions, {listed}; they need equal numbers"
        )


def translated(error: KafkaException, group_id: str) -> tuple[Exception, bool]:
    """Translate an error of the inner consumer.

    :returns: the exception to raise, and whether it is lasting: a partition is not read any more
    """
    kafka_error = error.args[0]
    if kafka_error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return InvalidTopics(kafka_error.str()), True
    if kafka_error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        needs = missing_permission(kafka_error.code(), f"READ on group '{group_id}'")
        named = KafkaError(kafka_error.code(), f"{kafka_error.str()}: {needs}")
        return KafkaException(named), True
    return error, kafka_error.fatal() or kafka_error.code() == KafkaError._AUTO_OFFSET_RESET
