"""Lookup of a group by its id, whatever its type."""

from __future__ import annotations

from typing import NamedTuple

from headrace.client import ApiMissing, ClientError, Cluster
from headrace.client.errors import is_missing_group
from headrace.client.group_requests import (
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
    describe_streams_groups,
)

SHARE = "share"

_DESCRIBE = (
    (SHARE, describe_share_groups),
    ("consumer", describe_consumer_groups),
    ("classic consumer", describe_classic_groups),
    ("streams", describe_streams_groups),
)
_DEAD = "Dead"


class FoundGroup(NamedTuple):
    """A group that exists.

    :param group_type: ``"share"``, ``"consumer"``, ``"classic consumer"`` or ``"streams"``
    :param state: Kafka's name of the group's state, such as ``"Stable"`` or ``"Empty"``
    """

    group_type: str
    state: str


async def find_group(cluster: Cluster, group_id: str, timeout_ms: int) -> FoundGroup | None:
    """Ask the group's coordinator for it, one type after the other; None if it does not exist.

    Brokers that do not know the requests of a type have no groups of that type.

    :raises ClientError: the coordinator does not answer, or refuses to
    """
    for group_type, describe in _DESCRIBE:
        answers = await cluster.coordinators.ask([group_id], describe, timeout_ms)
        answer = answers[group_id]
        if isinstance(answer, ApiMissing):
            continue
        if is_missing_group(answer):
            continue
        if isinstance(answer, ClientError):
            raise answer
        state = str(answer.group_state)
        if state != _DEAD:
            return FoundGroup(group_type, state)
    return None
