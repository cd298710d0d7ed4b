"""Share consumers at work, in a process of their own: `python share_load.py BOOTSTRAP TOPIC GROUP
CONSUMERS SEED`.

Each accepts, releases and rejects at random, told what to do by a seed; "-" for a seed accepts
everything. A line for each record says what has happened: "D partition offset delivery-count" when
it is delivered, "S partition offset type" before it is acknowledged, "A partition offset type" when
the broker has confirmed that.
"""

from __future__ import annotations

import asyncio
import random
import sys

from headrace.client import Acknowledgement, AcknowledgeType, ClientError, RangeConsumer

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def say(kind: str, done: Acknowledgement) -> None:
    offsets = range(done.first_offset, done.last_offset + 1)
    sys.stdout.write(
        "".join(f"{kind} {done.partition} {offset} {done.type.value}\n" for offset in offsets)
    )
    sys.stdout.flush()


def choose(
    topic: str, partition: int, first: int, last: int, rng: random.Random | None
) -> list[Acknowledgement]:
    """Return the acknowledgements of a run of records: all of it accepted, or piece by piece at
    random.
    """
    if rng is None:
        return [Acknowledgement(topic, partition, first, last, ACCEPT)]
    chosen = []
    while first <= last:
        end = min(last, first + rng.randrange(8))
        kind = rng.choices((ACCEPT, RELEASE, REJECT), (60, 25, 15))[0]
        chosen.append(Acknowledgement(topic, partition, first, end, kind))
        first = end + 1
    return chosen


async def consume(bootstrap: str, topic: str, group: str, rng: random.Random | None) -> None:
    async with RangeConsumer(bootstrap, group, [topic]) as consumer:
        while True:
            acquired = await consumer.acquire(
                max_records=rng.choice((1, 10, 50)) if rng else 500, max_wait_ms=200
            )
            acknowledgements: list[Acknowledgement] = []
            for run in acquired.ranges:
                for offset in range(run.first_offset, run.last_offset + 1):
                    print("D", run.partition, offset, run.delivery_count)
                acknowledgements += choose(
                    run.topic, run.partition, run.first_offset, run.last_offset, rng
                )
            if rng is not None:
                await asyncio.sleep(rng.choice((0, 0, 0.02)))
            for one in acknowledgements:
                say("S", one)
            for one in await consumer.acknowledge(acknowledgements):
                say("A", one)


async def main() -> None:
    bootstrap, topic, group, consumers, seed = sys.argv[1:]
    rngs = [None if seed == "-" else random.Random(f"{seed}-{i}") for i in range(int(consumers))]
    try:
        await asyncio.gather(*(consume(bootstrap, topic, group, rng) for rng in rngs))
    except ClientError as error:
        print(f"ended: {error}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
