"""Records at their last deliveries, which no micro-batch may spend.

A micro-batch that fails as a whole, because a sink is down or the driver is killed, is no fault of
its records. The broker counts deliveries and gives up a record that is released at the limit. So a
failed micro-batch is released without counting where the broker can (headrace), and a record that
has its last delivery is processed alone. Other brokers are made to forget the deliveries before.

A query that releases records itself decides record by record, and a dead-letter queue keeps what is
given up: then the limit applies.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from headrace.client import AcquiredRange

DELIVERY_COUNT_LIMIT = "share.delivery.count.limit"
DEAD_LETTER_QUEUE = "errors.deadletterqueue.topic.name"

_LEAST_TO_START_OVER = 2
"""With a limit of 2, each first delivery is the last but one."""


class GroupLimits(NamedTuple):
    """The group's configs that decide when records are given up. The defaults are Kafka's.

    :ivar keeps_given_up: the group has a dead-letter queue
    """

    delivery_count_limit: int = 5
    keeps_given_up: bool = False


class Step(Enum):
    """What to do with acquired records."""

    RUN = auto()
    """Have a micro-batch process them."""
    RUN_ALONE = auto()
    """Have a micro-batch process one that has its last delivery, and release the others without
    counting. If the micro-batch fails, no outcome of another record makes this delivery count.
    """
    SPEND = auto()
    """Have a micro-batch process them, without acquiring more: a release would give them up."""
    START_OVER = auto()
    """Release them, and have the broker forget the deliveries, before the last one."""


def next_step(
    ranges: Iterable[AcquiredRange],
    limits: GroupLimits,
    *,
    can_uncount: bool,
    releases_records: bool,
) -> Step:
    """Return what to do with acquired records.

    :param can_uncount: the broker can release records without counting the delivery
    :param releases_records: the query has released records itself
    """
    if limits.keeps_given_up or releases_records:
        return Step.RUN
    limit = limits.delivery_count_limit
    delivery_count = max((acquired.delivery_count for acquired in ranges), default=0)
    if delivery_count >= limit:
        return Step.RUN_ALONE if can_uncount else Step.SPEND
    if not can_uncount and delivery_count >= max(limit - 1, _LEAST_TO_START_OVER):
        return Step.START_OVER
    return Step.RUN


def most_delivered(ranges: Iterable[AcquiredRange]) -> AcquiredRange:
    """Return the first range with the largest delivery count."""
    return max(ranges, key=lambda acquired: acquired.delivery_count)


def advice(ranges: Iterable[AcquiredRange], group_id: str, limits: GroupLimits) -> str:
    """Return the line about records that have few deliveries left."""
    acquired = most_delivered(ranges)
    return (
        f"{acquired.delivery_count} of {limits.delivery_count_limit} deliveries of "
        f"{acquired.topic}-{acquired.partition} from offset {acquired.first_offset} on are used, "
        f"after which share group '{group_id}' gives up records. Raise {DELIVERY_COUNT_LIMIT} of "
        f"the group, set its {DEAD_LETTER_QUEUE}, or let the query reject a record that it cannot "
        "process"
    )
