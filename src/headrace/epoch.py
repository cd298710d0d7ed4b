"""Times as milliseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def since_epoch_ms(when: datetime) -> int:
    """Return the milliseconds from the epoch to a time, rounded down.

    They are exact, unlike those of ``timestamp()``, whose float may lie below a millisecond.

    :param when: with a time zone
    """
    return (when - _EPOCH) // timedelta(milliseconds=1)
