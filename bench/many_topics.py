"""Many topics: creating and deleting them, and a start with many partitions or commits.

    python -m bench.many_topics                   100,000 partitions, 1,000,000 commits
    python -m bench.many_topics --partitions 1000 --commits 10000

The partitions have a record each. Each commit is to a partition of its own, in 10,000 groups at
most; they are in batches of 200 and are not compacted. The start is one of ``headrace serve``,
timed until its first response.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from headrace.broker.embedded import new_event_loop
from headrace.groups.records import CommittedOffset, OffsetCommit
from headrace.protocol.record_batch import build
from tests.support import HeadraceProcess

TOPICS = 100
"""The topics that the partitions are in."""
GROUPS = 10_000
COMMITS_IN_A_BATCH = 200


async def fill(data_dir: Path, partitions: int, commits: int) -> None:
    """Write records and commits within the process, and stop."""
    broker = Broker(Config({"log.cleaner.enable": "false"}), data_dir)
    broker.start()
    record = build([(None, b"a")], timestamp_ms=broker.clock.wall_ms())
    for n in range(TOPICS if partitions else 0):
        topic = broker.catalog.create_topic(f"many-{n}", max(1, partitions // TOPICS))
        for partition in range(topic.partitions):
            log = broker.topic_logs.log(topic, partition)
            assert log is not None
            broker.topic_logs.append(log, record)
    committed = (
        broker.catalog.create_topic("committed", max(1, commits // GROUPS)) if commits else None
    )
    for first in range(0, commits, COMMITS_IN_A_BATCH):
        assert committed is not None
        keyed: list[tuple[str, Sequence[OffsetCommit]]] = []
        for n in range(first, min(first + COMMITS_IN_A_BATCH, commits)):
            group_id, partition = f"group-{n % GROUPS}", n // GROUPS
            value = CommittedOffset(
                n, commit_timestamp_ms=broker.clock.wall_ms(), topic_id=committed.topic_id
            )
            keyed.append((group_id, (OffsetCommit(group_id, "committed", partition, value),)))
        broker.coordinators.group_runtime.write_records_now(keyed)
    broker.close()


def start_s(partitions: int, commits: int) -> float:
    """Return the time of a start after so many partitions and commits were written."""
    from bench.measurements import start_up

    directory = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    process = HeadraceProcess(directory)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(fill(directory, partitions, commits))
        took = start_up(process)
        process.stop()
        return took
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Run the benchmark, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=1_000_000)
    wanted = parser.parse_args()
    print(f"start with {wanted.partitions:,} partitions: {start_s(wanted.partitions, 0):.2f} s")
    print(f"start with {wanted.commits:,} commits: {start_s(0, wanted.commits):.2f} s")


if __name__ == "__main__":
    main()
