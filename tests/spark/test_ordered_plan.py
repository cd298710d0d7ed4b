"""Cuts of `kafka-ordered`, compared with a merge of one record at a time. Needs no JVM."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ordered.ordered_task import OrderedTask
from headrace.protocol.partitions import TopicPartition
from headrace.spark.ordered import plan as plan_module
from headrace.spark.ordered.executor import ChunkMerge
from headrace.spark.ordered.plan import Inputs, Pacing, plan, slices
from tests.spark.ordered_model import BruteForce, SimulatedLog, merged


@st.composite
def logs(draw: st.DrawFn, transactions: bool = True) -> SimulatedLog:
    """Draw one to four partitions with gaps, late and invisible records, and heads that tell too
    early a time.
    """
    records, heads = {}, {}
    for number in range(draw(st.integers(1, 4))):
        offset, clock, partition = 0, draw(st.integers(0, 20)), (f"t{number}", 0)
        records[partition] = []
        for _ in range(draw(st.integers(0, 14))):
            offset += draw(st.sampled_from([1, 1, 1, 1, 4, 1000]))
            clock += draw(st.sampled_from([0, 0, 1, 2, 7]))
            late = draw(st.sampled_from([0, 0, 0, 5, -9]))
            is_visible = not transactions or draw(st.integers(0, 5)) > 0
            # A marker has the time at which its transaction ended, whatever its records have.
            timestamp = (
                max(0, clock - late) if is_visible else clock + draw(st.sampled_from([0, 30]))
            )
            records[partition].append((offset, timestamp, is_visible))
            if draw(st.integers(0, 9)) == 0:
                heads[partition, offset] = draw(st.integers(0, timestamp))
    return SimulatedLog(records, draw(st.integers(1, 5)), heads)


def grow(
    data: st.DataObject, log: SimulatedLog, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Draw later ends; some are unknown."""
    grown = {}
    for partition in log.records:
        known = data.draw(st.integers(0, 9)) > 0
        end = data.draw(
            st.integers(ends.get(partition, 0), max(ends.get(partition, 0), log.end(partition)))
        )
        if known:
            grown[partition] = end
    return grown


def noticed(log: SimulatedLog, inputs: Inputs) -> dict[TopicPartition, int]:
    """Return the ends, moved behind a largest timestamp that the planner can see."""
    ends = dict(inputs.ends)
    if len(inputs.filled) > 1:
        for partition, (timestamp, offset) in log.largest_timestamps(inputs.filled).items():
            seen = log.first_visible({partition: (offset, offset + 1)})
            if seen == {partition: (offset, timestamp)}:
                ends[partition] = max(ends[partition], offset + 1)
    return ends


@settings(deadline=None)
@given(logs(), st.sampled_from([-1, 0, 10]), st.data())
def test_each_batch_is_what_a_merge_record_by_record_takes(
    log: SimulatedLog, max_task_idle_ms: int, data: st.DataObject
) -> None:
    partitions = tuple(log.records)
    pacing, brute = Pacing(max_task_idle_ms), BruteForce(partitions, max_task_idle_ms)
    starts = dict.fromkeys(partitions, 0)
    now_ms = 0
    ends: dict[TopicPartition, int] = {}
    for _ in range(6):
        ends = grow(data, log, ends)
        now_ms += data.draw(st.sampled_from([0, 4, 11]))
        inputs = Inputs(partitions, starts, ends)
        ready = brute.may_begin(log, inputs, now_ms)
        planned = plan(log, pacing, {0: inputs}, now_ms)[0]
        known = noticed(log, inputs) if ready and max_task_idle_ms > 0 else ends
        assert merged(log, planned) == (brute.run(log, starts, known, now_ms) if ready else [])
        starts, ends = (
            planned.reached,
            known | {p: planned.reached[p] for p in partitions if p not in known},
        )


@settings(deadline=None)
@given(logs(), st.integers(1, 12), st.sampled_from([-1, 0, 10]), st.data())
def test_limited_batches_cut_the_same_sequence(
    log: SimulatedLog, max_offsets: int, max_task_idle_ms: int, data: st.DataObject
) -> None:
    partitions = tuple(log.records)
    ends = {p: log.end(p) for p in partitions}
    starts = dict.fromkeys(partitions, 0)
    pacing = Pacing(max_task_idle_ms)
    taken, now_ms = [], 0
    for _ in range(200):
        planned = plan(log, pacing, {0: Inputs(partitions, starts, ends)}, now_ms, max_offsets)[0]
        assert all(starts[p] <= planned.reached[p] <= ends[p] for p in partitions)
        taken += merged(log, planned)
        if planned.reached == ends:
            break
        if planned.reached == starts:
            now_ms += 10  # only the deadline can make it continue
        starts = planned.reached
    assert taken == merged(log, Inputs(partitions, dict.fromkeys(partitions, 0), ends))


@settings(deadline=None)
@given(logs(), st.integers(1, 12), st.data())
def test_later_records_do_not_change_the_order_of_earlier_ones(
    log: SimulatedLog, max_offsets: int, data: st.DataObject
) -> None:
    partitions = tuple(log.records)
    before = {p: log.end(p) for p in partitions}
    start = Inputs(partitions, dict.fromkeys(partitions, 0), before)
    expected = merged(log, start)
    left, taken = start, []
    for _ in range(200):
        piece = plan(log, Pacing(0), {0: left}, 0, max_offsets)[0]
        taken += merged(log, piece)
        for partition in data.draw(st.lists(st.sampled_from(partitions), max_size=2)):
            later = (log.end(partition), data.draw(st.integers(0, 60)), True)
            log.records[partition].append(later)
        if all(piece.reached[p] >= before[p] for p in partitions):
            break
        left = Inputs(partitions, piece.reached, {p: log.end(p) for p in partitions})
    assert [(p, offset) for p, offset in taken if offset < before[p]] == expected


@settings(deadline=None)
@given(logs(), st.integers(1, 6))
def test_slices_are_the_whole_in_pieces(log: SimulatedLog, count: int) -> None:
    partitions = tuple(log.records)
    inputs = Inputs(partitions, dict.fromkeys(partitions, 0), {p: log.end(p) for p in partitions})
    pieces = slices(log, inputs, count)
    assert len(pieces) <= count
    assert [record for piece in pieces for record in merged(log, piece)] == merged(log, inputs)


def even(count: int, partitions: int = 2) -> tuple[SimulatedLog, Inputs]:
    """Return partitions with a record every 10 ms."""
    names = tuple((f"t{number}", 0) for number in range(partitions))
    log = SimulatedLog({p: [(i, 10 * i, True) for i in range(count)] for p in names}, chunk=100)
    return log, Inputs(names, dict.fromkeys(names, 0), dict.fromkeys(names, count))


def test_a_limited_batch_has_about_the_size_and_is_planned_without_reading() -> None:
    log, inputs = even(5000)
    planned = plan(log, Pacing(0), {0: inputs}, 0, 1000)[0]
    assert 800 <= len(planned) <= 1000
    assert "scan" not in log.asked
    assert log.asked["offsets_at"] < 10


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_record_from_the_future_does_not_enlarge_batches(partitions: int) -> None:
    log, inputs = even(5000, partitions)
    log.records["t0", 0][0] = (0, 10**9, True)
    starts = {**inputs.starts, ("t0", 0): 1}
    planned = plan(log, Pacing(0), {0: Inputs(inputs.partitions, starts, inputs.ends)}, 0, 1000)[0]
    assert 800 <= len(planned) <= 2 * 1000
    assert len(set(planned.ends.values())) == 1


def test_a_head_that_tells_too_early_a_time_stops_no_task() -> None:
    # After a record of 900 ms a batch of records of 500, 100 and 100 ms, whose head tells 100.
    late, other = ("t0", 0), ("t1", 0)
    stamps = [900, 500, *([100] * 50)]
    log = SimulatedLog(
        {
            late: [(offset, at, True) for offset, at in enumerate(stamps)],
            other: [(offset, 500 + offset, True) for offset in range(50)],
        },
        heads={(late, 1): 100},
    )
    inputs = Inputs((late, other), {late: 1, other: 0}, {late: len(stamps), other: 50})
    pieces = [plan(log, Pacing(0), {0: inputs}, 0, 10)[0]]
    while len(pieces[-1]) and len(inputs := inputs.after(pieces[-1])):
        pieces.append(plan(log, Pacing(0), {0: inputs}, 0, 10)[0])
    assert [place for piece in pieces for place in merged(log, piece)] == merged(
        log, Inputs((late, other), {late: 1, other: 0}, {late: len(stamps), other: 50})
    )


def test_every_task_gets_its_share_of_the_limit() -> None:
    log, inputs = even(1000, partitions=3)
    ends = dict(zip(inputs.partitions, (1000, 500, 0), strict=True))
    tasks = {number: Inputs((p,), {p: 0}, {p: end}) for number, (p, end) in enumerate(ends.items())}
    planned = plan(log, Pacing(0), tasks, 0, 300)
    assert 160 <= len(planned[0]) <= 200
    assert 80 <= len(planned[1]) <= 100
    assert len(planned[2]) == 0


def test_a_caught_up_partition_holds_the_others_until_its_deadline() -> None:
    log, inputs = even(10)
    del log.records["t0", 0][3:]
    ends = {("t0", 0): 3, ("t1", 0): 10}
    pacing = Pacing(1000)
    first = plan(log, pacing, {0: Inputs(inputs.partitions, inputs.starts, ends)}, 0)[0]
    # t0 ends with its record of 20 ms. That of t1 comes after it.
    assert first.reached == {("t0", 0): 3, ("t1", 0): 2}
    waiting = Inputs(inputs.partitions, first.reached, ends)
    assert len(plan(log, pacing, {0: waiting}, 999)[0]) == 0
    assert "Waiting for new data to be produced" in str(pacing.decisions[0])
    assert plan(log, pacing, {0: waiting}, 1000)[0].reached == ends


def test_a_long_range_is_not_searched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "SCAN_RECORDS", 100)
    log, inputs = even(1000)
    # The largest timestamps are those of markers, as with transactions of old records.
    for partition in inputs.partitions:
        log.records[partition].append((1000, 10**9, False))
    log.chunk = 50
    ends = dict.fromkeys(inputs.partitions, 1001)
    planned = plan(log, Pacing(1000), {0: Inputs(inputs.partitions, inputs.starts, ends)}, 0)[0]
    assert 100 <= len(planned) < 1000


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 12), max_size=12), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.integers(-1, 8),
)
def test_chunks_merge_like_single_records(
    timestamps: list[list[int]], random: st.Random, stream_time_ms: int
) -> None:
    expected: OrderedTask[int, int] = OrderedTask(range(len(timestamps)))
    expected.stream_time_ms = stream_time_ms
    for partition, times in enumerate(timestamps):
        expected.add(partition, [(time, index) for index, time in enumerate(times)])
    order = list(iter(expected.pop, None))

    merge = ChunkMerge(len(timestamps), stream_time_ms)
    left = dict(enumerate(timestamps))
    done: list[tuple[int, int]] = []
    offsets = dict.fromkeys(left, 0)
    while left:
        partition = random.choice(merge.blocking or list(left))
        size = random.randint(1, 5)
        piece, left[partition] = left[partition][:size], left[partition][size:]
        rows = pa.RecordBatch.from_pydict(
            {
                "at": pa.array(
                    [(partition, offsets[partition] + i) for i in range(len(piece))],
                    pa.list_(pa.int64()),
                )
            }
        )
        offsets[partition] += len(piece)
        merge.add(partition, rows, np.array(piece, np.int64))
        if not left[partition]:
            merge.finish(partition)
            del left[partition]
        for batch in merge.take():
            done += (tuple(row["at"]) for row in batch.to_pylist())
    assert done == order
    assert merge.counts.records == expected.metrics().records_total
    assert merge.counts.late == expected.metrics().late_records_total
    assert merge.counts.stream_time_ms == expected.stream_time_ms
    last = [max([*times, -(10**9)]) for times in timestamps]
    first_empty = min((peak, partition) for partition, peak in enumerate(last))
    enforced, high = 0, [-(10**9)] * len(timestamps)
    for partition, index in order:
        high[partition] = max(high[partition], timestamps[partition][index])
        enforced += (high[partition], partition) > first_empty
    assert merge.counts.enforced == enforced
