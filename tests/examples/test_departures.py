"""The reference pipeline: its check, and a run with a few thousand flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from examples.departures import data, report
from tests.support import ROOT

pytestmark = pytest.mark.broker

ROWS = 3000


@pytest.fixture(scope="module")
def inputs() -> tuple[pd.DataFrame, pd.DataFrame]:
    flights = data.flights(ROWS)
    return flights, data.weather(flights["time"].iloc[-1])


def result(samples: list[tuple[float, dict[str, int]]], rejected: int = 0) -> report.Result:
    return report.Result(ROWS, 0, ROWS - rejected, rejected, 0, samples, {})


def test_each_flight_has_the_last_observation_until_its_departure(
    inputs: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    """Compare with a loop over all observations."""
    flights, weather = inputs
    joined = report.expected(flights, weather)
    departed = flights[flights["dep_time"].notna()].reset_index(drop=True)
    for at in range(0, len(departed), 97):
        flight = departed.iloc[at]
        known = weather[
            (weather["origin"] == flight["origin"]) & (weather["time"] <= flight["time"])
        ]
        assert joined.iloc[at]["temp"] == known["temp"].iloc[-1]


def test_a_difference_is_found(inputs: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = report.expected(*inputs)
    done = result([(1.0, {"flight-desk": 0})])
    report.check(done, table.sample(frac=1, random_state=1), *inputs)
    with pytest.raises(data.PipelineError, match="1 departures are missing and 0"):
        report.check(done, table.iloc[1:], *inputs)
    wrong = table.copy()
    wrong.loc[7, "temp"] += 0.1
    with pytest.raises(data.PipelineError, match="1 departures differ"):
        report.check(done, wrong, *inputs)
    with pytest.raises(data.PipelineError, match="a backlog is left"):
        report.check(result([(1.0, {"flight-desk": 3})]), table, *inputs)


@pytest.mark.spark
@pytest.mark.slow
def test_the_whole_pipeline(request: pytest.FixtureRequest, target: str, tmp_path: Path) -> None:
    """Run it with a broker of its own, as a user does, or with the Apache Kafka under test."""
    command = [
        sys.executable,
        "-m",
        "examples.departures",
        "--rows",
        str(ROWS),
        "--out",
        str(tmp_path / "out"),
    ]
    if target == "kafka":
        command += ["--bootstrap", request.getfixturevalue("bootstrap_servers")]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "each equal to that of a batch join with pandas" in ran.stdout
    assert "page     http://127.0.0.1:" in ran.stdout.splitlines()[-1]
    assert (tmp_path / "out" / "backlog.png").stat().st_size > 10_000
    assert len(report.read(tmp_path / "out" / "departures.parquet")) > ROWS * 0.9
