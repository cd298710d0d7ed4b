"""Options of ``format("kafka-ordered")``: those of Spark's Kafka source, and ``maxTaskIdleMs``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import KafkaOptions, Subscription, UserOptions
from headrace.spark.reader.ranges import ReadOptions

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
LATEST_OFFSET, EARLIEST_OFFSET = -1, -2
"""Negative offsets in the JSON of ``startingOffsets`` and ``endingOffsets``."""

_COMMON = (
    "subscribe",
    "subscribePattern",
    "maxTaskIdleMs",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafka.group.id",
)
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "minPartitions")
_STREAM_ONLY = ("maxOffsetsPerTrigger",)
_OF_THE_OTHER: Mapping[bool | None, tuple[tuple[str, ...], str]] = {
    True: (_BATCH_ONLY, "spark.read"),
    False: (_STREAM_ONLY, "spark.readStream"),
    None: ((), ""),
}
"""Streaming or not → the options that are for the other way of reading, and its name."""
_REFUSED = {
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store"),
        "offsets are committed when a micro-batch has finished, if kafka.group.id is set",
    ),
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
}
_DEFAULT_METADATA_AGE_MS = 10_000
_JSON_EXAMPLE = 'JSON such as {"flights": {"0": 23, "1": -1}}'


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of reading: its start or its end. At most one of the optional values is given.

    :param at: ``earliest``, ``latest`` or ``committed``; applies where nothing else is given
    :param offsets: partition → offset; -1 is the end, -2 the start
    :param timestamps_ms: partition → timestamp of the first record
    :param timestamp_ms: timestamp of the first record, for all partitions
    :param which: ``starting`` or ``ending``, the prefix of the options' names
    """

    at: str
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    which: str = "starting"

    def fixes(self, partition: TopicPartition) -> bool:
        """Return True if the user gave an offset or a timestamp for a partition."""
        is_by_time = self.timestamp_ms is not None or self.timestamps_ms is not None
        return is_by_time or (self.offsets or {}).get(partition, LATEST_OFFSET) >= 0


@dataclass(frozen=True, slots=True)
class OrderedOptions:
    """Validated options of a source. Plain values: Spark sends them to the executors.

    :param max_task_idle_ms: see :class:`headrace.ordered.readiness.Readiness`
    :param max_offsets: limit on a micro-batch, approximately; None for none
    :param min_partitions: number of tasks of a batch, approximately; None for one per partition
        number
    :param group_id: the group to which finished offsets are committed; None for none
    :param reading: parameters of the tasks' reads
    :param metadata_age_ms: interval of looking for new topics and partitions
    """

    kafka: KafkaOptions
    subscription: Subscription
    start: Bound
    end: Bound
    group_id: str | None
    max_task_idle_ms: int
    max_offsets: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    reading: ReadOptions
    metadata_age_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> OrderedOptions:
        """Parse the user's options.

        :param streaming: None while Spark has not told how the source is used
        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        user_options = UserOptions(options, (*_COMMON, *_BATCH_ONLY, *_STREAM_ONLY))
        refused, reader = _OF_THE_OTHER[streaming]
        for name in refused:
            if user_options.text(name) is not None:
                raise SourceError(f"remove the option {name}: it is for {reader}")
        kafka = user_options.kafka(refused=_REFUSED)
        group_id = user_options.text("kafka.group.id")
        default_start = EARLIEST if streaming is False else LATEST
        start = _bound(user_options, "starting", default_start, (EARLIEST, LATEST, COMMITTED))
        ends_at_once = start.at == LATEST or LATEST_OFFSET in (start.offsets or {}).values()
        if streaming is False and ends_at_once:
            raise SourceError(
                "option startingOffsets is the end, where a batch stops: use earliest, or offsets"
            )
        if start.at == COMMITTED and group_id is None:
            raise SourceError(
                "set the option kafka.group.id: startingOffsets=committed starts at that group's "
                "committed offsets"
            )
        fail_on_data_loss = user_options.boolean("failOnDataLoss", default=True)
        metadata_age_ms = user_options.number("kafka.metadata.max.age.ms", lowest=0)
        return cls(
            kafka=kafka,
            subscription=user_options.subscription(),
            start=start,
            end=_bound(user_options, "ending", LATEST, (LATEST,)),
            group_id=group_id,
            max_task_idle_ms=user_options.number("maxTaskIdleMs", lowest=-1) or 0,
            max_offsets=user_options.number("maxOffsetsPerTrigger"),
            min_partitions=user_options.number("minPartitions"),
            fail_on_data_loss=fail_on_data_loss,
            reading=ReadOptions(
                headers=user_options.boolean("includeHeaders"),
                read_committed=kafka.read_committed,
                skip_lost=not fail_on_data_loss,
                warn_of_lost=True,
                advice="; set failOnDataLoss=false to continue without it",
            ),
            metadata_age_ms=_DEFAULT_METADATA_AGE_MS
            if metadata_age_ms is None
            else metadata_age_ms,
        )


def _bound(user_options: UserOptions, which: str, default: str, words: tuple[str, ...]) -> Bound:
    offsets_option = f"{which}Offsets"
    times_option = f"{which}OffsetsByTimestamp"
    time_option = f"{which}Timestamp"
    for option, other in combinations((offsets_option, times_option, time_option), 2):
        if user_options.text(option) and user_options.text(other):
            raise SourceError(f"set one of the options {option} and {other}, not both")
    offsets = user_options.text(offsets_option)
    if offsets is not None and not offsets.startswith("{"):
        if offsets.lower() not in words:
            raise SourceError(
                f"option {offsets_option} is '{offsets}': "
                f"use {', '.join(words)}, or {_JSON_EXAMPLE}"
            )
        return Bound(offsets.lower(), which=which)
    lowest_offset = -2 if which == "starting" else -1
    return Bound(
        default,
        offsets=_by_partition(user_options, offsets_option, lowest_offset),
        timestamps_ms=_by_partition(user_options, times_option, 0),
        timestamp_ms=user_options.number(time_option, lowest=0),
        which=which,
    )


def _by_partition(
    user_options: UserOptions, name: str, lowest: int
) -> dict[TopicPartition, int] | None:
    text = user_options.text(name)
    if text is None:
        return None
    try:
        numbers = {
            (topic, int(partition)): number
            for topic, by_partition in json.loads(text).items()
            for partition, number in by_partition.items()
        }
    except (ValueError, AttributeError):
        raise SourceError(f"option {name} cannot be parsed: use {_JSON_EXAMPLE}") from None
    for (topic, partition), number in numbers.items():
        if type(number) is not int or number < lowest:
            raise SourceError(
                f"option {name} has {json.dumps(number)} for {topic}-{partition}: "
                f"use a number from {lowest}"
            )
    return numbers
