"""What :class:`headrace.client.OrderedConsumer` asks of its topics and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from headrace.client.errors import ClientError, ConnectionFailed

METADATA_TIMEOUT_S = 10.0
"""How long finding the topics may take, each."""


class InvalidTopics(ClientError):
    """The topics cannot be read together: one is missing, or they have different numbers of
    partitions. One line.
    """


def checked_topics(topics: Sequence[str]) -> tuple[str, ...]:
    """The topics, in order.

    :raises ValueError: they are none, or not different, or not a list
    """
    if isinstance(topics, str) or not topics or len(set(topics)) != len(topics):
        raise ValueError(f"topics is {topics!r}: give a list of one or more different names")
    return tuple(topics)


def consumer_config(conf: Mapping[str, Any], group_id: str, is_incremental: bool) -> dict[str, Any]:
    """The properties of the inner consumer.

    :raises ValueError: they are at odds with what this consumer needs
    """
    # Only range gives one member partition i of every topic.
    assignor = "group.remote.assignor" if is_incremental else "partition.assignment.strategy"
    if str(conf.get(assignor, "range")) != "range":
        raise ValueError(
            f"{assignor} is '{conf[assignor]}': it must be 'range', so that tasks get all "
            f"their inputs"
        )
    return {
        "auto.offset.reset": "earliest",
        # How long a fetch of inputs that are at their end may keep others from being asked for.
        "fetch.wait.max.ms": 100,
        # An input of which enough was fetched may be the one that is short a moment later: not
        # after a whole second.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 10_000,
        # How soon it is seen that a topic is gone, or has more partitions: librdkafka takes five
        # minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
        **conf,
        "group.id": group_id,
        "enable.auto.offset.store": False,
        assignor: "range",
    }


def check_co_partitioned(consumer: Consumer, topics: Sequence[str], servers: str) -> None:
    """Look up the numbers of partitions. Creates no topic.

    :raises InvalidTopics: a topic is missing, or they differ
    :raises ConnectionFailed: no broker of ``servers`` answers
    """
    counts: dict[str, int] = {}
    for topic in topics:
        try:
            metadata = consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise ConnectionFailed(f"{servers} cannot be reached: {error.args[0].str()}") from None
        if metadata.error is not None:
            raise InvalidTopics(f"topic '{topic}' cannot be read: {metadata.error.str()}")
        counts[topic] = len(metadata.partitions)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{topic}' has {count}" for topic, count in counts.items())
        raise InvalidTopics(
            f"the topics are not co-partitioned: of partitions, {listed}; they need equal numbers"
        )


def explained(error: KafkaException) -> tuple[Exception, bool]:
    """What to raise for an error of the inner consumer, and whether to go on raising it: nobody
    reads a partition.
    """
    what = error.args[0]
    if what.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return InvalidTopics(what.str()), True
    return error, what.fatal() or what.code() == KafkaError._AUTO_OFFSET_RESET
