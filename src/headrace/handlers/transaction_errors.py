"""Transaction errors by request version."""

from __future__ import annotations

from headrace.errors import ErrorCode, Refusal


def error_for_version(refusal: Refusal, version: int, first_with_fenced: int) -> ErrorCode:
    """Return the error code of a refusal in this request version.

    :param first_with_fenced: the first version with PRODUCER_FENCED; earlier versions return
        INVALID_PRODUCER_EPOCH (KIP-588)
    """
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
