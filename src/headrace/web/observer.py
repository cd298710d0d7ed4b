"""Observations of a cluster, made repeatedly in a thread of their own.

The cluster is queried every few seconds while a page is open, else rarely. A large cluster is
queried less often, so that observing it takes a bounded share of one core: see :func:`pause_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice

from headrace.client.cluster import TopicMetadata
from headrace.client.config import ClientConfig
from headrace.client.configs import ConfigType, config_values
from headrace.client.coordinators import Leaders
from headrace.client.dead_letters.originals import TOPIC_NAME
from headrace.client.errors import ClientError
from headrace.client.lag.model import GroupLag, summary
from headrace.client.lag.watch import Course, LagWatch
from headrace.client.lag.work import Standstills
from headrace.client.loop_thread import LoopThread
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.topics import topic_sizes
from headrace.client.workers import WORKERS_TOPIC, WorkerWatch
from headrace.log_lines import LimitedLog
from headrace.protocol.partitions import TopicPartition

from .observation import PARTITIONS_OF_PAGE, Histories, InFlightLooks, Observation, notes
from .views import GroupSummary, Point, TopicSummary

log = LimitedLog("headrace.ui")

WINDOW_MS = 30_000
"""The time over which rates are means."""
ATTENDED_S = 2.0
"""The time between two observations while a page is open."""
UNATTENDED_S = 15.0
"""The time between two observations while no page is open."""
ATTENDED_FOR_S = 30.0
"""The time after a request for which its page counts as open."""
OVERDUE_S, OVERDUE_FACTOR = 5.0, 3
"""An observation is overdue if it has not ended after this time, and this many times the duration
of the one before.
"""
_ATTENDED_SHARE, _UNATTENDED_SHARE = 0.1, 0.02
"""The largest share of the time that observations may take."""
_SETTINGS_EVERY_S = 60.0
"""The interval of queries for what changes rarely: settings of groups and topics, and sizes."""
_MAX_WARNINGS = 100
LETTERS_OVER_MS = 300_000
"""The time over which dead letters are counted."""


def pause_s(took_s: float, *, attended: bool) -> float:
    """Return the pause after an observation, in seconds.

    :param took_s: the duration of the observation
    :param attended: a page is open
    """
    every_s, share = (
        (ATTENDED_S, _ATTENDED_SHARE) if attended else (UNATTENDED_S, _UNATTENDED_SHARE)
    )
    return max(every_s - took_s, took_s / share - took_s, 0.1)


class Observer:
    """A thread that observes a cluster, from :meth:`start` to :meth:`close`.

    :ivar observation: the newest one; None before the first
    :ivar problem: the error of the newest attempt; None if it succeeded
    :ivar tried: set at the end of the first attempt
    :ivar groups: their histories
    :ivar topics: their histories
    """

    def __init__(self, config: ClientConfig) -> None:
        self.observation: Observation | None = None
        self.problem: str | None = None
        self.tried = threading.Event()
        self._cluster = config.cluster()
        self._lags = LagWatch(self._cluster, window=WINDOW_MS / 1000)
        self._workers = WorkerWatch(self._cluster)
        self.groups = Histories()
        self.topics = Histories()
        self._ends: dict[str, Course] = {}
        self._standstills = Standstills()
        self._in_flight = InFlightLooks()
        self._queues: Mapping[str, str] = {}
        self._retentions: Mapping[str, str] = {}
        self._policies: Mapping[str, str] = {}
        self._sizes: Mapping[str, int] = {}
        self._settings_of: frozenset[str] = frozenset()
        """The share groups and topics whose settings were asked for."""
        self._settings_due_s = 0.0
        self._watched_until_s = 0.0
        self._overdue_s = math.inf
        """The time by which the next observation should have ended, since the epoch: a machine that
        sleeps is overdue, too.
        """
        self._thread = LoopThread("observer")
        self._wake = asyncio.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.submit(self._observe_repeatedly())

    def close(self) -> None:
        """End the thread, and close the connections. An observation that has begun is cancelled:
        a cluster that does not answer does not delay the end.
        """
        self._thread.close()

    def stale_ms(self, now_ms: int) -> int | None:
        """Return the age of the newest observation, if it is older than it should be: the newest
        attempt failed, or has not ended in time. Return None for one that is up to date.

        :param now_ms: time since the epoch
        """
        if self.problem is None and time.time() < self._overdue_s:
            return None
        seen = self.observation
        return 0 if seen is None else max(0, now_ms - seen.time_ms)

    def watch(self) -> None:
        """Note that a page is open now."""
        now_s = time.monotonic()
        was_alone = now_s > self._watched_until_s
        self._watched_until_s = now_s + ATTENDED_FOR_S
        if was_alone:
            self._wake_up()

    def refresh(self) -> None:
        """Observe again at once, as after an action."""
        self._settings_due_s = 0.0
        self._wake_up()

    def _wake_up(self) -> None:
        async def wake() -> None:
            self._wake.set()

        with contextlib.suppress(RuntimeError):  # it is closed
            self._thread.submit(wake())

    async def _observe_repeatedly(self) -> None:
        async with self._cluster:
            while True:
                self._wake.clear()
                started_s = time.monotonic()
                await self._try_to_observe()
                now_s = time.monotonic()
                took_s = now_s - started_s
                pause = pause_s(took_s, attended=now_s < self._watched_until_s)
                self._overdue_s = time.time() + pause + max(OVERDUE_S, OVERDUE_FACTOR * took_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()

    async def _try_to_observe(self) -> None:
        """Observe once; a failure becomes :attr:`problem`."""
        # It creates many objects and no cycles: a search for cycles would take a third of its time.
        gc.disable()
        try:
            self.observation = await self._observe()
            self.problem = None
        except Exception as error:
            if isinstance(error, ClientError):
                self.problem = str(error)
                log.warning("", "cannot look at the cluster: %s", error)
            else:
                self.problem = f"cannot look at the cluster: {type(error).__name__}"
                log.error("", "cannot look at the cluster", exc_info=error)
            await self._cluster.close()
        finally:
            gc.enable()
        self.tried.set()

    async def _observe(self) -> Observation:
        started_s = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        partitions: dict[str, list[TopicPartition]] = {}

        def note_partitions(part: Sequence[GroupLag]) -> None:
            self._standstills.add(part)
            for group in part:
                if group.type == "share" and group.members:
                    first = group.partitions[:PARTITIONS_OF_PAGE]
                    partitions[group.group_id] = [lag.key for lag in first]

        self._standstills.begin(started_s)
        lags = await self._lags.snapshot(note_partitions)
        warnings = list(lags.warnings)
        by_id = {group.group_id: group for group in lags.groups}
        groups = {group_id: GroupSummary(**summary(group)) for group_id, group in by_id.items()}
        stuck = self._standstills.end()
        sentences = await self._in_flight.look(self._cluster, by_id, partitions, stuck, now_ms)
        described = await self._observe_topics(now_ms, warnings)
        await self._learn_settings(
            [group_id for group_id, group in groups.items() if group.group_type == "share"],
            list(described),
        )
        topics = self._summaries(
            described, Counter(topic for group in lags.groups for topic in group.topics)
        )
        seen_workers = await self._workers.look_or_tell(warnings) if WORKERS_TOPIC in topics else []
        after_gap = self.problem is not None or time.time() > self._overdue_s
        self.groups.add(
            {
                group_id: Point(
                    now_ms, group.lag, group.time_lag_ms, group.done_per_s, group.produced_per_s
                )
                for group_id, group in groups.items()
            },
            after_gap=after_gap,
        )
        self.topics.add(
            {
                name: Point(now_ms, produced_per_s=topic.produced_per_s)
                for name, topic in topics.items()
            },
            after_gap=after_gap,
        )
        letters = {
            group_id: (queue, *self._ends[queue].growth(LETTERS_OVER_MS))
            for group_id, queue in self._queues.items()
            if queue in self._ends
        }
        return Observation(
            time_ms=now_ms,
            took_ms=int((time.monotonic() - started_s) * 1000),
            cluster_id=self._cluster.cluster_id,
            brokers=len(self._cluster.nodes),
            groups=groups,
            topics=topics,
            topics_of={group_id: tuple(group.topics) for group_id, group in by_id.items()},
            queues=self._queues,
            notes=notes(groups, letters, seen_workers, sentences, self._in_flight.late),
            warnings=warnings,
            workers=seen_workers,
            clients={
                member.member_id: member.client_id
                for group in lags.groups
                if group.type == "share"
                for member in group.members
            },
        )

    def _summaries(
        self, topics: dict[str, TopicMetadata], readers: Counter[str]
    ) -> dict[str, TopicSummary]:
        letters_of = defaultdict(list)
        for group_id, queue in sorted(self._queues.items()):
            letters_of[queue].append(group_id)
        summaries = {}
        for name, topic in sorted(topics.items()):
            ends = self._ends.get(name)
            summaries[name] = TopicSummary(
                name,
                len(topic.leaders),
                topic.is_internal or name == WORKERS_TOPIC,
                None if ends is None else ends.points[-1][1],
                None if ends is None else ends.rate(WINDOW_MS),
                readers[name],
                letters_of.get(name, ()),
                self._sizes.get(name),
                _whole(self._retentions.get(name)),
                self._policies.get(name),
            )
        return summaries

    async def _learn_settings(self, group_ids: Sequence[str], topics: Sequence[str]) -> None:
        """Ask for the dead-letter queues of share groups, and for the retention and sizes of
        topics; without permission they are unknown.
        """
        now_s = time.monotonic()
        names = frozenset((*group_ids, *topics))
        if now_s < self._settings_due_s and self._settings_of == names:
            return
        cluster, topic = self._cluster, ConfigType.TOPIC
        self._queues = await config_values(cluster, ConfigType.GROUP, group_ids, TOPIC_NAME)
        self._retentions = await config_values(cluster, topic, topics, "retention.ms")
        self._policies = await config_values(cluster, topic, topics, "cleanup.policy")
        try:
            self._sizes = await topic_sizes(cluster)
        except ClientError as error:
            log.info("", "the sizes of topics are unknown: %s", error)
            self._sizes = {}
        self._settings_of, self._settings_due_s = names, now_s + _SETTINGS_EVERY_S

    async def _observe_topics(self, now_ms: int, warnings: list[str]) -> dict[str, TopicMetadata]:
        """Return all topics, and note the sums of their end offsets."""
        topics = await self._cluster.all_topics()
        leaders = Leaders(self._cluster)
        leaders.topics |= topics
        keys = [(name, number) for name, topic in topics.items() for number in topic.leaders]
        answers = await list_offsets(
            self._cluster, dict.fromkeys(keys, LATEST), leaders=leaders, attempts=1
        )
        totals: Counter[str] = Counter()
        problems: dict[str, ClientError] = {}
        for (name, _), answer in answers.items():
            if isinstance(answer, ClientError):
                problems[name] = answer
            else:
                totals[name] += answer.offset or 0
        warnings += [
            f"the end offsets of topic '{name}' are unknown: {problem}"
            for name, problem in islice(problems.items(), _MAX_WARNINGS)
        ]
        self._ends = {
            name: self._ends.get(name) or Course(LETTERS_OVER_MS)
            for name in totals
            if name not in problems
        }
        for name, ends in self._ends.items():
            ends.add(now_ms, totals[name])
        return topics


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
