"""Functions in processes: results, exceptions, deaths, timeouts, and the ends of both sides."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.worker.child import traceback_of
from headrace.worker.outcomes import ProcessDied, Reject, Retry
from headrace.worker.payload import Delivery, RecordLog
from headrace.worker.processes import ProcessBackend
from headrace.worker.task import Task
from tests.support import HANG_S, ROOT, HeadraceProcess, story, wait_until

from . import functions

pytestmark = pytest.mark.slow  # each starts an interpreter or two

RECORD = Record("orders", 1, 42, None, b"{}", (), 0, 0, 1, None)


@asynccontextmanager
async def running(task: Task[Any, Any], processes: int = 1) -> AsyncIterator[ProcessBackend]:
    backend = ProcessBackend(task.function, task.name, processes, {"bootstrap.servers": "nowhere"})
    try:
        await backend.open()
        yield backend
    finally:
        await backend.close()


def is_alive(process_id: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return False


@story
async def test_results_come_back() -> None:
    async with running(functions.add) as backend:
        results = await asyncio.gather(*(backend.run(((n,), {"right": 1})) for n in range(20)))
    assert results == list(range(1, 21))


@story
async def test_calls_run_in_all_processes() -> None:
    async with running(functions.process_id, 2) as backend:
        process_ids = {await backend.run(((), {})) for _ in range(10)}
        both = set(await asyncio.gather(*(backend.run(((), {})) for _ in range(2))))
    assert os.getpid() not in process_ids
    assert len(both) == 2


@pytest.mark.parametrize(
    ("kind", "expected", "text"),
    [
        ("value", ValueError, "no such item"),
        ("odd", functions.Odd, "look closer (7)"),
        ("local", KeyError, "'here'"),
        ("exit", SystemExit, "3"),
        ("interrupt", KeyboardInterrupt, ""),
        ("generator", GeneratorExit, ""),
        ("stop", Exception, "nothing"),
        ("final", LookupError, "no such item"),
        ("huge", ValueError, "x" * 10_000),
    ],
)
def test_exceptions_come_back_with_their_tracebacks(
    kind: str, expected: type[BaseException], text: str
) -> None:
    @story
    async def run() -> None:
        async with running(functions.fail) as backend:
            with pytest.raises(expected) as caught:
                await backend.run(((kind,), {}))
            assert str(caught.value) == text
            if kind != "huge":
                _, place, *_ = traceback_of(caught.value).splitlines()
                assert "functions.py" in place and "in fail" in place
            # the process goes on
            with pytest.raises(ValueError):
                await backend.run((("value",), {}))

    run()


@story
async def test_a_local_exception_keeps_its_name() -> None:
    async with running(functions.fail) as backend:
        with pytest.raises(KeyError) as caught:
            await backend.run((("local",), {}))
    assert type(caught.value).__qualname__ == "fail.<locals>.Local"


@story
async def test_decisions_come_back_raised_or_returned() -> None:
    async with running(functions.fail) as backend:
        retry = await backend.run((("retry",), {}))
        with pytest.raises(Reject, match=r"^no such item$"):
            await backend.run((("reject",), {}))
    assert isinstance(retry, Retry) and retry.after_s == 30


@story
async def test_a_rejection_that_does_not_pickle_or_is_huge_is_no_success() -> None:
    async with running(functions.fail) as backend:
        with pytest.raises(Reject, match=r"^x{10000}$"):
            await backend.run((("odd reject",), {}))
        reject = await backend.run((("return reject",), {}))
    assert isinstance(reject, Reject) and reject.reason == "x" * 10_000


@story
async def test_a_result_that_does_not_pickle_or_is_huge_is_none() -> None:
    async with running(functions.fail) as backend:
        assert await backend.run((("nothing",), {})) is None
        assert await backend.run((("much",), {})) is None


def test_a_policy_pickles() -> None:
    policy = Retry(3, first=5, on=(OSError,))
    assert vars(pickle.loads(pickle.dumps(policy))) == vars(policy)


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("exit", "exit status 7"),
        ("segv", "killed by SIGSEGV"),
        ("kill", "killed by SIGKILL, as when memory runs out"),
    ],
)
def test_a_process_that_dies_is_told_and_replaced(
    how: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    @story
    async def run() -> None:
        async with running(functions.die) as backend:
            for _ in range(2):
                with pytest.raises(ProcessDied, match=status):
                    await backend.run(((how,), {}))
            while len(caplog.records) < 2:
                await asyncio.sleep(0.01)

    run()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("task 'die': process ")
    assert lines[0].endswith(f" has ended: {status}; another begins in 0.1 s")
    assert lines[1].endswith("another begins in 0.2 s")


@story
async def test_an_idle_process_that_is_killed_fails_no_call() -> None:
    async with running(functions.process_id) as backend:
        first = await backend.run(((), {}))
        os.kill(first, signal.SIGKILL)
        # The loop does not see its end before the next call.
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        assert await backend.run(((), {})) != first


@story
async def test_a_cancelled_call_kills_the_process_and_what_it_has_started(
    tmp_path: Path,
) -> None:
    file = tmp_path / "processes"
    async with running(functions.sleep_with_a_child) as backend:
        for _ in range(2):  # the second process begins at once
            call = asyncio.create_task(backend.run(((str(file),), {})))
            while not file.exists():
                await asyncio.sleep(0.01)
            process_ids = [int(text) for text in file.read_text().split()]
            file.unlink()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while any(map(is_alive, process_ids)):
                await asyncio.sleep(0.01)


@story
async def test_a_function_that_forks_has_one_result() -> None:
    async with running(functions.fork) as backend:
        first = await backend.run(((), {}))
        assert [await backend.run(((), {})) for _ in range(3)] == [first] * 3


@story
async def test_a_function_that_closes_the_connection_ends_its_process() -> None:
    async with running(functions.close_everything) as backend:
        with pytest.raises(ProcessDied):
            await backend.run(((), {}))


@story
async def test_a_process_knows_the_delivery() -> None:
    log = RecordLog(logging.getLogger("tests"), {"record": "orders-1 offset 42"})

    async def renew() -> None:
        raise AssertionError

    delivery = Delivery(RECORD, 3, "about", "packers", log, renew)
    async with running(functions.about) as backend:
        result = await backend.run(((), {"delivery": delivery, "text": "x"}))
    assert result == (42, 3, "about", "packers", "x")
    with pytest.raises(ClientError, match="a process cannot renew"):
        await pickle.loads(pickle.dumps(delivery)).renew()


@story
async def test_ten_megabytes_go_in() -> None:
    async with running(functions.length) as backend:
        assert await backend.run((("x" * 10_000_000,), {})) == 10_000_000


@story
async def test_arguments_that_do_not_pickle_fail_their_call_only() -> None:
    async with running(functions.add) as backend:
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            await backend.run(((lambda: None, 1), {}))
        assert await backend.run(((1, 1), {})) == 2


def test_a_local_function_is_refused() -> None:
    def local() -> None: ...

    with pytest.raises(ClientError, match="task 'local': no other process can import"):
        ProcessBackend(local, "local", 1, {})


def test_a_module_that_does_not_import_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fading.py").write_text("def work(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("fading").work
    (tmp_path / "fading.py").write_text("raise OSError('the database is away')\n")

    @story
    async def run() -> None:
        backend = ProcessBackend(work, "work", 2, {})
        with pytest.raises(ClientError) as caught:
            await backend.open()
        assert str(caught.value) == (
            "task 'work': its process cannot import it: OSError: the database is away"
        )
        await backend.close()

    run()


SCRIPT = """
import asyncio, os, sys
import headrace
from headrace.worker.processes import ProcessBackend

app = headrace.App("127.0.0.1:1")

@app.task(run_in="process")
def sleep(path: str) -> None:
    {function}

async def main():
    backend = ProcessBackend(sleep.function, "sleep", 1, {{}})
    await backend.open()
    await backend.run(((sys.argv[1],), {{}}))

{guard}asyncio.run(main())
"""
SLEEP = "import tests.worker.functions as f; f.sleep_with_a_child(path)"


def script(tmp_path: Path, guard: str) -> list[str]:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(function=SLEEP, guard=guard))
    return [sys.executable, str(file), str(tmp_path / "processes")]


def environment() -> dict[str, str]:
    found = HeadraceProcess.environment()
    return {**found, "PYTHONPATH": f"{found['PYTHONPATH']}{os.pathsep}{ROOT}"}


def test_processes_of_a_script_end_with_it_also_by_kill_9(tmp_path: Path) -> None:
    command = script(tmp_path, 'if __name__ == "__main__": ')
    file = tmp_path / "processes"
    worker = subprocess.Popen(command, env=environment())
    try:
        wait_until(file.exists, HANG_S, "a running function")
        process_ids = [int(text) for text in file.read_text().split()]
        assert all(map(is_alive, process_ids))
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not any(map(is_alive, process_ids)), HANG_S, "the ends of the processes")


def test_a_script_without_a_guard_starts_no_chain_of_processes(tmp_path: Path) -> None:
    ended = subprocess.run(
        script(tmp_path, ""), env=environment(), capture_output=True, text=True, timeout=HANG_S
    )
    assert ended.returncode
    assert ended.stderr.rstrip().endswith(
        "put what starts the worker below 'if __name__ == \"__main__\":'"
    )
