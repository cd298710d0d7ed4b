"""What a query does with records that have few deliveries left."""

from __future__ import annotations

import pytest

from headrace.client import AcquiredRange
from headrace.spark.share.last_delivery import GroupLimits, Step, advice, next_step

pytestmark = pytest.mark.pure


def acquired(*delivery_counts: int) -> list[AcquiredRange]:
    return [
        AcquiredRange("t", 0, 10 * at, 10 * at + 9, count)
        for at, count in enumerate(delivery_counts)
    ]


@pytest.mark.parametrize(
    ("delivery_counts", "limit", "on_headrace", "on_kafka"),
    [
        ([], 5, Step.RUN, Step.RUN),
        ([1, 3], 5, Step.RUN, Step.RUN),
        ([1, 4], 5, Step.RUN, Step.START_OVER),
        ([5, 1], 5, Step.RUN_ALONE, Step.SPEND),
        ([5], 10, Step.RUN, Step.RUN),
        ([7], 5, Step.RUN_ALONE, Step.SPEND),
        ([2], 3, Step.RUN, Step.START_OVER),
        ([1], 2, Step.RUN, Step.RUN),
        ([2], 2, Step.RUN_ALONE, Step.SPEND),
    ],
)
def test_last_deliveries_are_not_spent_on_failures(
    delivery_counts: list[int], limit: int, on_headrace: Step, on_kafka: Step
) -> None:
    for can_uncount, expected in ((True, on_headrace), (False, on_kafka)):
        ranges, limits = acquired(*delivery_counts), GroupLimits(limit)
        step = next_step(ranges, limits, can_uncount=can_uncount, releases_records=False)
        assert step is expected
        kept = limits._replace(keeps_given_up=True)
        for free in ((limits, True), (kept, False)):
            step = next_step(ranges, free[0], can_uncount=can_uncount, releases_records=free[1])
            assert step is Step.RUN


def test_the_line_says_what_to_do() -> None:
    assert advice(acquired(1, 5, 5), "g", GroupLimits(5)) == (
        "5 of 5 deliveries of t-0 from offset 10 on are used, after which share group 'g' gives up "
        "records. Raise share.delivery.count.limit of the group, set its "
        "errors.deadletterqueue.topic.name, or let the query reject a record that it cannot process"
    )
