"""One collector of backlogs for all scaled objects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from typing import NamedTuple

from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError, ConnectionFailed
from headrace.client.groups import list_groups
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.times import RecordTimes
from headrace.log_lines import LimitedLog, get_logger

from .backlog import Backlog, BacklogQuery, Backlogs, backlogs

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


class _Answer(NamedTuple):
    """What was read about a group.

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
    """

    def __init__(self, settings: ClientConfig, interval_s: float, keep_s: float) -> None:
        self._cluster = settings.cluster()
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._timeout_s = settings.request_timeout_ms / 1000
        self._leaders = PartitionLeaders(self._cluster)
        self._leaders_s = 0.0
        self._times = RecordTimes(MAX_FETCHES, _TIMES_KEPT_MS)
        self._answers: dict[BacklogQuery, _Answer] = {}
        self._waiting: dict[BacklogQuery, None] = {}
        """The queries of the next round."""
        self._round: asyncio.Task[None] | None = None
        self._next_round: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._states: dict[str, str] = {}
        self._states_s = -MEMBERS_KEPT_S

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def backlog(self, query: BacklogQuery, max_age_s: float | None = None) -> Backlog:
        """Return the backlog of a group.

        :param max_age_s: the age of an answer that is used again; None for the interval
        :raises ClientError: it is unknown
        """
        oldest_s = time.monotonic() - (self._interval_s if max_age_s is None else max_age_s)
        answer = self._answers.get(query)
        if answer is None or answer.round_s < oldest_s:
            self._waiting[query] = None
            if self._next_round is None:
                self._next_round = asyncio.create_task(self._ask_all(), name="headrace-keda-round")
            await asyncio.wait([self._next_round])
        result = self._answers[query].result
        if isinstance(result, ClientError):
            raise result
        return result

    async def watch(self, query: BacklogQuery) -> AsyncGenerator[Backlog, None]:
        """Yield the backlog of a group repeatedly, while it is known."""
        while True:
            with suppress(ClientError):
                yield await self.backlog(query, 0.0)
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

    async def _ask_all(self) -> None:
        await asyncio.sleep(_GATHER_S)
        async with self._one_at_a_time:
            self._round, self._next_round = self._next_round, None
            queries, self._waiting = self._waiting, {}
            began_s = time.monotonic()
            results = await self._ask(queries, began_s)
            for query, result in results.items():
                answer = _Answer(result, began_s, began_s)
                if isinstance(result, ClientError):
                    self._leaders_s = 0.0
                    log.warning(
                        query.group_id, "the backlog of group %s: %s", query.group_id, result
                    )
                    last = self._answers.get(query, answer)
                    if isinstance(last.result, Backlog) and began_s - last.result_s <= self._keep_s:
                        answer = last._replace(round_s=began_s)
                self._answers[query] = answer
            if any(isinstance(result, ConnectionFailed) for result in results.values()):
                await self._cluster.close()  # a request that timed out would delay the next round
        limit_s = began_s - self._keep_s - TOPICS_KEPT_S
        self._answers = {
            query: answer for query, answer in self._answers.items() if answer.round_s >= limit_s
        }

    async def _ask(self, queries: Collection[BacklogQuery], now_s: float) -> Backlogs:
        is_old = now_s - self._leaders_s > TOPICS_KEPT_S
        if is_old:
            self._leaders, self._leaders_s = PartitionLeaders(self._cluster), now_s
        if is_old or self._times.size > _MAX_TIMES:
            self._times.begin()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await backlogs(self._leaders, self._times, queries)
        except TimeoutError:
            failure: ClientError = ConnectionFailed("the cluster does not answer in time")
        except ClientError as error:
            failure = error
        except Exception as bug:  # otherwise all callers would wait for ever
            log.error("", "cannot read backlogs", exc_info=bug)
            failure = ClientError("cannot read backlogs")
        return dict.fromkeys(queries, failure)
