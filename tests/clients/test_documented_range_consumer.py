"""The example of :class:`headrace.client.RangeConsumer`, as its documentation shows it."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from typing import Any

from confluent_kafka import Producer

import headrace.client
from headrace.client import RangeConsumer
from tests.clients.confluent import PATIENCE_S, create_topic, share_from_earliest
from tests.support import unique, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def example(**names: Any) -> Any:
    """Return the coroutine function of the example."""
    documentation = inspect.getdoc(RangeConsumer)
    assert documentation is not None
    block = documentation.partition("::\n\n")[2].partition("\n\nA task")[0]
    code = f"async def run():\n{textwrap.indent(textwrap.dedent(block), '    ')}\n"
    scope = {name: getattr(headrace.client, name) for name in headrace.client.__all__} | names
    exec(code, scope)
    return scope["run"]


def test_the_example_accepts_only_what_it_has_shown(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, unique("orders"))
    group = share_from_earliest(bootstrap_servers, unique("workers"))
    values = []
    for codec in CODECS:  # several batches, and several records in a batch
        producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": codec})
        for number in range(3):
            values.append(f"{codec} {number}".encode())
            producer.produce(topic, values[-1])
        assert producer.flush(PATIENCE_S) == 0
    shown: list[bytes] = []

    def consumer(address: str, group_id: str, topics: list[str]) -> RangeConsumer:
        assert (address, group_id, topics) == ("127.0.0.1:9092", "workers", ["orders"])
        return RangeConsumer(bootstrap_servers, group, [topic])

    run = example(RangeConsumer=consumer, print=shown.append)

    def all_are_shown() -> bool:
        asyncio.run(run())
        return len(shown) >= len(values)

    what = "the records that the example has not accepted"
    wait_until(all_are_shown, PATIENCE_S, what)
    assert shown == values
