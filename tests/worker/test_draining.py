"""A worker that is told to stop: functions end, or their records go back at once, and the process
ends, whatever functions do.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

import headrace
from headrace.client.cluster import Cluster
from headrace.client.groups import describe_group
from headrace.client.share.consumer import ShareConsumer
from tests.support import COMMON_CONFIGS, HANG_S, HeadraceProcess, unique, wait_until

from .support import WorkerProcess

SCRIPT = Path(__file__).with_name("stubborn.py")


async def take(bootstrap: str, name: str, count: int) -> list[headrace.Record]:
    """Take records from the group of a task."""
    conf = {"bootstrap.servers": bootstrap, "group.id": name}
    taken: list[headrace.Record] = []
    async with ShareConsumer(conf, [name]) as queue:
        while len(taken) < count:
            records = await queue.poll(count - len(taken))
            taken += records
            await queue.accept(records)
    return taken


async def send(bootstrap: str, name: str, count: int, first: int = 0) -> None:
    app = headrace.App(bootstrap)

    @app.task(name=name)
    async def function(number: int) -> None: ...

    await function.send_many(range(first, first + count))
    app.close()


async def clients_of(bootstrap: str, name: str) -> set[str]:
    async with Cluster(bootstrap) as cluster:
        group = await describe_group(cluster, name)
    return set() if group is None else {member.client_id for member in group.members}


@pytest.mark.parametrize("kind", ["sleep", "swallow", "other_thread", "thread", "process"])
def test_what_does_not_end_in_time_goes_back_and_the_process_ends(
    bootstrap_servers: str, target: str, kind: str
) -> None:
    prefix = unique("drain")
    name = f"{prefix}-{kind}"
    asyncio.run(send(bootstrap_servers, name, 2))
    with WorkerProcess(SCRIPT, bootstrap_servers, prefix, kind, 0.5) as worker:
        worker.wait_for("begins", 2)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.count("2 functions have not ended, so records are released") == 1
    records = asyncio.run(take(bootstrap_servers, name, 2))
    # The deliveries to this worker do not count; Apache Kafka counts each.
    assert {record.delivery_count for record in records} == {1 if target == "headrace" else 2}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(bootstrap_servers: str, number: signal.Signals) -> None:
    prefix = unique("drain")
    asyncio.run(send(bootstrap_servers, f"{prefix}-sleep", 1))
    with WorkerProcess(SCRIPT, bootstrap_servers, prefix, "sleep", 3600) as worker:
        worker.wait_for("begins")
        worker.process.send_signal(number)
        worker.wait_for("stopping: 1 function has 3600 s to end")
        worker.process.send_signal(number)
        assert worker.wait() == 0
        assert worker.count("returned") == 1


@pytest.mark.parametrize("kind", ["block", "loop"])
def test_a_blocked_loop_is_named_and_the_process_ends(bootstrap_servers: str, kind: str) -> None:
    prefix = unique("drain")
    asyncio.run(send(bootstrap_servers, f"{prefix}-{kind}", 1))
    with WorkerProcess(SCRIPT, bootstrap_servers, prefix, kind, 0) as worker:
        worker.wait_for(f"task '{prefix}-{kind}' blocks the event loop at stubborn.py:")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.count("the process ends without them") == 1
        assert worker.count("blocks the event loop") == 1


def test_functions_that_end_in_time_are_accepted(bootstrap_servers: str) -> None:
    prefix = unique("drain")
    name = f"{prefix}-short"
    asyncio.run(send(bootstrap_servers, name, 7))
    with WorkerProcess(SCRIPT, bootstrap_servers, prefix, "short", 60) as worker:
        worker.wait_for("begins", 2)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        ended = worker.count("ends")
        assert ended == worker.count("begins") < 7
        assert worker.count("returned") == 1
    # the others are there for others
    assert len(asyncio.run(take(bootstrap_servers, name, 7 - ended))) == 7 - ended


def test_a_worker_ends_while_its_broker_is_away(tmp_path: Path) -> None:
    prefix = unique("drain")
    with HeadraceProcess(tmp_path / "data", COMMON_CONFIGS) as server:
        asyncio.run(send(server.bootstrap_servers, f"{prefix}-short", 2))
        with WorkerProcess(SCRIPT, server.bootstrap_servers, prefix, "short", 3) as worker:
            worker.wait_for("begins")
            server.kill()
            worker.process.send_signal(signal.SIGTERM)
            assert worker.wait() == 0


def test_a_worker_ends_while_it_waits_for_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with WorkerProcess(SCRIPT, address, unique("drain"), "sleep", 3600) as worker:
            silent.accept()[0].recv(1)
            worker.process.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert worker.count("returned") == 1


def test_calls_go_on_at_once_when_a_worker_is_killed(bootstrap_servers: str) -> None:
    prefix = unique("killed")
    name = f"{prefix}-short"
    arguments = SCRIPT, bootstrap_servers, prefix, "short", 5
    with WorkerProcess(*arguments) as killed, WorkerProcess(*arguments) as other:

        def both_work() -> bool:
            asyncio.run(send(bootstrap_servers, name, 2))
            return bool(killed.count("ends") and other.count("ends"))

        wait_until(both_work, HANG_S, "both workers get calls")
        begun = killed.count("begins")
        asyncio.run(send(bootstrap_servers, name, 8, first=100))
        killed.wait_for("begins", begun + 1)
        killed.process.kill()
        for number in range(100, 108):
            wait_until(
                lambda number=number: (
                    killed.count(f"ends {number}")  # type: ignore[misc]
                    or other.count(f"ends {number}")
                ),
                HANG_S,
                f"call {number} ends",
            )
        # The group has not noticed yet.
        clients = asyncio.run(clients_of(bootstrap_servers, name))
        assert any(client.endswith(f"-{killed.process.pid}") for client in clients)
