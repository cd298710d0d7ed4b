"""Acknowledgements: what a member says of records it holds, and why it may be refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode, Refusal
from headrace.share.records import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, ArchiveReason
from headrace.share.settings import ShareSettings

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
"""The acknowledge types of the protocol."""

NEXT_STATE = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED, RENEW: ACQUIRED}
"""What an acknowledgement makes of an ACQUIRED record. No other state can be acknowledged."""

Change: TypeAlias = tuple[int, int, int, int, ArchiveReason | None]
"""What is to become of a run of records: (first offset, last offset inclusive, delivery state, delivery count, why they
become ARCHIVED). A plain tuple, for requests may have thousands of them."""

_REASON = {GAP: ArchiveReason.GAP, REJECT: ArchiveReason.REJECTED}

MALFORMED = Refusal(ErrorCode.INVALID_REQUEST)
RENEW_NOT_ENABLED = Refusal(ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group.")
NOT_IN_CACHE = Refusal(
    ErrorCode.INVALID_RECORD_STATE,
    "Batch record not found. The request batch offsets are not found in the cache.",
)
FIRST_PAST_ACQUIRED = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records."
)
LAST_PAST_ACQUIRED = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
)
BATCH_NOT_ACQUIRED = Refusal(
    ErrorCode.INVALID_RECORD_STATE,
    "The batch cannot be acknowledged. The batch is not in the acquired state.",
)
OFFSET_NOT_ACQUIRED = Refusal(
    ErrorCode.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
)
NOT_OWNER_OF_BATCH = Refusal(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
NOT_OWNER_OF_OFFSET = Refusal(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")


class AcknowledgementBatch(NamedTuple):
    """One element of a request: ``last_offset`` inclusive; one type for all of it, or one for each offset."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


def well_formed(batches: Iterable[AcknowledgementBatch], highest_type: int) -> bool:
    """Whether the batches of a request are in order and their types known, the latter up to ``highest_type``."""
    previous_last = -1
    for first, last, types in batches:
        if first > last or first < previous_last or not types or len(types) not in (1, last - first + 1):
            return False
        if min(types) < GAP or max(types) > highest_type:
            return False
        previous_last = last
    return True


def runs(first: int, last: int, types: Sequence[int], start_offset: int) -> Iterable[tuple[int, int, int]]:
    """(first, last, type) for each run of one acknowledge type, from ``start_offset`` on."""
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


def acknowledged(first: int, last: int, acknowledge_type: int, delivery_count: int, settings: ShareSettings) -> Change:
    """What an acknowledgement other than RENEW makes of records that were held."""
    if acknowledge_type == RELEASE:
        return given_back(first, last, delivery_count, settings)
    return first, last, NEXT_STATE[acknowledge_type], delivery_count, _REASON.get(acknowledge_type)


def given_back(first: int, last: int, delivery_count: int, settings: ShareSettings) -> Change:
    """What becomes of records that were held, given back: available again, but archived at the delivery limit."""
    if delivery_count < settings.delivery_count_limit:
        return first, last, AVAILABLE, delivery_count, None
    return first, last, ARCHIVED, delivery_count, ArchiveReason.DELIVERY_LIMIT
