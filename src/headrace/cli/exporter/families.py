"""The metrics of the exporter: names, labels, meanings, and their samples from a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from headrace.client.lag.rates import LagRates, seconds_to_zero
from headrace.client.lag.rows import LagRow
from headrace.client.lag.summary import GroupLag, TopicLag
from headrace.metric_family import Family

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
LAG = Family("headrace_group_lag", _TOPIC, "records that the group still has to finish")
LAG_SECONDS = Family(
    "headrace_group_lag_seconds",
    _TOPIC,
    "age of the oldest record that the group still has to finish; 0 if there is none",
)
UNKNOWN = Family(
    "headrace_group_unknown_partitions",
    _TOPIC,
    "partitions whose lag is unknown and not in headrace_group_lag",
)
CONSUMED = Family(
    "headrace_group_consumed_records_total",
    _TOPIC,
    "records by which the position of the group has advanced since the exporter first saw it",
)
CONSUMPTION = Family(
    "headrace_group_consumption_rate", _TOPIC, "records per second that it consumes"
)
TO_ZERO = Family(
    "headrace_group_seconds_to_zero",
    _TOPIC,
    "forecast of the time until what waits is finished, at the rates of consumption and "
    "production; +Inf if the lag does not shrink",
)
PRODUCED = Family(
    "headrace_topic_produced_records_total",
    ("topic",),
    "records produced to the topic since the exporter first saw it",
)
PRODUCTION = Family(
    "headrace_topic_production_rate", ("topic",), "records per second produced to the topic"
)
PARTITION_LAG = Family(
    "headrace_group_partition_lag", _PARTITION, "headrace_group_lag of one partition"
)
PARTITION_LAG_SECONDS = Family(
    "headrace_group_partition_lag_seconds",
    _PARTITION,
    "headrace_group_lag_seconds of one partition",
)
PARTITION_OFFSET = Family(
    "headrace_group_partition_offset",
    _PARTITION,
    "committed offset; for a share group its start offset",
)
PARTITION_END = Family(
    "headrace_topic_partition_end_offset", ("topic", "partition"), "end of the log"
)

FAMILIES = (
    UP,
    SCRAPE_SECONDS,
    PROBLEMS,
    STATE,
    MEMBERS,
    LAG,
    LAG_SECONDS,
    UNKNOWN,
    CONSUMED,
    CONSUMPTION,
    TO_ZERO,
    PRODUCED,
    PRODUCTION,
    PARTITION_LAG,
    PARTITION_LAG_SECONDS,
    PARTITION_OFFSET,
    PARTITION_END,
)
"""All metrics, in the order of the page."""


class ScrapedLags:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._samples: dict[str, Metric] = {one.name: one.empty() for one in FAMILIES}
        self._ends: dict[tuple[str, int], int] = {}

    def add_partitions(self, rows: Iterable[LagRow]) -> None:
        """Add the samples of partitions."""
        for row in rows:
            if row.topic is not None and row.partition is not None:
                self._add_partition(row, row.topic, row.partition)

    def _add_partition(self, row: LagRow, topic: str, partition: int) -> None:
        labels = dict(
            zip(_PARTITION, (row.group_id, row.group_type, topic, str(partition)), strict=True)
        )
        lag_s = None if row.time_lag_ms is None else row.time_lag_ms / 1000
        offset = row.start_offset if row.group_type == "share" else row.committed_offset
        for family, value in (
            (PARTITION_LAG, row.lag),
            (PARTITION_LAG_SECONDS, lag_s),
            (PARTITION_OFFSET, offset),
        ):
            if value is not None:  # one dict of labels for all three
                self._samples[family.name].add_sample(family.name, labels, value)
        if row.end_offset is not None:
            self._ends[topic, partition] = row.end_offset

    def finish(self, groups: Mapping[str, GroupLag], rates: LagRates) -> None:
        """Add the samples of groups and topics.

        :param rates: of the same snapshot
        """
        for group_id, group in groups.items():
            labels = (group_id, group.type)
            self._sample(STATE, (*labels, group.state), 1)
            self._sample(MEMBERS, labels, len(group.members))
            for topic, lag in group.topics.items():
                self._add_topic((*labels, topic), lag, rates)
        for topic in rates.topics():
            produced, per_s = rates.produced(topic)
            self._sample(PRODUCED, (topic,), produced)
            self._sample(PRODUCTION, (topic,), per_s)
        for (topic, partition), end in self._ends.items():
            self._sample(PARTITION_END, (topic, str(partition)), end)

    def _add_topic(self, labels: tuple[str, str, str], lag: TopicLag, rates: LagRates) -> None:
        group_id, _, topic = labels
        consumed, per_s = rates.consumed(group_id, topic)
        self._sample(LAG, labels, lag.lag)
        if lag.lag is not None and lag.time_lag_ms is not None:
            self._sample(LAG_SECONDS, labels, lag.time_lag_ms / 1000)
        self._sample(UNKNOWN, labels, lag.unknown)
        self._sample(CONSUMED, labels, consumed)
        self._sample(CONSUMPTION, labels, per_s)
        produced_per_s = rates.produced_for(group_id, topic)
        left_s = seconds_to_zero(lag.lag, lag.unknown, per_s, produced_per_s)
        self._sample(TO_ZERO, labels, left_s)

    def about(self, *, up: bool, scrape_s: float, problems: int) -> None:
        """Add the samples of the scrape itself."""
        self._sample(UP, (), int(up))
        self._sample(SCRAPE_SECONDS, (), scrape_s)
        self._sample(PROBLEMS, (), problems)

    def _sample(self, family: Family, values: tuple[str, ...], value: float | None) -> None:
        """Add a sample, unless its value is unknown."""
        if value is not None:
            family.add(self._samples[family.name], values, value)

    def page(self) -> bytes:
        """Return the page for Prometheus. Each metric's samples are dropped, to bound memory."""
        pages = []
        for family in FAMILIES:
            metric = self._samples.pop(family.name)
            if metric.samples:
                pages.append(generate_latest(_One(metric)))
        return b"".join(pages)


class _One(Collector):
    """A collector of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        yield self._metric
