"""headrace's functions; BENCH_BOOTSTRAP and BENCH_TASK name the broker and the task."""

import asyncio
import os
import time
from pathlib import Path

import headrace

from .counter import counter

app = headrace.App(os.environ["BENCH_BOOTSTRAP"])
TASK = os.environ["BENCH_TASK"]
KIND = TASK.split("-")[0]

if KIND == "loop":

    @app.task(name=TASK, concurrency=1000)
    async def task(order: dict) -> None:  # type: ignore[type-arg]
        counter.add()

elif KIND == "sleep":

    @app.task(name=TASK, concurrency=10_000)
    async def task(order: dict) -> None:  # type: ignore[type-arg]
        await asyncio.sleep(1)
        counter.add()

elif KIND == "latency":
    log = Path(os.environ["BENCH_LATENCIES"]).open("a")  # noqa: SIM115  # as long as the worker

    @app.task(name=TASK)
    async def task(order: dict) -> None:  # type: ignore[type-arg]
        late_s = time.time() - order["sent"]
        print(late_s, file=log, flush=True)
        counter.add()

else:

    @app.task(name=TASK, run_in=KIND)  # type: ignore[arg-type]
    def task(order: dict) -> None:  # type: ignore[type-arg]
        counter.add()
