"""Runs with fixed seeds, runs with new seeds, and the same run twice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import ROOT, RUN_SEED

from .run import Failure, simulate

pytestmark = pytest.mark.slow

STEPS = 1000


@pytest.mark.parametrize("seed", range(1, 16))
def test_share_groups_survive_bad_luck(seed: int) -> None:
    assert simulate(seed, STEPS).counts["accepted"]


@pytest.mark.parametrize("seed", [RUN_SEED + i for i in range(5)])
def test_share_groups_survive_bad_luck_that_nobody_has_seen_before(seed: int) -> None:
    print(f"python -m tests.simulation --seed {seed} --steps {STEPS}")
    simulate(seed, STEPS)


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_whole_broker_survives_bad_luck(seed: int) -> None:
    print(f"python -m tests.simulation --world broker --seed {seed} --steps 300")
    simulate(seed, 300, world="broker")


@pytest.mark.parametrize(("seed", "steps"), [(4106307267, 2000), (20261277, 120)])
def test_bad_luck_that_was_too_much_once(seed: int, steps: int) -> None:
    simulate(seed, steps, world="broker")


def test_everything_that_may_happen_happens() -> None:
    happened: set[str] = set()
    for seed in (133, 134, 136):
        happened |= simulate(seed, STEPS).counts.keys()
    expected = ["accepted", "rejected", "released", "renewed", "gaps", "starts", "resets"]
    assert happened.issuperset([*expected, "timed out", "taken back", "archived at the limit"])


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_run_by_seed_is_always_the_same(hash_seed: str) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--world", "broker"]
    command += ["--seed", "7", "--steps", "200"]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, cwd=ROOT, check=True
    )
    assert simulate(7, 200, world="broker").digest in done.stdout


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.simulation.witness.Witness.end_offset", lambda witness, where: 1 << 40
    )
    with pytest.raises(
        Failure,
        match=r"(?s)seed 3, step \d+: .*-m tests.simulation --world share --seed 3 --steps 300$",
    ):
        simulate(3, 300)
