"""Bad-record isolation: a record that no member can process must not use up the deliveries of its
neighbours.

Once a record has half of its deliveries behind it, the in-flight batch that contains it is
delivered alone, in ever smaller pieces; for its last delivery a record is delivered alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.share.spans import Run


def throttle_limit(delivery_count_limit: int) -> int:
    """Return the delivery count from which on a record is suspected to be bad."""
    return max(2, -(-delivery_count_limit // 2))


def isolate(runs: Sequence[Run[int]], size: int, delivery_count_limit: int) -> list[Run[int]]:
    """Return the part of a batch's available ``runs`` to deliver while records of it are suspected
    to be bad.

    The first suspected record determines how many are delivered. When as many records precede it,
    there is no limit, as in Apache Kafka.

    :param size: the number of offsets of the whole batch
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
