"""A share group as a queue of records: `python -m bench.share_consumer BOOTSTRAP TOPIC WORK AMOUNT`
prints JSON.

Works: ``headrace RECORDS`` and ``confluent RECORDS`` poll and accept all records of a topic, 500 at
a time; ``accept ROUNDS`` accepts 1 and 500 records; ``pick-up RECORDS`` waits for records that come
one after another.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Producer
from confluent_kafka import ShareConsumer as ConfluentConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headrace import ShareConsumer
from tests.support import unique

POLL = 500
PATIENCE_S = 60.0


class Clock:
    """Time and records from when a fifth of them has come, until all have."""

    def __init__(self, records: int) -> None:
        self._records, self._count, self._counted = records, 0, 0
        self._began_s = 0.0

    def add(self, count: int) -> None:
        self._count += count
        if not self._began_s and self._count >= self._records // 5:
            self._began_s, self._counted = time.perf_counter(), self._count

    @property
    def is_done(self) -> bool:
        return self._count >= self._records

    def rate(self) -> float:
        return (self._count - self._counted) / (time.perf_counter() - self._began_s)


async def poll_headrace(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """Return records per second through ``poll`` and ``accept``."""
    conf = {"bootstrap.servers": bootstrap, "group.id": unique("bench-share")}
    clock, size_bytes = Clock(records), 0
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        while not clock.is_done:
            polled = await queue.poll(POLL, timeout=PATIENCE_S)
            if not polled:
                raise TimeoutError(f"no record came within {PATIENCE_S} s")
            size_bytes += sum(len(record.value) for record in polled)
            await queue.accept(polled)
            clock.add(len(polled))
        return {"records_per_s": clock.rate(), "bytes": size_bytes}


def poll_confluent(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """Return records per second through ``poll``, which accepts those of the poll before it."""
    group_id = unique("bench-share")
    resource = ConfigResource(
        ResourceType.GROUP,
        group_id,
        incremental_configs=[
            ConfigEntry(
                "share.auto.offset.reset",
                "earliest",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
    queue = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    queue.subscribe([topic])
    clock, size_bytes, deadline_s = Clock(records), 0, time.monotonic() + PATIENCE_S
    while not clock.is_done:
        polled = queue.poll(timeout=1.0)
        if polled:
            deadline_s = time.monotonic() + PATIENCE_S
        elif time.monotonic() > deadline_s:
            raise TimeoutError(f"no record came within {PATIENCE_S} s")
        size_bytes += sum(len(message.value()) for message in polled)
        clock.add(len(polled))
    rate = clock.rate()
    queue.close()
    return {"records_per_s": rate, "bytes": size_bytes}


async def accept(bootstrap: str, topic: str, rounds: int) -> dict[str, float]:
    """Return the medians of the times of accepting 1 and 500 records, in µs."""
    conf = {"bootstrap.servers": bootstrap, "group.id": unique("bench-share")}
    took_us: dict[int, list[float]] = {1: [], POLL: []}
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        for _ in range(rounds):
            for count, times in took_us.items():
                held = await queue.poll(count, timeout=PATIENCE_S)
                while len(held) < count:
                    held += await queue.poll(count - len(held), timeout=PATIENCE_S)
                began_s = time.perf_counter()
                await queue.accept(held)
                times.append(1e6 * (time.perf_counter() - began_s))
    return {f"accept_{count}_us": statistics.median(times) for count, times in took_us.items()}


async def pick_up(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """Return the time from just before produce() to the return of ``poll``, in ms, of records that
    come when the consumer has waited for a while.
    """
    conf = {"bootstrap.servers": bootstrap, "group.id": unique("bench-share")}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    waits_ms: list[float] = []
    async with ShareConsumer(conf, [topic], start="earliest") as queue:
        for number in range(-20, records):  # the first ones connect, and are not counted
            polling = asyncio.create_task(queue.poll(timeout=PATIENCE_S))
            await asyncio.sleep(random.uniform(0.02, 0.05))
            began_s = time.perf_counter()
            producer.produce(topic, b"x" * 100)
            producer.poll(0)
            polled = await polling
            if number >= 0:
                waits_ms.append(1e3 * (time.perf_counter() - began_s))
            await queue.accept(polled)
    producer.flush(30)
    centiles = statistics.quantiles(waits_ms, n=100)
    return {"p50_ms": centiles[49], "p99_ms": centiles[98]}


WORKS: Mapping[str, Callable[[str, str, int], dict[str, float]]] = {
    "headrace": lambda *arguments: asyncio.run(poll_headrace(*arguments)),
    "confluent": poll_confluent,
    "accept": lambda *arguments: asyncio.run(accept(*arguments)),
    "pick-up": lambda *arguments: asyncio.run(pick_up(*arguments)),
}


def main() -> None:
    bootstrap, topic, work, amount = sys.argv[1:]
    print(json.dumps(WORKS[work](bootstrap, topic, int(amount))))


if __name__ == "__main__":
    main()
