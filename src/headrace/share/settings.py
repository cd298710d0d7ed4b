"""The configuration of a share group that concerns its share-partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The limits of a group. Each command takes them, so that changed configs take effect with the
    next command.

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
    r"P(?=.)(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MAX_DURATION_MS = 2**63 - 1


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration such as ``PT1H30M`` or ``P1DT0.5S``, without
    a sign.

    :raises ValueError: it is not such a duration, or does not fit into 64 bits
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    whole_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    found_ms = whole_ms + round(float(f"0.{match[5] or 0}") * 1000)
    if found_ms > _MAX_DURATION_MS:
        raise ValueError(f"the duration is too long: {text}")
    return found_ms
