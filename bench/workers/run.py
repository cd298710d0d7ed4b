"""`python -m bench.workers.run [--scale 0.1] [--peers PYTHON] [--kafka]` prints a table.

The peers run with a Python that has celery, redis, taskiq, taskiq-redis and dramatiq, on servers of
their own: `redis-server` and `rabbitmq-server` where they are installed. Each worker is one process
unless its row says otherwise; a rate is that of the last four fifths of the tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

import headrace
from tests.peer import KafkaPeer
from tests.support import ROOT, HeadraceProcess, free_port_pair, unique

from .counter import Counter, new

HERE = Path(__file__).parent
PATIENCE_S = 180.0
ORDER = {"id": 1, "item": "three blue boxes", "count": 3}
PEER_TASKS = 10_000
RESULTS = """# Workers side by side

`python -m bench.workers.run --write …` on {date}, one run on a machine of {cores} cores that the
servers and the senders share. Each function is empty and gets a JSON object of three members; each
worker is one process unless its row says otherwise. A rate is that of the last four fifths of the
tasks; ours are confirmed one by one as always. Celery acknowledges late, with 100 tasks ahead.

| | {columns} |
|---|{line}
{rows}
"""


class Bench:
    """Starts workers, and has their calls counted.

    :param directory: for the files of the run
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def worker(
        self, command: Sequence[str], variables: Mapping[str, str], cwd: Path = ROOT
    ) -> Iterator[tuple[Counter, int]]:
        """Run a worker; yield its counter and its process id."""
        path = self.directory / unique("counter")
        counter = new(path)
        environment = {**os.environ, **variables, "BENCH_COUNTER": str(path)}
        with (self.directory / "workers.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=log, stderr=log)
        try:
            yield counter, process.pid
        finally:
            family = [process.pid, *(p.pid for p in psutil.Process(process.pid).children(True))]
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for process_id in family[1:]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(process_id).kill()

    def rate(self, counter: Counter, tasks: int) -> float:
        """Return the tasks per second of the last four fifths."""
        first = wait(lambda: (total := counter.total()) >= tasks // 5 and total)
        began_s = time.perf_counter()
        wait(lambda: counter.total() >= tasks)
        return (tasks - first) / (time.perf_counter() - began_s)


def wait(condition: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise TimeoutError("the worker does not get on")
        time.sleep(0.002)
    return value


def ours(bench: Bench, bootstrap: str, scale: float) -> dict[str, float]:
    """Measure headrace's worker on a broker."""
    rows: dict[str, float] = {}
    tasks = {"loop": int(200_000 * scale), "thread": int(50_000 * scale)}
    tasks |= {"process": int(50_000 * scale), "sleep": 10_000}
    for kind, number in tasks.items():
        name = unique(kind)
        rows |= send(bootstrap, name, number, rows)
        with our_worker(bench, bootstrap, name) as (counter, _):
            if kind == "sleep":
                wait(counter.total)  # the first second is over
                began_s = time.perf_counter()
                wait(lambda c=counter: c.total() >= 10_000)
                rows["10,000 tasks of 1 s, s"] = 1 + time.perf_counter() - began_s
            else:
                rows[f"{kind}, tasks/s"] = bench.rate(counter, number)
    return rows | latency(bench, bootstrap)


@contextlib.contextmanager
def our_worker(
    bench: Bench, bootstrap: str, name: str, **variables: str
) -> Iterator[tuple[Counter, int]]:
    command = [sys.executable, "-m", "headrace", "worker", "bench.workers.headrace_app:app"]
    names = {"BENCH_BOOTSTRAP": bootstrap, "BENCH_TASK": name, **variables}
    with bench.worker(command, {**HeadraceProcess.environment(), **names}) as started:
        yield started


def send(bootstrap: str, name: str, number: int, rows: Mapping[str, float]) -> dict[str, float]:
    """Send tasks; measure it once."""

    async def go() -> dict[str, float]:
        app = headrace.App(bootstrap)

        @app.task(name=name)
        async def task(order: dict) -> None: ...  # type: ignore[type-arg]

        began_s = time.perf_counter()
        for first in range(0, number, 10_000):
            await task.send_many([ORDER] * min(10_000, number - first))
        rates = {"send_many, tasks/s": number / (time.perf_counter() - began_s)}
        if rows:
            rates = {}
        else:
            began_s = time.perf_counter()
            for _ in range(2000):
                await task.send(ORDER)
            rates["send, one by one, tasks/s"] = 2000 / (time.perf_counter() - began_s)
        app.close()
        return rates

    return asyncio.run(go())


def latency(bench: Bench, bootstrap: str) -> dict[str, float]:
    """Measure the time from a send to the start in an idle worker, and its memory."""
    name, path = unique("latency"), bench.directory / unique("latencies")
    path.touch()

    async def go() -> dict[str, float]:
        app = headrace.App(bootstrap)

        @app.task(name=name)
        async def task(order: dict) -> None: ...  # type: ignore[type-arg]

        await task.send({"sent": time.time()})
        with our_worker(bench, bootstrap, name, BENCH_LATENCIES=str(path)) as (counter, process_id):
            await asyncio.to_thread(wait, counter.total)
            await asyncio.sleep(2)
            memory_bytes = psutil.Process(process_id).memory_info().rss
            for _ in range(200):
                await task.send({"sent": time.time()})
                await asyncio.sleep(0.03)
            await asyncio.to_thread(wait, lambda: counter.total() > 200)
        app.close()
        times_ms = sorted(float(line) * 1000 for line in path.read_text().split())[:-1]
        return {
            "send to start, p50, ms": statistics.median(times_ms),
            "send to start, p99, ms": times_ms[int(len(times_ms) * 0.99) - 1],
            "memory of an idle worker, MiB": memory_bytes / 2**20,
        }

    return asyncio.run(go())


def peers(bench: Bench, python: str, scale: float) -> dict[str, float]:
    """Measure the workers of others."""
    rows: dict[str, float] = {}
    number = int(PEER_TASKS * scale)
    binaries = Path(python).parent
    celery = [str(binaries / "celery"), "-A", "celery_app", "worker", "-l", "ERROR"]
    with redis() as url:
        for pool in (["--pool=solo"], ["--pool=threads", "-c10"], ["--pool=prefork", "-c2"]):
            rows[f"Celery, Redis, {' '.join(pool)}, tasks/s"] = of_peer(
                bench,
                python,
                url,
                "from celery_app import task",
                "task.delay",
                celery + pool,
                number,
            )
        rows["taskiq, Redis streams, tasks/s"] = of_peer(
            bench,
            python,
            url,
            "from taskiq_app import task, broker; import asyncio",
            "taskiq",
            [str(binaries / "taskiq"), "worker", "--workers=1", "taskiq_app:broker"],
            number,
        )
        rows["dramatiq, Redis, 1 process, 8 threads, tasks/s"] = of_peer(
            bench,
            python,
            url,
            "from dramatiq_app import task",
            "task.send",
            [str(binaries / "dramatiq"), "--processes=1", "--threads=8", "dramatiq_app"],
            number,
        )
    with rabbitmq(bench.directory) as url:
        if url:
            rows["Celery, RabbitMQ, --pool=solo, tasks/s"] = of_peer(
                bench,
                python,
                url,
                "from celery_app import task",
                "task.delay",
                [*celery, "--pool=solo"],
                number,
            )
    return rows


def of_peer(
    bench: Bench,
    python: str,
    url: str,
    imports: str,
    call: str,
    command: list[str],
    number: int,
) -> float:
    variables = {"BENCH_BROKER": url, "PYTHONPATH": str(HERE)}
    loop = f"for _ in range({number}): {call}({ORDER})"
    if call == "taskiq":
        loop = (
            "async def go():\n await broker.startup()\n"
            f" for _ in range({number}): await task.kiq({ORDER})\n"
            " await broker.shutdown()\nasyncio.run(go())"
        )
    try:
        subprocess.run(
            [python, "-c", f"{imports}\n{loop}"],
            check=True,
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
        )
        with bench.worker(command, variables, HERE) as (counter, _):
            return bench.rate(counter, number)
    except (TimeoutError, subprocess.CalledProcessError) as error:
        print(f"{' '.join(command)}: {error}", file=sys.stderr)
        return float("nan")


@contextlib.contextmanager
def redis() -> Iterator[str]:
    port = free_port_pair()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        time.sleep(1)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def rabbitmq(directory: Path) -> Iterator[str]:
    """Yield the URL of a server of this run; nothing if it is not installed, or does not start."""
    if shutil.which("rabbitmq-server") is None:
        yield ""
        return
    home, port = directory / "rabbitmq", free_port_pair()
    home.mkdir()
    variables = {
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port_pair()),
        "RABBITMQ_MNESIA_BASE": str(home),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "HOME": str(home),
    }
    shutil.chown(home, "rabbitmq") if os.getuid() == 0 else None
    binary = next(iter(Path("/usr/lib/rabbitmq").glob("lib/*/sbin/rabbitmq-server")), None)
    server = subprocess.Popen(
        [str(binary or "rabbitmq-server")],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(15)
        yield f"amqp://guest:guest@127.0.0.1:{port}//" if server.poll() is None else ""
    finally:
        for process in (*psutil.Process(server.pid).children(True), psutil.Process(server.pid)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.workers.run", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--peers", metavar="PYTHON", help="a Python with the other workers")
    parser.add_argument("--kafka", action="store_true", help="ours on Apache Kafka, too")
    parser.add_argument("--write", action="store_true", help="write bench/workers/RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        bench = Bench(Path(name))
        columns: dict[str, dict[str, float]] = {}
        with HeadraceProcess(Path(name) / "headrace") as broker:
            columns["headrace"] = ours(bench, broker.bootstrap_servers, options.scale)
        if options.kafka:
            with KafkaPeer(Path(name) / "kafka") as peer:
                columns["Apache Kafka"] = ours(bench, peer.bootstrap_servers, options.scale)
        if options.peers:
            columns["others"] = peers(bench, options.peers, options.scale)
        rows = {
            row: [
                "" if (cell := cells.get(row)) is None else f"{cell:,.1f}"
                for cells in columns.values()
            ]
            for row in dict.fromkeys(row for cells in columns.values() for row in cells)
        }
        table = Table("", *columns)
        for row, cells in rows.items():
            table.add_row(row, *cells)
        Console(width=110).print(table)
        if options.write:
            text = RESULTS.format(
                date=datetime.date.today().isoformat(),
                cores=os.cpu_count(),
                columns=" | ".join(columns),
                line="--:|" * len(columns),
                rows="\n".join(f"| {row} | {' | '.join(cells)} |" for row, cells in rows.items()),
            )
            (HERE / "RESULTS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
