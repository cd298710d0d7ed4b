"""The work that groups have, for an autoscaler: one collector for all scaled objects, with few
requests for all groups together.

Records that members of a share group hold are work, too: they count until they are accepted,
rejected or archived (KIP-1226).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.config import ClientConfig
from headrace.client.configs import ConfigType, config_values
from headrace.client.errors import ClientError, ConnectionFailed, UnknownTopic
from headrace.client.groups import ListedGroup, list_groups
from headrace.client.lag.model import GroupLag, LagQuery, PartitionLag, records_left
from headrace.client.lag.partition_leaders import PartitionLeaders
from headrace.client.lag.snapshot import GroupProgress, measure, read_positions
from headrace.client.lag.times import RecordTimes
from headrace.log_lines import LimitedLog

log = LimitedLog("headrace.keda")

TOPICS_KEPT_S = 30.0
"""The time after which topics are looked up again, for new partitions."""
MEMBERS_KEPT_S = 5.0
"""The time for which the states of the groups need no new request."""
MAX_FETCHES = 20
"""The limit of requests to one broker, in one round, to tell records from transaction markers."""
MAX_ANSWERS = 5_000
"""The answers in memory: more than there are calls at a time."""
_TIMES_KEPT_MS = 60_000
_MAX_TIMES = 100_000
"""The number of positions in memory after which old ones are forgotten early."""
_GATHER_S = 0.02
"""The time that a round waits for further calls."""


class BacklogCollector:
    """A collector that queries a cluster in rounds, each for all groups that somebody waits for.

    :param interval_s: the pause between two queries for watched groups; an answer of this age is
        used again
    """

    def __init__(self, settings: ClientConfig, interval_s: float) -> None:
        self._cluster = settings.cluster()
        self._interval_s = interval_s
        self._timeout_s = settings.request_timeout_ms / 1000
        self._leaders = PartitionLeaders(self._cluster)
        self._leaders_s = 0.0
        self._times = RecordTimes(MAX_FETCHES, _TIMES_KEPT_MS)
        self._answers: dict[BacklogQuery, tuple[float, Backlog | ClientError]] = {}
        """Query → when the last round has asked for it, and the answer."""
        self._waiting: dict[BacklogQuery, None] = {}
        """The queries of the next round."""
        self._round: asyncio.Task[None] | None = None
        """The one that has begun; the event loop holds no reference to it."""
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
        asked_s, result = self._answers.get(query, (0.0, None))
        if result is None or asked_s < oldest_s:
            self._waiting[query] = None
            if self._next_round is None:
                self._next_round = asyncio.create_task(self._ask_all(), name="headrace-keda-round")
            await asyncio.wait([self._next_round])
            _, result = self._answers[query]
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
            limit_s = began_s - max(self._interval_s, TOPICS_KEPT_S)
            self._answers = {
                query: answer for query, answer in self._answers.items() if answer[0] >= limit_s
            }
            for query, result in (await self._ask(queries, began_s)).items():
                self._answers.pop(query, None)
                self._answers[query] = began_s, result
                if isinstance(result, ClientError):
                    self._leaders_s = 0.0
                    log.warning(
                        query.group_id, "the backlog of group %s: %s", query.group_id, result
                    )
            while len(self._answers) > max(MAX_ANSWERS, len(queries)):
                del self._answers[next(iter(self._answers))]
            if any(isinstance(self._answers[query][1], ConnectionFailed) for query in queries):
                await self._cluster.close()  # a request that timed out would delay the next round

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


# Backlogs -----------------------------------------------------------------------------------------

SHARE, CONSUMER = "share", "consumer"
GROUPS_AT_ONCE = 200
"""The number of groups in one request."""

_RESET = "share.auto.offset.reset"
_QUERY = LagQuery(members=False, complete_counts=False)


@dataclass(frozen=True, slots=True)
class BacklogQuery:
    """A group and its topics.

    :param kind: :data:`SHARE` or :data:`CONSUMER`
    :param topics: empty for those in which the group has a position
    """

    group_id: str
    kind: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work of a group.

    :param records: those that it still has to finish. A partition in which it has no position
        counts as one if it has records, as a member must come to set the position; but in whole if
        a config of the share group says that it begins with the oldest record
    :param partitions: number of partitions of its topics
    """

    records: int
    partitions: int


Backlogs = dict[BacklogQuery, Backlog | ClientError]
"""The work of each group, or the reason why it is unknown."""


async def backlogs(
    leaders: PartitionLeaders, times: RecordTimes, queries: Collection[BacklogQuery]
) -> Backlogs:
    """Return the work of groups.

    :param leaders: a cache, as is ``times``
    :raises ClientError: no broker answers
    """
    results: Backlogs = {}
    for kind in (SHARE, CONSUMER):
        of_kind = [query for query in queries if query.kind == kind]
        for start in range(0, len(of_kind), GROUPS_AT_ONCE):
            some = of_kind[start : start + GROUPS_AT_ONCE]
            results |= await _backlogs(leaders, times, kind, some)
    return results


async def _backlogs(
    leaders: PartitionLeaders, times: RecordTimes, kind: str, queries: Sequence[BacklogQuery]
) -> Backlogs:
    topics: defaultdict[str, set[str]] = defaultdict(set)
    for query in queries:
        topics[query.group_id].update(query.topics)
    groups = [ListedGroup(group_id, kind, "", "", -1) for group_id in topics]
    read = await read_positions(leaders, groups, _QUERY, topics)
    progress = [group for group in read.values() if isinstance(group, GroupProgress)]
    now_ms = time.time_ns() // 1_000_000
    lags: dict[str, GroupLag | ClientError] = {
        group_id: error for group_id, error in read.items() if isinstance(error, ClientError)
    }
    for lag in await measure(leaders, progress, _QUERY, now_ms, times):
        lags[lag.group_id] = lag
    beginning = [
        group.group_id
        for group in progress
        if kind == SHARE and any(lag.position is None for lag in group.partitions.values())
    ]
    resets = await config_values(leaders.cluster, ConfigType.GROUP, beginning, _RESET)
    results: Backlogs = {}
    for query in queries:
        group = lags[query.group_id]
        is_early = resets.get(query.group_id, "latest") != "latest"
        results[query] = backlog(query, group, is_early) if isinstance(group, GroupLag) else group
    return results


def backlog(query: BacklogQuery, group: GroupLag, is_early: bool) -> Backlog | ClientError:
    """Return the work of a group, or the reason why it is unknown. Pure.

    :param is_early: the group begins with the oldest record of a partition without a position
    """
    for topic in query.topics:
        if topic not in group.topics:
            return UnknownTopic(topic)
    partitions = [
        lag
        for lag in group.partitions
        if (lag.topic in query.topics if query.topics else lag.position is not None)
    ]
    if not partitions:
        return ClientError(
            f"group '{query.group_id}' has no position in any topic: name its topics"
        )
    records = 0
    for lag in partitions:
        left = _left(lag, is_early)
        if left is None:
            return ClientError(f"the end of {lag.topic}-{lag.partition} is unknown")
        records += left
    return Backlog(records, len(partitions))


def _left(lag: PartitionLag, is_early: bool) -> int | None:
    if lag.records is not None:
        return lag.records
    if lag.position is not None:  # the broker does not tell what is finished
        return records_left(lag.position, lag.log_start_offset, lag.end_offset)
    left = records_left(lag.log_start_offset, lag.log_start_offset, lag.end_offset)
    return left if is_early or left is None else min(left, 1)
