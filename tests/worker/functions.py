"""Functions that processes of workers import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

import headrace

time.sleep(float(os.environ.get("HEADRACE_TEST_IMPORT_S", "0")))  # as of a large library


class Odd(Exception):
    """An exception that pickles, and does not unpickle."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}")
        self.code, self.hint = code, hint

    def __str__(self) -> str:
        return f"{self.hint} ({self.code})"


class Final(LookupError):
    """An exception that has no classes below it, and does not pickle."""

    def __init_subclass__(cls) -> None:
        raise TypeError("it has no classes below it")

    def __reduce__(self) -> str:
        raise ValueError("it does not pickle")


app = headrace.App("127.0.0.1:1")


@app.task(run_in="process")
def add(left: int, right: int) -> int:
    return left + right


@app.task(run_in="process")
def process_id() -> int:
    return os.getpid()


@app.task(run_in="process")
def fail(kind: str) -> object:
    if kind == "value":
        raise ValueError("no such item")
    if kind == "odd":
        raise Odd(7, hint="look closer")
    if kind == "local":

        class Local(KeyError):
            pass

        raise Local("here")
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "stop":
        raise StopIteration("nothing")
    if kind == "generator":
        raise GeneratorExit
    if kind == "final":
        raise Final("no such item")
    if kind == "huge":
        raise ValueError("x" * 50_000_000)
    if kind == "much":
        return b"x" * 50_000_000
    if kind == "reject":
        raise headrace.Reject("no such item")
    if kind == "odd reject":

        class Refused(headrace.Reject):
            pass

        raise Refused("x" * 50_000_000)
    if kind == "return reject":
        return headrace.Reject("x" * 50_000_000)
    if kind == "retry":
        return headrace.Retry(after=30)
    return (part for part in "does not pickle")


@app.task(run_in="process")
def die(how: str) -> NoReturn:
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGSEGV if how == "segv" else signal.SIGKILL)
    raise AssertionError


@app.task(run_in="process")
def die_first(delivery: headrace.Delivery, how: str) -> None:
    """Die in the first attempt."""
    if delivery.attempt == 1:
        die(how)


@app.task(run_in="process")
def sleep_first(delivery: headrace.Delivery, text: str) -> None:
    """Sleep in the first attempt."""
    if delivery.attempt == 1:
        time.sleep(600)


@app.task(run_in="process")
def sleep_for(seconds: float) -> None:
    time.sleep(seconds)


@app.task(run_in="process")
def sleep_with_a_child(path: str) -> None:
    """Write both process ids, and sleep."""
    child = subprocess.Popen(["sleep", "600"])
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(path + ".new", path)
    time.sleep(600)


@app.task(run_in="process")
def close_everything() -> None:
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


@app.task(run_in="process")
def fork() -> int:
    """Return twice."""
    os.fork()
    return os.getpid()


@app.task(run_in="process")
def about(delivery: headrace.Delivery, text: str) -> tuple[object, ...]:
    delivery.log.warning("hello")
    return delivery.record.offset, delivery.attempt, delivery.task, delivery.group, text


@app.task(run_in="process")
def length(value: str) -> int:
    return len(value)
