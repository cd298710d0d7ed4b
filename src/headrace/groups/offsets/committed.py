"""The committed offsets of all groups (KIP-88, KIP-211), and those of open transactions (KIP-98,
KIP-447).

The groups decide which offsets may be committed, deleted and expired; this module stores them.
:mod:`headrace.groups.offsets.service` decides when they expire.

Offsets of an open transaction become committed with the transaction, unless a later record has
committed the same partition, and are dropped when it is aborted. Until then, OffsetFetch with
``require_stable`` does not return the partition.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.groups.records import CommittedOffset, GroupRecord, OffsetCommit, each
from headrace.outcome import NOWHERE, Position
from headrace.protocol.record_batch import NO_PRODUCER_ID

TOMBSTONES_AT_ONCE = 1000
"""The limit of tombstones in one write when topics are deleted."""


TopicOffsets = Mapping[int, CommittedOffset]
"""A topic's committed offsets by partition."""


class _Pending(NamedTuple):
    """A pending offset, or None if a later commit has replaced it, and the offset of its record."""

    value: CommittedOffset | None
    at: int


_Key = tuple[str, str, int]
"""A group id, a topic and a partition."""

_Transaction = tuple[int, int]
"""A producer id, and the partition of ``__consumer_offsets`` that has the offsets."""


class PendingOffsets:
    """The offsets of open transactions.

    :ivar groups: by group id, by key, by transaction
    """

    __slots__ = ("_transactions", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, dict[_Key, dict[_Transaction, _Pending]]] = {}
        # What each transaction has an offset for, as an ordered set.
        self._transactions: dict[_Transaction, dict[_Key, None]] = {}

    def __contains__(self, key: _Key) -> bool:
        """Return whether an open transaction has an offset for ``(group id, topic, partition)``."""
        return bool(self._of_partition(key))

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are pending in a group."""
        return [(topic, partition) for _, topic, partition in self.groups.get(group_id, ())]

    def groups_with(self, topics: Container[str]) -> list[str]:
        """Return the ids of the groups with pending offsets in topics."""
        return [
            group_id
            for group_id, partitions in self.groups.items()
            if any(topic in topics for _, topic, _ in partitions)
        ]

    def values(self, key: _Key) -> list[CommittedOffset]:
        """Return the pending offsets of a partition that no later commit has replaced."""
        return [value for value, _ in self._of_partition(key).values() if value is not None]

    def replay(self, record: OffsetCommit, at: Position) -> None:
        """Add the offset of a transactional record."""
        key, transaction = record[:3], (at.producer_id, at.partition)
        pending = self.groups.setdefault(record.group_id, {}).setdefault(key, {})
        pending[transaction] = _Pending(record.value, at.offset)
        self._transactions.setdefault(transaction, {})[key] = None

    def replaced(self, key: _Key, at: int) -> None:
        """Drop the pending offsets that are older than the commit with record offset ``at``."""
        of_partition = self._of_partition(key)
        for transaction, pending in of_partition.items():
            if pending.at < at:
                of_partition[transaction] = pending._replace(value=None)

    def deleted(self, key: _Key) -> None:
        """Drop all pending offsets of a partition."""
        for transaction in self._of_partition(key):
            del self._transactions[transaction][key]
        self._forget(key)

    def end(self, producer_id: int, partition: int) -> Iterator[tuple[OffsetCommit, Position]]:
        """Remove a transaction; if committed, yield the effective records and their positions."""
        transaction = producer_id, partition
        for key in self._transactions.pop(transaction, ()):
            of_partition = self._of_partition(key)
            value, at = of_partition.pop(transaction)
            if not of_partition:
                self._forget(key)
            if value is not None:
                yield OffsetCommit(*key, value), Position(partition, at)

    def _of_partition(self, key: _Key) -> dict[_Transaction, _Pending]:
        return self.groups.get(key[0], {}).get(key, {})

    def _forget(self, key: _Key) -> None:
        partitions = self.groups.get(key[0], {})
        if partitions.pop(key, None) is not None and not partitions:
            del self.groups[key[0]]


class CommittedOffsets:
    """The committed offsets of all groups, and those of open transactions.

    :ivar pending: the offsets of open transactions
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self.pending = PendingOffsets()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of all groups with committed offsets."""
        return iter(self._groups)

    def of_group(self, group_id: str) -> Mapping[str, TopicOffsets]:
        """Return a group's committed offsets by topic name; empty for a group without any."""
        return self._groups.get(group_id, {})

    def deletions(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> tuple[GroupRecord, ...]:
        """Return tombstones for (topic, partition) pairs with a committed or pending offset
        (KIP-496).
        """
        topics, pending = self.of_group(group_id), self.pending
        return tuple(
            OffsetCommit(group_id, topic, partition, None)
            for topic, partition in dict.fromkeys(partitions)
            if partition in topics.get(topic, ()) or (group_id, topic, partition) in pending
        )

    def tombstones(self, group_id: str) -> tuple[GroupRecord, ...]:
        """Return tombstones for all offsets of a group."""
        topics = self.of_group(group_id)
        return self.deletions(group_id, (*each(topics), *self.pending.of_group(group_id)))

    def topic_tombstones(
        self, deleted: Mapping[str, UUID]
    ) -> Iterator[tuple[str, tuple[GroupRecord, ...]]]:
        """Yield (group id, tombstones) for each group with offsets in deleted topics, at most
        :data:`TOMBSTONES_AT_ONCE` at a time. Apply them before requesting the next.

        The groups are those at the time of the first call. An offset in a new topic of the same
        name is kept.

        :param deleted: the topic ids by name
        """
        group_ids = [
            group_id
            for group_id, topics in self._groups.items()
            if not deleted.keys().isdisjoint(topics)
        ]
        group_ids += self.pending.groups_with(deleted)
        for group_id in dict.fromkeys(group_ids):
            topics = self.of_group(group_id)
            affected = {topic: topics[topic] for topic in deleted.keys() & topics.keys()}
            pending = (key for key in self.pending.of_group(group_id) if key[0] in deleted)
            in_order = sorted({*each(affected), *pending})
            for first in range(0, len(in_order), TOMBSTONES_AT_ONCE):
                tombstones = tuple(
                    OffsetCommit(group_id, topic, partition, None)
                    for topic, partition in in_order[first : first + TOMBSTONES_AT_ONCE]
                    if self._is_of(deleted[topic], group_id, topic, partition)
                )
                if tombstones:
                    yield group_id, tombstones

    def _is_of(self, topic_id: UUID, group_id: str, topic: str, partition: int) -> bool:
        """Return True if a partition has offsets, committed or pending, and all of them are of the
        topic with this id: none is of a new topic of the same name.
        """
        values = self.pending.values((group_id, topic, partition))
        committed = self.of_group(group_id).get(topic, {}).get(partition)
        if committed is not None:
            values.append(committed)
        return bool(values) and all(value.topic_id in (None, topic_id) for value in values)

    def replay(self, record: OffsetCommit, at: Position = NOWHERE) -> None:
        """Apply one durable record."""
        group_id, topic, partition, value = record
        if value is None:
            self.pending.deleted(record[:3])
            self._forget(group_id, topic, partition)
        elif at.producer_id != NO_PRODUCER_ID:
            self.pending.replay(record, at)
        else:
            if self.pending.groups:
                self.pending.replaced(record[:3], at.offset)
            try:
                self._groups[group_id][topic][partition] = value
            except KeyError:  # the first commit of the partition
                self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def end_transaction(self, producer_id: int, partition: int, *, commit: bool) -> None:
        """End a producer's transaction whose marker was appended to ``partition`` of the internal
        topic.
        """
        for record, at in self.pending.end(producer_id, partition):
            if commit:
                self.replay(record, at)

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group_id]
