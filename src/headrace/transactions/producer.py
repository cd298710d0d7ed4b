"""Producers: their ids and epochs (KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_PER_TRANSACTION = 2
"""The first transaction version in which each transaction has a new epoch (KIP-890)."""


class Producer(NamedTuple):
    """A producer id and epoch, which every batch carries."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def error_code(refusal: Refusal | None, version: int, first_with_fenced: int) -> ErrorCode:
    """Return the error code of a refusal in a version of an API; NONE if nothing was refused.

    :param first_with_fenced: its first version with PRODUCER_FENCED; earlier versions have
        INVALID_PRODUCER_EPOCH (KIP-588)
    """
    if refusal is None:
        return ErrorCode.NONE
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
