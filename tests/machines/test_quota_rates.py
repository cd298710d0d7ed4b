"""Rates and token buckets of quotas, beside those of Apache Kafka 4.3.1.

``rates_of_kafka.json`` has what ``Rate`` and ``TokenBucket`` of Apache Kafka's own jar measured
for random values: in each step the milliseconds since the step before, the value, the rate and its
throttle time, the tokens left and the throttle time of the bucket.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.security.rates import MAX_THROTTLE_MS, Rate, TokenBucket, Windows
from tests.support import ROOT

RUNS: list[dict[str, Any]] = json.loads((ROOT / "tests/machines/rates_of_kafka.json").read_text())
TEN_SECONDS = Windows(samples=11, size_ms=1000)


@pytest.mark.parametrize("run", RUNS, ids=[str(number) for number in range(len(RUNS))])
def test_rates_and_buckets_are_those_of_kafka(run: dict[str, Any]) -> None:
    windows, limit = Windows(run["samples"], run["window_ms"]), run["bound"]
    rate, bucket, now_ms = Rate(windows), TokenBucket(windows), 1_000_000
    for elapsed_ms, value, per_second, throttle_ms, tokens, wait_ms in run["steps"]:
        now_ms += elapsed_ms
        assert abs(rate.charge(value, limit, now_ms) - throttle_ms) <= 1  # the last bit of a float
        total, window_ms = rate.measure(now_ms)
        assert total / (window_ms / 1000) == pytest.approx(per_second)
        assert abs(bucket.charge(value // 1, limit, now_ms) - wait_ms) <= 1
        assert bucket.tokens(limit, now_ms) == pytest.approx(tokens)


def test_a_burst_of_ten_seconds_passes() -> None:
    rate = Rate(TEN_SECONDS)
    assert rate.charge(1_000_000, 100_000, 0) == 0
    assert rate.charge(1_000, 100_000, 0) == 10


def test_what_is_taken_back_was_not_used() -> None:
    rate = Rate(TEN_SECONDS)
    assert rate.charge(2_000, 100, 0) == 10_000
    rate.record(-2_000, 0)
    assert rate.charge(1_000, 100, 0) == 0


def test_no_throttle_time_is_longer_than_a_response_can_have() -> None:
    assert Rate(TEN_SECONDS).charge(2.0**62, 5e-7, 0) == MAX_THROTTLE_MS
    assert Rate(TEN_SECONDS).charge(1, 0, 0) == MAX_THROTTLE_MS
    assert TokenBucket(TEN_SECONDS).charge(2.0**62, 5e-7, 0) == MAX_THROTTLE_MS


def test_an_infinite_limit_throttles_nobody() -> None:
    assert Rate(TEN_SECONDS).charge(2.0**62, float("inf"), 0) == 0


def test_a_rate_is_idle_when_its_values_have_no_effect() -> None:
    rate = Rate(TEN_SECONDS)
    rate.charge(1_000_000, 1, 0)
    assert [rate.is_idle(now_ms) for now_ms in (0, 10_999, 11_000)] == [False, False, True]
