"""Changes of the state of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE
from headrace.share.records import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    NO_BACKOFF,
    ArchiveReason,
    Change,
)
from headrace.share.settings import ShareSettings

UNCOUNTED_BACKOFF_MS = 1000
"""The shortest backoff after a release that is not counted: no delivery limit ends a loop of them,
so it must be slow.
"""

FINISHED = {
    GAP: (ARCHIVED, ArchiveReason.GAP),
    ACCEPT: (ACKNOWLEDGED, None),
    REJECT: (ARCHIVED, ArchiveReason.REJECTED),
}
"""Acknowledge type -> state of an ACQUIRED record after it, and the reason for ARCHIVED."""


def acknowledged(
    first: int,
    last: int,
    acknowledge_type: int,
    delivery_count: int,
    settings: ShareSettings,
    *,
    uncounted: bool,
) -> Change:
    """Return the change for an acknowledgement other than RENEW.

    :param uncounted: a release takes back this delivery, and is not the last one
    """
    if acknowledge_type == RELEASE:
        if uncounted:
            return first, last, AVAILABLE, delivery_count - 1, None
        return given_back(first, last, delivery_count, settings)
    state, reason = FINISHED[acknowledge_type]
    return first, last, state, delivery_count, reason


def given_back(first: int, last: int, delivery_count: int, settings: ShareSettings) -> Change:
    """Return the change for a release: to AVAILABLE, or to ARCHIVED at the delivery limit."""
    if delivery_count < settings.delivery_count_limit:
        return first, last, AVAILABLE, delivery_count, None
    return first, last, ARCHIVED, delivery_count, ArchiveReason.DELIVERY_LIMIT


def backoffs(
    changes: Iterable[Change], now_ms: int, settings: ShareSettings, shortest_ms: int = 0
) -> Mapping[int, int]:
    """Return the end of the backoff of released records, by delivery count."""
    if not settings.release_backoff_ms and not shortest_ms:
        return NO_BACKOFF
    counts = {count for _, _, state, count, _ in changes if state == AVAILABLE}
    longest = settings.release_backoff_max_ms
    return {
        count: now_ms
        + max(min(settings.release_backoff_ms << max(count - 1, 0), longest), shortest_ms)
        for count in sorted(counts)
    }
