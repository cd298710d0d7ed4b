"""Share consumers of records at work, in a process of their own: `python queue_load.py BOOTSTRAP
TOPIC GROUP CONSUMERS SEED`.

Each polls, renews some of its records, and accepts, releases and rejects at random; "-" for a seed
accepts everything. The lines are those of `share_load.py`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence

from headrace import Record, ShareConsumer
from headrace.client import AcknowledgeType
from headrace.client.share.consumer import OutcomesFailed

ANSWER_S = 2.0
"""How long they wait for an answer of the broker."""
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def say(kind: str, records: Sequence[Record], outcome: AcknowledgeType | None = None) -> None:
    sys.stdout.write(
        "".join(
            f"{kind} {record.partition} {record.offset} "
            f"{record.delivery_count if outcome is None else outcome.value}\n"
            for record in records
        )
    )
    sys.stdout.flush()


async def end(queue: ShareConsumer, records: list[Record], outcome: AcknowledgeType) -> None:
    say("S", records, outcome)
    ends = {ACCEPT: queue.accept, RELEASE: queue.release, REJECT: queue.reject}
    failed: dict[Record, str] = {}
    try:
        await ends[outcome](records)
    except OutcomesFailed as error:
        failed = error.failed
    say("A", [record for record in records if record not in failed], outcome)


async def consume(bootstrap: str, topic: str, group: str, rng: random.Random | None) -> None:
    conf = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "socket.timeout.ms": int(ANSWER_S * 1000),
    }
    async with ShareConsumer(conf, [topic]) as queue:
        while True:
            polled = await queue.poll(rng.choice((1, 10, 50)) if rng else 500, timeout=0.2)
            say("D", polled)
            if rng is None:
                await end(queue, polled, ACCEPT)
                continue
            if rng.random() < 0.3:
                try:
                    await queue.renew(polled)
                except OutcomesFailed as error:
                    polled = [record for record in polled if record not in error.failed]
            while polled:
                size = rng.randrange(1, 9)
                outcome = rng.choices((ACCEPT, RELEASE, REJECT), (60, 25, 15))[0]
                await end(queue, polled[:size], outcome)
                polled = polled[size:]


async def main() -> None:
    bootstrap, topic, group, consumers, seed = sys.argv[1:]
    rngs = [None if seed == "-" else random.Random(f"{seed}-{i}") for i in range(int(consumers))]
    await asyncio.gather(*(consume(bootstrap, topic, group, rng) for rng in rngs))


if __name__ == "__main__":
    asyncio.run(main())
