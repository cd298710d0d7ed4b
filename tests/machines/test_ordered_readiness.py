"""The rule of max.task.idle.ms: each of its cases, its log lines, and any sequence of events
against a slow model.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ordered.readiness import Readiness, Reason


def decide(idle_ms, buffered, lags, now_ms=1_000, partitions=("a-0", "b-0")):
    return Readiness(partitions, idle_ms).decide(buffered, lags, now_ms)


@pytest.mark.parametrize(
    ("idle_ms", "buffered", "lags", "reason"),
    [
        (-1, {}, {}, Reason.DISABLED),
        (-1, {"a-0": 1}, {"b-0": 9}, Reason.DISABLED),
        (0, {"a-0": 1, "b-0": 1}, {}, Reason.BUFFERED),
        (0, {"a-0": 1}, {}, Reason.LAG_UNKNOWN),
        (0, {"a-0": 1}, {"b-0": None}, Reason.LAG_UNKNOWN),
        (0, {"a-0": 1}, {"b-0": 5}, Reason.NOT_FETCHED),
        (0, {"a-0": 1}, {"b-0": 0}, Reason.ENFORCED),
        (0, {"a-0": 1}, {"b-0": -2}, Reason.ENFORCED),
        (0, {}, {"a-0": 0, "b-0": 0}, Reason.NOTHING_BUFFERED),
        (7, {"a-0": 1}, {"b-0": 0}, Reason.IDLING),
        (7, {"a-0": 1}, {"b-0": 5}, Reason.NOT_FETCHED),
    ],
)
def test_one_look(idle_ms, buffered, lags, reason):
    decision = decide(idle_ms, buffered, lags)
    assert decision.reason is reason
    assert decision.ready == (reason in {Reason.DISABLED, Reason.BUFFERED, Reason.ENFORCED})


@pytest.mark.parametrize(
    ("idle_ms", "buffered", "lags", "text"),
    [
        (0, {"a-0": 1}, {}, "Partition b-0 has fetched lag of -1\n\tWaiting to fetch data for b-0"),
        (
            0,
            {"a-0": 1},
            {"b-0": 5},
            (
                "Partition b-0 has current lag 5, but no data is buffered locally. Waiting to "
                "buffer some records."
            ),
        ),
        (
            30,
            {"a-0": 1},
            {"b-0": 0},
            "Partition b-0 has current lag 0 and current time is 1000. Waiting for new data "
            "to be produced for "
            "configured idle time 30 (deadline is 1030).",
        ),
        (
            0,
            {"a-0": 1},
            {"b-0": 0},
            (
                "Records are processed without waiting any longer for b-0 (deadline 1000); "
                "current time is 1000."
            ),
        ),
        (
            0,
            {},
            {"a-0": 0, "b-0": 0},
            ("No partitions were buffered locally, so this task is not ready for processing."),
        ),
    ],
)
def test_the_lines_of_the_log(idle_ms, buffered, lags, text):
    assert str(decide(idle_ms, buffered, lags)) == text


def test_other_negative_idle_times_are_refused():
    with pytest.raises(ValueError, match="max_task_idle_ms is -2: it may be -1"):
        Readiness(["a-0"], -2)


class Naive:
    """The rule as its text has it, sentence by sentence, with the state that Kafka Streams
    keeps."""

    def __init__(self, partitions, idle_ms):
        self.partitions, self.idle_ms, self.deadlines = partitions, idle_ms, {}

    def decide(self, buffered, lags, now_ms):
        if self.idle_ms == -1:
            return True, None, {}
        queued, given_up = [], {}
        for partition in self.partitions:
            if buffered.get(partition, 0) > 0:
                if partition in self.deadlines:
                    del self.deadlines[partition]
                queued.append(partition)
            elif lags.get(partition) is None or lags[partition] > 0:
                if partition in self.deadlines:
                    del self.deadlines[partition]
                return False, partition, {}
            else:
                if partition not in self.deadlines:
                    self.deadlines[partition] = now_ms + self.idle_ms
                if now_ms < self.deadlines[partition]:
                    return False, partition, {}
                given_up[partition] = self.deadlines[partition]
        if not given_up:
            return True, None, {}
        return bool(queued), None, given_up


PARTITIONS = ["a-0", "b-0", "c-0", "d-0"]
moments = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 2)),
        st.dictionaries(
            st.sampled_from(PARTITIONS), st.one_of(st.none(), st.just(0), st.integers(-2, 3))
        ),
        st.integers(0, 12),
    ),
    max_size=30,
)


@given(st.integers(1, 4), st.integers(-1, 20), moments)
def test_any_sequence_of_events_is_decided_as_the_text_says(count, idle_ms, moments):
    readiness, naive, now_ms = (
        Readiness(PARTITIONS[:count], idle_ms),
        Naive(PARTITIONS[:count], idle_ms),
        100,
    )
    for buffered, lags, later_ms in moments:
        now_ms += later_ms
        decision = readiness.decide(buffered, lags, now_ms)
        assert (decision.ready, decision.partition, decision.enforced) == naive.decide(
            buffered, lags, now_ms
        )
        if decision.reason is Reason.IDLING:
            assert decision.deadline_ms == naive.deadlines[decision.partition]
        assert decision.is_enforced == (decision.ready and bool(decision.enforced))
