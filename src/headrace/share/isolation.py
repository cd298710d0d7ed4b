"""Bad-record isolation: keep a record that cannot be processed from using up the deliveries of
its neighbours.

After half of the allowed deliveries of a record, its in-flight batch is delivered alone, in smaller
pieces each time. The last delivery of a record is that record alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.share.spans import Run


def throttle_limit(delivery_count_limit: int) -> int:
    """Return the lowest delivery count at which a record is suspected to be bad."""
    return max(2, -(-delivery_count_limit // 2))


def isolate(runs: Sequence[Run[int]], size: int, delivery_count_limit: int) -> list[Run[int]]:
    """Return the part of a batch's available ``runs`` to deliver; all of them if no record is
    suspected to be bad.

    The first suspected record determines how many are delivered. If at least as many records
    precede it, there is no limit, as in Apache Kafka.

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
