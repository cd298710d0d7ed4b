"""The commit of a micro-batch survives a crash, and another driver, between any two steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from headrace.client.transactions import OpenTransaction
from headrace.spark.errors import SourceError
from headrace.spark.produce.commits import (
    NOTHING_DECIDED,
    Decision,
    TaskTransaction,
    abort_batch,
    commit_batch,
)

TASKS = 3
FIRST = 7


class Crash(Exception):
    """The driver dies."""


@dataclass
class Producer:
    epoch: int = -1
    state: str = "Empty"
    rows: tuple[str, ...] = ()


@dataclass
class Cluster:
    """Transactional ids, a log of commits, and the rows that readers see."""

    producers: dict[str, Producer] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    owner: object = None
    visible: list[str] = field(default_factory=list)

    def write(self, run: str, batch_id: int, tasks: int = TASKS) -> list[TaskTransaction]:
        """Write one row in each task; a run divides them in its own way."""
        written = []
        for task in range(tasks):
            name = f"q-{run}-{task}-0"
            producer = self.producers.setdefault(name, Producer())
            producer.epoch += 1
            producer.state, producer.rows = "Ongoing", (f"{batch_id}.{task} by {run}",)
            written.append(TaskTransaction(task, 1, OpenTransaction(name, 1, producer.epoch)))
        return written

    def time_out(self) -> None:
        for producer in self.producers.values():
            if producer.state == "Ongoing":
                producer.epoch += 1
                producer.state = "CompleteAbort"


class Driver:
    """A log of commits and the transactions of tasks, with a hook before and after each effect."""

    def __init__(
        self, cluster: Cluster, at: Callable[[], None] = lambda: None, run: str = ""
    ) -> None:
        self._cluster, self._at, self._run = cluster, at, run

    def fence(self) -> None:
        self._at()
        self._cluster.owner = self

    def last(self) -> Decision:
        self._at()
        return self._cluster.decisions[-1] if self._cluster.decisions else NOTHING_DECIDED

    def decide(self, decision: Decision) -> None:
        self._at()
        if self._cluster.owner is not self:
            raise SourceError("another driver")
        self._cluster.decisions.append(decision)
        self._at()

    def no_longer_open(self, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        self._at()
        return [one for one in transactions if self._state(one) != "Ongoing"]

    def commit(self, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        lost = []
        for one in transactions:
            self._at()
            if self._state(one) == "Ongoing":
                producer = self._cluster.producers[one.transactional_id]
                producer.state = "CompleteCommit"
                self._cluster.visible += producer.rows
            elif self._state(one) != "CompleteCommit":
                lost.append(one)
        self._at()
        return lost

    def abort_others(self, kept: Collection[str], *, of_run: bool = False) -> None:
        prefix = f"q-{self._run}-" if of_run else "q-"
        for name, producer in self._cluster.producers.items():
            if name.startswith(prefix) and name not in kept and producer.state == "Ongoing":
                self._at()
                producer.epoch += 1
                producer.state = "CompleteAbort"

    def _state(self, one: OpenTransaction) -> str:
        producer = self._cluster.producers[one.transactional_id]
        return producer.state if producer.epoch == one.producer_epoch else "fenced"


def run(
    cluster: Cluster,
    name: str,
    batch_id: int = FIRST,
    at: Callable[[], None] = lambda: None,
    *,
    resend_lost: bool = False,
) -> None:
    """Write and commit a micro-batch as Spark does, and abort it if that fails."""
    written = cluster.write(name, batch_id)
    try:
        driver = Driver(cluster, at, name)
        commit_batch(driver, driver, batch_id, written, resend_lost=resend_lost)
    except SourceError:
        driver = Driver(cluster, at, name)
        abort_batch(driver, driver, batch_id)
        raise


def at_step(number: int, action: Callable[[], None]) -> Callable[[], None]:
    """Return a hook that calls ``action`` once, at a step."""
    left = [number]

    def at() -> None:
        left[0] -= 1
        if left[0] == -1:
            action()

    return at


def steps() -> int:
    """Return the number of steps of a commit."""
    taken: list[None] = []
    run(Cluster(), "counted", at=lambda: taken.append(None))
    return len(taken)


def die() -> None:
    raise Crash


def outputs(cluster: Cluster, batch_id: int = FIRST) -> list[str]:
    return sorted(row for row in cluster.visible if row.startswith(f"{batch_id}."))


def whole(name: str, batch_id: int = FIRST) -> list[str]:
    return [f"{batch_id}.{task} by {name}" for task in range(TASKS)]


def check_exactly_once(cluster: Cluster, names: Sequence[str]) -> None:
    """The micro-batch is that of one attempt, whole, and nothing is open."""
    assert outputs(cluster) in [whole(name) for name in names]
    assert not [one for one in cluster.producers.values() if one.state == "Ongoing"]


def test_a_commit_has_all_steps() -> None:
    assert steps() == 10


def test_a_crash_at_any_step_and_another_in_the_replay() -> None:
    for first in range(steps()):
        for second in range(steps() + TASKS):
            cluster = Cluster()
            with pytest.raises(Crash):
                run(cluster, "one", at=at_step(first, die))
            try:
                run(cluster, "two", at=at_step(second, die))
            except Crash:
                run(cluster, "three")
            run(cluster, "three", FIRST + 1)
            check_exactly_once(cluster, ["one", "two", "three"])
            assert outputs(cluster, FIRST + 1) == whole("three", FIRST + 1)


def test_another_driver_replays_at_any_step_of_one_that_still_runs() -> None:
    for step in range(steps()):
        cluster = Cluster()

        def other(cluster: Cluster = cluster) -> None:
            run(cluster, "two")

        with contextlib.suppress(SourceError):
            run(cluster, "one", at=at_step(step, other))
        check_exactly_once(cluster, ["one", "two"])


def test_another_driver_dies_at_any_step_beside_one_that_still_runs() -> None:
    for step in range(steps()):
        for of_other in range(steps() + TASKS):
            cluster = Cluster()

            def other(cluster: Cluster = cluster, of_other: int = of_other) -> None:
                with contextlib.suppress(Crash):
                    run(cluster, "two", at=at_step(of_other, die))

            with contextlib.suppress(SourceError):
                run(cluster, "one", at=at_step(step, other))
            run(cluster, "three")
            check_exactly_once(cluster, ["one", "two", "three"])


def test_a_replay_without_rows_completes_what_was_decided() -> None:
    for step in range(steps()):
        cluster = Cluster()
        with pytest.raises(Crash):
            run(cluster, "one", at=at_step(step, die))
        driver = Driver(cluster)
        commit_batch(driver, driver, FIRST, ())
        assert outputs(cluster) in ([], whole("one"))


def test_a_failed_commit_aborts_nothing_that_is_decided() -> None:
    cluster = Cluster()
    written = cluster.write("one", FIRST)
    driver = Driver(cluster, at_step(6, die))
    with pytest.raises(Crash):
        commit_batch(driver, driver, FIRST, written)
    assert len(cluster.decisions) == 1
    driver = Driver(cluster)
    abort_batch(driver, driver, FIRST)
    assert {one.state for one in cluster.producers.values()} == {"Ongoing"}
    run(cluster, "two")
    check_exactly_once(cluster, ["one"])


def test_a_transaction_that_timed_out_before_the_decision() -> None:
    cluster = Cluster()
    written = cluster.write("one", FIRST)
    cluster.time_out()
    driver = Driver(cluster)
    with pytest.raises(SourceError, match=r"task 0 of micro-batch 7 .* is not open any more"):
        commit_batch(driver, driver, FIRST, written)
    assert cluster.decisions == []


def test_transactions_that_timed_out_after_the_decision() -> None:
    for step in range(6, steps()):
        cluster = Cluster()
        with pytest.raises(Crash):
            run(cluster, "one", at=at_step(step, die))
        assert len(cluster.decisions) == 1
        cluster.time_out()
        if outputs(cluster) != whole("one"):
            with pytest.raises(SourceError, match="is written in part"):
                run(cluster, "two")
            assert set(outputs(cluster)) < set(whole("one"))
        run(cluster, "three", resend_lost=True)
        assert [row.partition(" ")[0] for row in outputs(cluster)] == ["7.0", "7.1", "7.2"]
        run(cluster, "four")
        assert len(outputs(cluster)) == TASKS


def test_lost_transactions_of_a_replay_that_divides_the_rows_otherwise() -> None:
    cluster = Cluster()
    with pytest.raises(Crash):
        run(cluster, "one", at=at_step(7, die))
    cluster.time_out()
    driver = Driver(cluster)
    with pytest.raises(SourceError, match="is written in part"):
        commit_batch(driver, driver, FIRST, cluster.write("two", FIRST, 1), resend_lost=True)


def test_an_old_copy_of_a_checkpoint() -> None:
    cluster = Cluster()
    run(cluster, "one", FIRST)
    with pytest.raises(SourceError, match=r"micro-batch 6 is older than the last one .*, 7"):
        run(cluster, "two", FIRST - 1)
    assert cluster.visible == whole("one")


@pytest.mark.parametrize("behind", [1, 2])
def test_a_driver_that_is_behind_does_not_end_the_one_that_goes_on(behind: int) -> None:
    """One that is behind by one completes what the other has decided already."""
    cluster = Cluster()
    run(cluster, "one", FIRST)
    for step in range(steps()):
        batch_id = FIRST + 1 + step
        # one task has a transactional id of its own
        written = cluster.write("one", batch_id, TASKS + 1)

        def other(old: int = batch_id - behind) -> None:
            with contextlib.suppress(SourceError):
                run(cluster, "two", old)
            driver = Driver(cluster, run="two")
            abort_batch(driver, driver, old)

        driver = Driver(cluster, at_step(step, other), "one")
        commit_batch(driver, driver, batch_id, written)
        assert len(outputs(cluster, batch_id)) == TASKS + 1
        assert not [p for p in cluster.producers.values() if p.state == "Ongoing"]
    assert not [row for row in cluster.visible if row.endswith("two")]


def test_a_driver_that_fails_does_not_end_another_one_with_the_same_micro_batch() -> None:
    cluster = Cluster()
    written = cluster.write("one", FIRST)
    cluster.write("two", FIRST)
    driver = Driver(cluster, run="two")
    abort_batch(driver, driver, FIRST)
    driver = Driver(cluster, run="one")
    commit_batch(driver, driver, FIRST, written)
    check_exactly_once(cluster, ["one"])
