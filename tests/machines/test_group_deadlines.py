"""Deadlines that are put off again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.deadlines import Deadlines


def test_what_is_put_off_comes_later():
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 20)
    deadlines.set("a", 30)
    assert deadlines.next_ms() == 20
    assert deadlines.pop_due(19) is None
    assert [deadlines.pop_due(40) for _ in range(3)] == ["b", "a", None]
    assert deadlines.next_ms() is None


def test_what_is_brought_forward_comes_sooner_and_once():
    deadlines = Deadlines()
    deadlines.set("a", 30)
    deadlines.set("a", 10)
    assert deadlines.pop_due(10) == "a"
    assert deadlines.pop_due(50) is None


def test_heartbeats_do_not_grow_the_heap():
    deadlines = Deadlines()
    for now in range(10_000):
        deadlines.set(now % 10, now + 100)
    assert len(deadlines) == 10
    assert len(deadlines._heap) == 10


def test_what_was_cancelled_long_before_its_time_takes_no_memory():
    deadlines = Deadlines()
    deadlines.set("stays", 5_000_000)
    for now in range(10_000):
        deadlines.set(now, now + 1_000_000)
        deadlines.cancel(now)
    assert len(deadlines._heap) < 200
    assert len(deadlines._queued) < 200
    assert deadlines.next_ms() == 5_000_000


actions = st.one_of(
    st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 20)),
    st.tuples(st.just("cancel"), st.sampled_from("abcd"), st.just(0)),
    st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
    st.tuples(st.just("next"), st.just(""), st.just(0)),
)


@given(st.lists(actions, max_size=60))
def test_they_are_a_sorted_dictionary(steps):
    deadlines, model = Deadlines(), {}
    for action, key, when in steps:
        if action == "set":
            deadlines.set(key, when)
            model[key] = when
        elif action == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        elif action == "next":
            assert deadlines.next_ms() == min(model.values(), default=None)
        else:
            popped = deadlines.pop_due(when)
            first = min(model.values(), default=None)
            if first is None or first > when:
                assert popped is None
            else:
                assert model.pop(popped) == first
        assert len(deadlines) == len(model)
