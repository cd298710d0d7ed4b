"""The long tests: ``python -m tests.soak [PART...]`` runs all parts, or those that are named.

Every part runs in processes of its own, which end with it, also after Ctrl-C. What the parts print
is printed as it comes, and a table at the end says how each step ended.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

ENDS_WITHIN_S = 30
"""The time that a step gets after Ctrl-C before it is killed."""


class Step(NamedTuple):
    """A command of a part.

    :ivar environment: variables for it, besides the seed
    """

    part: str
    name: str
    command: list[str]
    environment: Mapping[str, str] = {}


@dataclass(slots=True)
class Result:
    """The end of a step.

    :ivar says: the last line that it printed
    """

    step: Step
    outcome: str = "not run"
    seconds: float = 0
    says: str = ""
    lines: list[str] = field(default_factory=list)


def python(*arguments: object) -> list[str]:
    return [sys.executable, "-u", *map(str, arguments)]


def pytest(*arguments: object) -> list[str]:
    return python("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *arguments)


def fuzz_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield the fuzzing of requests, over sockets, and of each target."""
    from tests.fuzz.targets import TARGETS

    requests = python("-m", "tests.fuzz", "--seed", "{seed}", "--frames")
    yield Step("fuzz", "requests", [*requests, str(options.frames)])
    yield Step("fuzz", "sockets", [*requests, str(options.frames // 20), "--sockets"])
    how = "atheris" if importlib.util.find_spec("atheris") else "unguided"
    for target in TARGETS:
        command = python("-m", "tests.fuzz.guided", target, "{tmp}/corpus", options.target_seconds)
        yield Step("fuzz", f"{target} ({how})", command)


def kill_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield rounds of kill -9: all clients through many, and each suite of its own through some."""
    rounds = {"HEADRACE_TEST_STEADY_KILLS": str(options.kills)}
    steady = "tests/faults/test_steady_clients.py::test_kills_with_all_clients"
    yield Step("kills", "all clients", pytest(steady), rounds)
    for suite in (
        "kill",
        "share_kill",
        "transaction_kill",
        "rebalance_kill",
        "kill_cleaning",
        "backup",
    ):
        fewer = {"HEADRACE_TEST_KILLS": str(max(1, options.kills // 10))}
        yield Step("kills", suite, pytest(f"tests/faults/test_{suite}.py"), fewer)


def fault_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield SIGSTOP, full disks, failing disks and devices, and the short fault tests."""
    steady = "tests/faults/test_steady_clients.py"
    yield Step("faults", "SIGSTOP", pytest(f"{steady}::test_a_broker_that_stands_still"))
    yield Step("faults", "full disk", pytest(f"{steady}::test_a_disk_that_is_full_for_a_while"))
    failing = "tests/faults/test_failing_disk.py"
    yield Step("faults", "failing calls", pytest(f"{failing}::test_calls_that_fail"))
    yield Step("faults", "failing device", pytest(f"{failing}::test_a_device_that_fails"))
    others = ("corrupt_state", "full_disk", "pruned_state", "stop_and_start")
    names = [f"tests/faults/test_{name}.py" for name in others]
    yield Step("faults", "others", pytest(*names))


def simulation_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield simulated crashes."""
    command = python("-m", "tests.simulation", "--seed", "{seed}", "--crashes", options.crashes)
    yield Step("simulation", "crashes", command)


def scale_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield the attacks on live brokers and the tests at scale."""
    for name in ("attacks", "scale"):
        if any((ROOT / "tests" / name).glob("test_*.py")):
            yield Step("scale", name, pytest(f"tests/{name}"), {"HEADRACE_TEST_SCALE": "50"})


PARTS = {
    "fuzz": fuzz_steps,
    "kills": kill_steps,
    "faults": fault_steps,
    "simulation": simulation_steps,
    "scale": scale_steps,
}


def run(step: Step, result: Result, seed: int) -> None:
    """Run a step, print its lines, and note its result. Nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-soak-", ignore_cleanup_errors=True) as tmp:
        process = subprocess.Popen(
            [word.replace("{tmp}", tmp).replace("{seed}", str(seed)) for word in step.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=ROOT,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [f"{ROOT / 'src'}", f"{ROOT}", os.environ.get("PYTHONPATH")])
                ),
                "HEADRACE_SOAK": "1",
                "HEADRACE_TEST_SEED": str(seed),
                "TMPDIR": tmp,
                **step.environment,
            },
        )
        started = time.monotonic()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                text = line.rstrip()
                if text and "|rdkafka#" not in text:  # librdkafka says when a broker is down
                    result.lines = [*result.lines[-200:], text]
                    print(f"{step.part} {step.name} | {text[:500]}", flush=True)
            status = process.wait()
            result.outcome = "passed" if status == 0 else f"FAILED ({status})"
        except KeyboardInterrupt:
            result.outcome = "stopped"
            _end(process)
            raise
        finally:
            _end(process)
            _unmount(Path(tmp))
            result.seconds = time.monotonic() - started
            result.says = _summary(result.lines)


def _summary(lines: list[str]) -> str:
    """Return the line that says the most about a step: its count, or how pytest ended."""
    words = (" rounds, ", " frames", "runs in", "inputs without", "runs of", " passed", " failed")
    told = [line for line in lines if any(word in line for word in words)]
    return told[-1] if told else (lines[-1] if lines else "")


def _end(process: subprocess.Popen[str]) -> None:
    """End a step with all its processes: with SIGINT, so that it cleans up, and then for good."""
    for number, patience_s in ((signal.SIGINT, ENDS_WITHIN_S), (signal.SIGKILL, 5)):
        if process.poll() is None or number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


def _unmount(below: Path) -> None:
    """Unmount what a step that was killed has left mounted, and detach its loop devices."""
    if shutil.which("umount") is None:
        return
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([one for one in mounts if Path(one).is_relative_to(below)]):
        device = subprocess.run(
            ["findmnt", "-n", "-o", "SOURCE", mount], capture_output=True, text=True, check=False
        ).stdout.strip()
        subprocess.run(["umount", "-l", mount], check=False)
        if device.startswith("/dev/loop"):
            subprocess.run(["losetup", "--detach", device], check=False)


def table(results: list[Result]) -> str:
    """Return a line for each step."""
    rows = [
        f"{one.step.part:<11}{one.step.name:<32}{one.outcome:<14}{one.seconds:>8.0f} s  "
        f"{one.says[:120]}"
        for one in results
    ]
    return "\n".join([f"{'part':<11}{'step':<32}{'result':<14}{'time':>10}", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="the parts (default: all)")
    parser.add_argument("--seed", type=int, help="repeat a run")
    parser.add_argument("--frames", type=int, default=1_000_000, help="fuzzed requests")
    parser.add_argument("--target-seconds", type=int, default=60, help="for each fuzzing target")
    parser.add_argument("--kills", type=int, default=200, help="rounds of kill -9")
    parser.add_argument("--crashes", type=int, default=10_000, help="simulated crashes")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    parts = options.parts or list(PARTS)
    results = [Result(step) for part in parts for step in PARTS[part](options)]
    print(f"seed {seed}: {len(results)} steps of {', '.join(parts)}", flush=True)
    started = time.monotonic()
    try:
        for number, result in enumerate(results, 1):
            minutes = (time.monotonic() - started) / 60
            where = f"{number} of {len(results)}, seed {seed}, {minutes:.1f} min"
            print(f"=== {result.step.part}: {result.step.name} ({where})", flush=True)
            run(result.step, result, seed)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    print(table(results))
    return 0 if all(one.outcome == "passed" for one in results) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
