"""`kill -9` while a consumer group (KIP-848) rebalances: no partition has two readers, and in the
end each has one.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from headrace.protocol.errors import ErrorCode
from tests.clients.confluent import PATIENCE_S
from tests.conformance.consumers import describe
from tests.conformance.world import World
from tests.support import COMMON_CONFIGS, RUN_SEED, HeadraceProcess, unique, wait_until
from tests.wire_client import Connection

pytestmark = pytest.mark.broker

ROUNDS = int(os.environ.get("HEADRACE_TEST_KILLS", "3"))
PARTITIONS = frozenset(range(12))
CONFIGS = {
    **COMMON_CONFIGS,
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
PATIENT_MS, HASTY_MS = 60_000, 1_000
"""Rebalance timeouts of members that give up partitions, and of members that never do."""
HEARTBEAT_S = 0.002
ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Readers:
    """The members of one group, and a lock that guards the partitions that they read."""

    def __init__(self, group_id: str, topic_id: UUID, topic: str) -> None:
        self.group_id, self.topic_id, self.topic = group_id, topic_id, topic
        self.lock = threading.Lock()
        self.members: list[Reader] = []
        self.counts: Counter[str] = Counter()

    def nobody_reads_what_another_does(self) -> None:
        """Check that no partition has two readers; the caller holds the lock."""
        read = [number for member in self.members if not member.stubborn for number in member.reads]
        assert len(read) == len(set(read)), {
            member.id: sorted(member.reads) for member in self.members
        }


class Reader:
    """One member. It reads its partitions as soon as it has them, until it reports that it has
    given them up.

    :ivar stubborn: whether it never gives anything up
    """

    def __init__(self, group: Readers, *, stubborn: bool = False) -> None:
        self.group, self.stubborn = group, stubborn
        self.id = unique("member")
        self.epoch = 0
        self.reads: frozenset[int] = frozenset()
        self.told: frozenset[int] = frozenset()
        self.missed = False

    def beat(self, connection: Connection, *, gives_up: bool = True) -> None:
        """Send a heartbeat, which may give up revoked partitions.

        :raises OSError: when the broker dies meanwhile
        :raises AssertionError: likewise
        """
        group = self.group
        with group.lock:
            if gives_up and not self.stubborn:
                self.reads = self.told
            owned = sorted(self.reads)
        joins = self.epoch == 0
        full = joins or self.missed
        held = [{"topic_id": group.topic_id, "partitions": owned}] if owned else []
        self.missed = True
        response = connection.ask(
            68,
            1,
            group_id=group.group_id,
            member_id=self.id,
            member_epoch=self.epoch,
            rebalance_timeout=(HASTY_MS if self.stubborn else PATIENT_MS) if full else -1,
            subscribed_topic_names=[group.topic] if full else None,
            topic_partitions=[] if joins else held,
        )
        self.missed = False
        with group.lock:
            self._hear(response)
            group.nobody_reads_what_another_does()

    def _hear(self, response: object) -> None:
        code = ErrorCode(response.error_code)  # type: ignore[attr-defined]
        if code in ANEW:
            self.group.counts["stubborn removed" if self.stubborn else code.name] += 1
            self.stubborn = False
            self.epoch, self.reads, self.told = 0, frozenset(), frozenset()
            return
        assert not code, response
        self.epoch = response.member_epoch  # type: ignore[attr-defined]
        assignment = response.assignment  # type: ignore[attr-defined]
        if assignment is not None:
            self.told = frozenset(
                number for one in assignment.topic_partitions for number in one.partitions
            )
            self.reads |= self.told


def at_work(server: HeadraceProcess, readers: Readers, rng: random.Random) -> None:
    """Have all members send heartbeats, and give up revoked partitions now or later, until the
    broker is killed.
    """
    ends: list[BaseException] = []

    def work(reader: Reader, seed: int) -> None:
        own = random.Random(seed)
        connection = Connection(server.bootstrap_servers)
        try:
            while True:
                reader.beat(connection, gives_up=own.random() < 0.3)
                time.sleep(own.uniform(0, HEARTBEAT_S))
        except (OSError, AssertionError) as error:
            if isinstance(error, OSError) or "closed the connection" in str(error):
                return
            ends.append(error)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=work, args=(one, rng.getrandbits(32)), daemon=True)
        for one in readers.members
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0, 0.1))
    server.kill()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not ends, ends


def settle(world: World, readers: Readers, rng: random.Random) -> None:
    """Send heartbeats until each partition has its reader, and the group's description agrees."""

    def settled() -> bool:
        for reader in rng.sample(readers.members, len(readers.members)):
            reader.beat(world.connection)
        read = frozenset().union(*(reader.reads for reader in readers.members))
        at_rest = all(reader.epoch and reader.reads == reader.told for reader in readers.members)
        return (
            at_rest
            and read == PARTITIONS
            and describe(world, readers.group_id).group_state == "Stable"
        )

    wait_until(settled, PATIENCE_S, "each partition to have its reader")
    found = describe(world, readers.group_id)
    held = {
        member.member_id: {
            number for topic in member.assignment.topic_partitions for number in topic.partitions
        }
        for member in found.members
    }
    assert held == {reader.id: reader.reads for reader in readers.members}


def assignments_are_disjoint(world: World, readers: Readers) -> str:
    """Check that the assignments in the log, written before the crash too, give no partition to two
    members; return the state of the group.
    """
    found = describe(world, readers.group_id)
    assigned = [
        number
        for member in found.members
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    ]
    assert len(assigned) == len(set(assigned)), found
    return str(found.group_state)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_rebalance_comes_to_its_end(tmp_path: Path) -> None:
    seed = RUN_SEED
    print(f"HEADRACE_TEST_SEED={seed}")
    rng = random.Random(seed)
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    states: Counter[str] = Counter()
    try:
        world = World(server.bootstrap_servers, "headrace")
        topic = world.topic(partitions=len(PARTITIONS))
        readers = Readers(unique("group"), topic.id, topic.name)
        readers.members = [Reader(readers) for _ in range(3)]
        settle(world, readers, rng)
        for _ in range(ROUNDS):
            stubborn = rng.choice([*readers.members, None])
            for reader in readers.members:
                reader.stubborn = reader is stubborn
                reader.missed = True  # it says what its rebalance timeout is from now on
            if len(readers.members) > 4:
                for reader in readers.members[:2]:
                    world.ask(
                        68,
                        1,
                        group_id=readers.group_id,
                        member_id=reader.id,
                        member_epoch=-1,
                        subscribed_topic_names=None,
                        topic_partitions=None,
                    )
                del readers.members[:2]
            readers.members += [Reader(readers) for _ in range(rng.randint(1, 2))]
            world.close()
            at_work(server, readers, rng)
            server.start()
            world = World(server.bootstrap_servers, "headrace")
            states[assignments_are_disjoint(world, readers)] += 1
            settle(world, readers, rng)
        print(f"{ROUNDS} kills; the group was then {dict(states)}; {dict(readers.counts)}")
    finally:
        server.kill()
