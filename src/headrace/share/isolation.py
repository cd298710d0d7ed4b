"""Bad-record isolation: one record that nobody can process must not use up the deliveries of its
neighbours.

Once a record was delivered half as often as it may be, the in-flight batch that holds it is
delivered alone, in ever smaller pieces; on its last attempt a record is delivered all by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.share.spans import Run


def throttle_limit(delivery_count_limit: int) -> int:
    """The delivery count from which on a record is suspected to be bad."""
    return max(2, -(-delivery_count_limit // 2))


def isolate(runs: Sequence[Run[int]], size: int, delivery_count_limit: int) -> list[Run[int]]:
    """The part of a batch's available ``runs`` to deliver while its records are suspected to be
    bad.

    The first suspect says how many in all. When as many precede it, there is no limit: so does
    Apache Kafka.

    :param size: of the whole batch in offsets
    :param runs: (first, last, delivery count), ascending
    """
    suspect = throttle_limit(delivery_count_limit)
    last_attempt = delivery_count_limit - 1 if delivery_count_limit > 2 else None
    most: int | None = None
    total = 0
    part: list[Run[int]] = []
    for first, last, count in runs:
        if count == last_attempt:
            return part or [(first, first, count)]
        length = last - first + 1
        if most is None and count >= suspect:
            most = max(1, size >> (count - suspect + 1))
        if most is not None and total < most:
            length = min(length, most - total)
        part.append((first, first + length - 1, count))
        total += length
        if total == most:
            break
    return part
