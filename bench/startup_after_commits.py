"""The duration of a start after many offset commits to few partitions, once ``__consumer_offsets``
is compacted.

    python -m bench.startup_after_commits                          1,000,000 commits to 1,000
                                                                   partitions of one group
    python -m bench.startup_after_commits --commits 100000 --groups 50

Each commit is a batch of its own, as from a consumer that commits one partition at a time. They are
written within the process, through the coordinator; the start is one of ``headrace serve``, timed
until its first response.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from bench.measurements import start_up
from headrace.broker.broker import Broker
from headrace.broker.cleaner import INTERNAL_DIRTY_BYTES
from headrace.broker.config.broker_config import Config
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.outcome import Outcome
from tests.support import HeadraceProcess

IN_A_ROW = 100
"""The number of commits between two turns of the event loop."""
KEY_BYTES = 120
"""The bytes of a commit that remain after compaction."""


async def commit(data_dir: Path, commits: int, keys: int, groups: int) -> None:
    """Write the commits, wait for compaction, and stop."""
    broker = Broker(Config({"log.cleaner.backoff.ms": "1000"}), data_dir)
    broker.start()
    names = [f"group-{n}" for n in range(groups)]
    started, longest = time.perf_counter(), 0.0
    for n in range(commits):
        key = n % keys
        value = CommittedOffset(n, commit_timestamp_ms=broker.clock.wall_ms())
        record = OffsetCommit(names[key % groups], "a-topic", key, value)
        broker.coordinators.group_runtime.write_now(record.group_id, Outcome(None, (record,)))
        if not n % IN_A_ROW:
            waited = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - waited)
    took = time.perf_counter() - started
    print(
        f"{commits:,} commits in {took:.1f} s; the event loop stood still for "
        f"{longest * 1000:.0f} ms at most"
    )
    started = time.perf_counter()
    while _size(data_dir) > INTERNAL_DIRTY_BYTES + keys * KEY_BYTES:
        await asyncio.sleep(0.5)
    counted = broker.metrics.cleaner
    print(
        f"compacted {time.perf_counter() - started:.0f} s later: {counted.rounds} rounds, "
        f"{counted.read_bytes / 1e6:.0f} MB read, {counted.written_bytes / 1e6:.1f} MB written"
    )
    broker.close()


def _size(data_dir: Path) -> int:
    return sum(file.stat().st_size for file in data_dir.glob("__consumer_offsets-*/*.log"))


def main() -> None:
    """Run the benchmark, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--starts", type=int, default=5)
    wanted = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        asyncio.run(commit(directory, wanted.commits, wanted.keys, wanted.groups))
        print(f"__consumer_offsets has {_size(directory):,} bytes")
        process = HeadraceProcess(directory)
        for _ in range(wanted.starts):
            print(f"start-up in {start_up(process):.3f} s")
            process.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
