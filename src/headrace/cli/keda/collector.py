"""One collector of backlogs for all scaled objects of a cluster."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.errors import AuthenticationFailed, ClientError, ConnectionFailed
from headrace.client.lag.backlog import Backlog, BacklogQuery, backlogs, has_members
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.settings import Settings
from headrace.log_lines import LimitedLog, get_logger

log = LimitedLog(get_logger("headrace.keda"))

TOPICS_KEPT_S = 30.0
"""The time after which topics are looked up again, for new partitions."""
MEMBERS_KEPT_S = 5.0
"""The time for which the members of a group need no new request."""


@dataclass(slots=True)
class _Known:
    """The last known backlog of a group.

    :ivar backlog: the last one; None if there is none
    :ivar backlog_s: its time
    :ivar error: the reason why the last round did not find it, or None
    :ivar round_s: the time of the last round that asked for it
    """

    backlog: Backlog | None = None
    backlog_s: float = 0.0
    error: ClientError | None = None
    round_s: float = 0.0


class BacklogCollector:
    """A collector that queries a cluster in rounds, each for all groups that somebody waits for.

    :param interval_s: the pause between two rounds for watched groups; an answer of this age is
        used again
    :param keep_s: the time for which the last known backlog is used while a newer one is unknown
    """

    def __init__(self, settings: Settings, interval_s: float, keep_s: float) -> None:
        self._cluster = settings.cluster()
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._timeout_s = settings.request_timeout_ms / 1000
        self._leaders = PartitionLeaders(self._cluster)
        self._leaders_s = 0.0
        self._known: dict[BacklogQuery, _Known] = {}
        self._asked: dict[BacklogQuery, None] = {}
        self._watched: Counter[BacklogQuery] = Counter()
        self._members: dict[BacklogQuery, tuple[float, bool]] = {}
        self._wake = asyncio.Event()
        self._round_ended = asyncio.Condition()
        self._rounds = asyncio.create_task(self._run(), name="headrace-keda-rounds")
        self._is_closed = False
        self.has_answered = False
        """True once the cluster has answered."""
        self.used_s = time.monotonic()
        """The time of the last use."""

    @property
    def is_watched(self) -> bool:
        """True while a stream watches a group."""
        return bool(self._watched)

    async def close(self) -> None:
        """End the rounds and all calls that wait for one, and close the connections."""
        self._is_closed = True
        self._rounds.cancel()
        await asyncio.gather(self._rounds, return_exceptions=True)
        async with self._round_ended:
            self._round_ended.notify_all()
        await self._cluster.close()

    async def backlog(self, query: BacklogQuery) -> Backlog:
        """Return the backlog of a group.

        :raises ClientError: it is unknown
        """
        asked_s = self.used_s = time.monotonic()
        known = self._known.get(query)
        if known is None or known.round_s < asked_s - self._interval_s:
            self._asked[query] = None
            self._wake.set()
            await self._wait_for_round(query, asked_s)
        return self._last(query)

    async def _wait_for_round(self, query: BacklogQuery, since_s: float) -> None:
        """Wait until a round that began at a time or later has asked for a group.

        :raises ConnectionFailed: the collector is closed
        """

        def has_ended() -> bool:
            known = self._known.get(query)
            return self._is_closed or (known is not None and known.round_s >= since_s)

        async with self._round_ended:
            await self._round_ended.wait_for(has_ended)
        if self._is_closed:
            raise ConnectionFailed("the connections to the cluster were closed")

    def _last(self, query: BacklogQuery) -> Backlog:
        """Return the last known backlog.

        :raises ClientError: there is none, or it is too old
        """
        known = self._known[query]
        if known.error is not None and (
            known.backlog is None or time.monotonic() - known.backlog_s > self._keep_s
        ):
            raise known.error
        assert known.backlog is not None
        return known.backlog

    async def watch(self, query: BacklogQuery) -> AsyncGenerator[Backlog, None]:
        """Yield the backlog of a group after each round in which it is known.

        :raises ConnectionFailed: the collector was closed
        """
        self._watched[query] += 1
        self._asked[query] = None
        self._wake.set()
        try:
            seen_s = time.monotonic()
            while True:
                await self._wait_for_round(query, seen_s + 1e-9)
                seen_s = self._known[query].round_s
                self.used_s = time.monotonic()
                with suppress(ClientError):
                    yield self._last(query)
        finally:
            self._watched[query] -= 1
            self._watched += Counter()  # drops those at zero

    async def has_members(self, query: BacklogQuery) -> bool:
        """Return whether a group has members; True while that is unknown."""
        at_s, found = self._members.get(query, (0.0, False))
        now_s = time.monotonic()
        if now_s - at_s > MEMBERS_KEPT_S:
            try:
                async with asyncio.timeout(self._timeout_s):
                    found = await has_members(self._cluster, query)
            except (ClientError, TimeoutError) as error:
                log.warning(query.group_id, "the members of group %s: %s", query.group_id, error)
                return True
            self._members[query] = (now_s, found)
        return found

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, {}
            due = [one for one in self._watched if self._due_in_s(one) <= 0]
            if queries := dict.fromkeys([*asked, *due]):
                await self._round(queries)

    def _pause_s(self) -> float | None:
        return min(map(self._due_in_s, self._watched), default=None)

    def _due_in_s(self, query: BacklogQuery) -> float:
        known = self._known.get(query)
        if known is None:
            return 0.0
        return max(0.0, known.round_s + self._interval_s - time.monotonic())

    async def _round(self, queries: Iterable[BacklogQuery]) -> None:
        began_s = time.monotonic()
        if began_s - self._leaders_s > TOPICS_KEPT_S:
            self._leaders, self._leaders_s = PartitionLeaders(self._cluster), began_s
        try:
            async with asyncio.timeout(self._timeout_s):
                results = await backlogs(self._cluster, self._leaders, queries, self._earlier())
        except TimeoutError:
            error: ClientError = ConnectionFailed("the cluster does not answer in time")
            results = dict.fromkeys(queries, error)
        except ClientError as failure:
            results = dict.fromkeys(queries, failure)
        except Exception as bug:  # otherwise all callers would wait for ever
            log.error("", "cannot read backlogs", exc_info=bug)
            results = dict.fromkeys(queries, ClientError("cannot read backlogs"))
        for query, result in results.items():
            known = self._known.setdefault(query, _Known())
            known.round_s = began_s
            known.error = None
            if not isinstance(result, ConnectionFailed | AuthenticationFailed):
                self.has_answered = True
            if isinstance(result, ClientError):
                known.error = result
                self._leaders_s = 0.0
                log.warning(query.group_id, "the backlog of group %s: %s", query.group_id, result)
            else:
                known.backlog, known.backlog_s = result, began_s
        if any(isinstance(one, ConnectionFailed) for one in results.values()):
            await self._cluster.close()  # a request that timed out would delay the next round
        self._forget(began_s)
        async with self._round_ended:
            self._round_ended.notify_all()

    def _earlier(self) -> dict[BacklogQuery, Backlog]:
        return {
            query: known.backlog
            for query, known in self._known.items()
            if known.backlog is not None
        }

    def _forget(self, now_s: float) -> None:
        """Forget groups that were not queried lately."""
        limit_s = now_s - self._keep_s - TOPICS_KEPT_S
        for query in [one for one, known in self._known.items() if known.round_s < limit_s]:
            del self._known[query]
            self._members.pop(query, None)
