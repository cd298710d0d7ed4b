"""Options of ``format("kafka-share")``, and the settings of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client import AcknowledgeType, ClientError, Cluster
from headrace.client.configs import ConfigType, alter_configs, describe_config, describe_configs
from headrace.client.errors import raised
from headrace.client.groups import SHARE, describe_group
from headrace.log_lines import get_logger
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import KafkaOptions, Subscription, UserOptions

from .outcomes import OUTCOMES

_log = get_logger(__name__)

DEFAULT_RECORDS_PER_TASK = 20_000

_GROUP_PREFIXES = ("share.", "errors.deadletterqueue.")
_LOCKS, _MOST_LOCKS = (
    "share.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
)
_START, _RESET = "startingOffsets", "share.auto.offset.reset"
_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "defaultOutcome",
    "maxOffsetsPerTrigger",
    "recordsPerTask",
    "includeHeaders",
    "receiptsOverTcp",
    "acquireAhead",
    _START,
)
# Settings of consumers that contradict a share group.
_REFUSED = {
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
        "a share group keeps track of what was delivered",
    ),
    "auto.offset.reset": "use startingOffsets",
    "isolation.level": "set share.isolation.level, the group's setting",
}


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """Validated options of a source or sink. Plain values: Spark sends them to the executors.

    :param default_outcome: the outcome of records without one when a micro-batch has ended
    :param max_records_per_trigger: None leaves the size of a micro-batch to the broker's limits on
        locks
    :param receipts_over_tcp: take outcomes over TCP instead of a Unix socket
    :param acquire_ahead: acquire the next micro-batch while one runs
    :param group_settings: configs that the group must have, by Kafka's names
    """

    kafka: KafkaOptions
    group_id: str
    subscription: Subscription
    default_outcome: AcknowledgeType
    max_records_per_trigger: int | None
    records_per_task: int
    include_headers: bool
    receipts_over_tcp: bool
    acquire_ahead: bool
    group_settings: Mapping[str, str]

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_source: bool) -> ShareOptions:
        """Parse the user's options. A sink accepts the options of its source.

        :param is_source: require a subscription
        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        user_options = UserOptions(options, _OPTIONS, *_GROUP_PREFIXES)
        return cls(
            kafka=user_options.kafka(_REFUSED),
            group_id=user_options.required("kafka.group.id", "the share group to join"),
            subscription=user_options.subscription(required=is_source),
            default_outcome=OUTCOMES[user_options.choice("defaultOutcome", OUTCOMES, "accept")],
            max_records_per_trigger=user_options.number("maxOffsetsPerTrigger"),
            records_per_task=user_options.number("recordsPerTask") or DEFAULT_RECORDS_PER_TASK,
            include_headers=user_options.boolean("includeHeaders"),
            receipts_over_tcp=user_options.boolean("receiptsOverTcp"),
            acquire_ahead=user_options.boolean("acquireAhead"),
            group_settings=_group_settings(user_options),
        )


def _group_settings(user_options: UserOptions) -> dict[str, str]:
    settings = user_options.prefixed(_GROUP_PREFIXES)
    start = user_options.text(_START)
    if start is not None and settings.setdefault(_RESET, start) != start:
        raise SourceError(f"set one of the options {_START} and {_RESET}, not both")
    reset = settings.get(_RESET, "earliest")
    if reset not in ("earliest", "latest") and not reset.startswith("by_duration:"):
        raise SourceError(f"option {_START} is '{reset}': use earliest, latest or by_duration:PT1H")
    return settings


async def ensure_group_settings(
    cluster: Cluster, group_id: str, settings: Mapping[str, str], *, validate_only: bool = False
) -> None:
    """Set the configs of a new group; check that an existing group has them.

    :param settings: values that the user asks for, by Kafka's names
    :param validate_only: change nothing
    :raises SourceError: the group is of another type, or exists with other settings
    :raises ClientError: the broker does not accept a setting
    """
    group = await describe_group(cluster, group_id)
    if group is None:
        if settings:
            await alter_configs(
                cluster, ConfigType.GROUP, group_id, settings, validate_only=validate_only
            )
        if not validate_only and _LOCKS not in settings:
            await _lock_more(cluster, group_id)
        return
    if group.type != SHARE:
        raise SourceError(
            f"'{group_id}' is a {group.type} group, not a share group: "
            "choose another kafka.group.id, or delete that group"
        )
    current: Mapping[str, str | None] = {}
    if settings:
        current = await describe_config(cluster, ConfigType.GROUP, group_id, list(settings))
    for name, value in settings.items():
        if value.lower() != (current.get(name) or "").lower():
            has = f"has {name}={current[name]}" if name in current else f"has no config {name}"
            raise SourceError(
                f"share group '{group_id}' exists and {has}, which the option {name}={value} "
                "does not change: remove the option, alter the group's config, "
                "or choose another kafka.group.id"
            )


async def _lock_more(cluster: Cluster, group_id: str) -> None:
    """Let a new group lock as many records as the brokers allow, unless somebody has configured
    that: large micro-batches cost less for each record.
    """
    try:
        described = await describe_configs(cluster, ConfigType.GROUP, [group_id], keys=[_LOCKS])
        configs = raised(described)[group_id]
        if any(config.is_dynamic for config in configs if config.name == _LOCKS):
            return
        node_id = str(min(cluster.nodes, default=0))
        limits = await describe_config(cluster, ConfigType.BROKER, node_id, [_MOST_LOCKS])
        if limit := limits.get(_MOST_LOCKS):
            await alter_configs(cluster, ConfigType.GROUP, group_id, {_LOCKS: limit})
    except ClientError as error:  # brokers before Kafka 4.4 have no such config of groups
        _log.info("share group %s keeps its limit of locks: %s", group_id, error)
