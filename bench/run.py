"""headrace and Apache Kafka side by side: the same unmodified clients, in alternation, on one
machine.

    python -m bench.run                         everything, three pairs; writes bench/RESULTS.md
    python -m bench.run --quick                 see that it works, in some minutes; writes nothing
    python -m bench.run --only share-1,latency  some of it; --list names what there is
"""

from __future__ import annotations

import argparse
import resource
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from bench import attacks, cpu, security
from bench.alone import ALONE, Cost
from bench.clients import ClientError
from bench.kfake_peer import KfakeMissing, KfakePeer
from bench.measurements import (
    IDLE_CPU,
    IDLE_MEMORY,
    MEASUREMENTS,
    START_UP,
    Broker,
    Metric,
    Scale,
    forget_admins,
    hold,
    start_up,
)
from bench.report import Result, show, show_costs, show_cpu, write
from tests.peer import KafkaPeer, jars
from tests.support import HeadraceProcess

CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    # a share consumer gets its assignment with its second heartbeat: do not spend five seconds on
    # waiting for that
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
NOTES = (
    "Both brokers run at the same time on loopback with their own data directories on the "
    "same disk, and take turns: "
    "Kafka, headrace, Kafka, headrace, …; the one whose turn it is not is idle. A first "
    "round of each measurement "
    "warms both up and is not counted.",
    "Both have their default configuration but for "
    + ", ".join(f"`{k}={v}`" for k, v in CONFIGS.items())
    + ", and Kafka's replication factors of 1. Neither flushes each write to disk.",
    "Java: `ProducerPerformance` (steady state, after a fifth of the records), "
    "`ConsumerPerformance` (`fetch.MB.sec`), "
    "`bench/java/ShareConsume.java` (KafkaShareConsumer; from when a fifth of the records "
    "is accepted until all are). "
    "Topics have one partition. librdkafka: `bench/produce.py`, `bench/consume.py`, "
    "`bench/latency.py`.",
    (
        "Start-up is timed from starting the process until it answers ApiVersions, on a "
        "directory that exists."
    ),
    "Connections and partitions are held by a fresh broker of each kind; CPU is user and "
    "system time of its process. "
    "The partitions are empty.",
    "Attacks: fresh brokers of each kind, a producer of one small batch every 5 ms beside the "
    "attacker (`tests/attacks/honest.py`); memory is the peak of resident memory during the attack "
    "less that before it.",
    "TLS: version 1.3 with the same cipher suite and the same certificate for both (ECDSA, P-256). "
    "Logins: `tests/security/crowds.py`, a connection each.",
    (
        "headrace alone: `bench/share_partition.py` times the state machine, "
        "`bench/idle_groups.py` the CPU of a broker."
    ),
)
OTHERS = ("start-up", "hold", "attacks", "security", "cpu")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=lambda text: text.split(","), help="names from --list, separated by commas"
    )
    parser.add_argument(
        "--pairs",
        type=int,
        help="how often each broker has its turn (default 3, or 1 with --quick)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="little work; see that everything runs"
    )
    parser.add_argument(
        "--output", type=Path, help="where to write (default bench/RESULTS.md for a whole run)"
    )
    parser.add_argument("--list", action="store_true", help="name the measurements")
    parsed = parser.parse_args(arguments)
    known = [OTHERS[0], *MEASUREMENTS, *OTHERS[1:], *ALONE]
    if parsed.list:
        print("\n".join(known))
        raise SystemExit(0)
    unknown = set(parsed.only or ()) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --list names what there is")
    parsed.pairs = parsed.pairs or (1 if parsed.quick else 3)
    if parsed.output is None and not parsed.only and not parsed.quick:
        parsed.output = Path(__file__).parent / "RESULTS.md"
    parsed.only = parsed.only or known
    return parsed


class Run:
    """One run: the brokers, and the results so far."""

    def __init__(self, directory: Path, pairs: int, scale: Scale) -> None:
        self.directory, self.pairs, self.scale = directory, pairs, scale
        self.results: list[Result] = []
        self.costs: list[Cost] = []
        self.cpu: list[cpu.CpuResult] = []
        self.notes: list[str] = []
        self.failures: list[str] = []
        self.console = Console(stderr=True, highlight=False)
        self.started = time.monotonic()

    def brokers(self, purpose: str) -> dict[str, Broker]:
        """A new Kafka and a new headrace with empty directories, not started."""
        return {
            "kafka": KafkaPeer(self.directory / f"kafka-{purpose}", CONFIGS),
            "headrace": HeadraceProcess(self.directory / f"headrace-{purpose}", CONFIGS),
        }

    def alternate(
        self,
        brokers: Mapping[str, Broker],
        metrics: Sequence[Metric],
        measure: Callable[[Broker], Sequence[float]],
    ) -> None:
        """Let each broker have its turn `pairs` times."""
        results = [Result(metric) for metric in metrics]
        for _ in range(self.pairs):
            for name, broker in brokers.items():
                values = measure(broker)
                for result, value in zip(results, values, strict=True):
                    result.values[name].append(value)
                    self.say(f"{result.metric.name}: {name} {value:.4g} {result.metric.unit}")
        self.results += results

    def say(self, text: str) -> None:
        self.console.print(f"{time.monotonic() - self.started:6.0f} s  {text}")

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """One measurement: if it fails, the others are still worth having."""
        try:
            work()
        except Exception as error:
            self.failures.append(name)
            self.say(f"{name} failed: {error!r}")

    def start_up(self) -> None:
        # the first start compiles headrace, which is already compiled where it is installed
        brokers = self.brokers("start-up")
        for broker in brokers.values():
            broker.start()
            broker.stop()

        def measure(broker: Broker) -> tuple[float]:
            seconds = start_up(broker)
            broker.stop()
            return (seconds,)

        self.alternate(brokers, [START_UP], measure)

    def under_load(self, names: Sequence[str]) -> None:
        brokers = self.brokers("load")
        try:
            for broker in brokers.values():
                broker.start()
            time.sleep(3)
            for name in names:
                self.attempt(name, lambda name=name: self.measure(brokers, name))
        finally:
            for broker in brokers.values():
                broker.stop()
            forget_admins()

    def measure(self, brokers: dict[str, Broker], name: str) -> None:
        measurement = MEASUREMENTS[name]
        if not name.startswith("memory"):
            self.say(f"warming up: {name}")
            for broker in brokers.values():
                measurement.measure(broker, self.scale)
        self.alternate(
            brokers, measurement.metrics, lambda broker: measurement.measure(broker, self.scale)
        )

    def hold(self) -> None:
        words = {
            "seconds": self.scale.idle_s,
            "connections": self.scale.connections,
            "partitions": self.scale.partitions,
        }
        results = [
            Result(Metric(IDLE_CPU.format(**words), "s", None, True)),
            Result(Metric(IDLE_MEMORY.format(**words), "MiB", None, True)),
        ]
        for name, broker in self.brokers("hold").items():
            self.say(f"holding connections and partitions: {name}")
            broker.start()
            try:
                for result, value in zip(results, hold(broker, self.scale), strict=True):
                    result.values[name].append(value)
                    self.say(f"{result.metric.name}: {name} {value:.4g} {result.metric.unit}")
            finally:
                broker.stop()
                forget_admins()
        self.results += results

    def attacked(self) -> None:
        """Attack fresh brokers, one attack after the other."""
        brokers = self.brokers("attacks")
        try:
            for broker in brokers.values():
                broker.start()
            for name in attacks.ATTACKS:
                self.alternate(
                    brokers,
                    attacks.metrics(name),
                    lambda broker, name=name: attacks.measure(broker, self.scale, name),
                )
        finally:
            for broker in brokers.values():
                broker.stop()
            forget_admins()

    def secured(self) -> None:
        """Measure TLS and logins."""
        brokers = security.brokers(self.directory / "security", CONFIGS)
        try:
            for broker in brokers.values():
                broker.start()
            time.sleep(3)
            for metrics, measure in (
                (security.TLS_METRICS, security.tls),
                (security.LOGIN_METRICS, security.logins),
            ):
                self.say(f"warming up: {metrics[0].name}")
                for broker in brokers.values():
                    measure(broker, self.scale)
                self.alternate(
                    brokers, metrics, lambda broker, measure=measure: measure(broker, self.scale)
                )
        finally:
            for broker in brokers.values():
                broker.stop()
            forget_admins()

    def cpu_per_gib(self) -> None:
        """Measure what each GiB costs the brokers, kfake among them where it can be built."""
        brokers = self.brokers("cpu")
        try:
            brokers["kfake"] = KfakePeer()
        except KfakeMissing as error:
            self.notes.append(f"kfake was not measured: {error}.")
            self.say(self.notes[-1])
        try:
            for broker in brokers.values():
                broker.start()
            for name, work in cpu.WORK.items():
                result = cpu.CpuResult(name)
                self.cpu.append(result)
                for turn in range(self.pairs + 1):
                    for kind, broker in brokers.items():
                        self._cpu_turn(result, kind, broker, work, counts=turn > 0)
        finally:
            for broker in brokers.values():
                broker.stop()
            forget_admins()

    def _cpu_turn(
        self, result: cpu.CpuResult, kind: str, broker: Broker, work: cpu.Work, *, counts: bool
    ) -> None:
        """Let one broker have its turn; the first one warms it up."""
        try:
            seconds = cpu.seconds_per_gib(broker, self.scale, work)
        except ClientError as error:
            if counts:
                self.notes.append(f"{result.name} failed on {kind}.")
            self.say(f"CPU, {result.name}: {kind} failed: {str(error).splitlines()[-1]}")
            return
        if counts:
            result.runs.setdefault(kind, []).append(seconds)
            self.say(f"CPU, {result.name}: {kind} {seconds:.2f} s per GiB")

    def alone(self, name: str) -> None:
        for cost in ALONE[name](self.scale):
            self.costs.append(cost)
            self.say(f"{cost.name}: {cost.value:.4g} {cost.unit}")


def main(arguments: Sequence[str]) -> None:
    chosen = options(arguments)
    jars()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        run = Run(Path(directory), chosen.pairs, Scale.quick() if chosen.quick else Scale())
        if "start-up" in chosen.only:
            run.attempt("start-up", run.start_up)
        under_load = [name for name in MEASUREMENTS if name in chosen.only]
        if under_load:
            run.under_load(under_load)
        if "hold" in chosen.only:
            run.attempt("hold", run.hold)
        if "attacks" in chosen.only:
            run.attempt("attacks", run.attacked)
        if "security" in chosen.only:
            run.attempt("security", run.secured)
        if "cpu" in chosen.only:
            run.attempt("cpu", run.cpu_per_gib)
        for name in ALONE:
            if name in chosen.only:
                run.attempt(name, lambda name=name: run.alone(name))
    if run.results:
        show(run.results)
    if run.cpu:
        show_cpu(run.cpu)
    if run.costs:
        show_costs(run.costs)
    if chosen.output:
        command = shlex.join(
            ["make", "bench", *([f"BENCH={shlex.join(arguments)}"] if arguments else [])]
        )
        failed = (
            [f"Failed, and therefore missing: {', '.join(run.failures)}."] if run.failures else []
        )
        notes = [*NOTES, *run.notes, *failed]
        write(chosen.output, run.results, run.cpu, run.costs, command, notes)
        print(f"written to {chosen.output}")
    if run.failures:
        raise SystemExit(f"failed: {', '.join(run.failures)}")


if __name__ == "__main__":
    main(sys.argv[1:])
