"""One collector of backlogs for all scaled objects of a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import NamedTuple

from headrace.client.config import ClientConfig
from headrace.client.errors import AuthenticationFailed, ClientError, ConnectionFailed
from headrace.client.groups import list_groups
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.times import RecordTimes
from headrace.log_lines import LimitedLog, get_logger

from .backlog import Backlog, BacklogQuery, backlogs

log = LimitedLog(get_logger("headrace.keda"))

TOPICS_KEPT_S = 30.0
"""The time after which topics are looked up again, for new partitions."""
MEMBERS_KEPT_S = 5.0
"""The time for which the states of the groups need no new request."""
MAX_FETCHES = 20
"""The limit of requests to one broker, in one round, to tell records from transaction markers."""
_TIMES_KEPT_MS = 60_000
_MAX_TIMES = 100_000
"""The number of positions in memory after which old ones are forgotten early."""
_GATHER_S = 0.02
"""The time that a round waits for further calls."""


class _Known(NamedTuple):
    """What is known of a group.

    :ivar result: the last known backlog; the error of the last round if there is none
    :ivar result_s: the time of the result
    :ivar round_s: the time of the last round that asked for it
    """

    result: Backlog | ClientError
    result_s: float
    round_s: float


class BacklogCollector:
    """A collector that queries a cluster in rounds, each for all groups that somebody waits for.

    :param interval_s: the pause between two queries for watched groups; an answer of this age is
        used again
    :param keep_s: the time for which the last known backlog is used while a newer one is unknown
    :ivar has_answered: True once the cluster has answered
    :ivar used_s: the time of the last use
    """

    def __init__(self, settings: ClientConfig, interval_s: float, keep_s: float) -> None:
        self._cluster = settings.cluster()
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._timeout_s = settings.request_timeout_ms / 1000
        self._leaders = PartitionLeaders(self._cluster)
        self._leaders_s = 0.0
        self._times = RecordTimes(MAX_FETCHES, _TIMES_KEPT_MS)
        self._known: dict[BacklogQuery, _Known] = {}
        self._waiting: dict[BacklogQuery, None] = {}
        """The queries of the next round."""
        self._rounds: set[asyncio.Task[None]] = set()
        self._next_round: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._states: dict[str, str] = {}
        self._states_s = -MEMBERS_KEPT_S
        self._is_closed = False
        self.has_answered = False
        self.used_s = time.monotonic()

    async def close(self) -> None:
        """End the rounds and all calls that wait for one, and close the connections."""
        self._is_closed = True
        for round_ in self._rounds:
            round_.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)
        await self._cluster.close()

    async def backlog(self, query: BacklogQuery, max_age_s: float | None = None) -> Backlog:
        """Return the backlog of a group.

        :param max_age_s: the age of an answer that is used again; None for the interval
        :raises ClientError: it is unknown, or the collector is closed
        """
        self.used_s = time.monotonic()
        known = self._known.get(query)
        max_age_s = self._interval_s if max_age_s is None else max_age_s
        is_old = known is None or known.round_s < self.used_s - max_age_s
        if is_old and not self._is_closed:
            self._waiting[query] = None
            if self._next_round is None:
                self._next_round = asyncio.create_task(self._round(), name="headrace-keda-round")
                self._rounds.add(self._next_round)
                self._next_round.add_done_callback(self._rounds.discard)
            await asyncio.wait([self._next_round])
        if self._is_closed:
            raise ConnectionFailed("the connections to the cluster were closed")
        result = self._known[query].result
        if isinstance(result, ClientError):
            raise result
        return result

    async def watch(self, query: BacklogQuery) -> AsyncGenerator[Backlog, None]:
        """Yield the backlog of a group repeatedly, while it is known.

        :raises ConnectionFailed: the collector was closed
        """
        while True:
            try:
                yield await self.backlog(query, 0.0)
            except ClientError:
                if self._is_closed:
                    raise
            await asyncio.sleep(self._interval_s)

    async def has_members(self, query: BacklogQuery) -> bool:
        """Return whether a group has members, and so may hold records; True while unknown."""
        if time.monotonic() - self._states_s > MEMBERS_KEPT_S:
            try:
                async with asyncio.timeout(self._timeout_s):
                    listed = await list_groups(self._cluster)
                for error in listed.errors:
                    raise error
            except (ClientError, TimeoutError) as error:
                log.warning(query.group_id, "the members of group %s: %s", query.group_id, error)
                return True
            self._states = {group.group_id: group.state for group in listed.groups}
            self._states_s = time.monotonic()
        return self._states.get(query.group_id, "Dead") not in ("Dead", "Empty")

    async def _round(self) -> None:
        await asyncio.sleep(_GATHER_S)
        async with self._one_at_a_time:
            queries, self._waiting, self._next_round = list(self._waiting), {}, None
            await self._ask(queries)

    async def _ask(self, queries: Sequence[BacklogQuery]) -> None:
        began_s = time.monotonic()
        is_old = began_s - self._leaders_s > TOPICS_KEPT_S
        if is_old:
            self._leaders, self._leaders_s = PartitionLeaders(self._cluster), began_s
        if is_old or self._times.size > _MAX_TIMES:
            self._times.begin()
        results: Mapping[BacklogQuery, Backlog | ClientError]
        try:
            async with asyncio.timeout(self._timeout_s):
                results = await backlogs(self._leaders, self._times, queries)
        except TimeoutError:
            silence = ConnectionFailed("the cluster does not answer in time")
            results = dict.fromkeys(queries, silence)
        except ClientError as failure:
            results = dict.fromkeys(queries, failure)
        except Exception as bug:  # otherwise all callers would wait for ever
            log.error("", "cannot read backlogs", exc_info=bug)
            results = dict.fromkeys(queries, ClientError("cannot read backlogs"))
        for query, result in results.items():
            if not isinstance(result, ConnectionFailed | AuthenticationFailed):
                self.has_answered = True
            known = _Known(result, began_s, began_s)
            if isinstance(result, ClientError):
                self._leaders_s = 0.0
                log.warning(query.group_id, "the backlog of group %s: %s", query.group_id, result)
                last = self._known.get(query, known)
                if isinstance(last.result, Backlog) and began_s - last.result_s <= self._keep_s:
                    known = last._replace(round_s=began_s)
            self._known[query] = known
        if any(isinstance(result, ConnectionFailed) for result in results.values()):
            await self._cluster.close()  # a request that timed out would delay the next round
        limit_s = began_s - self._keep_s - TOPICS_KEPT_S
        self._known = {
            query: known for query, known in self._known.items() if known.round_s >= limit_s
        }
