"""Scrapes of a cluster as metrics: each takes one snapshot, with a limit of time and of requests.
:data:`FAMILIES` has their names, labels and meanings.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Mapping

from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.client.lag.model import GroupLag, LagQuery
from headrace.client.lag.watch import LagWatch
from headrace.log_lines import LimitedLog
from headrace.metric_family import Family

log = LimitedLog("headrace.exporter")

_PROBLEMS_LOGGED = 5


class Scraper:
    """The source of the pages of metrics.

    :param settings: their timeout of a request is the limit of one scrape, too
    :param query: the groups and topics
    :param by_partition: add samples of each partition
    :param window_s: the time over which rates are means
    """

    def __init__(
        self,
        settings: ClientConfig,
        query: LagQuery,
        *,
        by_partition: bool,
        window_s: float,
    ) -> None:
        self._cluster = settings.cluster()
        self._watch = LagWatch(self._cluster, query, window_s)
        self._by_partition = by_partition
        self._timeout_ms = settings.request_timeout_ms

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def page(self) -> bytes:
        """Scrape the cluster, and return the page; only the exporter's metrics if that fails."""
        started_s = time.monotonic()
        page = ScrapedLags()
        problems: list[str] = []
        up = False
        # A snapshot creates many objects and no cycles: searching for cycles would take a third of
        # its time.
        gc.disable()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                each_part = page.add_partitions if self._by_partition else None
                seen = await self._watch.snapshot(each_part)
                problems += seen.warnings
                page.finish(seen.groups, self._watch.rates.produced())
            up = True
        except TimeoutError:
            problems.append(f"the cluster did not answer within {self._timeout_ms} ms")
        except ClientError as error:
            problems.append(str(error))
        finally:
            gc.enable()
        if not up:
            page = ScrapedLags()
            await self._cluster.close()  # a request that timed out would delay the next scrape
        for problem in problems[:_PROBLEMS_LOGGED]:
            log.warning(problem, "%s", problem)
        if len(problems) > _PROBLEMS_LOGGED:
            log.warning("", "and %d more problems", len(problems) - _PROBLEMS_LOGGED)
        page.about(up=up, scrape_s=time.monotonic() - started_s, problems=len(problems))
        return page.page()


# Metrics ------------------------------------------------------------------------------------------

_GROUP = ("group", "type")
_TOPIC = ("group", "type", "topic")
_PARTITION = ("group", "type", "topic", "partition")

UP = Family("headrace_exporter_up", (), "1 if the cluster answered this scrape, else 0")
SCRAPE_SECONDS = Family(
    "headrace_exporter_scrape_seconds", (), "time that the brokers took to answer"
)
PROBLEMS = Family(
    "headrace_exporter_problems",
    (),
    "groups, brokers and partitions that this scrape could not ask; the log has the reasons",
)
STATE = Family("headrace_group_state", (*_GROUP, "state"), "1 for the state of a group")
MEMBERS = Family("headrace_group_members", _GROUP, "members of a group")
OF_TOPIC = {
    "records": Family("headrace_group_lag", _TOPIC, "records that the group still has to finish"),
    "seconds": Family(
        "headrace_group_lag_seconds",
        _TOPIC,
        "age of the oldest record that the group still has to finish; 0 if there is none",
    ),
    "unknown": Family(
        "headrace_group_unknown_partitions",
        _TOPIC,
        "partitions whose lag is unknown and not in headrace_group_lag",
    ),
    "done": Family(
        "headrace_group_consumed_records_total",
        _TOPIC,
        "records by which the position of the group has advanced since the exporter first saw it",
    ),
    "done_per_s": Family(
        "headrace_group_consumption_rate", _TOPIC, "records per second that it consumes"
    ),
    "seconds_to_zero": Family(
        "headrace_group_seconds_to_zero",
        _TOPIC,
        "forecast of the time until what waits is finished, at the rates of consumption and "
        "production; +Inf if the lag does not shrink",
    ),
}
"""Attribute of the lag of a group in a topic → its metric."""
PRODUCED = Family(
    "headrace_topic_produced_records_total",
    ("topic",),
    "records produced to the topic since the exporter first saw it",
)
PRODUCTION = Family(
    "headrace_topic_production_rate", ("topic",), "records per second produced to the topic"
)
OF_PARTITION = {
    "records": Family(
        "headrace_group_partition_lag", _PARTITION, "headrace_group_lag of one partition"
    ),
    "seconds": Family(
        "headrace_group_partition_lag_seconds",
        _PARTITION,
        "headrace_group_lag_seconds of one partition",
    ),
    "position": Family(
        "headrace_group_partition_offset",
        _PARTITION,
        "committed offset; for a share group its start offset",
    ),
}
"""Attribute of the lag of a partition → its metric."""
PARTITION_END = Family(
    "headrace_topic_partition_end_offset", ("topic", "partition"), "end of the log"
)

FAMILIES = (
    *(UP, SCRAPE_SECONDS, PROBLEMS, STATE, MEMBERS),
    *OF_TOPIC.values(),
    *(PRODUCED, PRODUCTION),
    *OF_PARTITION.values(),
    PARTITION_END,
)
"""All metrics, in the order of the page."""


class ScrapedLags:
    """The samples of one scrape, as lines of the page."""

    def __init__(self) -> None:
        self._lines: dict[Family, list[str]] = {family: [] for family in FAMILIES}
        self._ends: dict[tuple[str, int], int] = {}

    def add_partitions(self, groups: Iterable[GroupLag]) -> None:
        """Add the samples of partitions."""
        for group in groups:
            for lag in group.partitions:
                label = OF_PARTITION["records"].label(
                    group.group_id, group.type, lag.topic, lag.partition
                )
                for attribute, family in OF_PARTITION.items():
                    self._add(family, label, getattr(lag, attribute))
                if lag.end_offset is not None:
                    self._ends[lag.key] = lag.end_offset

    def finish(
        self, groups: Iterable[GroupLag], produced: Mapping[str, tuple[int, float | None]]
    ) -> None:
        """Add the samples of groups and topics.

        :param produced: topic → records since the first scrape, and per second
        """
        for group in groups:
            values = group.group_id, group.type
            self._add(STATE, STATE.label(*values, group.state), 1)
            self._add(MEMBERS, MEMBERS.label(*values), len(group.members))
            for topic, lag in group.topics.items():
                label = OF_TOPIC["records"].label(*values, topic)
                for attribute, family in OF_TOPIC.items():
                    self._add(family, label, getattr(lag, attribute))
        for topic, (records, per_s) in produced.items():
            label = PRODUCED.label(topic)
            self._add(PRODUCED, label, records)
            self._add(PRODUCTION, label, per_s)
        for key, end in self._ends.items():
            self._add(PARTITION_END, PARTITION_END.label(*key), end)

    def about(self, *, up: bool, scrape_s: float, problems: int) -> None:
        """Add the samples of the scrape itself."""
        self._add(UP, "", int(up))
        self._add(SCRAPE_SECONDS, "", scrape_s)
        self._add(PROBLEMS, "", problems)

    def _add(self, family: Family, label: str, value: float | None) -> None:
        """Add a sample, unless its value is unknown."""
        if value is not None:
            self._lines[family].append(family.line(label, value))

    def page(self) -> bytes:
        """Return the page for Prometheus."""
        return b"".join(
            "".join([family.head, *lines]).encode()
            for family, lines in self._lines.items()
            if lines
        )
