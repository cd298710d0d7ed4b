"""The lag that a consumer knows of, against a partition that is written to, fetched in pieces, and
asked.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ordered.current_lag import CurrentLag


def test_unknown_without_position_or_end():
    lag = CurrentLag(read_committed=False)
    assert lag.lag() is None
    lag.see_high_watermark(8)
    assert lag.lag() is None
    lag.position = 1
    assert lag.lag() == 7
    assert CurrentLag(read_committed=False, position=3).lag() is None


def test_the_high_watermark_counts_for_read_uncommitted_only():
    uncommitted, committed = CurrentLag(False, position=5), CurrentLag(True, position=5)
    for lag in (uncommitted, committed):
        lag.see_high_watermark(8)
    assert (uncommitted.lag(), committed.lag()) == (3, None)
    committed.learn_end(5, position_then=5)
    assert committed.lag() == 0


def test_a_high_watermark_at_the_position_leaves_no_room_for_the_last_stable_offset():
    lag = CurrentLag(True, position=8)
    lag.see_high_watermark(8)
    assert lag.lag() == 0


def test_an_end_from_before_the_position_moved_is_no_proof():
    lag = CurrentLag(True, position=3)
    lag.learn_end(5, position_then=3)
    assert lag.lag() == 2
    lag.advance(5)
    assert lag.lag() is None
    lag.advance(6)
    assert lag.lag() is None
    lag.reach_end(7)  # past a transaction marker
    assert (lag.position, lag.lag()) == (7, 0)
    lag.learn_end(6, position_then=5)
    assert lag.lag() == 0, "an answer that comes late takes nothing back"


def test_seeking_keeps_the_end():
    lag = CurrentLag(False, position=8)
    lag.see_high_watermark(8)
    lag.position = 0
    assert lag.lag() == 8


def test_what_is_remembered_of_an_earlier_assignment_is_not_believed():
    lag = CurrentLag(False, position=20, old_high_watermark=20)
    lag.see_high_watermark(20)
    assert lag.lag() is None
    lag.reach_end(20)
    lag.see_high_watermark(20)
    assert lag.lag() == 0
    again = CurrentLag(False, position=20, old_high_watermark=20)
    again.see_high_watermark(25)
    assert again.lag() == 5


class Partition:
    """A broker's partition, and a client that fetches pieces of it in the background and hands them
    out later.
    """

    def __init__(self, read_committed):
        self.read_committed = read_committed
        self.high = self.stable = self.cached = 0
        self.fetched, self.queue = 0, []

    @property
    def end(self):
        return self.stable if self.read_committed else self.high

    def fetch(self, most):
        """Apply a fetch response: the client's cached watermark, and events behind those not
        handed out yet.
        """
        self.cached = self.high
        if self.fetched == self.end:
            self.queue.append(("end", self.fetched, self.end))
        for _ in range(min(most, self.end - self.fetched)):
            self.fetched += 1
            self.queue.append(("record", self.fetched, self.end))


events = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3)),
        st.tuples(st.just("stable"), st.integers(1, 4)),
        st.tuples(st.just("fetch"), st.integers(1, 3)),
        st.tuples(st.just("poll"), st.integers(1, 3)),
        st.tuples(st.just("ask"), st.just(0)),
        st.tuples(st.just("answer"), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    "read_committed", [False, True], ids=["read_uncommitted", "read_committed"]
)
@given(events=events)
def test_caught_up_is_never_said_while_the_client_has_been_told_of_more(read_committed, events):
    broker, lag = Partition(read_committed), CurrentLag(read_committed, position=0)
    handed_out_knows = 0
    question = None
    for event, number in events:
        if event == "write":
            broker.high += number
        elif event == "stable":
            broker.stable = min(broker.high, broker.stable + number)
        elif event == "fetch":
            broker.fetch(number)
        elif event == "poll":
            for kind, offset, end in broker.queue[:number]:
                (lag.reach_end if kind == "end" else lag.advance)(offset)
                handed_out_knows = max(handed_out_knows, end)
            del broker.queue[:number]
        elif event == "ask":
            question = question or (broker.end, lag.position)
        elif question:
            lag.learn_end(*question)
            question = None
        if broker.cached:
            lag.see_high_watermark(broker.cached)
        known = lag.lag()
        if known is not None:
            assert known >= 0
            assert lag.position + known <= broker.end, "no more than the broker has"
            if known == 0:
                assert lag.position >= handed_out_knows, (
                    "what came with the last record said that there is more"
                )
    # However it went: once all is handed out and fetched again, the lag is known, and zero.
    broker.stable = broker.high
    for _ in range(2):
        broker.fetch(1_000)
    for kind, offset, _ in broker.queue:
        (lag.reach_end if kind == "end" else lag.advance)(offset)
    lag.see_high_watermark(broker.cached)
    assert lag.lag() == 0
