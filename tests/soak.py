"""The long tests: ``python -m tests.soak [PART...]`` runs all parts, or those that are named.

Every step runs in processes of its own, which end with it, also after Ctrl-C. What the steps print
is printed as it comes, and a table at the end says how each step ended. ``--jobs 2`` runs two parts
at a time; parts that measure time run alone, after the others.
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
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT, SOAK_MARK

ENDS_WITHIN_S = 30
"""The time that steps get after Ctrl-C before they are killed."""


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
    return [sys.executable, "-X", "faulthandler", "-u", *map(str, arguments)]


def pytest(*arguments: object) -> list[str]:
    return python("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *arguments)


def fuzz_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield the fuzzing of requests, over sockets, and of each target."""
    from tests.fuzz.targets import TARGETS

    requests = python("-m", "tests.fuzz", "--seed", "{seed}", "--frames")
    yield Step("fuzz", "requests", [*requests, str(options.frames)])
    yield Step("fuzz", "sockets", [*requests, str(options.frames // 20), "--sockets"])
    yield Step("fuzz", "TLS", [*requests, str(options.frames // 20), "--tls"])
    how = "atheris" if importlib.util.find_spec("atheris") else "unguided"
    for target in TARGETS:
        command = python("-m", "tests.fuzz.guided", target, "{tmp}/corpus", options.target_seconds)
        yield Step("fuzz", f"{target} ({how})", command)


def kill_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield rounds of kill -9: all clients through many, and each suite of its own through some."""
    rounds = {"HEADRACE_TEST_STEADY_KILLS": str(options.kills)}
    steady = "tests/faults/test_steady_clients.py::test_kills_with_all_clients"
    yield Step("kills", "all clients", pytest(steady), rounds)
    workers = {"HEADRACE_TEST_WORKER_KILLS": str(max(50, options.kills // 3))}
    yield Step("kills", "workers", pytest("tests/faults/test_worker_kill.py"), workers)
    for suite in (
        "kill",
        "share_kill",
        "transaction_kill",
        "rebalance_kill",
        "security_kill",
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
    yield Step("faults", "workers", pytest("tests/worker/test_faults.py"))
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


def spark_steps(options: argparse.Namespace) -> Iterator[Step]:
    """Yield kills in every phase, on a cluster of Spark and of a driver alone, the settings that
    people turn on, queries that are stopped, and ten minutes of steady queries.
    """
    for name in ("cluster", "habits", "killed_driver"):
        suite = f"tests/spark/test_{name}.py"
        yield Step("spark", name, pytest(suite))
        yield Step("spark", f"{name}, Apache Kafka", pytest(suite, "--target", "kafka"))
    yield Step("spark", "stopped queries", pytest("tests/spark/test_sql.py"))
    yield Step("spark", "steady queries", pytest("tests/spark/test_steady_queries.py"))


PARTS = {
    "fuzz": fuzz_steps,
    "kills": kill_steps,
    "faults": fault_steps,
    "simulation": simulation_steps,
    "scale": scale_steps,
    "spark": spark_steps,
}


ALONE = {"scale", "spark"}
"""Parts with timed assertions."""


@dataclass(slots=True, eq=False)
class Running:
    """A step that runs.

    :ivar directory: its temporary files; everything of it is below
    """

    process: subprocess.Popen[str]
    directory: Path


class Soak:
    """A run of parts: some of them at the same time, the steps of each one after the other.

    :param results: of all steps; each is noted when its step has ended
    """

    def __init__(self, results: list[Result], seed: int) -> None:
        self._results, self._seed = results, seed
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._begun = 0
        self._running: list[Running] = []
        self._is_stopping = False

    def run(self, jobs: int) -> None:
        """Run all steps.

        :param jobs: how many parts run at the same time
        :raises KeyboardInterrupt: after Ctrl-C, when all steps have ended
        """
        parts: dict[str, list[Result]] = {}
        for result in self._results:
            parts.setdefault(result.step.part, []).append(result)
        together = [steps for part, steps in parts.items() if jobs == 1 or part not in ALONE]
        alone = [steps for part, steps in parts.items() if jobs > 1 and part in ALONE]
        self._run_parts(together, jobs)
        self._run_parts(alone, 1)

    def _run_parts(self, parts: Iterable[list[Result]], jobs: int) -> None:
        queue = deque(parts)
        threads = [
            threading.Thread(target=self._run_queue, args=(queue,))
            for _ in range(min(jobs, len(queue)))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # the end takes a bounded time
            self._stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            raise

    def _run_queue(self, queue: deque[list[Result]]) -> None:
        """Run one part after the other until there are no more."""
        while queue:
            try:
                steps = queue.popleft()
            except IndexError:
                return
            for result in steps:
                self._run_step(result)

    def _run_step(self, result: Result) -> None:
        """Run a step, print its lines, and note its result. Nothing of it is left afterwards."""
        step = result.step
        with tempfile.TemporaryDirectory(
            prefix="headrace-soak-", ignore_cleanup_errors=True
        ) as tmp:
            started = time.monotonic()
            running = self._start(step, tmp)
            if running is None:
                return
            try:
                assert running.process.stdout is not None
                for line in running.process.stdout:
                    text = line.rstrip()
                    if text and "|rdkafka#" not in text:  # librdkafka says when a broker is down
                        result.lines = [*result.lines[-200:], text]
                        self._say(f"{step.part} {step.name} | {text[:500]}")
                status = running.process.wait()
                passed = "passed" if status == 0 else f"FAILED ({status})"
                result.outcome = "stopped" if self._is_stopping else passed
            finally:
                _kill(running)
                _unmount(running.directory)
                with self._lock:
                    self._running.remove(running)
                result.seconds = time.monotonic() - started
                result.says = _summary(result.lines)

    def _start(self, step: Step, tmp: str) -> Running | None:
        """Start a step; return None if no more steps are to start."""
        command = [
            word.replace("{tmp}", tmp).replace("{seed}", str(self._seed)) for word in step.command
        ]
        path = [f"{ROOT / 'src'}", f"{ROOT}", os.environ.get("PYTHONPATH")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            SOAK_MARK: tmp,
            "HEADRACE_TEST_SEED": str(self._seed),
            "TMPDIR": tmp,
            **step.environment,
        }
        with self._lock:
            if self._is_stopping:
                return None
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd=ROOT,
                start_new_session=True,
                env=environment,
            )
            running = Running(process, Path(tmp))
            self._running.append(running)
            self._begun += 1
            number = self._begun
        minutes = (time.monotonic() - self._started) / 60
        where = f"{number} of {len(self._results)}, seed {self._seed}, {minutes:.1f} min"
        self._say(f"=== {step.part}: {step.name} ({where})")
        return running

    def _say(self, text: str) -> None:
        with self._lock:
            print(text, flush=True)

    def _stop(self) -> None:
        """End all steps: with SIGINT, so that they clean up, and then for good."""
        with self._lock:
            self._is_stopping = True
            running = list(self._running)
        for one in running:
            if one.process.poll() is None:
                _signal(one.process, signal.SIGINT)
        deadline = time.monotonic() + ENDS_WITHIN_S
        for one in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0, deadline - time.monotonic()))
        for one in running:
            _kill(one)


def _summary(lines: list[str]) -> str:
    """Return the line that says the most about a step: its count, or how pytest ended."""
    words = (" rounds, ", " frames", "runs in", "inputs without", "runs of", " passed", " failed")
    told = [line for line in lines if any(word in line for word in words)]
    return told[-1] if told else (lines[-1] if lines else "")


def _signal(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _kill(running: Running) -> None:
    """Kill what is left of a step, also processes that have a session of their own."""
    _signal(running.process, signal.SIGKILL)
    for _ in range(50):
        left = _processes(running.directory)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.process.wait(5)


def _processes(directory: Path) -> list[int]:
    """Return the processes of a step, by its mark in their environment; none where there is no
    /proc.
    """
    mark, found = f"{SOAK_MARK}={directory}".encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def _unmount(below: Path) -> None:
    """Unmount what a step that was killed has left mounted, and detach its loop devices."""
    if not sys.platform.startswith("linux") or shutil.which("umount") is None:
        return
    devices = [device for device, file in _loop_devices() if file.is_relative_to(below)]
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([one for one in mounts if Path(one).is_relative_to(below)]):
        subprocess.run(["umount", "-l", mount], check=False)
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=False)


def _loop_devices() -> list[tuple[str, Path]]:
    """Return all loop devices with the files behind them."""
    if shutil.which("losetup") is None:
        return []
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    pairs = (line.split(None, 1) for line in listed.splitlines())
    return [(pair[0], Path(pair[1])) for pair in pairs if len(pair) == 2]


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
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time (default: 1)")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    parts = list(dict.fromkeys(options.parts)) or list(PARTS)
    results = [Result(step) for part in parts for step in PARTS[part](options)]
    print(f"seed {seed}: {len(results)} steps of {', '.join(parts)}", flush=True)
    try:
        Soak(results, seed).run(options.jobs)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    print(table(results))
    return 0 if all(one.outcome == "passed" for one in results) else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background of a shell
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
