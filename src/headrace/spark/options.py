"""The options of ``format("kafka-share")``: what a user may say, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client import AcknowledgeType

from .option_parsing import GivenOptions, KafkaOptions, SourceError, Subscription

OUTCOMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""What may become of a record, by the word that stands for it in options and in the column ``outcome``."""

DEFAULT_RECORDS_PER_TASK = 10_000

_OPTIONS = (
    "subscribe",
    "outcome.default",
    "maxRecordsPerTrigger",
    "recordsPerTask",
    "includeHeaders",
    "auto.offset.reset",
)
# librdkafka settings that would break the reading of exactly the acquired offsets.
_REFUSED = dict.fromkeys(
    ("enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof"),
    "a share group keeps track of what was delivered",
)


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """Checked options of one source or sink. Plain values: they travel to the executors.

    :param max_records_per_trigger: None leaves the size of a micro-batch to the broker's limits on locks
    :param auto_offset_reset: what to set ``share.auto.offset.reset`` of the group to; None leaves it as it is
    """

    kafka: KafkaOptions
    group_id: str
    subscription: Subscription
    default_outcome: AcknowledgeType = AcknowledgeType.ACCEPT
    max_records_per_trigger: int | None = None
    records_per_task: int = DEFAULT_RECORDS_PER_TASK
    include_headers: bool = False
    auto_offset_reset: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, source: bool) -> ShareOptions:
        """Read what the user gave. A sink takes a source's options too, so that one dict serves both.

        :raises SourceError: something is missing, unknown, or has a value that makes no sense
        """
        given = GivenOptions("kafka-share", options, _OPTIONS)
        reset = given.text("auto.offset.reset")
        if reset is not None and reset not in ("earliest", "latest") and not reset.startswith("by_duration:"):
            raise SourceError(f"option auto.offset.reset is '{reset}': say earliest, latest or by_duration:PT1H")
        return cls(
            kafka=given.kafka(_REFUSED),
            group_id=given.required("kafka.group.id", "the share group to work in"),
            subscription=given.subscription(required=source),
            default_outcome=OUTCOMES[given.choice("outcome.default", tuple(OUTCOMES), "accept")],
            max_records_per_trigger=given.number("maxRecordsPerTrigger"),
            records_per_task=given.number("recordsPerTask") or DEFAULT_RECORDS_PER_TASK,
            include_headers=given.truth("includeHeaders"),
            auto_offset_reset=reset,
        )
