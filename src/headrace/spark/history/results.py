"""Results of a history: what the driver needs for tables, JSON and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from .advice import Advice, Series, Target
from .query import Period


@dataclass(frozen=True, slots=True)
class GroupStall:
    """A time without progress of some partitions of a group.

    :param kind: as in :mod:`headrace.spark.history.advice`
    :param partitions: number of partitions
    """

    kind: str
    first: datetime
    last: datetime
    partitions: int


@dataclass(frozen=True, slots=True)
class Plots:
    """Series of a group, summed over its partitions: arrays with an element per point in time."""

    lag: Series
    time_lag_s: Series
    consumed_per_s: Series
    produced_per_s: Series


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """The history of one group. None means unknown.

    :param members: number of members at the end of the period
    :param gone: the group, or its offsets, have been deleted
    :param partitions: number of partitions with a position
    :param lag: in records
    :param time_lag_s: of the partition that is furthest behind
    :param consumed_per_s: records per second, the mean of the last quarter of the period, as is
        ``produced_per_s``
    :param busy_per_s: records per second consumed while there were records to read
    :param eta_s: seconds until the lag is zero at the recent rates; None if it never will be
    :param plots: None except for the groups with the most lag
    """

    group_id: str
    group_type: str
    members: int
    gone: bool
    partitions: int
    lag: float | None
    time_lag_s: float | None
    consumed_per_s: float
    produced_per_s: float
    busy_per_s: float
    eta_s: float | None
    advice: Advice
    stalls: Sequence[GroupStall]
    plots: Plots | None

    def as_row(self) -> dict[str, Any]:
        """Return the row of :data:`GROUPS_SCHEMA`, which is also the group's JSON."""
        return {
            "group_id": self.group_id,
            "group_type": self.group_type,
            "members": self.members,
            "gone": self.gone,
            "partitions": self.partitions,
            "lag": None if self.lag is None else int(self.lag),
            "time_lag_s": self.time_lag_s,
            "consumed_per_s": self.consumed_per_s,
            "produced_per_s": self.produced_per_s,
            "busy_per_s": self.busy_per_s,
            "eta_s": self.eta_s,
            "recommended_consumers": self.advice.consumers,
            "wanted_consumers": self.advice.wanted,
            "limited_by": self.advice.limited_by,
            "drain_s": self.advice.drain_s,
            "stalls": [
                {
                    "kind": stall.kind,
                    "first": stall.first.isoformat(timespec="seconds"),
                    "last": stall.last.isoformat(timespec="seconds"),
                    "partitions": stall.partitions,
                }
                for stall in self.stalls
            ],
        }


_STALL = pa.struct(
    [
        ("kind", pa.string()),
        ("first", pa.string()),
        ("last", pa.string()),
        ("partitions", pa.int32()),
    ]
)
GROUPS_SCHEMA = pa.schema(
    [
        ("group_id", pa.string()),
        ("group_type", pa.string()),
        ("members", pa.int32()),
        ("gone", pa.bool_()),
        ("partitions", pa.int32()),
        ("lag", pa.int64()),
        ("time_lag_s", pa.float64()),
        ("consumed_per_s", pa.float64()),
        ("produced_per_s", pa.float64()),
        ("busy_per_s", pa.float64()),
        ("eta_s", pa.float64()),
        ("recommended_consumers", pa.int32()),
        ("wanted_consumers", pa.int32()),
        ("limited_by", pa.string()),
        ("drain_s", pa.float64()),
        ("stalls", pa.list_(_STALL)),
    ]
)


@dataclass(frozen=True, slots=True)
class Report:
    """The history of a cluster.

    :param groups: the group with the most lag first
    :param records: number of records of the internal topics
    :param unreadable: number of those whose type or version is not known
    """

    bootstrap_servers: str
    period: Period
    target: Target
    groups: Sequence[GroupHistory]
    records: int
    unreadable: int
