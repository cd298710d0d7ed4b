"""A hostile broker: clients raise a clear error in time, and do not allocate what it claims."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.client import (
    ClientError,
    Cluster,
    RangeConsumer,
    groups,
    offsets,
    security,
    topics,
    transactions,
)
from headrace.client.configs import (
    ConfigType,
    alter_configs,
    config_values,
    describe_config,
    share_group_config,
)
from headrace.client.connection import Connection
from headrace.client.errors import ConnectionFailed
from headrace.client.lag.model import LagQuery
from headrace.client.lag.snapshot import parts, select_groups
from headrace.client.share_state import share_states
from headrace.security.acls import AclFilter
from tests.attacks.harness import MIB, forget_peak, peak_bytes, resident_bytes
from tests.attacks.hostile_broker import API_VERSIONS, HostileBroker, Reply
from tests.protocol.shapes import Case
from tests.support import HeadraceProcess, story

TIMEOUT_MS = 200
ENOUGH_S = 10
"""Generous for one call with a timeout of 0.2 s on a busy machine."""

Call = Callable[[Cluster], Awaitable[Any]]


async def lag_of_all_groups(cluster: Cluster) -> list[Any]:
    query = LagQuery()
    listed, _ = await select_groups(cluster, query)
    return [part async for part in parts(cluster, listed, query, 1_700_000_000_000)]


CALLS: dict[str, Call] = {
    "metadata": lambda c: c.metadata(["t"]),
    "topics": lambda c: c.topics(["t"]),
    "share lag": lambda c: offsets.share_offsets_of_topics(c, "g", ["t"]),
    "group configs": lambda c: describe_config(c, ConfigType.GROUP, "g", ["s"]),
    "set group configs": lambda c: alter_configs(c, ConfigType.GROUP, "g", {"s": "1"}),
    "list groups": groups.list_groups,
    "describe groups": lambda c: groups.describe_groups(c, ["g"]),
    "describe share groups": lambda c: groups.describe_groups(c, ["g"], (groups.SHARE,)),
    "delete groups": lambda c: groups.delete_groups(c, ["g"], (groups.SHARE,)),
    "list offsets": lambda c: offsets.list_offsets(c, {("t", 0): offsets.LATEST}, attempts=2),
    "committed offsets": lambda c: offsets.committed_offsets(c, {"g": None}, require_stable=True),
    "commit offsets": lambda c: offsets.commit_offsets(c, "g", {("t", 0): 5}),
    "delete offsets": lambda c: offsets.delete_offsets(c, "g", [("t", 0)]),
    "alter share offsets": lambda c: offsets.alter_share_offsets(c, "g", {("t", 0): 5}),
    "delete share offsets": lambda c: offsets.delete_share_offsets(c, "g", ["t"]),
    "describe topics": lambda c: topics.describe_topics(c, ["t"]),
    "delete records": lambda c: topics.delete_records(c, {("t", 0): 5}),
    "describe ACLs": security.describe_acls,
    "delete ACLs": lambda c: security.delete_acls(c, [AclFilter()]),
    "describe users": security.describe_users,
    "describe quotas": security.describe_quotas,
    "open transactions": lambda c: transactions.transactional_ids(c, "t", ("Ongoing",)),
    "abort transactions": lambda c: transactions.abort_open_transactions(c, ["t"]),
    "states of a share group": lambda c: share_states(c, "g", [("t", 0)]),
    "lag of a share group": lambda c: lag_of_all_groups(c),
}


async def outcome(broker: HostileBroker, call: Call) -> object:
    """Return the result of a call, or the error that a caller of the client may expect."""
    cluster = Cluster(
        broker.bootstrap_servers, timeout_ms=TIMEOUT_MS, connect_timeout_ms=TIMEOUT_MS
    )
    try:
        async with asyncio.timeout(ENOUGH_S):
            return await call(cluster)
    except ClientError as error:
        return error
    finally:
        await cluster.close()


def replying(case: Case) -> Reply:
    async def reply(api_key: int, version: int, writer: asyncio.StreamWriter) -> bytes:
        return case.body

    return reply


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@story
async def test_a_response_with_an_odd_field_is_a_result_or_a_clear_error(call: Call) -> None:
    """One field of one response is null, empty, repeated or at the end of its range."""
    async with HostileBroker() as honest:
        await outcome(honest, call)
        asked = list(dict.fromkeys(honest.asked))
        cases = [
            case
            for api_key, version in asked
            if api_key != API_VERSIONS
            for case in honest.shape(api_key, version).cases()
        ]
    at_a_time = asyncio.Semaphore(20)

    async def one(case: Case) -> None:
        async with at_a_time, HostileBroker(case.api_key, replying(case)) as broker:
            try:
                await outcome(broker, call)
            except BaseException as error:
                raise AssertionError(str(case)) from error

    assert len(cases) > 20
    await asyncio.gather(*map(one, cases))


async def silence(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    return None


async def closing(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def noise(api_key: int, version: int, writer: asyncio.StreamWriter) -> bytes:
    return b"\0" + bytes(range(1, 200))


async def http(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def another_correlation_id(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">ii", 10, 99) + bytes(6))


async def nothing_in_it(api_key: int, version: int, writer: asyncio.StreamWriter) -> bytes:
    return b""


async def half(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">ii", 1000, 1) + b"half")


async def byte_by_byte(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        for byte in struct.pack(">i", 1000) + bytes(1000):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.01)


async def a_huge_array(api_key: int, version: int, writer: asyncio.StreamWriter) -> bytes:
    """Claim 4 billion elements, at different places."""
    return b"\0" * (7 if api_key != 3 else 5) + b"\xff\xff\xff\xff\x0f" + bytes(20)


RUDE = [
    silence,
    closing,
    noise,
    http,
    another_correlation_id,
    nothing_in_it,
    half,
    byte_by_byte,
    a_huge_array,
]


@pytest.mark.parametrize("odd_api", [API_VERSIONS, 3, 10, 77])
@pytest.mark.parametrize("reply", RUDE)
def test_a_rude_broker_is_a_clear_error_in_time(odd_api: int, reply: Reply) -> None:
    async def attack() -> object:
        async with HostileBroker(odd_api, reply) as broker:
            call = CALLS["metadata" if odd_api == 3 else "describe share groups"]
            came = await outcome(broker, call)
            return came["g"] if isinstance(came, dict) and "g" in came else came

    assert isinstance(asyncio.run(attack()), ClientError)


@story
async def test_configs_of_what_was_not_asked_about_are_left_out() -> None:
    async with HostileBroker() as broker:  # it answers for the resource "t"
        cluster = Cluster(broker.bootstrap_servers)
        assert await config_values(cluster, ConfigType.GROUP, ["t", "g"], "t") == {"t": "1"}
        assert await config_values(cluster, ConfigType.GROUP, ["g"], "t") == {}
        assert await share_group_config(cluster, "g", "t") is None
        await cluster.close()


@pytest.mark.parametrize("claim", [2**31 - 1, -1, 2**30, 500_000_000])
@story
async def test_a_claimed_frame_is_not_allocated(claim: int) -> None:
    async def claiming(api_key: int, version: int, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", claim) + bytes(100))

    async with HostileBroker(3, claiming) as broker:
        before = resident_bytes(os.getpid())
        forget_peak(os.getpid())
        assert isinstance(await outcome(broker, CALLS["metadata"]), ConnectionFailed)
        assert peak_bytes(os.getpid()) - before < 50 * MIB


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("x" * 300, 9092),
        ("a..b", 1),
        ("", 0),
        ("\n\x1b[2J", 9092),
        ("127.0.0.1", 70_000),
        ("h", -1),
    ],
)
@story
async def test_an_address_that_is_none_is_a_clear_error(host: str, port: int) -> None:
    with pytest.raises(ConnectionFailed):
        await Connection.open(host, port, timeout_ms=1000)


def test_a_share_consumer_does_not_heartbeat_without_a_pause() -> None:
    async def hurried(api_key: int, version: int, writer: asyncio.StreamWriter) -> bytes:
        shape = broker.shape(api_key, version)
        return shape.body("heartbeat_interval", lambda field: bytes(4))

    async def attack() -> int:
        async with RangeConsumer(Cluster(broker.bootstrap_servers, timeout_ms=1000), "g", ["t"]):
            before = len(broker.asked)
            await asyncio.sleep(1)
            return len(broker.asked) - before

    async def run() -> int:
        async with broker:
            return await attack()

    broker = HostileBroker(76, hurried)
    assert asyncio.run(run()) <= 12


def test_a_share_consumer_with_odd_responses_raises_clear_errors() -> None:
    async def attack() -> None:
        async with HostileBroker() as honest:
            cases = [
                case
                for api_key, version in ((76, 1), (78, 2), (79, 2), (3, 13))
                for case in honest.shape(api_key, version).cases()
            ]
        at_a_time = asyncio.Semaphore(20)

        async def one(case: Case) -> None:
            async with at_a_time, HostileBroker(case.api_key, replying(case)) as broker:
                try:
                    async with asyncio.timeout(ENOUGH_S):
                        await consume(broker)
                except ClientError:
                    pass
                except BaseException as error:
                    raise AssertionError(str(case)) from error

        await asyncio.gather(*map(one, cases))

    async def consume(broker: HostileBroker) -> None:
        cluster = Cluster(broker.bootstrap_servers, timeout_ms=TIMEOUT_MS)
        consumer = RangeConsumer(cluster, "g", ["t"])
        await consumer.start()
        try:
            for _ in range(2):
                await consumer.acquire(max_wait_ms=50)
                await consumer.renew()
        finally:
            await consumer.close(TIMEOUT_MS)

    asyncio.run(attack())


LIST, DESCRIBE, LAG = ["groups", "list"], ["groups", "describe", "g"], ["lag", "show"]
LIST_GROUPS, FIND_COORDINATOR, METADATA = 16, 10, 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "odd_api", "reply"),
    [
        *(
            (command, API_VERSIONS, reply)
            for command in (LIST, DESCRIBE, LAG)
            for reply in (silence, noise, http)
        ),
        # librdkafka ends the process at a huge array in the response to ApiVersions
        (LIST, LIST_GROUPS, a_huge_array),
        (DESCRIBE, FIND_COORDINATOR, a_huge_array),
        (LAG, METADATA, a_huge_array),
    ],
)
def test_a_command_fails_with_one_line(command: list[str], odd_api: int, reply: Reply) -> None:
    async def attack() -> tuple[int, str]:
        async with HostileBroker(odd_api, reply) as broker:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace", *command, "--timeout", "2"),
                *("--bootstrap-server", broker.bootstrap_servers),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=HeadraceProcess.environment(),
            )
            async with asyncio.timeout(60):
                _, err = await process.communicate()
            assert process.returncode is not None
            return process.returncode, err.decode()

    status, err = asyncio.run(attack())
    assert status == 1
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1, err
