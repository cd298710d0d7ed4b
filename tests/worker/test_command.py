"""`headrace worker`: its errors, its banner, its lines, health, metrics, reload, drain."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.cli.worker.reload import modified
from headrace.client.cluster import Cluster
from headrace.client.workers import SeenWorker, WorkerWatch
from tests.cli.command import ENVIRONMENT, HEADRACE, run
from tests.support import HeadraceProcess, story, unique, wait_until

PATIENCE_S = 60
SHOP = """
import asyncio, os, time
import headrace

app = headrace.App({address!r})

@app.task(name="{name}-pack", retry=1, concurrency=10)
async def pack(number: int) -> None:
    if number < 0:
        raise ValueError(f"no box for {{number}}\\x1b[31m\\nnext line")
    await asyncio.sleep(number)

@app.task(name="{name}-ship", concurrency=2, timeout=30, dead_letters=False)
def ship(number: int) -> None:
    time.sleep(number)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def name() -> str:
    return unique("shop")


def write(folder: Path, text: str, module: str = "shop") -> None:
    (folder / f"{module}.py").write_text(textwrap.dedent(text))


class Running:
    """`headrace worker` in a process of its own, and what it has written."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._files = {name: folder / f"worker.{name}" for name in ("out", "err")}
        with self._files["out"].open("wb") as out, self._files["err"].open("wb") as err:
            self.process = subprocess.Popen(
                [*HEADRACE, "worker", "shop:app", *words],
                cwd=folder,
                env=ENVIRONMENT,
                stdout=out,
                stderr=err,
            )

    def text(self, name: str) -> str:
        return self._files[name].read_text()

    def wait_for(self, name: str, text: str, times: int = 1) -> None:
        """Wait until a text was written so often."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.text("err")
            return self.text(name).count(text) >= times

        wait_until(is_there, PATIENCE_S, f"{text!r} {times} times in {name}", 0.05)

    def url(self, name: str) -> str:
        self.wait_for("out", f"{name}: http://")
        urls: list[str] = re.findall(rf"^{name}: (http://\S+)$", self.text("out"), re.M)
        return urls[0]

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    """Start workers, which are killed at the end."""
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(Running(folder, *words))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def send(folder: Path, task: str, *numbers: float) -> None:
    """Send calls of a task from another process, without asyncio."""
    calls = "\n".join(f"shop.{task}.send_sync({number})" for number in numbers)
    program = f"import shop\n{calls}\nshop.app.close()"
    subprocess.run(
        [HEADRACE[0], "-c", program], cwd=folder, env=ENVIRONMENT, check=True, timeout=PATIENCE_S
    )


def got(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


# -- errors

GOOD = """
import headrace
app = headrace.App("127.0.0.1:1")
@app.task()
async def pack(number: int) -> None: ...
"""


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ("shop", 2, "'shop' is not of the form MODULE:APP, such as shop:app"),
        ("../shop:app", 2, "'../shop:app' is not of the form MODULE:APP"),
        ("shp:app", 2, "there is no module 'shp' in "),
        ("shop.tasks:app", 2, "there is no module 'shop.tasks' in "),
        ("shop:ap", 2, "shop:ap does not exist: did you mean app?"),
        ("shop:headrace", 2, "shop:headrace is no headrace.App: the apps: app"),
        ("shop:app --tasks pak", 2, "the app has no task 'pak': did you mean pack?"),
        ("shop:app --tasks ,", 2, "the app has no tasks"),
        ("shop:app --concurrency 0", 2, "'0' is not a whole number above 0"),
        ("shop:app --health-port 70000", 2, "'70000' is not a port: 0 to 65535"),
        ("shop:app --drain-timeout 0", 2, "'0' is not a duration of at least a millisecond"),
        ("shop:app", 1, "no broker answers at 127.0.0.1:1: "),
        ("shop:app -b 127.0.0.1:2", 1, "no broker answers at 127.0.0.1:2: "),
        ("empty:app", 2, "the app has no tasks: decorate a function with @app.task()"),
        ("needs:app", 1, "cannot import needs: ModuleNotFoundError: No module named 'absent'"),
        ("broken:app", 1, "cannot import broken: ZeroDivisionError: division by zero ("),
        ("syntax:app", 1, "cannot import syntax: SyntaxError: "),
        ("exits:app", 1, "cannot import exits: SystemExit: 3 ("),
        ("wrong:app", 1, "cannot import wrong: retry is -1, not a whole number from 0 ("),
        ("wrong:app", 1, "wrong.py, line 2)"),
        ("runs:app", 1, "cannot import runs: the module calls app.run() when it is imported"),
    ],
)
def test_errors_are_one_line(folder: Path, words: str, status: int, complaint: str) -> None:
    write(folder, GOOD)
    write(folder, "import headrace\napp = headrace.App()", "empty")
    write(folder, "import absent", "needs")
    write(folder, "1 / 0", "broken")
    write(folder, "def (", "syntax")
    write(folder, "raise SystemExit(3)", "exits")
    write(folder, f"{GOOD}\napp.run()", "runs")
    write(folder, "import headrace\nheadrace.App().task(retry=-1)(print)", "wrong")
    done = subprocess.run(
        [*HEADRACE, "worker", *words.split()],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=PATIENCE_S,
        text=True,
    )
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("headrace worker: ") and complaint in line


# -- the life of a worker


def test_a_worker_from_its_banner_to_its_totals(
    bootstrap_servers: str, folder: Path, name: str, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address={"metadata.broker.list": bootstrap_servers}, name=name))
    worker = start("--health-port", "0", "--metrics-port", "0", "--concurrency", "4")
    health, metrics = worker.url("health"), worker.url("metrics")
    banner = worker.text("out").splitlines()
    assert re.fullmatch(
        rf"headrace \S+, worker \S+-{worker.process.pid}, broker {bootstrap_servers}: "
        "(headrace, renews locks, keeps delayed records|"
        "Apache Kafka, renews locks, leaves delayed records to the worker)",
        banner[0],
    )
    assert banner[1].split() == [
        *("TASK", "TOPICS", "GROUP-ID", "RUNS-IN", "CONCURRENCY", "RETRIES", "TIMEOUT"),
        "DEAD-LETTERS",
    ]
    own = f"{name}-pack"
    assert banner[2].split() == [own, own, own, "loop", "4", "1", "-", f"dlq.{own}"]
    assert banner[3].split()[3:] == ["thread", "4", "3", "30s", "-"]

    wait_until(lambda: got(health)[0] == 200, PATIENCE_S, "a healthy worker", 0.05)
    assert json.loads(got(health)[1]) == {
        "status": "ok",
        "worker": banner[0].split()[3].rstrip(","),
        "problems": {},
        "paused": [],
    }
    assert got(health.replace("/health", "/elsewhere"))[0] == 404

    send(folder, "pack", 0, 0, -1)
    worker.wait_for("err", "dead letter in dlq.")
    failures = [line for line in worker.text("err").splitlines() if "failed on" in line]
    assert [re.sub(r".* attempt", "attempt", line) for line in failures] == [
        "attempt 1 of 2: ValueError: no box for -1\\x1b[31m\\nnext line; next try in "
        + failures[0].rpartition(" in ")[2],
        f"attempt 2 of 2: ValueError: no box for -1\\x1b[31m\\nnext line; dead letter in dlq.{own}",
    ]
    label = f'{{task="{own}",group="{own}"}}'

    def value(metric: str, labels: str = label) -> float:
        (text,) = re.findall(
            rf"^{re.escape(f'headrace_worker_{metric}{labels}')} (\S+)$", page, re.M
        )
        return float(text)

    letters = f"headrace_worker_dead_letters_total{label} 1"
    wait_until(lambda: letters in got(metrics)[1], PATIENCE_S, "a dead letter", 0.05)
    page = got(metrics)[1]
    assert value("done_total") == 2 and value("failed_total") == 2
    assert value("retried_total") == 1 and value("dead_letters_total") == 1
    assert value("slots") == 4 and value("in_group") == 1
    assert value("breaker", label.replace("}", ',state="closed"}')) == 1
    assert value("duration_seconds_count") == 4
    assert value("start_delay_seconds_count") == 3
    parsed = pytest.importorskip("prometheus_client.parser").text_string_to_metric_families(page)
    assert all(family.documentation for family in parsed)

    send(folder, "ship", 3)
    wait_until(
        lambda: f'running{{task="{name}-ship",group="{name}-ship"}} 1' in got(metrics)[1],
        PATIENCE_S,
        "a function that runs",
        0.05,
    )
    assert worker.stop() == 0
    lines = worker.text("err").splitlines()
    assert any("stopping: 1 function has 30 s to end" in line for line in lines)
    assert lines[-2].endswith(
        f"task '{own}' has ended: 2 done, 2 failed, 1 retried, 1 dead letters"
    )
    assert lines[-1].endswith(f"task '{name}-ship' has ended: 1 done")
    assert all(line.startswith("20") for line in lines), lines


def test_a_port_that_is_taken_is_one_line(
    bootstrap_servers: str, folder: Path, name: str, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address=bootstrap_servers, name=name))
    taken = socket.create_server(("127.0.0.1", 0))
    at = f"127.0.0.1:{taken.getsockname()[1]}"
    worker = start("--health-port", at)
    assert worker.process.wait(PATIENCE_S) == 1
    assert worker.text("err") == (
        f"headrace worker: cannot listen on {at}: Address already in use\n"
    )


def test_an_app_without_a_broker_has_one_line_about_it(
    folder: Path, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address=None, name="x"))
    worker = start("--tasks", "x-ship", "--health-port", "0")
    health = worker.url("health")
    wait_until(lambda: got(health)[0] == 200, PATIENCE_S, "a healthy worker", 0.05)
    assert "x-pack" not in worker.text("out")
    assert worker.stop() == 0
    lines = worker.text("err").splitlines()
    assert len(lines) == 2, lines
    assert "WARNING" in lines[0]  # a script tells, too, which has no logging
    assert "App() has no address: a broker runs in this process, at 127.0.0.1:" in lines[0]
    assert lines[1].endswith("task 'x-ship' has ended: no records")


def test_health_tells_why_a_task_gets_no_records(
    folder: Path, name: str, start: Callable[..., Running]
) -> None:
    broker = HeadraceProcess(
        configs={
            "group.share.min.heartbeat.interval.ms": "1000",
            "group.share.heartbeat.interval.ms": "1000",
        }
    )
    broker.start()
    try:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "socket.timeout.ms": 5000}
        write(folder, SHOP.format(address=conf, name=name))
        worker = start("--health-port", "0")
        health = worker.url("health")
        wait_until(lambda: got(health)[0] == 200, PATIENCE_S, "a healthy worker", 0.05)
    finally:
        broker.stop()
    wait_until(lambda: got(health)[0] == 503, PATIENCE_S, "an unhealthy worker", 0.05)
    told = json.loads(got(health)[1])
    assert told["status"] == "unavailable"
    assert set(told["problems"]) <= {f"{name}-pack", f"{name}-ship"}
    assert all(told["problems"].values())


@story
async def test_the_state_of_a_worker_is_published(
    bootstrap_servers: str, folder: Path, name: str, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address=bootstrap_servers, name=name))
    async with Cluster(bootstrap_servers) as cluster:
        watch = WorkerWatch(cluster)

        async def state_of(pid: int, is_as_wanted: Callable[[SeenWorker], bool]) -> SeenWorker:
            deadline_s = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline_s:
                for worker in await watch.look():
                    if worker.state.worker.endswith(f"-{pid}") and is_as_wanted(worker):
                        return worker
            raise AssertionError("the state was not published")

        worker = start()
        worker.wait_for("out", "TASK")
        send(folder, "pack", -1, 60)
        seen = await state_of(
            worker.process.pid, lambda seen: seen.state.tasks[0].dead_letters == 1
        )
        pack, ship = seen.state.tasks
        assert (pack.task, pack.run_in, pack.slots, pack.failed) == (f"{name}-pack", "loop", 10, 2)
        assert [record.attempt for record in pack.records] == [1]
        assert pack.records[0].since_ms <= time.time() * 1000
        assert [failure.attempt for failure in pack.failures] == [2, 1]
        assert pack.failures[0].reason == "ValueError: no box for -1\\x1b[31m\\nnext line"
        assert pack.failures[0].fate == f"dead letter in dlq.{name}-pack"
        assert (ship.running, ship.occupancy, ship.records) == (0, 0, ())

        worker.process.send_signal(signal.SIGTERM)
        await state_of(worker.process.pid, lambda seen: seen.state.is_stopping)
        worker.process.send_signal(signal.SIGTERM)  # does not wait for the function
        worker.process.wait(PATIENCE_S)
        assert not [
            seen
            for seen in await watch.look()
            if seen.state.worker.endswith(f"-{worker.process.pid}")
        ]


def test_reload_starts_the_worker_again_when_a_file_changes(
    bootstrap_servers: str, folder: Path, name: str, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address=bootstrap_servers, name=name))
    worker = start("--reload")
    worker.wait_for("out", "TASK")
    write(folder, "broken =", "other")
    worker.wait_for("out", "TASK", 2)
    write(folder, "broken =")
    worker.wait_for("err", "the worker has ended; it starts again when a file changes")
    write(folder, SHOP.format(address=bootstrap_servers, name=name).replace("ship", "move"))
    worker.wait_for("out", f"{name}-move")
    assert worker.text("err").count("has changed: starting again") == 3
    assert worker.stop() == 0
    assert "Traceback" not in worker.text("err")


def test_a_worker_does_not_outlive_the_process_that_reloads_it(
    bootstrap_servers: str, folder: Path, name: str, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address=bootstrap_servers, name=name))
    worker = start("--reload")
    worker.wait_for("out", "TASK")
    (pid,) = re.findall(r"worker \S+-(\d+),", worker.text("out"))
    worker.process.kill()
    worker.process.wait()
    wait_until(lambda: not is_running(int(pid)), PATIENCE_S, "the end of the worker", 0.05)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_reload_watches_the_sources_of_the_app_only(folder: Path) -> None:
    for path in ("shop.py", "a/b.py", ".git/x.py", "node_modules/x.py", "venv/lib/x.py", "a/c.txt"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    (folder / "venv/pyvenv.cfg").touch()
    os.symlink("/nowhere", folder / "dangling.py")
    assert {os.path.relpath(path, folder) for path in modified(folder)} == {"shop.py", "a/b.py"}


def test_top_shows_what_workers_do(
    bootstrap_servers: str, folder: Path, name: str, start: Callable[..., Running]
) -> None:
    write(folder, SHOP.format(address=bootstrap_servers, name=name))
    worker = start()
    worker.wait_for("out", "TASK")
    send(folder, "pack", 60, 60)

    def group() -> Any:
        words = ("--bootstrap-server", bootstrap_servers, "--iterations", "1", "-o", "jsonl")
        status, out, lines = run("top", f"{name}-pack", *words)
        assert (status, lines) == (0, [])
        groups = json.loads(out)["groups"]
        return groups[0] if groups else {}

    wait_until(lambda: group().get("running") == 2, PATIENCE_S, "the running records", 0.1)
    shown = group()
    assert (shown["worker_count"], shown["slots"], shown["breaker"]) == (1, 10, "closed")
    status, out, _ = run("top", "--bootstrap-server", bootstrap_servers, "--iterations", "1")
    assert status == 0
    columns = {b"SLOTS", b"OCCUPANCY", b"FAILED-PER-S", b"BREAKER"}
    assert columns <= set(out.split(b"\n")[0].split())
