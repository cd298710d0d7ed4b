"""Errors of transactions in the versions of their requests."""

from __future__ import annotations

from headrace.errors import ErrorCode, Refusal


def error_for_version(refusal: Refusal, version: int, first_with_fenced: int) -> ErrorCode:
    """Return the error code of a refusal for a client of this version.

    :param first_with_fenced: the first version that may be answered with PRODUCER_FENCED; earlier
        ones get INVALID_PRODUCER_EPOCH instead (KIP-588)
    """
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
