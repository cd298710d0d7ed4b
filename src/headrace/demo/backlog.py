"""Watches a share group's backlog while it is drained."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping

from headrace.client import ClientError, Cluster, PartitionLag

_INTERVAL_S = 0.25


class BacklogWatch:
    """Asks for the group's lag several times a second, on a thread of its own (KIP-1226).

    :param end_offsets: partition -> records produced: its backlog before the group's first acknowledgement
    """

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str, end_offsets: Mapping[int, int]) -> None:
        self.samples: list[tuple[float, dict[int, int]]] = [(0.0, dict(end_offsets))]
        self._bootstrap_servers = bootstrap_servers
        self._group_id = group_id
        self._topic = topic
        self._end_offsets = end_offsets
        self._started_s = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), name="backlog", daemon=True)

    def __enter__(self) -> BacklogWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def drained_after_s(self) -> float:
        """When the backlog was first seen empty; the last look if it never was."""
        return next((at_s for at_s, backlog in self.samples if not any(backlog.values())), self.samples[-1][0])

    async def _watch(self) -> None:
        cluster = Cluster(self._bootstrap_servers, client_id="headrace-demo")
        while True:
            last_look = self._done.is_set()
            try:
                lags = await cluster.share_lag(self._group_id, [self._topic])
            except ClientError:  # the group is not there yet
                lags = []
            if lags:
                at_s = time.monotonic() - self._started_s
                self.samples.append((at_s, {lag.partition: self._backlog(lag) for lag in lags}))
            if last_look:
                break
            await asyncio.sleep(_INTERVAL_S)
        await cluster.close()

    def _backlog(self, lag: PartitionLag) -> int:
        return self._end_offsets.get(lag.partition, 0) if lag.lag is None else lag.lag
