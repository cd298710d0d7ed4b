"""One run of the whole broker: its random choices, all actions, and its end."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.protocol.record_batch import Record

from ..course import Course
from ..disk import (
    AFTER,
    BEFORE,
    NAME,
    READ,
    SYNC,
    TORN,
    WRITE,
    Disk,
    Fault,
    PowerCut,
    Slowness,
)
from ..network import DOUBLED, GOOD, LOST_ANSWER, LOST_REQUEST, Network
from ..power import Machine
from ..witness import Violation
from .book import Book, Where
from .classic import SESSION_MS, ClassicGroup, ClassicMember
from .consumer import ConsumerMember
from .flips import Flips
from .offsets import Committer, Offsets, fetch_offset
from .producers import TransactionalProducer, Writer
from .queue import QueueMember
from .readers import Fetched, Reader
from .security import CONFIGS as SECURITY_CONFIGS
from .security import SecurityAdministrator
from .topics import TopicAdministrator

NEVER = str(2**63 - 1)
RETENTION_MS = 1_200_000
MAX_JUMP_MS = 1_500_000
"""The wall clock is at most this far from the steady one."""
QUIET_ROUNDS = 400
"""Rounds in which all clients must come to rest without faults."""
STARTS = 20
"""Starts of which one must succeed."""

FIXED_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "orders": (3, {}),
    "state": (
        2,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "1000",
        },
    ),
    "events": (2, {"retention.ms": str(RETENTION_MS)}),
}


class World:
    """Everything in one run, decided by its seed."""

    def __init__(self, seed: int, disk: Disk, say: Callable[[str], None] | None = None) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.power = disk.power
        self.disk = disk
        self.life = 0
        self.is_calm = True
        self.counts: Counter[str] = Counter()
        self.problems: list[Exception] = []
        self._topics: dict[Any, tuple[str, int]] = {}
        self.latest_wall_ms = 0
        self.faults = {
            fault: rng.choice((0, 1, 3)) for fault in (LOST_REQUEST, LOST_ANSWER, DOUBLED)
        }
        self.loses_power = rng.random() < 0.5
        self.is_sick = rng.random() < 0.5
        self.is_slow = rng.random() < 0.5
        self.segment_bytes = str(rng.choice((600, 3000, 20_000)))
        self.machine = Machine(disk, self._configs(), loses_power=self.loses_power)
        self.course = Course(self.machine, say)
        self.network = Network(self.machine, self.power, self)
        self.book, self.offsets = Book(), Offsets()
        self.accepted: set[tuple[Where, int]] = set()
        self._names = 0
        group = ClassicGroup("classic")
        self.topics = TopicAdministrator(self, "administrator")
        self.security = SecurityAdministrator(self, "guard")
        self.writers = [Writer(self, self.name("writer"), [*FIXED_TOPICS, "north", "south"])]
        self.writers += [Writer(self, self.name("writer"), ["state", "north"])]
        self.transactional = [
            TransactionalProducer(
                self, self.name("bank"), ["orders"], bumps_epoch=rng.random() < 0.5
            )
            for _ in range(rng.choice((1, 2)))
        ]
        self.readers = [
            Reader(self, self.name("reader"), committed=committed) for committed in (False, True)
        ]
        self.committers = [Committer(self, self.name("committer")) for _ in range(2)]
        self.classics = [ClassicMember(self, self.name("classic"), group) for _ in range(3)]
        self.consumers = [ConsumerMember(self, self.name("consumer"), "kip") for _ in range(3)]
        self.queue = [QueueMember(self, self.name("queue"), "queue") for _ in range(2)]
        self.actions = self._actions()
        self.flips = Flips(self, seed)

    def _configs(self) -> dict[str, str]:
        rng = self.rng
        small = self.segment_bytes
        return {
            **SECURITY_CONFIGS,
            "log.flush.interval.messages": "1" if self.loses_power else NEVER,
            "offsets.topic.num.partitions": "2",
            "offsets.topic.segment.bytes": small,
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.segment.bytes": small,
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.state.topic.segment.bytes": small,
            "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice((1, 5, 500))),
            "log.cleaner.backoff.ms": "1000",
            "log.retention.check.interval.ms": "5000",
            "group.initial.rebalance.delay.ms": "0",
            "group.share.record.lock.duration.ms": "15000",
        }

    def _actions(self) -> list[tuple[Callable[[], str], int]]:
        """Return all actions and their weights, which differ from run to run."""
        rng = self.rng
        rare: list[Callable[[], str]] = [
            self.crash,
            self.crash_soon,
            self.crash_soon,
            self.stop_and_start,
            self.cut,
            self.jump,
            self.restart_producer,
        ]
        if self.is_sick:
            rare += [self.fall_ill]
        if self.is_slow:
            rare += [self.slow_down]
        clients = (
            (self.writers, 120),
            (self.transactional, 200),
            (self.readers, 100),
            (self.committers, 60),
            (self.classics, 120),
            (self.consumers, 120),
            (self.queue, 60),
            ([self.topics], 30),
            ([self.security], 30),
        )
        return [
            *((self._acting(actors), weight) for actors, weight in clients),
            (self.wait, 150),
            *((action, rng.choice((5, 20))) for action in rare),
        ]

    def _acting(self, actors: Any) -> Callable[[], str]:
        def act() -> str:
            actor = self.rng.choice(actors)
            return f"{actor.name} {actor.act()}"

        act.__name__ = "client"
        return act

    # What clients ask

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}-{self._names}"

    def fate(self) -> str:
        """Draw the fate of a request."""
        return self.rng.choices((GOOD, *self.faults), (100, *self.faults.values()))[0]

    def exists(self, where: Where) -> bool:
        topic = self.machine.broker.catalog.topics_by_id.get(where[0])
        return topic is not None and where[1] < topic.partitions

    def places(self, topics: list[str] | None = None) -> list[Where]:
        """Return the partitions of topics; None for all."""
        known = self.machine.broker.catalog.topics
        names = [*FIXED_TOPICS, "north", "south"] if topics is None else topics
        found = []
        for name in names:
            topic = known.get(name)
            if topic is not None:
                self._topics[topic.topic_id] = name, topic.partitions
                found += [(topic.topic_id, partition) for partition in range(topic.partitions)]
        return found

    def topic_name(self, where: Where) -> str:
        return self._topics[where[0]][0]

    # What the network observes

    def arrived(self, connection_id: int, request: Any) -> object:
        return None

    def answered(
        self, connection_id: int, request: Any, foreseen: Any, answer: Any, frame: bytes
    ) -> None:
        self.course.sent(frame)

    def disconnected(self, connection_id: int) -> None: ...

    # Steps

    def begin(self) -> None:
        """Start the broker, and create the topics that stay."""
        self.machine.start()
        self._started()
        for name, (partitions, configs) in FIXED_TOPICS.items():
            configs = {**configs, "internal.segment.bytes": self.segment_bytes}
            self.machine.broker.catalog.create_topic(name, partitions, configs)
        group = {"share.auto.offset.reset": "earliest"}
        self.machine.broker.catalog.alter_configs({("group", "queue"): group})
        self.places()
        self.is_calm = False

    def run(self, steps: int) -> None:
        """Take this many steps."""
        self.course.run(self.rng, self.actions, steps, self.end_step)

    def end_step(self) -> None:
        """Let everything come to rest, and check it."""
        self.machine.loop.settle()
        self.latest_wall_ms = max(self.latest_wall_ms, self.machine.wall_ms())
        if self.power.is_off:
            self.restart()
        self.course.check_failures()
        for problem in self.problems:
            raise problem

    def restart(self) -> None:
        """Start again with the files on the disk, after a crash."""
        self.course.note("crash")
        self.counts["crashes"] += 1
        self._die()
        if not self.is_calm:
            self.flips.happen()
        for _ in range(STARTS):
            self.power.restore()
            if not self.is_calm and self.rng.random() < 0.2:
                self.power.cut_at(self.rng.randint(1, 8), self.rng.choice((BEFORE, TORN, AFTER)))
            is_running = False
            try:
                self.machine.start()
                is_running = not self.power.is_off
            except PowerCut:
                pass
            except Exception:
                if not self.disk.was_sick:
                    raise
                self.disk.heal()
            if not is_running:
                self.course.note("crash at the start")
                self.counts["crashes"] += 1
                self._die()
                continue
            self._started()
            return
        raise Violation("the broker does not start any more")

    def _die(self) -> None:
        self.life += 1
        self.machine.kill()
        self.network.down()
        if self.loses_power:
            self.book.power_cut()

    def _started(self) -> None:
        self.disk.was_sick = self.disk.fault is not None or self.disk.free_bytes is not None
        self.counts["starts"] += 1
        self.topics.check()
        self.security.check()
        for reader in self.readers:
            reader.start_again()

    # What may happen

    def wait(self) -> str:
        ms = self.rng.choice((1, 10, 50, 200, 1000, self.rng.randint(1, 5000)))
        if self.rng.random() < 0.02:
            ms = self.rng.choice((SESSION_MS, 70_000))
        self.machine.loop.advance(ms)
        return f"{ms} ms"

    def crash(self) -> str:
        self.power.is_off = True
        return "now"

    def crash_soon(self) -> str:
        if self.power.is_failing:
            return "already"
        changes, how = self.rng.randint(1, 12), self.rng.choice((BEFORE, TORN, AFTER))
        self.power.cut_at(changes, how)
        return f"{how} change {changes} from now"

    def stop_and_start(self) -> str:
        """Stop the broker and start it again."""
        self.network.cut_all()
        self.machine.loop.settle()
        if self.power.is_off:
            return "not any more"
        self.life += 1
        self.machine.stop()
        self.network.down()
        if not self.is_calm:
            self.flips.happen()
        try:
            self.machine.start()
        except Exception:
            if not self.disk.was_sick:
                raise
            self.power.is_off = True
            return "fails to start"
        self._started()
        return "in order"

    def cut(self) -> str:
        """Break a connection."""
        if not self.network.wires:
            return "there is none"
        wire = self.rng.choice(self.network.wires)
        wire.cut()
        return wire.client_id

    def jump(self) -> str:
        """Set the wall clock."""
        self.machine.wall_ahead_ms = self.rng.randint(-MAX_JUMP_MS, MAX_JUMP_MS)
        return f"{self.machine.wall_ahead_ms} ms ahead"

    def restart_producer(self) -> str:
        producer = self.rng.choice(self.transactional)
        return f"{producer.name} {producer.restart()}"

    def fall_ill(self) -> str:
        """Have the disk fail some calls, or fill up, or be well again."""
        rng, disk = self.rng, self.disk
        if disk.fault is not None or disk.free_bytes is not None:
            disk.fault, disk.free_bytes = None, None
            return "the disk is well again"
        dice = rng.random()
        if dice < 0.3:
            disk.free_bytes = rng.randint(0, 3000)
            disk.was_sick = True
            return f"{disk.free_bytes} bytes are left"
        kinds: tuple[str, ...] = rng.choice(((WRITE,), (SYNC,), (READ,), (NAME,)))
        within = rng.choice(("", "", "orders", "state", "__consumer_offsets", "__transaction"))
        error = rng.choice((errno.EIO, errno.EIO, errno.ENOSPC))
        disk.fault = Fault(
            frozenset(kinds), error, calls=rng.choice((1, 2, 5, 50)), skip=rng.randint(0, 5)
        )
        disk.fault.within = within
        disk.was_sick = True
        return f"{errno.errorcode[error]} of {kinds} in {within or 'all files'}"

    def slow_down(self) -> str:
        """Have the disk take its time, or be as fast as before."""
        rng, disk = self.rng, self.disk
        if disk.slowness is not None:
            disk.slowness = None
            return "the disk is fast again"
        within = rng.choice(("", ".log", "orders", "state", "__consumer_offsets", "__transaction"))
        disk.slowness = Slowness(rng.choice((0.05, 0.5)), rng.choice((20, 500, 5000)), within)
        return f"up to {disk.slowness.longest_ms} ms in {within or 'all files'}"

    # The end

    def finish(self) -> None:
        """End all faults, have the clients finish, and check everything, before and after another
        restart.
        """
        self.is_calm = True
        self.disk.heal()
        self.power.restore()
        self.stop_and_start()  # what is offline comes back
        self.end_step()
        self._quiet()
        before = self._check()
        self.stop_and_start()
        self.end_step()
        after = self._check()
        if before != after:
            raise Violation("records are others after a restart")

    def _quiet(self) -> None:
        """Let the clients come to rest."""
        clients = [*self.writers, *self.transactional, *self.classics, *self.consumers]
        for _ in range(QUIET_ROUNDS):
            for client in clients:
                client.act()
                self.end_step()
            self.machine.loop.advance(1000)
            self.end_step()
            if not self._restless():
                return
        raise Violation(f"does not come to rest: {self._restless()}")

    def _restless(self) -> str:
        """Return what is not at rest; empty if everything is."""
        waiting = [one.name for one in self.transactional if not one.is_idle]
        if waiting:
            return f"the transactions of {waiting}"
        owned = sorted(where for one in self.consumers for where in one.owned)
        if owned != self.places(["orders"]) or not all(one.is_settled for one in self.consumers):
            return f"the consumers own {[(one.name, sorted(one.owned)) for one in self.consumers]}"
        partitions = sorted(partition for one in self.classics for partition in one.partitions)
        if partitions != [0, 1, 2] or len({one.generation for one in self.classics}) > 1:
            return f"the classic members have {partitions}"
        return ""

    def _check(self) -> dict[Where, list[Record]]:
        """Check everything that is stored."""
        found: dict[Where, list[Record]] = {}
        visible: dict[Where, set[bytes]] = {}
        uncommitted, committed = self.readers
        for where in self.places():
            name = self.topic_name(where)
            found[where], end = uncommitted.read_all(where)
            self._check_start(where, name, end)
            self.book.check_all(where, found[where], compacted=name == "state")
            records, _ = committed.read_all(where)
            for record in records:
                self.book.check_read(where, record, committed=True)
            visible[where] = {record.value for record in records if record.value is not None}
            if end.last_stable_offset != end.high_watermark:
                raise Violation(f"a transaction in {name}-{where[1]} never ends")
        self.book.check_transactions(visible, self._offsets())
        self.topics.check()
        self.security.check()
        return found

    def _check_start(self, where: Where, name: str, end: Fetched) -> None:
        """Check that retention and DeleteRecords deleted what they may, and no more."""
        page = self.book.page(where)
        if name == "events":
            for offset, entry in page.acknowledged.items():
                age_ms = self.latest_wall_ms - entry.timestamp_ms
                if offset < end.log_start_offset and age_ms <= RETENTION_MS:
                    raise Violation(f"record {offset} of {name} is deleted after {age_ms} ms")
            page.may_start_at = max(page.may_start_at, end.log_start_offset)
        if not page.must_start_at <= end.log_start_offset:
            raise Violation(
                f"{name}-{where[1]} starts at {end.log_start_offset}, and the records before "
                f"{page.must_start_at} were deleted"
            )
        if name != "state" and end.log_start_offset > page.may_start_at:
            raise Violation(f"{name}-{where[1]} starts at {end.log_start_offset}")

    def _offsets(self) -> dict[str, int]:
        """Check all committed offsets; return those of transactional producers."""
        actor = self.committers[0]
        for key in sorted(self.offsets.sent):
            got: list[int] = []
            fetch_offset(actor, *key, got.append)
            self.machine.loop.settle()
            assert got, f"the offset of {key} is not known"
            self.offsets.check(key, got[0], self.offsets.acknowledged.get(key, -1))
        found = {}
        for producer in self.transactional:
            got = []
            fetch_offset(actor, producer.group_id, 0, got.append)
            self.machine.loop.settle()
            assert got, f"the offset of {producer.name} is not known"
            found[producer.name] = got[0]
        for problem in self.problems:
            raise problem
        return found
