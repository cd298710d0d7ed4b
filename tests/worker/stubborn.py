"""A worker whose functions do not end: ``python stubborn.py BOOTSTRAP PREFIX KIND DRAIN_S``.

It writes what it logs, and a line when a function begins.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

import headrace

BOOTSTRAP, PREFIX, KIND, DRAIN_S = sys.argv[1:]
app = headrace.App(BOOTSTRAP)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def sleep(number: int) -> None:
    say(f"begins {number}")
    await asyncio.sleep(600)


async def swallow(number: int) -> None:
    """Sleep, whoever cancels it."""
    say(f"begins {number}")
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            say(f"goes on {number}")


async def other_thread(number: int) -> None:
    """Wait for a thread of asyncio's pool, which the end of Python waits for."""
    say(f"begins {number}")
    await asyncio.to_thread(time.sleep, 600)


async def block(number: int) -> None:
    """Block the event loop."""
    say(f"begins {number}")
    threading.Event().wait()


async def loop(number: int) -> None:
    """Keep the event loop busy."""
    say(f"begins {number}")
    while True:
        pass


def thread(number: int) -> None:
    say(f"begins {number}")
    threading.Event().wait()


def process(number: int) -> None:
    say(f"begins {number}")
    time.sleep(600)


def short(number: int) -> None:
    say(f"begins {number}")
    time.sleep(1)
    say(f"ends {number}")


if KIND in ("thread", "short"):
    function, place = globals()[KIND], "thread"
elif KIND == "process":
    function, place = process, "process"
else:
    function, place = globals()[KIND], "loop"
globals()[KIND] = app.task(name=f"{PREFIX}-{KIND}", run_in=place, concurrency=2)(function)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    worker = app.worker(drain_timeout=float(DRAIN_S))
    asyncio.run(worker.run_until_signal())
    say("returned")
