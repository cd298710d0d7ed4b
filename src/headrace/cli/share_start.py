"""The hint that a new share group does not start at the oldest record of a topic."""

from __future__ import annotations

import shlex

from headrace.client import Cluster, RequestRefused
from headrace.client.configs import ConfigType, describe_config
from headrace.client.offsets import share_offsets_of_topics
from headrace.errors import ErrorCode

_RESET_CONFIG = "share.auto.offset.reset"


async def starting_point(
    cluster: Cluster, bootstrap_servers: str, group_id: str, topic: str
) -> str | None:
    """Return a hint if a share group is new to ``topic`` and does not start at its oldest record.

    :returns: one line for the user; None if the group has a start offset, or starts there
    :raises ClientError: the topic does not exist, or a broker refuses or does not answer
    """
    try:
        progress = await share_offsets_of_topics(cluster, group_id, [topic])
    except RequestRefused as refusal:
        if refusal.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        progress = {}
    if any(offset.start_offset is not None for offset in progress.values()):
        return None
    configs = await describe_config(cluster, ConfigType.GROUP, group_id, [_RESET_CONFIG])
    reset = configs.get(_RESET_CONFIG)
    if reset in (None, "earliest"):
        return None
    where = "at its end" if reset == "latest" else f"at the offset of {reset}"
    command = shlex.join(
        ["headrace", "groups", "reset", group_id, "--topic", topic, "--to", "earliest"]
        + ["--type", "share", "-b", bootstrap_servers]
    )
    return (
        f"share group '{group_id}' is new to topic '{topic}' and starts {where} "
        f"({_RESET_CONFIG}={reset}); to start at the oldest record, first run: {command}"
    )
