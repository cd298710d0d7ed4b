"""The options of ``format("kafka-share")``: what a user may say, checked before anything is
opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client import AcknowledgeType
from headrace.spark.option_parsing import GivenOptions, KafkaOptions, SourceError, Subscription

from .group_settings import GROUP_SETTINGS

OUTCOMES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}
"""What may become of a record, by the word that stands for it in options and in the column
``outcome``.
"""

DEFAULT_RECORDS_PER_TASK = 10_000

_SHORT_RESET, _RESET = "auto.offset.reset", "share.auto.offset.reset"
_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "outcome.default",
    "maxRecordsPerTrigger",
    "recordsPerTask",
    "includeHeaders",
    _SHORT_RESET,
    *GROUP_SETTINGS,
)
# librdkafka settings that would break the reading of exactly the acquired offsets.
_REFUSED = {
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
        "a share group keeps track of what was delivered",
    ),
    "auto.offset.reset": "set auto.offset.reset, which is the group's",
    "isolation.level": "set share.isolation.level, which is the group's",
}


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """Checked options of one source or sink. Plain values: they travel to the executors.

    :param max_records_per_trigger: None leaves the size of a micro-batch to the broker's limits on
        locks
    :param group_settings: configs that the group is to have, by Kafka's names
    """

    kafka: KafkaOptions
    group_id: str
    subscription: Subscription
    default_outcome: AcknowledgeType = AcknowledgeType.ACCEPT
    max_records_per_trigger: int | None = None
    records_per_task: int = DEFAULT_RECORDS_PER_TASK
    include_headers: bool = False
    group_settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, source: bool) -> ShareOptions:
        """Read what the user gave. A sink takes a source's options too, so that one dict serves
        both.

        :raises SourceError: something is missing, unknown, or has a value that makes no sense
        """
        given = GivenOptions("kafka-share", options, _OPTIONS)
        return cls(
            kafka=given.kafka(_REFUSED),
            group_id=given.required("kafka.group.id", "the share group to work in"),
            subscription=given.subscription(required=source),
            default_outcome=OUTCOMES[given.choice("outcome.default", tuple(OUTCOMES), "accept")],
            max_records_per_trigger=given.number("maxRecordsPerTrigger"),
            records_per_task=given.number("recordsPerTask") or DEFAULT_RECORDS_PER_TASK,
            include_headers=given.truth("includeHeaders"),
            group_settings=_group_settings(given),
        )


def _group_settings(given: GivenOptions) -> dict[str, str]:
    settings = {name: value for name in GROUP_SETTINGS if (value := given.text(name)) is not None}
    reset = given.text(_SHORT_RESET)
    if reset is not None and settings.setdefault(_RESET, reset) != reset:
        raise SourceError(f"set one of the options {_SHORT_RESET} and {_RESET}, not both")
    reset = settings.get(_RESET)
    if (
        reset is not None
        and reset not in ("earliest", "latest")
        and not reset.startswith("by_duration:")
    ):
        raise SourceError(
            f"option {_SHORT_RESET} is '{reset}': say earliest, latest or by_duration:PT1H"
        )
    return settings
