"""The options of ``format("kafka-ordered")``: those of Spark's own Kafka source, and
``maxTaskIdleMs``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.spark.option_parsing import GivenOptions, KafkaOptions, SourceError, Subscription
from headrace.spark.reader.log_reader import ReadOptions

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
IN_JSON = {-1: LATEST, -2: EARLIEST}
"""What negative offsets mean in the JSON of ``startingOffsets`` and ``endingOffsets``."""

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
_OF_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "minPartitions")
_OF_STREAMS = ("maxOffsetsPerTrigger",)
_REFUSED = {
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store"),
        "offsets are committed when a micro-batch has finished, where kafka.group.id is set",
    ),
    "auto.offset.reset": "say startingOffsets, and failOnDataLoss",
}
_DEFAULT_METADATA_AGE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins, or ends.

    :param at: ``earliest``, ``latest`` or ``committed``, for what the others leave open
    :param offsets: an offset per topic and partition; -1 is the end, -2 the start
    :param timestamps_ms: the first record from that timestamp on, per topic and partition
    :param timestamp_ms: the same for all partitions
    :param which: ``starting`` or ``ending``, as the options' names begin
    """

    at: str
    offsets: Mapping[str, Mapping[int, int]] | None = None
    timestamps_ms: Mapping[str, Mapping[int, int]] | None = None
    timestamp_ms: int | None = None
    which: str = "starting"


@dataclass(frozen=True, slots=True)
class OrderedOptions:
    """Checked options of one source. Plain values: they travel to the executors.

    :param max_task_idle_ms: see :class:`headrace.tasks.Readiness`
    :param max_offsets: per micro-batch, about; None for no limit
    :param min_partitions: into so many tasks a batch is cut, about; None for one per partition
        number
    :param group_id: the group whose offsets tell how far the query is; None for none
    :param metadata_age_ms: how often to look for new topics and partitions
    """

    kafka: KafkaOptions
    subscription: Subscription
    start: Bound
    end: Bound
    group_id: str | None = None
    max_task_idle_ms: int = 0
    max_offsets: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    read_committed: bool = False
    metadata_age_ms: int = _DEFAULT_METADATA_AGE_MS

    @property
    def reading(self) -> ReadOptions:
        """How tasks read."""
        return ReadOptions(
            headers=self.include_headers,
            read_committed=self.read_committed,
            skip_lost=not self.fail_on_data_loss,
            warn_of_lost=True,
            advice="; set failOnDataLoss=false to go on without it",
        )

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> OrderedOptions:
        """Read what the user gave.

        :param streaming: None while it is not known what the source is used for
        :raises SourceError: something is missing, unknown, or has a value that makes no sense
        """
        given = GivenOptions("kafka-ordered", options, (*_COMMON, *_OF_BATCHES, *_OF_STREAMS))
        for names, wrong, use in (
            (_OF_BATCHES, True, "spark.read"),
            (_OF_STREAMS, False, "spark.readStream"),
        ):
            for name in names:
                if streaming is wrong and given.text(name) is not None:
                    raise SourceError(f"remove the option {name}: it is for {use}")
        kafka = given.kafka(refused=_REFUSED)
        group_id = given.text("kafka.group.id")
        start = _bound(
            given,
            "starting",
            EARLIEST if streaming is False else LATEST,
            (EARLIEST, LATEST, COMMITTED),
        )
        if start.at == COMMITTED and group_id is None:
            raise SourceError(
                "set the option kafka.group.id: startingOffsets=committed begins where that "
                "group is"
            )
        isolation = kafka.librdkafka.get("isolation.level", "read_uncommitted")
        if isolation not in ("read_committed", "read_uncommitted"):
            raise SourceError(
                f"option kafka.isolation.level is '{isolation}': say read_committed or "
                f"read_uncommitted"
            )
        age = kafka.librdkafka.get("metadata.max.age.ms", "")
        return cls(
            kafka=kafka,
            subscription=given.subscription(),
            start=start,
            end=_bound(given, "ending", LATEST, (LATEST,)),
            group_id=group_id,
            max_task_idle_ms=_idle(given),
            max_offsets=given.number("maxOffsetsPerTrigger"),
            min_partitions=given.number("minPartitions"),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            include_headers=given.truth("includeHeaders"),
            read_committed=isolation == "read_committed",
            metadata_age_ms=int(age) if age.isdigit() else _DEFAULT_METADATA_AGE_MS,
        )


def _idle(given: GivenOptions) -> int:
    value = given.number("maxTaskIdleMs", lowest=-1)
    return 0 if value is None else value


def _bound(given: GivenOptions, which: str, default: str, words: tuple[str, ...]) -> Bound:
    for name in (f"{which}Offsets", f"{which}OffsetsByTimestamp", f"{which}Timestamp"):
        others = [
            n
            for n in (f"{which}Offsets", f"{which}OffsetsByTimestamp", f"{which}Timestamp")
            if n != name
        ]
        both = next((other for other in others if given.text(name) and given.text(other)), None)
        if both:
            raise SourceError(f"set one of the options {name} and {both}, not both")
    offsets = given.text(f"{which}Offsets")
    if offsets is not None and not offsets.startswith("{"):
        if offsets.lower() not in words:
            raise SourceError(
                f"option {which}Offsets is '{offsets}': say {', '.join(words)}, or {_EXAMPLE}"
            )
        return Bound(offsets.lower(), which=which)
    return Bound(
        default,
        _by_partition(given, f"{which}Offsets", -2 if which == "starting" else -1),
        _by_partition(given, f"{which}OffsetsByTimestamp", 0),
        given.number(f"{which}Timestamp", lowest=0),
        which,
    )


_EXAMPLE = 'JSON such as {"flights": {"0": 23, "1": -1}}'


def _by_partition(given: GivenOptions, name: str, lowest: int) -> dict[str, dict[int, int]] | None:
    text = given.text(name)
    if text is None:
        return None
    try:
        found = {
            t: {int(p): n for p, n in by_partition.items()}
            for t, by_partition in json.loads(text).items()
        }
    except (ValueError, AttributeError):
        raise SourceError(f"option {name} cannot be read: say {_EXAMPLE}") from None
    for topic, by_partition in found.items():
        for partition, number in by_partition.items():
            if type(number) is not int or number < lowest:
                said = json.dumps(number)
                raise SourceError(
                    f"option {name} says {said} for {topic}-{partition}: say a number from {lowest}"
                )
    return found
