"""The reference pipeline whole, as ``make demo`` runs it.

    python -m bench.pipeline ROWS CHECKOUT…

Runs ``python -m examples.departures`` in each checkout, in turns, :data:`ROUNDS` times, and prints
medians as JSON. CPU time is that of all its processes: the program with its broker, Spark's JVM and
Python workers.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.support import ROOT

ROUNDS = 3
_SAMPLE_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    :param took_s: from the start of the program to its end
    :param cpu_s: user and system time of all its processes
    """

    took_s: float
    cpu_s: float


def run(rows: int, checkout: Path = ROOT, cores: int = 0) -> Run:
    """Run the pipeline.

    :param checkout: a folder with the repository
    :param cores: number of cores to use; 0 for all
    """
    available = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "examples.departures"]
        started_s = time.monotonic()
        program = subprocess.Popen(
            [*command, "--rows", str(rows), "--out", f"{folder}/out"],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, available[: cores or None]),
        )
        used = _CpuTime(psutil.Process(program.pid))
        while True:
            used.sample()
            try:
                output, _ = program.communicate(timeout=_SAMPLE_INTERVAL_S)
                break
            except subprocess.TimeoutExpired:
                continue
        took_s = time.monotonic() - started_s
    if program.returncode:
        raise RuntimeError(f"the pipeline in {checkout}: {output[-4000:]}")
    return Run(took_s, used.total_s)


class _CpuTime:
    """CPU time of a process and of its descendants, also of those that have ended."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._seen: dict[psutil.Process, float] = {}

    def sample(self) -> None:
        try:
            processes = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._seen[process] = times.user + times.system

    @property
    def total_s(self) -> float:
        """The sum, up to the last sample."""
        return sum(self._seen.values())


def medians(rows: int, checkouts: list[Path]) -> dict[str, dict[str, float]]:
    """Run the pipeline of each checkout in turns; return the medians by checkout."""
    runs: dict[Path, list[Run]] = {}
    for _ in range(ROUNDS):
        for checkout in checkouts:
            runs.setdefault(checkout, []).append(run(rows, checkout))
            print(checkout, runs[checkout][-1], file=sys.stderr)
    return {
        str(checkout): asdict(
            Run(
                statistics.median(run.took_s for run in of_checkout),
                statistics.median(run.cpu_s for run in of_checkout),
            )
        )
        for checkout, of_checkout in runs.items()
    }


if __name__ == "__main__":
    _, count, *folders = sys.argv
    print(json.dumps(medians(int(count), [Path(folder).resolve() for folder in folders])))
