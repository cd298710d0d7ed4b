"""What a query finds out, and settles, about its share group before it joins it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client import ApiMissing, ClientError, Cluster, RequestRefused
from headrace.client.group_requests import (
    Describe,
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
    describe_streams_groups,
)
from headrace.errors import ErrorCode
from headrace.spark.option_parsing import SourceError

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
"""The configs of a share group that are options too, by Kafka's own names."""

_TIMEOUT_MS = 30_000
_OTHERS = (
    ("consumer", describe_consumer_groups),
    ("classic consumer", describe_classic_groups),
    ("streams", describe_streams_groups),
)


async def settle(
    cluster: Cluster, group_id: str, settings: Mapping[str, str], *, only_check: bool = False
) -> None:
    """Give a group that does not exist yet its settings; see that one that does exist has them.

    :param settings: of :data:`GROUP_SETTINGS`, what the user asks for
    :param only_check: change nothing
    :raises SourceError: it is a group of another type, or it exists with other settings
    :raises ClientError: the broker does not take a setting
    """
    if not await _exists(cluster, group_id):
        if settings:
            await cluster.set_group_configs(group_id, settings, validate_only=only_check)
        return
    current = await cluster.group_configs(group_id, list(settings)) if settings else {}
    for name, wanted in settings.items():
        if wanted.lower() != current.get(name, "").lower():
            has = f"has {name}={current[name]}" if name in current else f"knows no {name}"
            raise SourceError(
                f"share group '{group_id}' exists and {has}, which the option "
                f"{name}={wanted} does not change: "
                "remove the option, alter the group's config, or choose another kafka.group.id"
            )


async def _exists(cluster: Cluster, group_id: str) -> bool:
    """Whether there is such a share group.

    :raises SourceError: it is a group of another type
    """
    if await _describe(cluster, group_id, describe_share_groups) is not None:
        return True
    for kind, describe in _OTHERS:
        if await _describe(cluster, group_id, describe) is not None:
            raise SourceError(
                f"'{group_id}' is a {kind} group, not a share group: choose another "
                f"kafka.group.id, or delete that "
                "group"
            )
    return False


async def _describe(cluster: Cluster, group_id: str, describe: Describe) -> object | None:
    """What the coordinator tells of the group; None when it knows no such group of that type."""
    answer = (await cluster.coordinators.ask([group_id], describe, _TIMEOUT_MS))[group_id]
    if isinstance(answer, ApiMissing):
        return None
    if isinstance(answer, RequestRefused) and answer.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    if isinstance(answer, ClientError):
        raise answer
    return None if str(answer.group_state) == "Dead" else answer
