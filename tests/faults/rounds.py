"""Rounds of a fault test: few of them in `make test`, all of them in `make soak`, with progress."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tests.support import RUN_SEED, is_soak


def seed() -> int:
    """Return the seed of this run, and print it."""
    print(f"HEADRACE_TEST_SEED={RUN_SEED}", flush=True)
    return RUN_SEED


def rounds(what: str, few: int, name: str, many: int) -> Iterator[int]:
    """Yield the numbers of the rounds, and print the progress in `make soak`.

    :param few: the rounds in `make test`
    :param name: the environment variable with another number
    :param many: the rounds in `make soak`
    """
    total = int(os.environ.get(name, many if is_soak() else few))
    started = told = time.monotonic()
    for number in range(total):
        yield number
        now = time.monotonic()
        if now - told > 10 or number + 1 == total:
            told = now
            print(f"{what}: {number + 1} of {total} rounds, {now - started:.0f} s", flush=True)
