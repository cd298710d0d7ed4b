"""Records at their last deliveries, which no micro-batch may spend.

A micro-batch that fails as a whole, because a sink is down or the driver is killed, is no fault of
its records. The broker counts deliveries and gives up a record that is released at the limit. So a
failed micro-batch is released without counting where the broker can (headrace). Other brokers are
made to forget the deliveries before.

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
    SPEND = auto()
    """Have a micro-batch process them, without acquiring more: a release would give them up."""
    START_OVER = auto()
    """Release them, and have the broker forget the deliveries."""


def advice(ranges: Iterable[AcquiredRange], group_id: str, limits: GroupLimits) -> str:
    """Return the line about records that have few deliveries left."""
    acquired = max(ranges, key=lambda acquired: acquired.delivery_count)
    return (
        f"share group '{group_id}' gives up records after {limits.delivery_count_limit} "
        f"deliveries, and {acquired.topic}-{acquired.partition} offsets {acquired.first_offset} to "
        f"{acquired.last_offset} have had {acquired.delivery_count}, in micro-batches that did not "
        f"finish. Raise {DELIVERY_COUNT_LIMIT} of the group, set its {DEAD_LETTER_QUEUE}, or let "
        "the query reject a record that it cannot process"
    )
