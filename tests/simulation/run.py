"""A run from its seed to its result."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock
from uuid import UUID

from headrace.broker import catalog

from .disk import Disk, Power
from .ending import drain
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


def simulate(seed: int, steps: int, say: Callable[[str], None] | None = None) -> Result:
    """Run once.

    :param say: is called with a line for every step
    :raises Failure: if something happened that must not; the text has the command that repeats the
        run
    """
    ids = random.Random(f"ids of {seed}")
    errors = _Errors()
    logger = logging.getLogger("headrace")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(errors)
    logger.propagate = False
    world: World | None = None
    try:
        with (
            _directory() as data_dir,
            mock.patch.object(
                catalog, "uuid4", side_effect=lambda: UUID(int=ids.getrandbits(128), version=4)
            ),
        ):
            disk = Disk(data_dir, Power(), random.Random(f"disk of {seed}"))
            world = World(seed, disk, say)
            with world.machine.running():
                world.begin()
                world.run(steps)
                drain(world)
                for record in errors.records:
                    if not any(text in record.getMessage() for text in INTERRUPTED):
                        raise Violation(f"the broker logged: {record.getMessage()}")
                world.machine.stop()
            return Result(seed, steps, dict(world.witness.counts), world.digest)
    except Exception as error:
        step = world.step if world is not None else 0
        tail = "\n".join(world.tail if world is not None else ())
        logged = "\n".join(
            f"the broker logged: {record.getMessage()}" for record in errors.records[-5:]
        )
        raise Failure(
            f"seed {seed}, step {step}: {type(error).__name__}: {error}\n{tail}\n{logged}\n"
            f"repeat it: python -m tests.simulation --seed {seed} --steps {steps}"
        ) from error
    finally:
        asyncio._set_running_loop(None)
        logger.removeHandler(errors)
        logger.setLevel(level)
        logger.propagate = propagate
