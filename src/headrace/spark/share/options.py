"""Options of ``format("kafka-share")``, validated before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client import AcknowledgeType
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import GivenOptions, KafkaOptions
from headrace.spark.subscription import Subscription

from .group_settings import GROUP_SETTINGS
from .outcome_spans import OUTCOMES

DEFAULT_RECORDS_PER_TASK = 10_000

_SHORT_RESET, _RESET = "auto.offset.reset", "share.auto.offset.reset"
_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "outcome.default",
    "maxRecordsPerTrigger",
    "recordsPerTask",
    "includeHeaders",
    "includeReceipt",
    "acquireAhead",
    _SHORT_RESET,
    *GROUP_SETTINGS,
)
# Settings of consumers that contradict a share group.
_REFUSED = {
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
        "a share group keeps track of what was delivered",
    ),
    "auto.offset.reset": "set auto.offset.reset, the group's setting",
    "isolation.level": "set share.isolation.level, the group's setting",
}


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """Validated options of a source or sink. Plain values: Spark sends them to the executors.

    :param default_outcome: the outcome of records without one when a micro-batch has ended
    :param max_records_per_trigger: None leaves the size of a micro-batch to the broker's limits on
        locks
    :param include_receipt: rows carry the address at which the reader takes their outcomes
    :param acquire_ahead: acquire the next micro-batch while one runs
    :param group_settings: configs that the group must have, by Kafka's names
    """

    kafka: KafkaOptions
    group_id: str
    subscription: Subscription
    default_outcome: AcknowledgeType = AcknowledgeType.ACCEPT
    max_records_per_trigger: int | None = None
    records_per_task: int = DEFAULT_RECORDS_PER_TASK
    include_headers: bool = False
    include_receipt: bool = False
    acquire_ahead: bool = False
    group_settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_source: bool) -> ShareOptions:
        """Parse the user's options. A sink accepts the options of its source.

        :param is_source: require a subscription
        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        given = GivenOptions(options, _OPTIONS)
        return cls(
            kafka=given.kafka(_REFUSED),
            group_id=given.required("kafka.group.id", "the share group to join"),
            subscription=given.subscription(required=is_source),
            default_outcome=OUTCOMES[given.choice("outcome.default", tuple(OUTCOMES), "accept")],
            max_records_per_trigger=given.number("maxRecordsPerTrigger"),
            records_per_task=given.number("recordsPerTask") or DEFAULT_RECORDS_PER_TASK,
            include_headers=given.boolean("includeHeaders"),
            include_receipt=given.boolean("includeReceipt"),
            acquire_ahead=given.boolean("acquireAhead"),
            group_settings=_group_settings(given),
        )


def _group_settings(given: GivenOptions) -> dict[str, str]:
    settings = {name: value for name in GROUP_SETTINGS if (value := given.text(name)) is not None}
    short = given.text(_SHORT_RESET)
    if short is not None and settings.setdefault(_RESET, short) != short:
        raise SourceError(f"set one of the options {_SHORT_RESET} and {_RESET}, not both")
    reset = settings.get(_RESET, "earliest")
    if reset not in ("earliest", "latest") and not reset.startswith("by_duration:"):
        raise SourceError(
            f"option {_SHORT_RESET} is '{reset}': use earliest, latest or by_duration:PT1H"
        )
    return settings
