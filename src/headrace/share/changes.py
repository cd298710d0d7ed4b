"""Changes of the state of records, and the update that persists them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from headrace.share.acknowledgement import ACCEPT, GAP, REJECT, RELEASE
from headrace.share.records import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    NO_BACKOFF,
    Archived,
    ArchiveReason,
    Change,
    StateBatch,
    StateUpdate,
)
from headrace.share.settings import ShareSettings
from headrace.share.spans import Spans

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


def update_of(
    changes: Sequence[Change],
    start_offset: int,
    delivery_complete_count: int,
    finished: Spans[bool],
    not_before_ms: Mapping[int, int],
) -> StateUpdate:
    """Return the update that persists ``changes``, with the start offset moved over finished
    records.

    :param changes: ascending, disjoint, without records that are ``finished`` already
    """
    start, complete = start_offset, delivery_complete_count
    joined: list[tuple[int, int, int, int]] = []
    end, joined_state, joined_count = -1, -1, -1  # of the last joined change
    archived: list[Archived] = []
    i = 0
    for first, last, state, count, reason in changes:
        if state != AVAILABLE:
            complete += last - first + 1
            while i < len(finished) and finished.firsts[i] == start:
                start = finished.lasts[i] + 1
                i += 1
            if first == start:
                start = last + 1
            if reason is not None:
                archived.append(Archived(first, last, count, reason))
        if first == end and state == joined_state and count == joined_count:
            joined[-1] = (joined[-1][0], last, state, count)
        else:
            joined.append((first, last, state, count))
            joined_state, joined_count = state, count
        end = last + 1
    while i < len(finished) and finished.firsts[i] == start:
        start = finished.lasts[i] + 1
        i += 1
    complete -= start - start_offset
    after_start = joined[bisect_left(joined, start, key=itemgetter(1)) :]
    batches = tuple(map(StateBatch._make, after_start))
    return StateUpdate(start, complete, batches, tuple(archived), changes, not_before_ms)
