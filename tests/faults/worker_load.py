"""A worker with a function of each kind, in a process of its own: ``python worker_load.py BOOTSTRAP
PREFIX SEED``; "-" for a seed processes everything at once.

Its lines are ``D KIND NUMBER ATTEMPT`` when a function begins, ``E KIND NUMBER -`` when it has
ended for good, ``R`` in the place of ``E`` when it rejects, and ``A KIND NUMBER -`` when the broker
has confirmed that the record is accepted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import headrace
from headrace import Delivery, Record, Reject, Retry
from headrace.client.share.consumer import OutcomesFailed, ShareConsumer

BOOTSTRAP, PREFIX, SEED = sys.argv[1:]
KINDS = ("loop", "thread", "process")
app = headrace.App(BOOTSTRAP)
chance = random.Random(None if SEED == "-" else f"{SEED}-{time.time_ns()}")
ended: set[tuple[str, int]] = set()


class Away(Exception):
    """What a function needs is away."""


def options(kind: str, concurrency: int) -> dict[str, Any]:
    policy = Retry(1000, first=0.02, max=0.2)
    return {
        "name": f"{PREFIX}-{kind}",
        "run_in": kind,
        "retry": policy,
        "concurrency": concurrency,
        "partitions": 2,
    }


def misbehave() -> None:
    if SEED != "-" and chance.random() < 0.1:
        raise Away("try again")


@app.task(**options("loop", 20))
async def on_the_loop(number: int) -> None:
    await asyncio.sleep(chance.uniform(0, 0.03))
    misbehave()
    if number % 50 == 0:
        raise Reject("every fiftieth")


@app.task(**options("thread", 4))
def in_a_thread(number: int) -> None:
    time.sleep(chance.uniform(0, 0.01))
    misbehave()
    if number % 50 == 0:
        raise Reject("every fiftieth")


@app.task(**options("process", 2))
def in_a_process(number: int) -> None:
    time.sleep(chance.uniform(0, 0.005))
    misbehave()
    if number % 50 == 0:
        raise Reject("every fiftieth")


def say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


def number_of(record: Record) -> int:
    return int(json.loads(record.value or b"")["number"])


@app.middleware
async def witness(delivery: Delivery, call_next: Callable[[], Awaitable[Any]]) -> Any:
    kind, number = delivery.task.rpartition("-")[2], number_of(delivery.record)
    say("D", kind, number, delivery.attempt)
    word = "E"
    try:
        return await call_next()
    except Reject:
        word = "R"
        raise
    except BaseException:
        word = ""
        raise
    finally:
        if word:
            say(word, kind, number, "-")
            ended.add((kind, number))


accept = ShareConsumer.accept


async def accept_and_say(queue: ShareConsumer, records: Record | Iterable[Record]) -> None:
    accepted = [records] if isinstance(records, Record) else list(records)
    failed: dict[Record, str] = {}
    try:
        await accept(queue, accepted)
    except OutcomesFailed as error:
        failed = error.failed
        raise
    finally:
        for record in accepted:
            kind, number = queue.group_id.rpartition("-")[2], number_of(record)
            # One that has not ended here is written again, or has ended before and was delivered
            # again.
            if record not in failed and (kind, number) in ended:
                say("A", kind, number, "-")


ShareConsumer.accept = accept_and_say  # type: ignore[method-assign]

if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    app.run()
