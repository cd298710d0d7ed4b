"""Producers: their ids and epochs (KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

EPOCH_PER_TRANSACTION = 2
"""The first transaction version in which each transaction has a new epoch (KIP-890)."""


class Producer(NamedTuple):
    """A producer id and epoch, which every batch carries."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class NotYetDurable(Exception):
    """A write was refused because the record that adds its partition to the transaction is not
    durable yet. Retry it when the logs are durable.
    """
