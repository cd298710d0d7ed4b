"""The output of results: a table for the terminal, and bench/RESULTS.md with a description of the
machine.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from bench.alone import Cost
from bench.cpu import CpuResult
from bench.measurements import Metric
from tests.peer import KafkaPeer

COST_HEADERS = ("", "unit", "headrace", "wanted")
CPU_BROKERS = {"kafka": "Apache Kafka", "kfake": "kfake", "headrace": "headrace"}
CPU_HEADERS = ("CPU seconds per GiB", *CPU_BROKERS.values(), "runs")
HEADERS = ("", "unit", "Apache Kafka", "headrace", "ratio", "wanted", "runs")


@dataclass
class Result:
    """All values of one metric, by broker name, in the order of the runs."""

    metric: Metric
    values: dict[str, list[float]] = field(default_factory=lambda: {"kafka": [], "headrace": []})

    @property
    def medians(self) -> tuple[float, float]:
        """Return the medians of Apache Kafka and of headrace."""
        return median(self.values["kafka"]), median(self.values["headrace"])

    @property
    def ratio(self) -> float:
        """Return how many times better headrace is; below 1 it is worse."""
        kafka, headrace = self.medians
        better, worse = (kafka, headrace) if self.metric.less_is_better else (headrace, kafka)
        return better / worse if worse else math.inf

    def row(self) -> list[str]:
        """Return the cells under HEADERS."""
        kafka, headrace = self.medians
        wanted = "" if self.metric.wanted is None else f"≥ {self.metric.wanted:g}"
        runs = " / ".join(
            ", ".join(_number(value) for value in self.values[name])
            for name in ("kafka", "headrace")
        )
        ratio = f"{self.ratio:.2f}×" if math.isfinite(self.ratio) else "–"
        return [
            self.metric.name,
            self.metric.unit,
            _number(kafka),
            _number(headrace),
            ratio,
            wanted,
            runs,
        ]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cost_row(cost: Cost) -> list[str]:
    bounds = (("< ", cost.below), ("≥ ", cost.above))
    wanted = ", ".join(f"{sign}{bound:,g}" for sign, bound in bounds if bound is not None)
    return [cost.name, cost.unit, " → ".join(map(_number, (*cost.before, cost.value))), wanted]


def _cpu_row(result: CpuResult) -> list[str]:
    medians = [result.median(kind) for kind in CPU_BROKERS]
    cells = ["–" if value is None else f"{value:.2f}" for value in medians]
    runs = " / ".join(
        ", ".join(f"{value:.2f}" for value in result.runs.get(kind, ())) or "–"
        for kind in CPU_BROKERS
    )
    return [result.name, *cells, runs]


def show_cpu(results: Sequence[CpuResult]) -> None:
    """Print the table of CPU time."""
    table = Table(*CPU_HEADERS[:-1], title="CPU of the broker for each GiB (less is better)")
    for column in table.columns[1:]:
        column.justify = "right"
    for result in results:
        table.add_row(*_cpu_row(result)[:-1])
    Console().print(table)


def show_costs(costs: Sequence[Cost]) -> None:
    """Print the table of headrace alone."""
    table = Table(*COST_HEADERS, title="headrace alone")
    for column in table.columns[2:]:
        column.justify = "right"
    for cost in costs:
        style = {None: "", True: "green", False: "red"}[cost.is_good]
        name, unit, value, wanted = _cost_row(cost)
        table.add_row(name, unit, f"[{style}]{value}[/]" if style else value, wanted)
    Console().print(table)


def show(results: Sequence[Result]) -> None:
    """Print the table."""
    table = Table(
        *HEADERS[:-1],
        title="headrace beside Apache Kafka (medians; a ratio above 1: headrace is better)",
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for result in results:
        wanted = result.metric.wanted
        style = "" if wanted is None else "green" if result.ratio >= wanted else "red"
        cells = result.row()[:-1]
        table.add_row(*cells[:4], f"[{style}]{cells[4]}[/]" if style else cells[4], *cells[5:])
    Console().print(table)


def write(
    path: Path,
    results: Sequence[Result],
    cpu: Sequence[CpuResult],
    costs: Sequence[Cost],
    command: str,
    notes: Sequence[str],
) -> None:
    """Write the results as Markdown."""
    rows = ["| " + " | ".join(HEADERS) + " |", "|---|---|--:|--:|--:|--:|---|"]
    rows += ["| " + " | ".join(result.row()) + " |" for result in results]
    lines = [
        "# headrace beside Apache Kafka",
        "",
        f"The last run of `{command}`, on {datetime.date.today().isoformat()}. Medians; a "
        f"ratio above 1 means that "
        "headrace is better. The last column has every run, Apache Kafka's before the slash.",
        "",
        *rows,
        "",
        "## CPU of the broker for each GiB",
        "",
        "User and system time of the broker's process while one client works; less is better.",
        "",
        "| " + " | ".join(CPU_HEADERS) + " |",
        "|---|--:|--:|--:|---|",
        *("| " + " | ".join(_cpu_row(result)) + " |" for result in cpu),
        "",
        "## headrace alone",
        "",
        "| " + " | ".join(COST_HEADERS) + " |",
        "|---|---|--:|---|",
        *("| " + " | ".join(_cost_row(cost)) + " |" for cost in costs),
        "",
        "## How it was measured",
        "",
        *(f"- {note}" for note in notes),
        "",
        "## The machine and the versions",
        "",
        *(f"- {line}" for line in _machine()),
        "",
    ]
    path.write_text("\n".join(lines))


def _machine() -> list[str]:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.processor() or "unknown processor",
    )
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False
    ).stderr.splitlines()
    clients = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("confluent-kafka", "uvloop")
    )
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return [
        f"{cpu}, {os.cpu_count()} CPUs for brokers and clients together, "
        f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB of memory",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        f"{KafkaPeer.name} with a heap of 1 GiB on {java[0] if java else 'Java'}",
        f"headrace at commit {commit.stdout.strip() or 'unknown'}; {clients}",
    ]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
