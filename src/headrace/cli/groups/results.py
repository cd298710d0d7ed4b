"""Results and failures of the commands on groups.

Kafka's tools end with status 0 after most failures and print them among the results. These commands
print results on stdout, and end after a failure with one line on stderr and status 1: see
:class:`~headrace.cli.errors.Failure`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.cli.errors import Failure
from headrace.cli.tables import Column, as_json, one_line, table

GROUP, TOPIC, PARTITION = Column("GROUP"), Column("TOPIC"), Column("PARTITION", 10)

_KAFKA_TEXTS = {
    "UNKNOWN_TOPIC_OR_PART": "This server does not host this topic-partition.",
    "INVALID_GROUP_ID": "The group id is invalid.",
    "GROUP_ID_NOT_FOUND": "The group id does not exist.",
    "NON_EMPTY_GROUP": "The group is not empty.",
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "Deleting offsets of a topic is forbidden while the consumer group is actively "
        "subscribed to it."
    ),
}
"""Error name → text of Kafka's tools, for errors to which the broker adds no text.
"""

_ADVICE = {"SECURITY_DISABLED": "set authorizer.class.name on the brokers"}
"""Error name → what to change."""


PartitionKey = tuple[str, int]
"""(topic, partition number)"""


def partition_key(partition: TopicPartition) -> PartitionKey:
    """Return the key of a partition, for sorting and for mappings."""
    return str(partition.topic), int(partition.partition)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return topic → sorted partition numbers."""
    ordered = sorted(partitions, key=partition_key)
    return {
        topic: [one.partition for one in of_topic]
        for topic, of_topic in groupby(ordered, lambda p: str(p.topic))
    }


def assignment(partitions: Iterable[TopicPartition]) -> str | None:
    """Format partitions as Kafka's tools do: ``orders:0,1;returns:0``. None if there are none."""
    topics = by_topic(partitions).items()
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics) or None


def print_deleted(kind: str, reasons: Mapping[str, str | None], options: Namespace) -> None:
    """Print which groups were deleted.

    :param kind: "share groups" or "consumer groups"
    :param reasons: group id → reason of the failure; None if it was deleted
    :raises Failure: some groups were not deleted
    """
    deleted = [f"'{one_line(group_id)}'" for group_id, reason in reasons.items() if reason is None]
    if options.json:
        print(as_json({"group": group_id, "error": reason} for group_id, reason in reasons.items()))
    elif not reasons:
        print(f"There are no {kind}.", file=sys.stderr)
    elif len(deleted) == len(reasons):
        print(f"Deletion of requested {kind} ({', '.join(deleted)}) was successful.")
    elif deleted:
        print(f"These {kind} were deleted successfully: {', '.join(deleted)}")
    fail_with(
        f"Group '{group_id}' could not be deleted: {reason}"
        for group_id, reason in reasons.items()
        if reason
    )


def print_reset(rows: Sequence[tuple[str, str, int, int]], options: Namespace) -> None:
    """Print offsets that were reset, or would be.

    :param rows: (group, topic, partition, new offset)
    """
    if options.json:
        names = ("group", "topic", "partition", "new_offset")
        print(as_json(dict(zip(names, row, strict=True)) for row in rows))
    else:
        print(f"\n{table([GROUP, TOPIC, PARTITION, Column('NEW-OFFSET', None)], rows)}")


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(f"Warn: {one_line(text)}", file=sys.stderr)


def is_error(error: BaseException, *names: str) -> bool:
    """Return whether it is a ``KafkaException`` with one of librdkafka's error names."""
    return isinstance(error, KafkaException) and error.args[0].name() in names


def reason_of(error: BaseException) -> str:
    """Return the text of an error, on one line, with advice if there is any."""
    if not isinstance(error, KafkaException):
        return " ".join(str(error).split())
    (kafka_error,) = error.args
    text = str(kafka_error.str()).removeprefix("Broker: ")
    if text == str(KafkaError(kafka_error.code()).str()).removeprefix("Broker: "):
        text = _KAFKA_TEXTS.get(kafka_error.name(), text)
    if kafka_error.name() in _ADVICE:
        text = f"{text.rstrip('.')}: {_ADVICE[kafka_error.name()]}"
    return " ".join(text.split())


def fail_with(reasons: Iterable[str]) -> None:
    """Raise a failure that names all reasons, each once; do nothing if there are none.

    :raises Failure: there is a reason
    """
    distinct = list(dict.fromkeys(reasons))
    if distinct:
        raise Failure("; ".join([*(reason.rstrip(".") for reason in distinct[:-1]), distinct[-1]]))
