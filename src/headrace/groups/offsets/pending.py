"""Offsets committed in transactions that are still open (KIP-98, KIP-447).

They become committed with the transaction, unless a later record has committed the same partition,
and are dropped when it is aborted. Until then, OffsetFetch with ``require_stable`` does
not return the partition.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple, TypeAlias

from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Position


class _Pending(NamedTuple):
    """A pending offset, or None if a later commit has replaced it, and the offset of its record."""

    value: CommittedOffset | None
    at: int


_Transaction: TypeAlias = tuple[int, int]
"""A producer id, and the partition of ``__consumer_offsets`` that has the offsets."""


class PendingOffsets:
    """The offsets of open transactions.

    :ivar groups: by group id, by topic and partition, by transaction
    """

    __slots__ = ("_transactions", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, dict[tuple[str, int], dict[_Transaction, _Pending]]] = {}
        # What each transaction has an offset for: an ordered set of (group id, topic, partition).
        self._transactions: dict[_Transaction, dict[tuple[str, str, int], None]] = {}

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        """Return whether an open transaction has an offset for ``(group id, topic, partition)``."""
        return bool(self._of_partition(*key))

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are pending in a group."""
        return list(self.groups.get(group_id, ()))

    def groups_with(self, topics: Container[str]) -> list[str]:
        """Return the ids of the groups with pending offsets in topics."""
        return [
            group_id
            for group_id, partitions in self.groups.items()
            if any(topic in topics for topic, _ in partitions)
        ]

    def values(self, group_id: str, topic: str, partition: int) -> list[CommittedOffset]:
        """Return the pending offsets of a partition that no later commit has replaced."""
        pending = self._of_partition(group_id, topic, partition).values()
        return [value for value, _ in pending if value is not None]

    def replay(self, record: OffsetCommit, at: Position) -> None:
        """Add the offset of a transactional record."""
        group_id, topic, partition, value = record
        transaction = at.producer_id, at.partition
        pending = self.groups.setdefault(group_id, {}).setdefault((topic, partition), {})
        pending[transaction] = _Pending(value, at.offset)
        self._transactions.setdefault(transaction, {})[group_id, topic, partition] = None

    def replaced(self, group_id: str, topic: str, partition: int, at: int) -> None:
        """Drop the pending offsets that are older than the commit with record offset ``at``."""
        of_partition = self._of_partition(group_id, topic, partition)
        for transaction, pending in of_partition.items():
            if pending.at < at:
                of_partition[transaction] = pending._replace(value=None)

    def deleted(self, group_id: str, topic: str, partition: int) -> None:
        """Drop all pending offsets of a partition."""
        for transaction in self._of_partition(group_id, topic, partition):
            del self._transactions[transaction][group_id, topic, partition]
        self._forget(group_id, topic, partition)

    def end(self, producer_id: int, partition: int) -> Iterator[tuple[OffsetCommit, Position]]:
        """Remove a transaction; if committed, yield the effective records and their positions."""
        transaction = producer_id, partition
        for key in self._transactions.pop(transaction, ()):
            of_partition = self._of_partition(*key)
            value, at = of_partition.pop(transaction)
            if not of_partition:
                self._forget(*key)
            if value is not None:
                yield OffsetCommit(*key, value), Position(partition, at)

    def _of_partition(
        self, group_id: str, topic: str, partition: int
    ) -> dict[_Transaction, _Pending]:
        return self.groups.get(group_id, {}).get((topic, partition), {})

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        partitions = self.groups.get(group_id, {})
        if partitions.pop((topic, partition), None) is not None and not partitions:
            del self.groups[group_id]
