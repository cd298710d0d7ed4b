"""Where a share group begins to read a topic, said before anybody wonders why nothing comes."""

from __future__ import annotations

import shlex

from headrace.client import Cluster, RequestRefused
from headrace.errors import ErrorCode

_RESET_CONFIG = "share.auto.offset.reset"


async def starting_point(
    cluster: Cluster, bootstrap_servers: str, group_id: str, topic: str
) -> str | None:
    """What to tell about a group that is new to ``topic`` and does not begin at its oldest record;
    None for others.

    A group that has read the topic before goes on where it was. Changes nothing.

    :raises ClientError: the topic does not exist, or the broker does not answer
    """
    try:
        lags = await cluster.share_lag(group_id, [topic])
    except RequestRefused as refusal:
        if refusal.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        lags = []
    if any(lag.start_offset is not None for lag in lags):
        return None
    reset = await cluster.group_config(group_id, _RESET_CONFIG)
    if reset in (None, "earliest"):
        return None
    where = "at its end" if reset == "latest" else f"where {reset} says"
    command = shlex.join(
        ["headrace", "share-groups", "--bootstrap-server", bootstrap_servers, "--group", group_id]
        + ["--topic", topic, "--reset-offsets", "--to-earliest", "--execute"]
    )
    return (
        f"share group '{group_id}' is new to topic '{topic}' and begins {where} "
        f"({_RESET_CONFIG}={reset}); "
        f"to begin with the oldest record, first run: {command}"
    )
