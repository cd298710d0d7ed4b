"""`kill -9` of workers, of the broker and of both, while functions of each kind run: nothing is
lost, and nothing is done again after the broker has confirmed its end.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import headrace
from tests.clients.confluent import consumer
from tests.support import HANG_S, ROOT, HeadraceProcess, unique, wait_until

from .rounds import rounds, seed
from .test_share_kill import CONFIGS, lags

pytestmark = pytest.mark.broker

KINDS = ("loop", "thread", "process")
RECORDS_A_ROUND = {"loop": 300, "thread": 200, "process": 200}
Key = tuple[str, str]
"""Kind and number of a record."""


class Witness:
    """Everything that workers have told in all rounds."""

    def __init__(self) -> None:
        self.begun: Counter[Key] = Counter()
        self.ended: set[Key] = set()
        self.rejected: set[Key] = set()
        self.confirmed: set[Key] = set()
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def note(self, word: str, kind: str, number: str, attempt: str) -> None:
        key = kind, number
        self.counts[f"{word} {kind}"] += 1
        if word == "D":
            self.begun[key] += 1
            if key in self.confirmed:
                self.broken.append(f"{key} begins again after its end was confirmed")
        elif word == "A":
            self.confirmed.add(key)
        else:
            (self.ended if word == "E" else self.rejected).add(key)

    def worked_since(self, before: Counter[str]) -> bool:
        """Return whether the end of records of each kind was confirmed since."""
        return all(self.counts[f"A {kind}"] > before[f"A {kind}"] + 5 for kind in KINDS)

    def redeliveries(self) -> dict[str, int]:
        """Return how often records began again, also by a retry, by kind."""
        again: Counter[str] = Counter()
        for (kind, _), times in self.begun.items():
            again[kind] += times - 1
        return dict(again)


class WorkerUnderLoad:
    """A process with a worker, and the lines that it has printed."""

    def __init__(
        self, witness: Witness, bootstrap_servers: str, prefix: str, seed: str, log: Path
    ) -> None:
        script = ROOT / "tests" / "faults" / "worker_load.py"
        self._witness = witness
        with log.open("a") as lines:
            self.process = subprocess.Popen(
                [sys.executable, str(script), bootstrap_servers, prefix, seed],
                stdout=subprocess.PIPE,
                stderr=lines,
                text=True,
                env=HeadraceProcess.environment(),
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._witness.note(*line.split())

    def kill(self) -> None:
        """Kill it, wait for the ends of the processes of its functions, and read its last line."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        processes = children.read_text().split() if children.exists() else []
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not any(map(_is_alive, processes)), HANG_S, "the ends of its processes")
        self._reader.join(HANG_S)


def _is_alive(process_id: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process_id}/status").read_text()
    except OSError:
        return False


class Sender:
    """Sends records, and knows which.

    :ivar sent: how many of each kind
    """

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.sent = dict.fromkeys(KINDS, 0)
        self._app = headrace.App(bootstrap_servers)
        self._tasks = {}
        for kind in KINDS:

            @self._app.task(name=f"{prefix}-{kind}", partitions=2)
            async def function(number: int) -> None: ...

            self._tasks[kind] = function

    def send(self) -> None:
        """Send the records of a round."""

        async def send_all() -> None:
            for kind, count in RECORDS_A_ROUND.items():
                first = self.sent[kind]
                await self._tasks[kind].send_many(range(first, first + count))
                self.sent[kind] += count

        asyncio.run(send_all())

    def close(self) -> None:
        self._app.close()


def dead_letters(server: HeadraceProcess, prefix: str, kind: str, count: int) -> set[str]:
    """Return the numbers in a dead-letter queue, when there are so many."""
    numbers: set[str] = set()
    with consumer(server.bootstrap_servers, unique("reader")) as reader:
        reader.subscribe([f"dlq.{prefix}-{kind}"])
        deadline_s = time.monotonic() + HANG_S
        while len(numbers) < count and time.monotonic() < deadline_s:
            message = reader.poll(0.2)
            if message is not None and not message.error():
                numbers.add(message.value().decode().partition(":")[2].rstrip("}").strip())
    return numbers


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_lost_and_nothing_done_again_after_its_end_was_confirmed(tmp_path: Path) -> None:
    rng = random.Random(seed())
    witness, prefix = Witness(), unique("killed")
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    server.port = int(server.bootstrap_servers.rpartition(":")[2])
    sender = Sender(server.bootstrap_servers, prefix)
    workers: list[WorkerUnderLoad] = []

    def start_workers(seed_of_round: str) -> None:
        while len(workers) < 2:
            workers.append(
                WorkerUnderLoad(
                    witness,
                    server.bootstrap_servers,
                    prefix,
                    seed_of_round,
                    tmp_path / "workers.log",
                )
            )

    try:
        kills: Counter[str] = Counter()
        for number in rounds("kills of workers and broker", 3, "HEADRACE_TEST_WORKER_KILLS", 60):
            victim = ("a worker", "the broker", "both")[number % 3]
            kills[victim] += 1
            start_workers(f"{rng.random()}")
            before = witness.counts.copy()
            sender.send()
            wait_until(partial(witness.worked_since, before), HANG_S, "work of all kinds")
            time.sleep(rng.uniform(0, 0.5))
            if victim != "the broker":
                workers.pop(rng.randrange(2)).kill()
            if victim != "a worker":
                server.kill()
                if victim == "both":
                    workers.pop().kill()
                time.sleep(rng.uniform(0, 0.5))
                server.start()
            assert not witness.broken, witness.broken[:5]
        while workers:
            workers.pop().kill()
        start_workers("-")
        wait_until(
            lambda: all(
                lags(server, f"{prefix}-{kind}", f"{prefix}-{kind}", 2) == [0] * 2 for kind in KINDS
            ),
            HANG_S,
            "a lag of 0",
            0.2,
        )
        everything = {
            (kind, str(number)) for kind, count in sender.sent.items() for number in range(count)
        }
        rejected = {key for key in everything if int(key[1]) % 50 == 0}
        wait_until(
            lambda: witness.ended >= everything - rejected and witness.rejected >= rejected,
            HANG_S,
            "the ends of all records",
        )
        for kind in KINDS:
            expected = {number for of_kind, number in rejected if of_kind == kind}
            assert dead_letters(server, prefix, kind, len(expected)) == expected
        assert not witness.broken, witness.broken[:5]
        again = witness.redeliveries()
        print(
            f"kills of {dict(kills)}: {dict(sender.sent)} records, begun again {again}, "
            f"{sum(witness.counts[f'A {kind}'] for kind in KINDS)} ends confirmed"
        )
    finally:
        for worker in workers:
            worker.kill()
        sender.close()
        server.kill()
