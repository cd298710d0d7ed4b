"""Spans against a dict of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.share.records import StateBatch
from headrace.share.share_state import ShareState
from headrace.share.spans import Spans

RANGE = st.tuples(st.integers(0, 30), st.integers(0, 6)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@st.composite
def disjoint_runs(draw):
    position, runs = draw(st.integers(0, 12)), []
    for length, gap, value in draw(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(1, 3)), max_size=6)
    ):
        runs.append((position, position + length - 1, value))
        position += length + gap
    return runs


def as_dict(spans):
    return {offset: value for first, last, value in spans for offset in range(first, last + 1)}


def check_shape(spans):
    runs = list(spans)
    for first, last, _ in runs:
        assert first <= last
    for (_, last, value), (first, _, next_value) in pairwise(runs):
        assert last < first
        assert last + 1 < first or value != next_value, "equal neighbours are one span"


@given(
    st.lists(
        st.tuples(st.sampled_from(["paint", "erase", "erase some"]), disjoint_runs()),
        max_size=8,
    ),
    st.integers(0, 40),
    RANGE,
)
def test_spans_do_what_a_dict_of_offsets_does(steps, below, window):
    spans, model = Spans(), {}
    for kind, runs in steps:
        if kind == "erase some":  # whole spans
            runs = list(spans)[len(runs) // 2 : len(runs) + 1]
        if kind.startswith("erase"):
            spans.erase([(first, last) for first, last, _ in runs])
        else:
            spans.paint(runs)
        for first, last, value in runs:
            for offset in range(first, last + 1):
                if kind.startswith("erase"):
                    model.pop(offset, None)
                else:
                    model[offset] = value
        assert as_dict(spans) == model
        check_shape(spans)
    first, last = window
    assert as_dict(spans.within(first, last)) == {
        o: v for o, v in model.items() if first <= o <= last
    }
    assert spans.covers(first, last) == any(f <= first and last <= end for f, end, _ in spans)
    assert spans.count_below(below) == sum(offset < below for offset in model)
    spans.drop_below(below)
    assert as_dict(spans) == {o: v for o, v in model.items() if o >= below}


@given(st.lists(disjoint_runs(), max_size=6))
def test_of_two_states_of_a_record_the_greater_one_is_kept(writes):
    state, model = ShareState(0, 0, 0, 0, 0, 0), {}
    for runs in writes:
        state.merge([StateBatch(first, last, 0, count) for first, last, count in runs])
        for first, last, count in runs:
            for offset in range(first, last + 1):
                model[offset] = max(model.get(offset, (0, 0)), (count, 0))
        assert as_dict(state.batches) == model
        check_shape(state.batches)
