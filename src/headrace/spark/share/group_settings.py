"""Checks of a share group, and its settings, before a query joins it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client import Cluster
from headrace.client.configs import ConfigType, alter_configs, describe_config
from headrace.spark.errors import SourceError
from headrace.spark.group_lookup import SHARE, find_group

GROUP_SETTINGS = (
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.delivery.count.limit",
    "share.record.lock.duration.ms",
    "share.partition.max.record.locks",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.assignment.interval.ms",
)
"""Configs of a share group that are options too, by Kafka's names."""

_TIMEOUT_MS = 30_000


async def ensure_group_settings(
    cluster: Cluster, group_id: str, settings: Mapping[str, str], *, validate_only: bool = False
) -> None:
    """Set the configs of a new group; check that an existing group has them.

    :param settings: values that the user asks for, of :data:`GROUP_SETTINGS`
    :param validate_only: change nothing
    :raises SourceError: the group is of another type, or exists with other settings
    :raises ClientError: the broker does not accept a setting
    """
    found = await find_group(cluster, group_id, _TIMEOUT_MS)
    if found is None:
        if settings:
            await alter_configs(
                cluster, ConfigType.GROUP, group_id, settings, validate_only=validate_only
            )
        return
    if found.group_type != SHARE:
        raise SourceError(
            f"'{group_id}' is a {found.group_type} group, not a share group: "
            "choose another kafka.group.id, or delete that group"
        )
    current: Mapping[str, str | None] = {}
    if settings:
        current = await describe_config(cluster, ConfigType.GROUP, group_id, list(settings))
    for name, wanted in settings.items():
        if wanted.lower() != (current.get(name) or "").lower():
            has = f"has {name}={current[name]}" if name in current else f"has no config {name}"
            raise SourceError(
                f"share group '{group_id}' exists and {has}, which the option {name}={wanted} "
                "does not change: remove the option, alter the group's config, "
                "or choose another kafka.group.id"
            )
