"""The lag of groups: sums, rates between snapshots with given times, forecasts, flat rows."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from headrace.client.groups import GroupMember, ListedGroup
from headrace.client.lag.model import (
    GroupLag,
    LagQuery,
    LagSum,
    PartitionLag,
    Snapshot,
    group_lag,
    known_sum,
    records_left,
    rows,
    summary,
)
from headrace.client.lag.watch import LagRates


def group(*partitions: PartitionLag, group_id: str = "g", **fields: Any) -> GroupLag:
    fields = {"kind": "classic", "state": "Empty", "members": (), **fields}
    return group_lag(group_id, partitions=partitions, **fields)


def observe(rates: LagRates, now_s: float, *groups: GroupLag) -> list[GroupLag]:
    rates.begin(int(now_s * 1000))
    for each in groups:
        rates.add([each])
    return rates.end()


def committed(offset: int | None, end: int | None = 100, **fields: Any) -> PartitionLag:
    at: dict[str, Any] = {"topic": "t", "partition": 0, **fields}
    return PartitionLag(position=offset, end_offset=end, **at)


def shared(start: int, end: int, lag: int, count: int | None = None) -> GroupLag:
    at = committed(start, end, records=lag, delivery_complete_count=count)
    return group(at, kind="share")


def done(groups: list[GroupLag], topic: str = "t") -> tuple[int, float | None]:
    lag = groups[0].topics[topic]
    return lag.done, lag.done_per_s


def test_rates_are_means_over_the_window() -> None:
    rates = LagRates(window_ms=10_000)
    for second in range(0, 60, 5):
        offset = second * (2 if second < 30 else 4)
        seen = observe(rates, second, group(committed(offset, 1000 + second)))
    assert done(seen) == (220, 4.0)
    assert rates.produced() == {"t": (55, 1.0)}


def test_two_snapshots_at_one_time_divide_by_nothing() -> None:
    rates = LagRates()
    observe(rates, 1, group(committed(0)))
    assert done(observe(rates, 1, group(committed(5)))) == (5, None)


def test_a_position_that_is_unknown_for_a_while_loses_nothing() -> None:
    rates = LagRates()
    for second, offset in enumerate((1, None, 7)):
        seen = observe(rates, second, group(committed(offset)))
    assert done(seen) == (6, 3.0)


def test_what_is_gone_is_forgotten() -> None:
    rates = LagRates()
    observe(rates, 0, group(committed(0), committed(0, topic="u")))
    observe(rates, 1, group(committed(4)), group(committed(0), group_id="h"))
    assert list(rates.produced()) == ["t"]
    assert done(observe(rates, 2, group(committed(8, topic="u"))), "u") == (0, None)


def test_the_finished_records_of_a_share_group_are_counted_once() -> None:
    rates = LagRates()
    # Without the count, the end is read later than the lag: 3 records too many seem finished.
    for second, seen in enumerate(
        (
            shared(10, 20, 10, count=0),
            shared(10, 23, 8),  # 15, of which 12 are finished
            shared(10, 23, 10, count=3),  # 13
            shared(10, 30, 14, count=6),  # 16
        )
    ):
        watched = observe(rates, second, seen)
    assert done(watched)[0] == 6
    observe(rates, 4, shared(0, 30, 30, count=0))  # reset
    assert done(observe(rates, 5, shared(0, 30, 25, count=5)))[0] == 11


@pytest.mark.parametrize(
    ("records", "unknown", "done", "produced", "left_s"),
    [
        (0, 0, None, None, 0),
        (0, 1, 5.0, 5.0, None),  # unknown is not zero
        (None, 2, 5.0, 5.0, None),
        (500, 0, 20.0, 10.0, 50),
        (500, 1, 20.0, 10.0, None),
        (500, 0, 10.0, 20.0, inf),
        (500, 1, 10.0, 20.0, inf),  # the unknown part cannot make it better
        (500, 0, 0.0, 0.0, inf),
        (1, 0, 0.0, 0.0, inf),
        (500, 0, None, 20.0, None),
        (9, 0, 11.0, 11.0, 9 / 11),  # it keeps up
        (9, 1, 11.0, 11.0, None),
    ],
)
def test_a_bad_trend_is_told_though_a_part_is_unknown(
    records: int | None,
    unknown: int,
    done: float | None,
    produced: float | None,
    left_s: float | None,
) -> None:
    lag = LagSum(
        partitions=9,
        unknown=unknown,
        records=records,
        seconds=None,
        done_per_s=done,
        produced_per_s=produced,
    )
    assert lag.seconds_to_zero == left_s


def trend(*snapshots: list[PartitionLag]) -> GroupLag:
    """Return the group after snapshots, one a second."""
    rates = LagRates()
    for second, partitions in enumerate(snapshots):
        (watched,) = observe(rates, second, group(*partitions))
    assert not watched.partitions, "they are not kept"
    return watched


def test_a_group_that_falls_behind_where_its_lag_is_known() -> None:
    lag = trend(
        [committed(0, 1000, records=1000), committed(None, 50, partition=1)],
        [committed(10, 1100, records=1090), committed(None, 50, partition=1)],
    ).lag
    assert (lag.records, lag.unknown, lag.produced_per_s, lag.seconds_to_zero) == (
        1090,
        1,
        100,
        inf,
    )


@pytest.mark.parametrize(("records", "left_s"), [(120, inf), (9, None)])
def test_production_where_the_lag_is_unknown_is_no_bad_trend(
    records: int, left_s: float | None
) -> None:
    watched = trend(
        *(
            [
                committed(11 * second, 120 + 11 * second, records=records),
                committed(None, 1000 * second, partition=1),
            ]
            for second in range(3)
        )
    )
    lag = watched.lag
    assert (lag.done_per_s, lag.produced_per_s, lag.seconds_to_zero) == (11, 11, left_s)
    assert summary(watched)["seconds_to_zero"] == (-1 if left_s else None)


@pytest.mark.parametrize(
    ("lags", "records"),
    [((), None), ((0, 0), 0), ((3, 0), 3), ((3, None), 3), ((0, None), None), ((None,), None)],
)
def test_a_sum_of_nothing_with_an_unknown_part_is_unknown(
    lags: tuple[int | None, ...], records: int | None
) -> None:
    assert known_sum(lags) == records
    partitions = [
        committed(0, topic=topic, records=lag, seconds=lag)
        for lag, topic in zip(lags, "tut", strict=False)
    ]
    lag = group(*partitions).lag
    assert (lag.records, lag.seconds) == (records, records)
    assert (lag.partitions, lag.unknown) == (len(lags), lags.count(None))


def test_rows_are_flat() -> None:
    holder, idle = GroupMember("m-1", "c", "/h"), GroupMember("m-2", "d", "/i")
    seen = Snapshot(
        groups=[
            group(
                committed(5, 9, records=1, seconds=1.5, members=(holder, idle)),
                kind="share",
                members=(holder, idle),
            ),
            group(committed(5, members=(holder,)), group_id="h", members=(holder, idle)),
            group(group_id="i"),
        ],
        warnings=(),
        at_ms=77,
        cluster_id="x",
    )
    first, second, third, last = rows(seen)
    assert (first["start_offset"], first["committed_offset"], first["end_offset"]) == (5, None, 9)
    assert (first["lag"], first["time_lag_ms"], first["snapshot_time_ms"]) == (1, 1500, 77)
    assert (first["member_id"], first["client_id"], first["host"]) == ("m-1,m-2", "c,d", "/h,/i")
    assert (second["start_offset"], second["committed_offset"]) == (None, 5)
    assert (third["group_id"], third["topic"], third["member_id"]) == ("h", None, "m-2")
    assert (last["cluster"], last["group_id"], last["partition"], last["host"]) == (
        ("x", "i", None, None)
    )


@pytest.mark.parametrize(
    ("position", "log_start", "end", "complete_count", "left"),
    [
        (4, 0, 10, 0, 6),
        (4, 7, 10, 0, 3),
        (4, 10, 10, 0, 0),
        (4, 0, 10, 5, 1),
        (4, 7, 10, 5, 1),
        (12, 0, 10, 0, 0),
        (4, None, 10, 0, 6),
        (4, 0, None, 0, None),
        (None, 0, 10, 0, None),
        (None, 10, 10, 0, 0),
        (None, None, 0, 0, None),
    ],
)
def test_what_is_left_is_in_the_log(
    position: int | None,
    log_start: int | None,
    end: int | None,
    complete_count: int,
    left: int | None,
) -> None:
    assert records_left(position, log_start, end, complete_count) == left


def test_groups_of_redrives_are_seen_by_their_names_only() -> None:
    listed = ListedGroup("headrace-redrive-dlq.orders", "classic", "consumer", "Empty", 1)
    assert not LagQuery().wants_group(listed)
    assert not LagQuery(groups_pattern=".*").wants_group(listed)
    assert LagQuery(groups=(listed.group_id,)).wants_group(listed)
