"""Acknowledgements of records by the member that holds them, their errors, and the changes of the
state of records that they make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from headrace.protocol.errors import ErrorCode, Refusal, invalid_request
from headrace.share.records import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    NO_BACKOFF,
    ArchiveReason,
    Change,
)
from headrace.share.settings import ShareSettings

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
"""The acknowledge types of the protocol."""

MALFORMED = Refusal(ErrorCode.INVALID_REQUEST)
RENEW_NOT_ENABLED = Refusal(
    ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
)
NOT_IN_CACHE = Refusal(
    ErrorCode.INVALID_RECORD_STATE,
    "Batch record not found. The request batch offsets are not found in the cache.",
)
FIRST_PAST_ACQUIRED = invalid_request(
    "Batch record not found. The first offset in request is past acquired records."
)
LAST_PAST_ACQUIRED = invalid_request(
    "Batch record not found. The last offset in request is past acquired records."
)
BATCH_NOT_ACQUIRED = Refusal(
    ErrorCode.INVALID_RECORD_STATE,
    "The batch cannot be acknowledged. The batch is not in the acquired state.",
)
OFFSET_NOT_ACQUIRED = Refusal(
    ErrorCode.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
)
NOT_OWNER_OF_BATCH = Refusal(
    ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record"
)
NOT_OWNER_OF_OFFSET = Refusal(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")


class AcknowledgeTerms(NamedTuple):
    """What a request says of all its acknowledgements.

    :param renew: RENEW is allowed (``IsRenewAck``)
    :param uncounted: released records were not processed, so this delivery is not counted
    :param delay_ms: the shortest time until released records are delivered again
    :param reject_reason: why records are rejected, for their dead letters; may be empty
    """

    renew: bool = False
    uncounted: bool = False
    delay_ms: int = 0
    reject_reason: str = ""


class AcknowledgementBatch(NamedTuple):
    """An acknowledgement batch of a request.

    :param last_offset: inclusive
    :param acknowledge_types: one type for all offsets, or one for each offset
    """

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


def well_formed(batches: Iterable[AcknowledgementBatch], highest_type: int) -> bool:
    """Return True if the batches of a request are in order and no type is above
    ``highest_type``.
    """
    previous_last = -1
    for first, last, types in batches:
        if (
            first > last
            or first < previous_last
            or not types
            or len(types) not in (1, last - first + 1)
            or min(types) < GAP
            or max(types) > highest_type
        ):
            return False
        previous_last = last
    return True


def runs(
    first: int, last: int, types: Sequence[int], start_offset: int
) -> Iterable[tuple[int, int, int]]:
    """Return (first, last, type) for each run of one acknowledge type, from ``start_offset`` on."""
    if len(types) == 1:
        return ((max(first, start_offset), last, types[0]),)
    same_type = []
    position = first
    for acknowledge_type, same in groupby(types):
        end = position + len(list(same)) - 1
        if end >= start_offset:
            same_type.append((max(position, start_offset), end, acknowledge_type))
        position = end + 1
    return same_type


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
