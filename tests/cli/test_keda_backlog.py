"""What `headrace keda-scaler` counts as the work of a group. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.keda.collector import SHARE, Backlog, BacklogQuery, backlog
from headrace.client.errors import ClientError, UnknownTopic
from headrace.client.lag.model import PartitionLag, group_lag


def count(
    *partitions: dict[str, Any], topics: tuple[str, ...] = (), is_early: bool = False
) -> Backlog | ClientError:
    lags = [
        PartitionLag(**{"topic": "t", "partition": number, "log_start_offset": 0, **fields})
        for number, fields in enumerate(partitions)
    ]
    group = group_lag("g", SHARE, "Empty", (), lags)
    return backlog(BacklogQuery("g", SHARE, topics), group, is_early)


@pytest.mark.parametrize(
    ("fields", "is_early", "records"),
    [
        ({"position": 4, "end_offset": 10, "records": 6}, False, 6),
        ({"position": 4, "end_offset": 10, "records": 0}, False, 0),  # markers only
        ({"position": 4, "end_offset": 10}, False, 6),  # a broker that tells no lag
        ({"position": 4, "end_offset": 10, "log_start_offset": 7}, False, 3),
        ({"end_offset": 10}, True, 10),
        ({"end_offset": 10, "log_start_offset": 7}, True, 3),
        ({"end_offset": 10}, False, 1),  # a member must come to set the position
        ({"end_offset": 10, "records": 0}, False, 0),
    ],
)
def test_the_work_in_a_partition(fields: dict[str, Any], is_early: bool, records: int) -> None:
    assert count(fields, topics=("t",), is_early=is_early) == Backlog(records, 1)


def test_the_partitions_that_count() -> None:
    here, elsewhere = {"position": 0, "end_offset": 2, "records": 2}, {"topic": "u"}
    assert count(here, {"end_offset": 5}) == Backlog(2, 1), "those with a position"
    assert count(here, {**here, **elsewhere}) == Backlog(4, 2)
    assert count(here, {**here, **elsewhere}, topics=("t",)) == Backlog(2, 1)


def test_unknown_is_no_number() -> None:
    assert isinstance(count(topics=("t",)), UnknownTopic)
    for unknown in (count(), count({"end_offset": 5})):
        assert str(unknown) == "group 'g' has no position in any topic: name its topics"
    assert str(count({"position": 1})) == "the end of t-0 is unknown"
