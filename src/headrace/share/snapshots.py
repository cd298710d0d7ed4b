"""The positions of the latest snapshots of share-partitions in the internal topic.

All records before the first of these positions are outdated and can be deleted. An old snapshot of
an idle share-partition would prevent that, so it is written again, at the end of the log, once it
is *cold*: older than a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from headrace.outcome import Position
from headrace.share.records import SharePartitionKey


@dataclass(slots=True)
class _Shard:
    """The share-partitions with state in one partition of the internal topic.

    :ivar latest: offset and time of the latest snapshot of each, in the order of offsets
    :ivar cold_before_ms: snapshots written up to this time are being written again
    """

    latest: dict[SharePartitionKey, tuple[int, int]] = field(default_factory=dict)
    end_offset: int = 0
    cold_before_ms: int = field(default=-1, compare=False)

    @property
    def redundant_offset(self) -> int:
        return next(iter(self.latest.values()))[0] if self.latest else self.end_offset

    def gains_from(self, cold_before_ms: int) -> bool:
        """Return True if writing the cold snapshots again lets at least as many other records be
        deleted.
        """
        cold, redundant_to = 0, self.end_offset
        for offset, written_ms in self.latest.values():
            if written_ms > cold_before_ms:
                redundant_to = offset
                break
            cold += 1
        return cold > 0 and redundant_to - self.redundant_offset >= 2 * cold

    def cold(self) -> Iterator[SharePartitionKey]:
        for key, (_, written_ms) in self.latest.items():
            if written_ms > self.cold_before_ms:
                return
            yield key


class Snapshots:
    """The latest snapshots of all share-partitions, one dictionary entry for each."""

    def __init__(self) -> None:
        self._shards: dict[int, _Shard] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshots) and self._shards == other._shards

    def updated(self, at: Position) -> None:
        """Note an update at position ``at``."""
        self._shard(at)

    def written(self, key: SharePartitionKey, at: Position, written_ms: int) -> None:
        """Note a snapshot at position ``at``."""
        latest = self._shard(at).latest
        latest.pop(key, None)  # put it at the end
        latest[key] = (at.offset, written_ms)

    def deleted(self, key: SharePartitionKey, at: Position) -> None:
        """Note a tombstone at position ``at``."""
        self._shard(at).latest.pop(key, None)

    def _shard(self, at: Position) -> _Shard:
        """Return the shard of a record's partition, extended to the record."""
        shard = self._shards.get(at.partition)
        if shard is None:
            shard = self._shards[at.partition] = _Shard()
        shard.end_offset = at.offset + 1
        return shard

    def deletable(self) -> tuple[Position, ...]:
        """Return a position for each partition of the internal topic; all records before it can be
        deleted.
        """
        return tuple(
            Position(partition, shard.redundant_offset) for partition, shard in self._shards.items()
        )

    def begin_sweep(self, cold_before_ms: int) -> None:
        """Make :meth:`sweep` return the share-partitions without a snapshot since
        ``cold_before_ms``, in partitions where this lets enough records be deleted.
        """
        for shard in self._shards.values():
            if shard.gains_from(cold_before_ms):
                shard.cold_before_ms = cold_before_ms

    def sweep(self, limit: int) -> list[tuple[SharePartitionKey, ...]]:
        """Return at most ``limit`` share-partitions to write snapshots of, one tuple for each
        partition of the internal topic.
        """
        cold = []
        for shard in self._shards.values():
            keys = tuple(islice(shard.cold(), limit))
            if keys:
                cold.append(keys)
                limit -= len(keys)
        return cold
