"""One run: its random choices and all actions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.share.acknowledgement import REJECT, RENEW
from headrace.share.records import SharePartitionKey
from headrace.topics.catalog import Topic

from .clients import Administrator, Member, Producer
from .course import Course
from .disk import AFTER, BEFORE, TORN, Disk
from .network import DOUBLED, GOOD, LOST_ANSWER, LOST_REQUEST, Network
from .power import Machine
from .shelf import UNKNOWN, Limits, Partition
from .witness import Witness

MAX_BACKLOG = 400
"""Unfinished records of a group in a partition beyond which nothing is produced."""

DEAD_LETTERS = "dlq.letters"


class World:
    """Everything in one run, decided by its seed."""

    def __init__(self, seed: int, disk: Disk, say: Callable[[str], None] | None = None) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.power = disk.power
        self._names = 0
        self.limits = Limits(
            lock_ms=rng.choice((1000, 5000, 30_000)),
            deliveries=rng.choice((2, 3, 5)),
            backoff_ms=rng.choice((0, 0, 300)),
            backoff_max_ms=1000,
        )
        self.session_ms = rng.choice((3000, 10_000, 45_000))
        self.faults = {
            fault: rng.choice((0, 1, 3)) for fault in (LOST_REQUEST, LOST_ANSWER, DOUBLED)
        }
        self.groups = ["red", "blue"][: rng.choice((1, 1, 2))]
        self.loses_power = rng.random() < 0.5
        self.machine = Machine(disk, self._configs(), loses_power=self.loses_power)
        self.course = Course(self.machine, say)
        self.witness = Witness(self.machine, self.limits)
        self.network = Network(self.machine, self.power, self)
        self.admin = Administrator(self.network, "admin")
        self.has_dead_letters = rng.random() < 0.5
        self.topic_names = ["north", "south"][: rng.choice((1, 2))]
        self.producers = [self._producer() for _ in range(rng.choice((1, 2)))]
        self.members = [self._member() for _ in range(rng.choice((2, 4, 8)))]
        self.actions = self._actions()

    def begin(self) -> None:
        """Start the broker, with the configs of the groups."""
        self.machine.start()
        if self.has_dead_letters:
            enabled = {"errors.deadletterqueue.group.enable": "true"}
            self.machine.broker.catalog.create_topic(DEAD_LETTERS, 2, enabled)
        for group_id in self.groups:
            configs = {
                "errors.deadletterqueue.topic.name": DEAD_LETTERS if self.has_dead_letters else "",
                "share.auto.offset.reset": "earliest",
                "share.release.backoff.ms": str(self.limits.backoff_ms),
                "share.release.backoff.max.ms": str(self.limits.backoff_max_ms),
            }
            self.machine.broker.catalog.alter_configs({("group", group_id): configs})

    def _configs(self) -> dict[str, str]:
        rng = self.rng
        return {
            "group.share.record.lock.duration.ms": str(self.limits.lock_ms),
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": str(self.limits.deliveries),
            "group.share.session.timeout.ms": str(self.session_ms),
            "group.share.min.session.timeout.ms": "1000",
            "group.share.heartbeat.interval.ms": "1000",
            "group.share.min.heartbeat.interval.ms": "1000",
            "group.share.partition.max.record.locks": str(rng.choice((100, 2000))),
            "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice((1, 5, 500))),
            "offsets.topic.num.partitions": "2",
            "log.flush.interval.messages": "1" if self.loses_power else str(2**63 - 1),
            "share.coordinator.state.topic.num.partitions": str(rng.choice((1, 3))),
        }

    def _actions(self) -> list[tuple[Callable[[], str], int]]:
        """Return all actions and their weights, which differ from run to run."""
        rng = self.rng
        rare: list[Callable[[], str]] = [
            self.kill,
            self.fail_soon,
            self.stop_and_start,
            self.cut,
            self.vanish,
            self.delete_topic,
            self.grow_topic,
            self.delete_records,
            self.leave,
            self.reset_group,
            self.renew,
        ]
        dead_letters = 40 if self.has_dead_letters and self.loses_power else 0
        return [
            (self.member_acts, 1000),
            (self.produce, 150),
            (self.wait, 200),
            (self.describe, 100),
            (self.create_topic, 20),
            (self.reject, dead_letters),
            *((action, rng.choice((0, 5, 20))) for action in rare),
        ]

    # Names and dice

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}-{self._names}"

    def _producer(self) -> Producer:
        return Producer(self.network, self.name("producer"), self.witness)

    def _member(self) -> Member:
        return Member(
            self.network, self.name("member"), self.rng.choice(self.groups), self.topic_names
        )

    def fate(self) -> str:
        """Draw the fate of a request."""
        faults = self.faults
        return self.rng.choices((GOOD, *faults), (100, *faults.values()))[0]

    @property
    def topics(self) -> list[Topic]:
        topics = self.machine.broker.catalog.topics
        return [topics[name] for name in self.topic_names if name in topics]

    @property
    def partitions(self) -> list[Partition]:
        return [
            (topic.topic_id, partition)
            for topic in self.topics
            for partition in range(topic.partitions)
        ]

    # The witness sees everything, and so does the trace

    def arrived(self, connection_id: int, request: Any) -> object:
        return self.witness.arrived(connection_id, request)

    def answered(
        self, connection_id: int, request: Any, foreseen: Any, answer: Any, frame: bytes
    ) -> None:
        self.course.sent(frame)
        self.witness.answered(connection_id, request, foreseen, answer, frame)

    def disconnected(self, connection_id: int) -> None:
        self.witness.disconnected(connection_id)

    # A step

    def run(self, steps: int) -> None:
        """Take this many steps."""
        self.course.run(self.rng, self.actions, steps, self.end_step)

    def end_step(self) -> None:
        """Let everything come to rest, and check it."""
        self.machine.loop.settle()
        if self.power.is_off:
            self.course.note("the power is off")
            self.restart()
        self.course.check_failures()
        self.witness.settled()

    def restart(self) -> None:
        """Start again with the files on the disk."""
        self.machine.kill()
        self.network.down()
        self.witness.power_cut()
        self.power.restore()
        self._start()

    def _start(self) -> None:
        self.machine.start()
        self.witness.counts["starts"] += 1
        self.witness.restarted()

    # What may happen

    def member_acts(self) -> str:
        rng = self.rng
        member = rng.choice(self.members)
        now_ms = self.machine.loop.now_ms
        if (
            member.next_heartbeat_ms <= now_ms
            and not member.heartbeats.is_waiting
            and rng.random() < 0.7
        ):
            member.heartbeat(now_ms, self.fate())
            return f"{member.name} of {member.group_id} says that it is there"
        if member.is_waiting:
            return f"{member.name} waits"
        dice = rng.random()
        if dice < 0.03:
            return f"{member.name} {member.close_session(rng, self.fate())}"
        if dice < 0.5 and member.held:
            return f"{member.name} {member.acknowledge(rng, self.fate())}"
        wait_ms = rng.choice((0, 0, 500))
        return (
            f"{member.name} "
            f"{member.fetch(rng, self.fate(), max_wait_ms=wait_ms, acknowledge=dice < 0.8)}"
        )

    def produce(self) -> str:
        producer = self.rng.choice(self.producers)
        if producer.is_waiting or not self.partitions or self._backlog() > MAX_BACKLOG:
            return "not now"
        return (
            f"{producer.name} "
            f"{producer.act(self.rng, self.partitions, self.fate, self.machine.loop.now_ms)}"
        )

    def _backlog(self) -> int:
        starts = (max(shelf.start_offset, 0) for shelf in self.witness.shelves.values())
        return sum(map(self.witness.end_offset, self.partitions)) * len(self.groups) - sum(starts)

    def wait(self) -> str:
        rng = self.rng
        some_ms = rng.choice(
            (1, 10, 100, 1000, self.session_ms, *(self.limits.lock_ms // n for n in (1, 2, 3)))
        )
        ms = rng.choice((some_ms, rng.randint(0, 50)))
        self.machine.loop.advance(ms)
        return f"{ms} ms"

    def describe(self) -> str:
        group_id = self.rng.choice(self.groups)
        self.admin.describe_offsets(
            group_id, [(topic.name, topic.partitions) for topic in self.topics]
        )
        return group_id

    def create_topic(self) -> str:
        missing = [
            name for name in self.topic_names if name not in self.machine.broker.catalog.topics
        ]
        if not missing:
            return "all are there"
        self.admin.create_topic(missing[0], self.rng.choice((1, 2, 4)))
        return missing[0]

    def delete_topic(self) -> str:
        if not self.topics:
            return "not now"
        topic = self.rng.choice(self.topics)
        self._risk(often=0.8)
        self.admin.delete_topic(topic.topic_id)
        return topic.name

    def grow_topic(self) -> str:
        growing = [topic for topic in self.topics if topic.partitions < 6]
        if not growing:
            return "enough"
        topic = self.rng.choice(growing)
        self.admin.grow_topic(topic.name, topic.partitions + 1)
        return f"{topic.name} to {topic.partitions + 1}"

    def delete_records(self) -> str:
        if not self.partitions:
            return "there are none"
        topic = self.rng.choice(self.topics)
        partition = self.rng.randrange(topic.partitions)
        where = (topic.topic_id, partition)
        start, end = self.witness.log_starts.get(where, 0), self.witness.end_offset(where)
        before = min(end, self.rng.choice((start, start + 5, end - 5, end)))
        if before <= start:
            return "nothing to delete"
        self.witness.log_starts[where] = before
        self.admin.delete_records(topic.name, partition, before)
        return f"{topic.name}-{partition} before {before}"

    def cut(self) -> str:
        """Break a connection."""
        if not self.network.wires:
            return "there is none"
        wire = self.rng.choice(self.network.wires)
        wire.cut()
        return wire.client_id

    def renew(self) -> str:
        """Have a member renew its records for longer than its locks would have lasted."""
        members = [member for member in self.members if member.held and not member.is_waiting]
        if not members:
            return "nobody holds anything"
        member = self.rng.choice(members)
        more_ms = self.limits.lock_ms * 3 // 5
        self.machine.loop.advance(more_ms)
        said = member.acknowledge_all(RENEW)
        self.machine.loop.advance(more_ms)
        return f"{member.name} {said}, {more_ms} ms after and before"

    def reject(self) -> str:
        """Have a member reject its records, and perhaps cut the power between the writes to the
        dead-letter queue and to the state of the records.
        """
        members = [member for member in self.members if member.held and not member.is_waiting]
        if not members:
            return "nobody holds anything"
        if self.rng.random() < 0.5 and not self.power.is_failing:
            self.power.cut_at(self.rng.choice((2, 3)), self.rng.choice((BEFORE, AFTER)))
        member = self.rng.choice(members)
        return f"{member.name} {member.acknowledge_all(REJECT)}"

    def leave(self) -> str:
        """Have a member leave; its session and its locks stay."""
        member = self.rng.choice(self.members)
        if member.heartbeats.is_waiting:
            return "not now"
        member.heartbeat(self.machine.loop.now_ms, self.fate(), leave=True)
        return member.name

    def reset_group(self) -> str:
        """Have the members of a group leave, and set, delete or forget its offsets; its sessions
        stay.
        """
        rng, group_id = self.rng, self.rng.choice(self.groups)
        if not self.topics or rng.random() < 0.5:
            return "not now"
        for member in self.members:
            if (
                member.group_id == group_id
                and member.member_epoch
                and not member.heartbeats.is_waiting
            ):
                member.heartbeat(self.machine.loop.now_ms, leave=True)
        topic = rng.choice(self.topics)
        starts = {
            partition: rng.randint(-1, self.witness.end_offset((topic.topic_id, partition)))
            for partition in range(topic.partitions)
            if rng.random() < 0.7
        }
        how = rng.choice(("alter", "delete", "forget"))
        resetting = [
            shelf for key, shelf in self.witness.shelves.items() if key.group_id == group_id
        ]
        if how != "forget":
            resetting = [shelf for shelf in resetting if shelf.key.topic_id == topic.topic_id]
        if how == "alter":
            resetting = [
                self.witness.shelf(SharePartitionKey(group_id, topic.topic_id, partition))
                for partition in starts
            ]
        for shelf in resetting:
            shelf.resetting = starts[shelf.key.partition] if how == "alter" else UNKNOWN
        self._risk()
        if how == "alter":
            answer = self.admin.alter_offsets(group_id, topic.name, starts)
        elif how == "delete":
            answer = self.admin.delete_offsets(group_id, topic.name)
        else:
            answer = self.admin.delete_group(group_id)
        if answer is None:
            return f"{how} {group_id} is not answered"
        code = ErrorCode(
            int(answer.results[0].error_code if how == "forget" else answer.error_code)
        )
        return f"{how} {group_id}, {topic.name} to {starts}: {code.name}"

    def vanish(self) -> str:
        """Replace a member, which is never heard of again, by a new one."""
        i = self.rng.randrange(len(self.members))
        gone, self.members[i] = self.members[i], self._member()
        return gone.name

    def kill(self) -> str:
        self.power.is_off = True
        return "now"

    def fail_soon(self) -> str:
        if self.power.is_failing:
            return "already"
        writes, how = self.rng.randint(1, 6), self.rng.choice((BEFORE, TORN, AFTER))
        self.power.cut_at(writes, how)
        return f"{how} write {writes} from now"

    def _risk(self, often: float = 0.5) -> None:
        """Choose a power cut for the next action, which writes in several places."""
        if self.rng.random() < often and not self.power.is_failing:
            self.power.cut_at(
                self.rng.choice((1, 1, 2, 3, 4)), self.rng.choice((BEFORE, TORN, AFTER, AFTER))
            )

    def stop_and_start(self) -> str:
        """Stop the broker and start it again."""
        if self.power.is_failing:
            return "not now"
        self.network.cut_all()
        self.machine.stop()
        self.network.down()
        self.witness.stopped()
        self._start()
        return "in order"
