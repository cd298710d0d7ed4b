"""Repeated snapshots of the lag of a cluster, with rates between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headrace.client.cluster import Cluster

from .rates import LagRates
from .record_times import RepeatedTimes
from .rows import LagQuery, LagRow
from .snapshot import lag_snapshot, wanted_groups
from .summary import GroupLag, add_rows

MAX_FETCHES = 100
"""The limit of requests to one broker for the timestamps of records, in one snapshot. Positions
beyond it have no time lag until a later snapshot.
"""
TIMES_KEPT_MS = 60_000
"""The time for which a timestamp is used again, if the position has not moved."""


class LagWatch:
    """A series of snapshots.

    :param query: the groups and topics
    :param window_ms: the time over which rates are averaged
    :ivar rates: counts and rates between the snapshots
    """

    def __init__(self, cluster: Cluster, query: LagQuery, window_ms: int) -> None:
        self._cluster = cluster
        self._query = query
        self.rates = LagRates(window_ms)
        self._times = RepeatedTimes(MAX_FETCHES, TIMES_KEPT_MS)

    async def snapshot(
        self, each_part: Callable[[Sequence[LagRow]], None] | None = None
    ) -> tuple[dict[str, GroupLag], list[str]]:
        """Take a snapshot.

        :param each_part: called with the rows, a part at a time
        :returns: group id → lag, and one line for each thing that could not be determined
        :raises ClientError: the cluster cannot be reached
        """
        listed, warnings = await wanted_groups(self._cluster, self._query)
        now_ms = time.time_ns() // 1_000_000
        groups: dict[str, GroupLag] = {}
        self.rates.begin(time.monotonic_ns() // 1_000_000)
        async for part in lag_snapshot(self._cluster, listed, self._query, now_ms, self._times):
            add_rows(groups, part.rows)
            self.rates.add(part.rows)
            warnings += part.warnings
            if each_part is not None:
                each_part(part.rows)
        self.rates.end()
        return groups, warnings
