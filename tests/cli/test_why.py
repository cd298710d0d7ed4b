"""What `headrace why` says of what it has seen. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.cli.why import Evidence, reasons, summary
from headrace.client.groups import GroupMember
from headrace.client.lag.model import PartitionLag, group_lag
from headrace.client.share_state import SharePartitionState, Span, State
from headrace.client.workers import RunningRecord, SeenWorker, WorkerState
from tests.worker import test_states

NOW_MS = 1_700_000_000_000
MEMBER = GroupMember("m", "worker-1", "/127.0.0.1")
TASK = replace(
    test_states.TASK,
    group_id="g",
    topics=("t",),
    slots=8,
    occupancy=0.1,
    failed_per_s=0.0,
    records=(),
    failures=(replace(test_states.TASK.failures[0], time_ms=NOW_MS - 1, topic="t"),),
)


def seen(*partitions: PartitionLag, **fields: Any) -> Evidence:
    group = group_lag("g", "share", "Stable", (MEMBER,), partitions)
    group = replace(group, lag=replace(group.lag, done_per_s=2.0, produced_per_s=5.0))
    evidence = Evidence(group, 6.0, NOW_MS, (), {}, 0, {}, ())
    return replace(evidence, **fields)


def partition(position: int, **fields: Any) -> PartitionLag:
    fields = {"end_offset": 100, "records": 100 - position, "members": (MEMBER,), **fields}
    return PartitionLag("t", 0, position, **fields)


def told(**fields: Any) -> list[str]:
    """Return what the task of one worker adds to a group that has finished."""
    age_ms = fields.pop("age_ms", 0)
    worker = SeenWorker(WorkerState("w-1", 0, False, ()), NOW_MS - age_ms, 10, age_ms)
    tasks = [(worker, replace(TASK, **fields))]
    return list(reasons(seen(partition(100, records=0), tasks=tasks)))


def test_a_group_that_does_not_keep_up() -> None:
    moving = seen(partition(50), stuck=())
    assert list(reasons(moving)) == [
        "Its members work, but more comes than they finish: add members."
    ]
    assert summary(moving) == (
        "Share group 'g' (stable, 1 member) has 50 records to finish in 1 partition. It finishes "
        "2.0 records a second, and 5.0 come: it does not catch up."
    )


def test_a_partition_that_stands_still_and_who_holds_it() -> None:
    spans = (
        Span(50, 52, "locked", 1, "m", 20_000),
        Span(53, 53, "locked", 1, "m", 10_000),
        Span(54, 54, "locked", 1, "gone", 30_000),
    )
    still = seen(
        partition(50),
        stuck=[("t", 0)],
        states={("t", 0): SharePartitionState(50, 50, spans, 55)},
        limits={"share.record.lock.duration.ms": 30_000},
    )
    assert list(reasons(still)) == [
        "Nothing was finished for 6.0 s in t-0 (worker-1 holds 4 records, locked 20 s ago, gone "
        "holds 1 record, locked 0 s ago)."
    ]


def test_partitions_that_nobody_reads_and_late_acknowledgements() -> None:
    evidence = seen(partition(50, members=()), late=2)
    assert list(reasons(evidence)) == [
        "No member has t-0.",
        "Without a partition: 1 of 1 member; partitions: 1.",
        "Its members work, but more comes than they finish: add members.",
        "2 acknowledgements came after the end of the lock, so records come again: work takes "
        "longer than share.record.lock.duration.ms.",
    ]


def test_what_workers_tell() -> None:
    assert told() == []
    assert told(age_ms=90_000) == ["Worker w-1 is silent for 1m 30s."]
    assert told(breaker="open", breaker_reason="OSError: away") == [
        "Worker w-1 pauses pack, as most fail: OSError: away."
    ]
    assert told(occupancy=0.95) == ["Worker w-1 is busy in all 8 slots."]
    assert told(failed_per_s=0.5) == [
        "Worker w-1 failed last with t-0 offset 6 (attempt 2): ValueError: no (next try in 2.0 s)."
    ]
    records = (RunningRecord("t", 0, 7, 3, NOW_MS - 600_000),)
    assert told(records=records) == ["Worker w-1 works on t-0 offset 7 (attempt 3) for 10m 00s."]


def test_a_worker_that_was_killed_holds_nothing() -> None:
    def after(state: State, member_id: str | None) -> list[str]:
        spans = (Span(50, 99, state, 1, member_id, 20_000),)
        states = {("t", 0): SharePartitionState(50, 50, spans, 100)}
        worker = SeenWorker(WorkerState("w-1", 0, False, ()), NOW_MS - 9_000, 10)
        records = (RunningRecord("t", 0, 50, 1, NOW_MS - 9_000),)
        stuck = partition(50)
        tasks = [(worker, replace(TASK, records=records))]
        evidence = seen(stuck, stuck=[("t", 0)], states=states, tasks=tasks)
        return list(reasons(evidence))

    assert after("available", None) == [
        "Nothing was finished for 6.0 s in t-0 (nobody holds records; assigned to worker-1: if "
        "killed, until the session ends)."
    ]
    assert after("locked", "m") == [
        "Worker w-1 works on t-0 offset 50 (attempt 1) for 9.0 s.",
        "Nothing was finished for 6.0 s in t-0 (worker-1 holds 50 records).",
    ]


def test_the_strongest_cause_comes_first_and_a_worker_that_lives_was_not_killed() -> None:
    worker = SeenWorker(WorkerState("w-1", 0, False, ()), NOW_MS, 10)
    paused = replace(TASK, breaker="open", breaker_reason="OSError: away")

    def told(age_ms: int, *others: GroupMember) -> list[str]:
        spans = (Span(50, 52, "waiting", 4, None, 40_000),)
        members = (GroupMember("m", "pack@w-1", "/127.0.0.1"), *others)
        evidence = seen(
            partition(50, members=members),
            stuck=[("t", 0)],
            states={("t", 0): SharePartitionState(50, 50, spans, 53)},
            limits={"share.delivery.count.limit": 10},
            tasks=[(replace(worker, age_ms=age_ms), paused)],
        )
        return list(reasons(evidence))

    pauses, nothing, released, delivered = told(15_000)
    assert pauses == "Worker w-1 pauses pack, as most fail: OSError: away."
    assert nothing == (
        "Nothing was finished for 6.0 s in t-0 (nobody holds records; assigned to pack@w-1)."
    )
    assert released == "3 records were released, due in 40 s at most."
    assert delivered == (
        "3 records were delivered up to 4 times; the task's attempts are the limit, not the "
        "broker's 10 deliveries."
    )
    silent, nothing, *_ = told(40_000)
    assert silent == "Worker w-1 is silent for 40 s."
    assert nothing.endswith("assigned to pack@w-1: if killed, until the session ends).")
    moving = seen(partition(50), tasks=[(worker, paused)])
    assert list(reasons(moving)) == ["Worker w-1 pauses pack, as most fail: OSError: away."]
    _, nothing, *_ = told(0, MEMBER)
    assert nothing.endswith("assigned to pack@w-1, worker-1: if killed, until the session ends).")


def test_a_group_to_which_nothing_comes_does_not_fall_behind() -> None:
    still = seen(partition(50))
    still = replace(
        still,
        group=replace(
            still.group, lag=replace(still.group.lag, done_per_s=0.0, produced_per_s=0.0)
        ),
    )
    assert summary(still).endswith(". It finishes 0.0 records a second, and 0.0 come.")
