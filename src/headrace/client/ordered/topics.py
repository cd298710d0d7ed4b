"""The checks of :class:`headrace.client.OrderedConsumer`, and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from headrace.client.errors import (
    ClientError,
    ConnectionFailed,
    RequestRefused,
    UnsupportedSetting,
    missing_permission,
)
from headrace.ordered import IDLING_DISABLED

METADATA_TIMEOUT_S = 10.0
"""The timeout of looking up one topic."""

_CONNECTION_ERRORS = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)


class InvalidTopics(ClientError):
    """A topic is missing, or the topics are not co-partitioned. The text is one line."""


def checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    """Return the topics, in order.

    :raises ValueError: it is not a list of distinct names, or empty
    """
    if isinstance(topics, str) or not topics or len(set(topics)) != len(topics):
        raise ValueError(f"topics is {topics!r}: give a list of one or more different names")
    return tuple(topics)


def checked_idle_ms(max_task_idle: float | None) -> int:
    """Return ``max.task.idle.ms`` for a time in seconds.

    :raises ValueError: the time is negative
    """
    if max_task_idle is None:
        return IDLING_DISABLED
    if not max_task_idle >= 0:
        raise ValueError(
            f"max_task_idle is {max_task_idle}: it may be None (never wait), 0 (wait for what the "
            "broker has) or a number of seconds to wait for producers, too"
        )
    return round(max_task_idle * 1000)


def checked_group(conf: Mapping[str, Any]) -> str:
    """Return ``group.id``.

    :raises UnsupportedSetting: it is missing
    """
    group_id = conf.get("group.id")
    if not group_id:
        raise UnsupportedSetting("group.id is missing: set it in conf to the group to join")
    return str(group_id)


def consumer_config(conf: Mapping[str, Any], is_incremental: bool) -> dict[str, Any]:
    """Return the configuration of the inner consumer.

    :param is_incremental: whether the consumer protocol is used (KIP-848)
    :raises UnsupportedSetting: a property contradicts those that are needed
    """
    # Only the range assignor assigns partition i of every topic to one member.
    assignor = "group.remote.assignor" if is_incremental else "partition.assignment.strategy"
    if str(conf.get(assignor, "range")) != "range":
        raise UnsupportedSetting(
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


def translated(error: KafkaException, group_id: str) -> ClientError:
    """Return an error of the inner consumer as one of headrace's."""
    kafka_error: KafkaError = error.args[0]
    code, text = kafka_error.code(), kafka_error.str()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return InvalidTopics(text)
    if code in _CONNECTION_ERRORS:
        return ConnectionFailed(text)
    if code > 0:
        is_about_group = code == KafkaError.GROUP_AUTHORIZATION_FAILED
        needs = f"READ on group '{group_id}'" if is_about_group else None
        return RequestRefused(f"reading as group '{group_id}'", code, text, needs)
    return ClientError(text)


def is_lasting(error: KafkaException) -> bool:
    """Return whether a partition is not read any more after an error of the inner consumer."""
    kafka_error: KafkaError = error.args[0]
    return kafka_error.fatal() or kafka_error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTO_OFFSET_RESET,
    )


@contextmanager
def translated_errors(group_id: str) -> Iterator[None]:
    """Raise errors of the inner consumer in the block as headrace's."""
    try:
        yield
    except KafkaException as error:
        raise translated(error, group_id) from None
