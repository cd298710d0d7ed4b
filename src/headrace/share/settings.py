"""The configuration of a share group that concerns its share-partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The limits of a group, an argument of each command, so that changed configs take effect with
    the next command.

    :param delivery_count_limit: a record that is released after this many deliveries is archived
    :param max_record_locks: no new records are acquired while this many are between start and end
        offset
    :param renew_enabled: members may renew acquisition locks
    :param read_committed: only records of committed transactions, and those without a transaction,
        are delivered
    :param release_backoff_ms: the time for which a record that is released after its first delivery
        cannot be acquired; it doubles with each further delivery, up to ``release_backoff_max_ms``
    """

    delivery_count_limit: int = 5
    lock_duration_ms: int = 30_000
    max_record_locks: int = 2000
    release_backoff_ms: int = 0
    release_backoff_max_ms: int = 60_000
    renew_enabled: bool = True
    read_committed: bool = False


_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d*)?)S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration such as ``PT1H30M`` or ``P1DT0.5S``.

    :raises ValueError: for anything else
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
