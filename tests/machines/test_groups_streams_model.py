"""Random lives of streams groups: no task runs twice, all tasks run in the end, and a restart
changes nothing.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.groups.records import CopartitionGroup, InternalTopic, Subtopology, Topology
from headrace.protocol.errors import Refusal
from tests.machines.group_desk import Desk, durable

TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("t",), repartition_sink_topics=("r",)),
        Subtopology(
            "1",
            ("u",),
            state_changelog_topics=(InternalTopic("c", 0, 0),),
            repartition_source_topics=(InternalTopic("r", 0, 0),),
            copartition_groups=(CopartitionGroup((0,), (), (0,)),),
        ),
    ),
)
GROUP = "a"
STEPS = 60
ROUNDS = 12


class Life:
    """A group and its members, each of which reports what it was told to run."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.desk = rng, Desk()
        self.desk.config.values["streams.num.standby.replicas"] = rng.choice([0, 1, 2])
        self.epochs: dict[str, int] = {}
        self.held: dict[str, tuple[dict, dict]] = {}
        for name, partitions in (("t", 3), ("u", 2)):
            self.desk.add_topic(name, partitions)

    @property
    def group(self):
        return self.desk.coordinator.groups.get(GROUP)

    def beat(self, member_id: str) -> None:
        if member_id not in self.epochs:
            process = self.rng.choice("xyz")
            reply = self.desk.run(member_id, 0, TOPOLOGY, process=process)
        else:
            tells = self.rng.random() < 0.7
            reply = self.desk.run(
                member_id, self.epochs[member_id], owned=self.held[member_id] if tells else None
            )
        if isinstance(reply, Refusal):
            self.forget(member_id)
            return
        self.epochs[member_id] = reply.member_epoch
        if reply.assigned is not None:
            self.held[member_id] = tuple(
                {id_: tuple(epochs) for id_, epochs in tasks.items()}
                for tasks in (reply.assigned.active, reply.assigned.standby)
            )
        for topic in reply.missing_topics:
            self.desk.add_topic(topic.name, topic.partitions)

    def forget(self, member_id: str) -> None:
        self.epochs.pop(member_id, None)
        self.held.pop(member_id, None)

    def step(self) -> None:
        rng, member_id = self.rng, self.rng.choice("mnopq")
        dice = rng.random()
        if dice < 0.75:
            self.beat(member_id)
        elif dice < 0.85 and member_id in self.epochs:
            self.desk.run(member_id, -1)
            self.forget(member_id)
        elif dice < 0.9:
            self.desk.pass_ms(rng.choice([100, 5_000, 20_000]))
        elif dice < 0.93:
            replicas = rng.choice([0, 1, 2])
            self.desk.config.values["streams.num.standby.replicas"] = replicas
        elif dice < 0.96:
            self.desk.restart()
        else:
            self.desk.full_disk()

    def check(self) -> None:
        """No task is active on two members, no process has a task on two members, and no member has
        a task in two roles, unless it closes it in one of them.
        """
        if self.group is None:
            return
        state = self.group.state
        active, on_process, in_role = Counter(), Counter(), Counter()
        for member_id, current in state.current.items():
            process = state.members[member_id].process_id
            tasks = set()
            for held in (current.assigned, current.pending_revocation):
                active.update(_each(held.active))
                tasks.update(_each(held.active), _each(held.standby))
            on_process.update((process, *task) for task in tasks)
            assigned = current.assigned
            roles = (*_each(assigned.active), *_each(assigned.standby))
            in_role.update((member_id, *task) for task in roles)
        counts = (*active.values(), *on_process.values(), *in_role.values())
        assert all(count == 1 for count in counts)

    def settle(self) -> None:
        for _ in range(ROUNDS):
            for member_id in sorted(self.epochs):
                self.beat(member_id)
        if not self.epochs:
            return
        for member_id in sorted(self.epochs):
            self.desk.run(member_id, self.epochs[member_id], owned=self.held[member_id])
            self.beat(member_id)


def _each(tasks):
    return [(id_, n) for id_, partitions in tasks.items() for n in partitions]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_random_lives(seed):
    life = Life(Random(seed))
    for _ in range(STEPS):
        life.step()
        life.check()
        assert durable(life.desk.restarted()) == durable(life.desk.coordinator)
    life.beat("m")
    life.settle()
    if life.epochs and life.group.state.members.keys() == life.epochs.keys():
        active = Counter(
            (id_, n) for held, _ in life.held.values() for id_, ns in held.items() for n in ns
        )
        assert active == Counter((id_, n) for id_ in "01" for n in range(3 if id_ == "0" else 2))
        assert life.group.state_name == "Stable"
    for other in life.desk.restarted_from_compacted():
        assert durable(other) == durable(life.desk.coordinator)
