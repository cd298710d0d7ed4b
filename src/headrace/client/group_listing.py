"""ListGroups under its former name: see :mod:`headrace.client.groups`."""

from __future__ import annotations

from collections.abc import Collection

from . import groups
from .cluster import Cluster
from .errors import ClientError
from .groups import ListedGroup

__all__ = ["ListedGroup"]


async def list_groups(
    cluster: Cluster, states: Collection[str], types: Collection[str], timeout_ms: int
) -> tuple[list[ListedGroup], list[ClientError]]:
    """Return the groups by id, and one error for each broker that did not answer."""
    listed = await groups.list_groups(
        cluster, types=types, states=states, timeout=timeout_ms / 1000
    )
    return list(listed.groups), list(listed.errors)
