"""`make soak`: several parts at a time, and nothing of them is left after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.soak import Result, Soak, Step, python, table
from tests.support import ROOT, wait_until

pytestmark = pytest.mark.slow

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
print("pids", subprocess.Popen(sleeper, start_new_session=True).pid, flush=True)
time.sleep(600)
"""
"""A step that ignores Ctrl-C, and has a process with a session of its own."""

SOAK = f"""
import signal, sys
from tests import soak
soak.ENDS_WITHIN_S = 1
soak.PARTS = {{
    name: lambda options, name=name: [
        soak.Step(name, "stubborn", soak.python("-c", {STUBBORN!r})),
        soak.Step(name, "next", soak.python("-c", "print('runs')")),
    ]
    for name in ("one", "two", "three")
}}
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[1:] = ["--jobs", sys.argv[1]]
sys.exit(soak.main())
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_is_left_after_ctrl_c(jobs: int, tmp_path: Path) -> None:
    path = os.pathsep.join([f"{ROOT / 'src'}", f"{ROOT}"])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": f"{tmp_path}"}
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", SOAK, str(jobs)], stdout=file, env=environment, cwd=ROOT
        )

    def pids() -> list[int]:
        told = [line for line in output.read_text().splitlines() if "| pids " in line]
        return [int(line.split()[-1]) for line in told]

    try:
        wait_until(lambda: len(pids()) == jobs, 30, "steps that run")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1
    finally:
        process.kill()
    text = output.read_text()
    assert text.count("stopped  ") == jobs and text.count("not run") == 6 - jobs, text
    assert len(pids()) == jobs
    for pid in pids():  # killed; init takes note of the end of orphans
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 10, "the end of a process")
    assert not list(tmp_path.glob("headrace-soak-*"))


def test_parts_that_measure_time_run_alone_after_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy = textwrap.dedent("""
        import time
        print("began", time.monotonic())
        time.sleep(1)
        print("ended", time.monotonic())
    """)
    results = [
        Result(Step(part, f"step {number}", python("-c", busy)))
        for part in ("scale", "fuzz", "kills")
        for number in range(2)
    ]
    Soak(results, seed=1).run(jobs=2)
    print(table(results))
    assert {one.outcome for one in results} == {"passed"}, capsys.readouterr().out
    times = [[float(line.split()[-1]) for line in one.lines] for one in results]
    scale, fuzz, kills = times[:2], times[2:4], times[4:]
    assert max(end for _, end in fuzz + kills) < min(begin for begin, _ in scale)
    assert all(part[0][1] < part[1][0] for part in (scale, fuzz, kills))
    assert fuzz[0][0] < kills[-1][1] and kills[0][0] < fuzz[-1][1]
