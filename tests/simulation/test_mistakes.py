"""Mistakes made in the broker on purpose: the simulation finds each of them within a few runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.coordinators import share_state_recovery
from headrace.coordinators.dead_letters import DeadLetters
from headrace.coordinators.share_partitions import SharePartitions
from headrace.log import log_directory, partition_log, partition_metadata, recovery
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerState
from headrace.outcome import Outcome
from headrace.share import acknowledgement, share_partition
from headrace.share.acknowledgement import ACCEPT, REJECT
from headrace.share.acquisition_locks import AcquisitionLocks
from headrace.share.records import AVAILABLE, ShareSnapshot, ShareUpdate
from headrace.share.share_partition import SharePartition
from headrace.share.share_state import ShareCoordinator, ShareState

from .forgetting import forget
from .run import find_failure

pytestmark = pytest.mark.slow

RUNS, STEPS = 30, 800
FIRST = {
    "what_is_reset_stays_in_memory": (218,),
    "what_a_crash_interrupted_is_not_finished": (274,),
    "a_lost_connection_keeps_its_locks": (209,),
    "backoffs_are_ignored": (204,),
}
"""Seeds that find what few seeds find: they are tried first."""
Patch = pytest.MonkeyPatch
MISTAKES: list[Callable[[Patch], None]] = []


def mistake(make: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MISTAKES.append(make)
    return make


# Of the share-partition


@mistake
def what_was_accepted_comes_back(patch: Patch) -> None:
    patch.setitem(acknowledgement.FINISHED, ACCEPT, (AVAILABLE, None))


@mistake
def what_was_rejected_comes_back(patch: Patch) -> None:
    patch.setitem(acknowledgement.FINISHED, REJECT, (AVAILABLE, None))


@mistake
def delivery_counts_are_not_kept(patch: Patch) -> None:
    given_back = share_partition.given_back
    patch.setattr(
        share_partition,
        "given_back",
        lambda first, last, _, settings: given_back(first, last, 0, settings),
    )


@mistake
def records_are_delivered_once_too_often(patch: Patch) -> None:
    given_back = share_partition.given_back

    def patient(first: int, last: int, count: int, settings: Any) -> Any:
        return given_back(
            first,
            last,
            count,
            replace(settings, delivery_count_limit=settings.delivery_count_limit + 1),
        )

    patch.setattr(share_partition, "given_back", patient)


@mistake
def anyone_may_acknowledge(patch: Patch) -> None:
    acknowledge = SharePartition.acknowledge

    def trusting(self: Any, member_id: str, *rest: Any, **options: Any) -> Any:
        for lock in self.locks.spans.values:
            lock.member_id = member_id
        return acknowledge(self, member_id, *rest, **options)

    patch.setattr(SharePartition, "acknowledge", trusting)


@mistake
def locks_never_end(patch: Patch) -> None:
    patch.setattr(AcquisitionLocks, "expired", lambda self, now_ms: [])
    patch.setattr(AcquisitionLocks, "next_deadline_ms", lambda self: None)


@mistake
def locks_end_early(patch: Patch) -> None:
    expired = AcquisitionLocks.expired
    patch.setattr(AcquisitionLocks, "expired", lambda self, now_ms: expired(self, now_ms + 900))


@mistake
def renewing_does_nothing(patch: Patch) -> None:
    patch.setattr(AcquisitionLocks, "renew", lambda self, runs, deadline_ms: None)


@mistake
def backoffs_are_ignored(patch: Patch) -> None:
    settings = SharePartitions.settings
    patch.setattr(
        SharePartitions,
        "settings",
        lambda self, group: replace(settings(self, group), release_backoff_ms=0),
    )


# Of the way to the disk


@mistake
def share_state_is_written_too_late(patch: Patch) -> None:
    """Each write is made with the next one, so that a kill loses the last."""
    append, start = PartitionLog.append, Broker.start
    late: dict[PartitionLog, tuple[Any, ...]] = {}

    def append_later(log: PartitionLog, data: Any, now_ms: int, **options: Any) -> Any:
        if log.topic != "__share_group_state":
            return append(log, data, now_ms, **options)
        if log in late:
            append(log, *late[log], **options)
        late[log] = (bytes(data), now_ms)
        return partition_log.Appended(log.end_offset, log.end_offset, -1, 0)

    def start_empty(broker: Broker) -> None:
        late.clear()
        start(broker)

    patch.setattr(PartitionLog, "append", append_later)
    patch.setattr(Broker, "start", start_empty)


@mistake
def share_state_is_not_written_at_all(patch: Patch) -> None:
    def persist(self: SharePartitions, loaded: Any, update: Any) -> None:
        if update is not None:
            loaded.partition.replay(update)

    patch.setattr(SharePartitions, "persist", persist)


@mistake
def updates_are_not_replayed_at_start(patch: Patch) -> None:
    forget(patch, ShareCoordinator, lambda record: isinstance(record, ShareUpdate))


@mistake
def snapshots_leave_out_what_they_replace(patch: Patch) -> None:
    encode = ShareCoordinator.encode

    def careless(record: Any) -> Any:
        return encode(
            record._replace(state_batches=()) if isinstance(record, ShareSnapshot) else record
        )

    patch.setattr(ShareCoordinator, "encode", staticmethod(careless))


@mistake
def state_is_read_from_the_beginning(patch: Patch) -> None:
    read = ShareCoordinator.read

    def read_all(self: Any, *arguments: Any) -> Any:
        outcome = read(self, *arguments)
        if isinstance(outcome.reply, ShareState):
            return Outcome(replace(outcome.reply, start_offset=0), outcome.records)
        return outcome

    patch.setattr(ShareCoordinator, "read", read_all)


@mistake
def the_lag_leaves_out_what_is_done_out_of_order(patch: Patch) -> None:
    write = ShareCoordinator.write

    def unaware(
        self: Any, key: Any, state_epoch: int, leader_epoch: int, start: int, done: int, *rest: Any
    ) -> Any:
        return write(self, key, state_epoch, leader_epoch, start, 0, *rest)

    patch.setattr(ShareCoordinator, "write", unaware)


@mistake
def doubled_batches_are_stored_twice(patch: Patch) -> None:
    patch.setattr(ProducerState, "check", lambda self, header: None)


@mistake
def torn_tails_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(recovery, "_recover", lambda *arguments, **options: None)


@mistake
def dead_letters_are_not_written(patch: Patch) -> None:
    async def write(self: Any, *arguments: Any) -> None:
        pass

    patch.setattr(DeadLetters, "write", write)


# Of what ends and begins anew


@mistake
def a_lost_connection_keeps_its_locks(patch: Patch) -> None:
    patch.setattr(Broker, "disconnected", lambda self, connection_id: None)


@mistake
def what_is_reset_stays_in_memory(patch: Patch) -> None:
    patch.setattr(SharePartitions, "drop", lambda self, *key: None)


@mistake
def what_a_crash_interrupted_is_not_finished(patch: Patch) -> None:
    patch.setattr(share_state_recovery, "recover", lambda coordinators: None)


@mistake
def what_was_not_processed_counts(patch: Patch) -> None:
    counted = acknowledgement.acknowledged
    patch.setattr(
        share_partition,
        "acknowledged",
        lambda *args, uncounted: counted(*args, uncounted=False),
    )


@mistake
def a_new_topic_gets_the_log_of_the_old(patch: Patch) -> None:
    patch.setattr(partition_metadata, "contradiction", lambda directory, topic_id: None)
    patch.setattr(log_directory.Removals, "add", lambda self, logs, removed=None: None)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    first = FIRST.get(mistake.__name__, ())
    print(find_failure([*first, *range(201, 201 + RUNS)], STEPS))
