"""The state of one share-partition in the share coordinator, and the rules for merging writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.records import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    UNKNOWN,
    SharePartitionKey,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
)
from headrace.share.spans import Run, Spans

UNSOUND_BATCH = Refusal(
    ErrorCode.INVALID_REQUEST,
    (
        "A state batch must have offsets in order, a state of 0, 2 or 4, and a delivery count "
        "that is not negative."
    ),
)


@dataclass(slots=True)
class ShareState:
    """The merged state of one share-partition.

    :ivar batches: spans of (delivery count, delivery state). The order of the pair makes ``max``
        the merge rule: the higher delivery count wins, at an equal count the greater state
    :ivar updates: update records since the last snapshot
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    batches: Spans[tuple[int, int]] = field(default_factory=Spans)
    updates: int = 0

    def merge(self, state_batches: Sequence[StateBatch]) -> None:
        """Merge batches into the state, and drop everything below the start offset."""
        start = self.start_offset
        self.batches.drop_below(start)
        runs: list[Run[tuple[int, int]]] = []
        for first, last, state, count in sorted(state_batches):
            if last < start:
                continue
            if runs and runs[-1][1] >= first:  # batches of one request may overlap
                self._raise(runs)
                runs = []
            runs.append((max(first, start), last, (count, state)))
        if runs:
            self._raise(runs)

    def _raise(self, runs: Sequence[Run[tuple[int, int]]]) -> None:
        """Set the values of ``runs`` (ascending, disjoint) where they are greater."""
        batches = self.batches
        overlapped = batches.within(runs[0][0], runs[-1][1])
        greater: list[Run[tuple[int, int]]] = []
        # Usually these are earlier deliveries, if there are any.
        if overlapped and max(old[2] for old in overlapped) > min(run[2] for run in runs):
            greater = [
                old
                for first, last, value in runs
                for old in batches.within(first, last)
                if old[2] > value
            ]
        batches.paint(runs)
        batches.paint(greater)

    def apply(self, update: ShareUpdate) -> None:
        """Apply an update."""
        self.leader_epoch = update.leader_epoch
        self.delivery_complete_count = update.delivery_complete_count
        self.updates += 1
        if update.start_offset != UNKNOWN:
            self.start_offset = update.start_offset
        self.merge(update.state_batches)

    def next_snapshot(self, key: SharePartitionKey, wall_ms: int) -> ShareSnapshot:
        """Return the snapshot that follows the present one."""
        return ShareSnapshot(
            key,
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.create_timestamp_ms,
            wall_ms,
            self.state_batches(),
            self.delivery_complete_count,
        )

    def state_batches(self) -> tuple[StateBatch, ...]:
        """Return the merged batches, ascending."""
        return tuple(
            StateBatch(first, last, state, count) for first, last, (count, state) in self.batches
        )


def combined(
    state_batches: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...] | Refusal:
    """Return the batches of one write as ascending and disjoint batches. They may come in any order
    and overlap.

    Offsets below ``start_offset`` are left out. An invalid batch is refused.
    """
    for first, last, state, count in state_batches:
        if not 0 <= first <= last or state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVED) or count < 0:
            return UNSOUND_BATCH
    merged = ShareState(0, 0, 0, start_offset, UNKNOWN, 0)
    merged.merge(state_batches)
    return merged.state_batches()
