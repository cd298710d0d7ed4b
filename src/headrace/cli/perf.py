"""``headrace perf``: measure the throughput of a share group (KIP-932)."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from headrace.times import duration_ms

from .client_options import client_config, client_options, must_answer, share_config
from .errors import Failure
from .nouns import Lazy, Noun, arg
from .options import positive_number
from .output import Output, output_option
from .progress import count_progress

if TYPE_CHECKING:
    from headrace.client import errors
    from headrace.client.share import consumer
else:
    errors, consumer = map(
        Lazy,
        (
            "headrace.client.errors",
            "headrace.client.share.consumer",
        ),
    )

NOUN = Noun()
_MIB = 1 << 20


@NOUN.verb(
    "share-consume",
    "read and accept records as members of a share group",
    arg("topic", metavar="TOPIC"),
    arg("--group", default="perf-share-consume", help="default: perf-share-consume"),
    arg("--max", type=positive_number, default=100_000, metavar="N", help="default: 100000"),
    arg("--members", type=positive_number, default=1, metavar="N", help="default: 1"),
    arg(
        "--idle",
        type=duration_ms,
        default=10_000,
        metavar="DURATION",
        help="end after a time without a record (default: 10s)",
    ),
    output_option,
    client_options,
    examples="headrace perf share-consume orders --max 1000000 --members 4",
)
def share_consume(
    *, topic: str, group: str, max: int, members: int, idle: int, output: str, **options: Any
) -> int:
    """Print the rate at which members read and accept the records of a topic.

    A new group begins with the oldest record.

    :raises Failure: no record came, or a broker refuses
    """
    names = Namespace(**options)
    config = client_config(names)
    must_answer(config)
    conf = {**share_config(config), "group.id": group}
    count = size_bytes = 0
    started_s = last_s = time.monotonic()

    async def member(number: int, progress: Any) -> None:
        nonlocal count, size_bytes, started_s, last_s
        client_id = {"client.id": f"perf-share-consume-{number}"}
        async with consumer.ShareConsumer(
            {**conf, **client_id}, [topic], start="earliest"
        ) as queue:
            while count < max and time.monotonic() - last_s < idle / 1000:
                if not count:
                    started_s = time.monotonic()  # without the time of joining
                if not (records := await queue.poll(min(500, max - count), timeout=0.1)):
                    continue
                count += len(records)
                size_bytes += sum(len(r.key or b"") + len(r.value or b"") for r in records)
                await queue.accept(records)
                last_s = time.monotonic()
                progress(count, max)

    async def run() -> None:
        with count_progress(f"consuming records of {topic}") as progress:
            async with asyncio.TaskGroup() as tasks:
                for number in range(members):
                    tasks.create_task(member(number + 1, progress))

    try:
        asyncio.run(run())
    except* errors.ClientError as group_error:
        raise Failure(str(group_error.exceptions[0])) from None
    if not count:
        raise Failure(f"no record came for {idle / 1000:g} s")
    seconds, mib = last_s - started_s, size_bytes / _MIB
    row = {
        "records": count,
        "seconds": round(seconds, 3),
        "mib": round(mib, 3),
        "records_per_s": round(count / seconds, 1),
        "mib_per_s": round(mib / seconds, 3),
    }
    Output(output).rows([row])
    return 0
