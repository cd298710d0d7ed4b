"""The duration of a restart after many writes of share state.

Run it with `python -m bench.share_state [UPDATES [SHARE_PARTITIONS]]`; the defaults are 1,000,000
and 1,000.

A process writes the updates as the leaders of share-partitions do, and exits without closing
anything; another process then starts on the same directory.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.share.records import SharePartitionKey, StateBatch

STEP = 10  # records that each update finishes
PAUSE_EVERY = 50  # updates, as requests would let the timers have their turn


async def write(directory: Path, updates: int, share_partitions: int) -> None:
    broker = Broker(Config({}), directory)
    broker.start()
    topic, state = broker.catalog.create_topic("t", 1), broker.coordinators.share_state
    states = broker.coordinators.share_state_runtime
    keys = [
        SharePartitionKey(f"group-{number}", topic.topic_id, 0)
        for number in range(share_partitions)
    ]
    for key in keys:
        states.write_now(str(key), state.initialize(key, 1, 0, broker.clock.wall_ms()))
    longest = 0.0
    for number in range(updates):
        key, start = keys[number % share_partitions], number // share_partitions * STEP
        done = (
            StateBatch(start, start + 4, 2, 1),
            StateBatch(start + 5, start + 6, 0, 1),
            StateBatch(start + 7, start + 9, 2, 1),
        )
        states.write_now(str(key), state.write(key, 1, 0, start, 8, done, broker.clock.wall_ms()))
        if number % PAUSE_EVERY == 0:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)
    internal = broker.catalog.topics[state.topic]
    logs = [
        broker.topic_logs.partition(internal.topic_id, partition)
        for partition in range(internal.partitions)
    ]
    written, kept = (
        sum(log.end_offset for log in logs),
        sum(log.end_offset - log.log_start_offset for log in logs),
    )
    print(
        (
            f"{written} records written, {kept} to be read at a start; longest pause "
            f"{longest * 1000:.0f} ms"
        ),
        flush=True,
    )
    os._exit(0)


async def start(directory: Path) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    broker = Broker(Config({}), directory)
    broker.start()
    print(
        f"started in {time.perf_counter() - wall:.2f} s, {time.process_time() - cpu:.2f} s "
        f"of a processor"
    )
    broker.close()


def main() -> None:
    if sys.argv[1:2] == ["write"]:
        asyncio.run(write(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
        return
    updates = sys.argv[1] if len(sys.argv) > 1 else "1000000"
    share_partitions = sys.argv[2] if len(sys.argv) > 2 else "1000"
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        arguments = ["write", directory, updates, share_partitions]
        subprocess.run([sys.executable, "-m", "bench.share_state", *arguments], check=True)
        asyncio.run(start(Path(directory)))


if __name__ == "__main__":
    main()
