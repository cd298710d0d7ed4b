"""A hostile broker and the consumers on top of librdkafka: they raise a clear error or return no
record, close in time, and do not allocate what the broker claims.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys

import pytest

from tests.attacks.harness import MIB
from tests.attacks.hostile_broker import API_VERSIONS, HostileBroker, Reply
from tests.attacks.test_hostile_broker import RUDE, a_huge_array
from tests.support import HeadraceProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

ENOUGH_S = 60
AT_A_TIME = 6
GROWTH_BYTES = 64 * MIB

FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, JOIN_GROUP = 1, 2, 3, 10, 11
OFFERED = [
    (0, 3, 9),
    (FETCH, 4, 11),
    (LIST_OFFSETS, 1, 5),
    (METADATA, 0, 9),
    (8, 2, 7),
    (9, 1, 7),
    (FIND_COORDINATOR, 0, 2),
    (JOIN_GROUP, 2, 5),
    (12, 0, 3),
    (13, 0, 1),
    (14, 0, 3),
    (API_VERSIONS, 0, 3),
]
"""The APIs that librdkafka needs for a group."""

CONSUMER = """
import resource, sys, time
from confluent_kafka import KafkaException, TopicPartition
from headrace.client import ClientError, LagConsumer, OrderedConsumer

def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

kind, servers = sys.argv[1:]
conf = {
    "bootstrap.servers": servers, "group.id": "g", "socket.timeout.ms": 1000,
    "session.timeout.ms": 6000, "log_level": 0,
}
before = peak_bytes()
consumer = None
try:
    part = TopicPartition("t", 0, 0)
    if kind == "OrderedConsumer":
        consumer = OrderedConsumer(conf, ["t"])
    else:
        consumer = LagConsumer(conf, ["t"] if kind == "subscribed LagConsumer" else None)
        if kind == "assigned LagConsumer":
            consumer.assign([part])
    until = time.monotonic() + 3
    while time.monotonic() < until:
        message = consumer.poll(0.2)
        if kind == "assigned LagConsumer":
            consumer.current_lag(part)
        if message is not None and message.error():
            raise KafkaException(message.error())
    outcome = "nothing"
except (ClientError, KafkaException) as error:
    outcome = f"{type(error).__name__}: {error}"
finally:
    if consumer is not None:
        consumer.close()
print(peak_bytes() - before, outcome.splitlines())
"""


async def claiming(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    """Claim a frame of 2 GB."""
    writer.write(struct.pack(">i", 2**31 - 1) + bytes(100))


async def claiming_what_is_allowed(
    api_key: int, version: int, writer: asyncio.StreamWriter
) -> None:
    """Claim the largest frame that librdkafka reads, and send a little of it."""
    writer.write(struct.pack(">i", 99_000_000) + bytes(100))


ATTACKS: list[tuple[int, Reply]] = [
    # librdkafka ends the process at a huge array in the response to ApiVersions
    *((API_VERSIONS, reply) for reply in RUDE if reply is not a_huge_array),
    *((METADATA, reply) for reply in RUDE),
    *((api, claiming) for api in (API_VERSIONS, METADATA, FIND_COORDINATOR, FETCH, LIST_OFFSETS)),
    *((api, claiming_what_is_allowed) for api in (METADATA, FIND_COORDINATOR)),
    *((api, a_huge_array) for api in (FIND_COORDINATOR, JOIN_GROUP, LIST_OFFSETS, FETCH)),
]


@pytest.mark.parametrize(
    "kind", ["subscribed LagConsumer", "assigned LagConsumer", "OrderedConsumer"]
)
def test_consumers_survive_a_hostile_broker(kind: str) -> None:
    at_a_time = asyncio.Semaphore(AT_A_TIME)

    async def attack(odd_api: int, reply: Reply) -> str | None:
        """Return a description of what went wrong; None if nothing did."""
        name = f"API {odd_api}, {reply.__name__}"
        async with at_a_time, HostileBroker(odd_api, reply, OFFERED) as broker:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CONSUMER, kind, broker.bootstrap_servers),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=HeadraceProcess.environment(),
            )
            try:
                async with asyncio.timeout(ENOUGH_S):
                    out, err = await process.communicate()
            except TimeoutError:
                process.kill()
                return f"{name}: not closed in time"
            if process.returncode:
                return f"{name}: {process.returncode}, {err.decode()[-600:]}"
            grown, _, outcome = out.decode().partition(" ")
            print(name, grown, outcome.strip(), sorted({api for api, _ in broker.asked}))
            return f"{name}: {out.decode()}" if int(grown) > GROWTH_BYTES else None

    async def attack_all() -> list[str | None]:
        return await asyncio.gather(*(attack(*one) for one in ATTACKS))

    assert not list(filter(None, asyncio.run(attack_all())))
