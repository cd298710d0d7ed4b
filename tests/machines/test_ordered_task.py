"""Records of several partitions as one sequence, and tasks with queues, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ordered.ordered_task import OrderedTask
from tests.machines.test_ordered_readiness import PARTITIONS, Naive

partition_logs = st.lists(st.lists(st.integers(-1, 20), max_size=12), min_size=1, max_size=4)
"""Timestamps by offset, late ones among them, of each partition."""


def brute_force(logs):
    """Always the smallest head, the first partition of equal ones: the (partition index, offset) in
    order.
    """
    at, order = [0] * len(logs), []
    while any(a < len(log) for a, log in zip(at, logs, strict=True)):
        heads = [
            (log[a], index)
            for index, (a, log) in enumerate(zip(at, logs, strict=True))
            if a < len(log)
        ]
        _, index = min(heads)
        order.append((index, at[index]))
        at[index] += 1
    return order


def lateness_of(timestamps):
    """Return by how much each is behind the largest before it."""
    return [
        max(0, max(timestamps[:i], default=-1) - timestamp)
        for i, timestamp in enumerate(timestamps)
    ]


@given(partition_logs)
def test_the_smallest_head_is_next(logs):
    task = OrderedTask(range(len(logs)))
    for index, log in enumerate(logs):
        task.add(index, [(timestamp, (index, offset)) for offset, timestamp in enumerate(log)])
    taken = [record for _, record in iter(task.pop, None)]
    assert taken == brute_force(logs)
    late = lateness_of([logs[index][offset] for index, offset in taken])
    metrics = task.metrics()
    assert metrics.late_records_total == sum(map(bool, late))
    assert metrics.record_lateness_max_ms == max(late, default=0)
    assert metrics.record_lateness_avg_ms == (pytest.approx(sum(late) / len(late)) if late else 0)
    assert metrics.stream_time_ms == max((t for log in logs for t in log), default=-1)


def test_equal_timestamps_go_by_the_order_of_partitions():
    task = OrderedTask(["b", "a"])
    task.add("a", [(5, "a0"), (5, "a1")])
    task.add("b", [(5, "b0")])
    assert [record for _, record in iter(task.pop, None)] == ["b0", "a0", "a1"]


@given(partition_logs, st.data())
def test_an_input_may_be_put_back(logs, data):
    task = OrderedTask(range(len(logs)))
    for index, log in enumerate(logs):
        task.add(index, [(timestamp, (index, offset)) for offset, timestamp in enumerate(log)])
    for _ in range(data.draw(st.integers(0, 5))):
        task.pop()
    gone = data.draw(st.integers(0, len(logs) - 1))
    task.discard(gone)
    assert task.count(gone) == 0
    taken = [record for _, record in iter(task.pop, None)]
    assert taken == [
        record
        for record in brute_force([log if i != gone else [] for i, log in enumerate(logs)])
        if record in taken
    ]


index = st.integers(0, 2)
some_lag = st.sampled_from([0, 0, 0, 1, -1, None])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), index, st.lists(st.integers(0, 9), min_size=1, max_size=2)),
        st.tuples(st.just("lags"), st.lists(some_lag, min_size=3, max_size=3)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("discard"), index),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=400)
@given(st.integers(1, 3), st.sampled_from([-1, 0, 0, 3, 10]), steps)
def test_a_task_remembers_nothing_that_changes_its_decisions(count, idle_ms, steps):
    """A task decides as the slow model does when that is asked anew before every record."""
    partitions = PARTITIONS[:count]
    task, naive = OrderedTask(partitions, idle_ms), Naive(partitions, idle_ms)
    queues, lags, now_ms, enforced, idle_since_ms = {p: [] for p in partitions}, {}, 100, 0, None
    for step, *arguments in steps:
        if step in ("add", "discard") and arguments[0] >= count:
            continue
        if step == "add":
            partition, records = (
                partitions[arguments[0]],
                [(timestamp, object()) for timestamp in arguments[1]],
            )
            queues[partition] += records
            task.add(partition, records)
        elif step == "discard":
            partition = partitions[arguments[0]]
            queues[partition].clear()
            lags.pop(partition, None)
            task.discard(partition)
        elif step == "lags":
            lags = dict(zip(partitions, arguments[0], strict=False))
            task.update_lags(lags)
        elif step == "wait":
            now_ms += arguments[0]
        else:
            for _ in range(arguments[0]):
                ready, _, given_up = naive.decide(
                    {p: len(q) for p, q in queues.items()}, lags, now_ms
                )
                enforced += ready and bool(given_up)
                idle_since_ms = (
                    None if ready else now_ms if idle_since_ms is None else idle_since_ms
                )
                full = [p for p in partitions if queues[p]]
                expected = None
                if ready and full:
                    first = min(full, key=lambda p: (queues[p][0][0], partitions.index(p)))
                    expected = (first, queues[first].pop(0)[1])
                assert task.take(now_ms) == expected
                assert task.metrics().enforced_processing_total == enforced
                assert task.metrics().time_current_idling_started_ms == idle_since_ms
                if not ready and (deadline_ms := task.next_deadline_ms()) is not None:
                    assert now_ms < deadline_ms <= now_ms + idle_ms


def test_another_empty_input_is_another_decision():
    task = OrderedTask(["a-0", "b-0", "c-0"], 0)
    task.update_lags({"c-0": 0})
    task.add("a-0", [(1, "a")])
    task.add("b-0", [(2, "b"), (3, "b")])
    assert task.take(100) == ("a-0", "a"), "by force: c-0 is caught up"
    task.add("c-0", [(9, "c")])
    assert task.take(100) is None, "one is empty as before, but nothing is known of its lag"


def test_records_of_all_inputs_end_the_waiting_for_one():
    task = OrderedTask(["a-0", "b-0"], 50)
    task.update_lags({"b-0": 0})
    task.add("a-0", [(1, "a"), (9, "a")])
    assert task.take(100) is None
    task.add("b-0", [(2, "b")])
    assert [task.take(149), task.take(149)] == [("a-0", "a"), ("b-0", "b")]
    assert task.take(190) is None, "the idle time starts anew"
    assert task.next_deadline_ms() == 240


def test_a_long_wait_is_logged_every_two_minutes():
    task = OrderedTask(["a-0", "b-0"], 0)
    task.add("a-0", [(1, "a")])
    said = []
    for now_ms in range(0, 300_000, 1_000):
        assert task.take(now_ms) is None
        if text := task.to_log(now_ms):
            said.append((now_ms, text.partition("\n")[0]))
    line = "Partition b-0 has fetched lag of -1"
    assert said == [(120_000, line), (240_000, line)]
    task.update_lags({"b-0": 0})
    assert task.take(300_000) == ("a-0", "a")
    assert task.to_log(500_000) is None
