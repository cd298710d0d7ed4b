"""Offsets committed in transactions that are still open (KIP-98, KIP-447).

They become committed with the transaction, unless a later record has committed the same partition,
and are dropped when it is aborted. Until then, OffsetFetch with ``require_stable`` does
not return the partition.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Position


class _Key(NamedTuple):
    group_id: str
    topic: str
    partition: int


class _Pending(NamedTuple):
    """A pending offset, or None if a later commit has replaced it, and the offset of its record."""

    value: CommittedOffset | None
    at: int


class PendingOffsets:
    """The offsets of open transactions, by producer and partition of ``__consumer_offsets``.

    :ivar keys: what has pending offsets, with their transactions
    """

    __slots__ = ("_groups", "_transactions", "keys")

    def __init__(self) -> None:
        self._transactions: dict[tuple[int, int], dict[_Key, _Pending]] = {}
        self.keys: dict[_Key, set[tuple[int, int]]] = {}
        self._groups: dict[str, set[_Key]] = {}

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        """Return whether an open transaction has an offset for ``(group id, topic, partition)``."""
        return key in self.keys

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are pending in a group."""
        return [(key.topic, key.partition) for key in self._groups.get(group_id, ())]

    def groups_with(self, topics: Container[str]) -> list[str]:
        """Return the ids of the groups with pending offsets in topics."""
        return [key.group_id for key in self.keys if key.topic in topics]

    def values(self, group_id: str, topic: str, partition: int) -> list[CommittedOffset]:
        """Return the pending offsets of a partition that no later commit has replaced."""
        key = _Key(group_id, topic, partition)
        pending = (self._transactions[transaction][key] for transaction in self.keys.get(key, ()))
        return [value for value, _ in pending if value is not None]

    def replay(self, record: OffsetCommit, at: Position) -> None:
        """Add the offset of a transactional record."""
        assert record.value is not None
        key, transaction = (
            _Key(record.group_id, record.topic, record.partition),
            (at.producer_id, at.partition),
        )
        self._transactions.setdefault(transaction, {})[key] = _Pending(record.value, at.offset)
        self.keys.setdefault(key, set()).add(transaction)
        self._groups.setdefault(key.group_id, set()).add(key)

    def replaced(self, group_id: str, topic: str, partition: int, at: int) -> None:
        """Drop the pending offsets that are older than the commit with record offset ``at``."""
        key = _Key(group_id, topic, partition)
        for transaction in self.keys.get(key, ()):
            pending = self._transactions[transaction][key]
            if pending.at < at:
                self._transactions[transaction][key] = pending._replace(value=None)

    def deleted(self, group_id: str, topic: str, partition: int) -> None:
        """Drop all pending offsets of a partition."""
        key = _Key(group_id, topic, partition)
        if key in self.keys:
            for transaction in self.keys[key]:
                del self._transactions[transaction][key]
            self._forget(key)

    def end(self, producer_id: int, partition: int) -> Iterator[tuple[OffsetCommit, Position]]:
        """Remove a transaction; if committed, yield the effective records and their positions."""
        transaction = (producer_id, partition)
        for key, (value, at) in self._transactions.pop(transaction, {}).items():
            transactions = self.keys[key]
            transactions.discard(transaction)
            if not transactions:
                self._forget(key)
            if value is not None:
                yield OffsetCommit(*key, value), Position(partition, at)

    def _forget(self, key: _Key) -> None:
        del self.keys[key]
        keys = self._groups[key.group_id]
        keys.discard(key)
        if not keys:
            del self._groups[key.group_id]
