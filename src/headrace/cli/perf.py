"""``headrace perf``: measure the throughput of a share group (KIP-932)."""

from __future__ import annotations

import time
from argparse import Namespace

from .client_options import call_options, on_cluster, share_config
from .clients import Cluster, errors
from .errors import Failure
from .nouns import Noun
from .options import arg
from .output import Output, output_option
from .progress import count_progress

NOUN = Noun()
_MIB = 1 << 20


@NOUN.verb(
    "share-consume",
    "read and accept records as members of a share group",
    arg("topic", "TOPIC"),
    arg("--group", default="perf-share-consume", help="default: perf-share-consume"),
    arg("--max", "N", "default: 100000", default=100_000),
    arg("--members", "N", "default: 1", default=1),
    arg("--idle", "DURATION", "end after a time without a record (default: 10s)", default=10_000),
    output_option,
    call_options,
    examples="headrace perf share-consume orders --max 1000000 --members 4",
)
def share_consume(options: Namespace) -> None:
    """Print the rate at which members read and accept the records of a topic.

    A new group begins with the oldest record.

    :raises Failure: no record came, or a broker refuses
    """
    topic, most, idle_s = options.topic, options.max, options.idle / 1000
    conf = share_config(options, options.group)
    count = size_bytes = 0
    started_s = last_s = 0.0

    async def run(cluster: Cluster) -> None:
        import asyncio

        from headrace.client import ShareConsumer

        async def member() -> None:
            nonlocal count, size_bytes, started_s, last_s
            async with ShareConsumer(conf, [topic], start="earliest") as queue:
                joined_s = time.monotonic()
                while count < most and time.monotonic() - (last_s or joined_s) < idle_s:
                    if not count:
                        started_s = time.monotonic()  # without the time of joining
                    if not (records := await queue.poll(min(500, most - count), timeout=0.1)):
                        continue
                    count += len(records)
                    size_bytes += sum(len(r.key or b"") + len(r.value or b"") for r in records)
                    await queue.accept(records)
                    last_s = time.monotonic()
                    progress(count, most)

        await cluster.topics([topic])  # a consumer would wait for it, or for a broker
        with count_progress(f"consuming records of {topic}") as progress:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(options.members):
                    tasks.create_task(member())

    try:
        on_cluster(options, run)
    except* errors.ClientError as group_error:
        raise group_error.exceptions[0] from None
    if not count:
        raise Failure(f"no record came for {idle_s:g} s")
    seconds, mib = last_s - started_s, size_bytes / _MIB
    row = {
        "record_count": count,
        "seconds": round(seconds, 3),
        "mib": round(mib, 3),
        "records_per_s": round(count / seconds, 1),
        "mib_per_s": round(mib / seconds, 3),
    }
    Output(options.output).rows([row])
