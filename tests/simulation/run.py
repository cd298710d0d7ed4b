"""A run from its seed to its result."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from headrace.coordinators import runtime
from headrace.net import client_quotas
from headrace.protocol import time_slices
from headrace.topics import batch_opener, timestamp_searches

from .disk import Disk, Power
from .ending import drain
from .whole.world import World as BrokerWorld
from .witness import Violation
from .world import World

SHARED_MEMORY = Path("/dev/shm")


INTERRUPTED = ("Set aside ", "log-start-offset is damaged")
"""Parts of errors that a start may log: a crash interrupted the deletion of a topic, or a power cut
emptied a file.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run without violations.

    :ivar digest: of all frames that the broker sent
    """

    seed: int
    steps: int
    counts: dict[str, int]
    digest: str


class Failure(AssertionError):
    """A violation in a run; the text has the command that repeats it."""


class _Errors(logging.Handler):
    """A log handler that collects the errors that the broker logs; there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _directory() -> Iterator[Path]:
    """Return a directory for the files, in memory if possible: the simulation writes much and keeps
    nothing.
    """
    path = Path(
        tempfile.mkdtemp(
            prefix="headrace-simulation-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        )
    )
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


WORLDS = ("share", "broker")
"""Kinds of runs: share groups, with every delivery foreseen; and the whole broker."""


def simulate(
    seed: int, steps: int, say: Callable[[str], None] | None = None, *, world: str = "share"
) -> Result:
    """Run once.

    :param say: is called with a line for every step
    :param world: one of :data:`WORLDS`
    :raises Failure: if something happened that must not; the text has the command that repeats the
        run
    """
    with _captured_errors() as errors, _chance(seed), _directory() as data_dir:
        disk = Disk(data_dir, Power(), random.Random(f"disk of {seed}"))
        run: World | BrokerWorld = (
            World(seed, disk, say) if world == "share" else BrokerWorld(seed, disk, say)
        )
        try:
            with run.machine.running():
                run.begin()
                run.run(steps)
                if isinstance(run, World):
                    drain(run)
                else:
                    run.finish()
                _check_log(run, errors)
                run.machine.stop()
            counts = run.witness.counts if isinstance(run, World) else run.counts
            return Result(seed, steps, {**counts, **disk.counts}, run.course.digest)
        except Exception as error:
            tail = "\n".join(run.course.tail)
            logged = "\n".join(f"the broker logged: {one.getMessage()}" for one in errors[-5:])
            raise Failure(
                f"seed {seed}, step {run.course.step}: {type(error).__name__}: {error}\n"
                f"{tail}\n{logged}\n"
                f"repeat it: python -m tests.simulation --world {world} --seed {seed} "
                f"--steps {steps}"
            ) from error
        finally:
            asyncio._set_running_loop(None)


def find_failure(seeds: Iterable[int], steps: int, *, world: str = "share") -> str:
    """Run until something happens that must not, and return the first line about it.

    :param seeds: those to try, in order
    """
    tried = []
    for seed in seeds:
        tried.append(seed)
        try:
            simulate(seed, steps, world=world)
        except Failure as failure:
            return str(failure).splitlines()[0]
    raise AssertionError(f"nothing is found in {steps} steps with the seeds {tried}")


def _check_log(run: World | BrokerWorld, errors: list[logging.LogRecord]) -> None:
    """Check what the broker logged: nothing but what a crash or a failing disk explains."""
    for record in errors:
        text = record.getMessage()
        if record.exc_info and not isinstance(record.exc_info[1], OSError):
            raise Violation(f"the broker logged an exception: {text}") from record.exc_info[1]
        if isinstance(run, World) and not any(part in text for part in INTERRUPTED):
            raise Violation(f"the broker logged: {text}")


@contextmanager
def _captured_errors() -> Iterator[list[logging.LogRecord]]:
    """Collect the errors that the broker logs, and print none."""
    errors = _Errors()
    logger = logging.getLogger("headrace")
    propagate = logger.propagate
    logger.addHandler(errors)
    logger.propagate = False
    try:
        yield errors.records
    finally:
        logger.removeHandler(errors)
        logger.propagate = propagate


@contextmanager
def _chance(seed: int) -> Iterator[None]:
    """Have everything that is left to chance decided by the seed."""
    state, ids = random.getstate(), random.Random(f"ids of {seed}")
    random.seed(f"chance of {seed}")
    work = _work(seed)
    try:
        with (
            mock.patch.object(os, "urandom", ids.randbytes),
            mock.patch.object(os, "getpid", return_value=10_000),  # the lock file has it
            mock.patch.object(client_quotas, "perf_counter", work),
            mock.patch.object(runtime, "perf_counter", work),
            mock.patch.object(time_slices, "perf_counter", work),
            mock.patch.object(timestamp_searches, "perf_counter", work),
            mock.patch.object(batch_opener, "OPENING_WORK_S", float("inf")),
        ):
            yield
    finally:
        random.setstate(state)


def _work(seed: int) -> Callable[[], float]:
    """Return a clock of the broker's work, by which its slices of time end: each look at it finds
    it where it was, or some ms later.
    """
    rng, seconds = random.Random(f"work of {seed}"), 0.0

    def clock() -> float:
        nonlocal seconds
        seconds += rng.choice((0, 0, 0.001, 0.01))
        return seconds

    return clock
