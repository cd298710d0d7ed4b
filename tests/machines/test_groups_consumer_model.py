"""Consumer groups through thousands of random steps: no partition is ever read by two, all get to
their target.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.groups.classic.member import MemberIdentity
from headrace.groups.records import MemberState
from headrace.protocol.errors import ErrorCode, Refusal
from tests.machines.group_desk import Desk, durable

NAMES = st.sampled_from([["a"], ["a"], ["a", "b"], ["b", "c"], ["c"]])
REBALANCE_TIMEOUT_MS = 10_000
INSTANCES = {"s1": "one", "s2": "one", "t1": "two"}
"""Members that are static; the first two share an instance id."""


class Client:
    """A member as it sees itself: what it was told last, and what it reads.

    What is new it reads at once; what it shall not read any more it reads until it gives it up,
    which it says then.
    """

    def __init__(self, names, regex):
        self.names, self.regex = names, regex
        self.epoch = 0
        self.reads = {}  # by topic id
        self.told = {}  # its assignment as it was told last
        self.gave_up = False  # and has to say so
        self.missed = False  # an answer was lost: it says all anew, to be told all anew

    def hear(self, reply):
        self.epoch, self.missed = reply.member_epoch, False
        if reply.assigned is not None:
            self.told = {topic_id: set(numbers) for topic_id, numbers in reply.assigned.items()}
            self.reads = {
                t: self.reads.get(t, set()) | self.told.get(t, set())
                for t in {**self.reads, **self.told}
            }

    def give_up(self):
        """Stop reading what is not in the assignment."""
        self.reads, self.gave_up = {t: set(numbers) for t, numbers in self.told.items()}, True


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Members of one group, topics that come, grow and go, lost answers, crashes."""

    def __init__(self):
        super().__init__()
        self.desk = Desk(group_consumer_max_size=5)
        self.incarnation = 0
        self.clients = {}
        self.epochs = {}  # the highest of each kind so far
        self.desk.add_topic("a", 4)

    @property
    def group(self):
        return self.desk.coordinator.groups.get("c")

    @property
    def state(self):
        return self.group.state

    def beat(self, member_id, *, lost=False, names=None, full=False):
        """A heartbeat as a client sends it; ``lost``: it never sees the answer."""
        client = self.clients[member_id]
        full |= client.missed
        client.names = client.names if names is None else names
        reply = self.desk.consume(
            member_id,
            client.epoch,
            client.names if full else names,
            regex=client.regex if full else None,
            owned=self.owned(client) if full or client.gave_up else None,
            instance=INSTANCES.get(member_id),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if full else -1,
        )
        if isinstance(reply, Refusal):
            if reply.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.FENCED_INSTANCE_ID,
            ):
                del self.clients[member_id]  # it gives up everything and would join again
            return reply
        client.missed, client.gave_up = lost, False
        if not lost:
            client.hear(reply)
        self.no_partition_has_two_holders()
        self.no_partition_is_read_by_two()
        return reply

    def owned(self, client):
        """Return what the client says it holds: what it reads, of topics that it can name."""
        names = {topic.topic_id: name for name, topic in self.desk.topics.items()}
        return {names[t]: numbers for t, numbers in client.reads.items() if t in names and numbers}

    @rule(
        member_id=st.sampled_from(["m", "n", "o", "p", *INSTANCES]),
        names=NAMES,
        interval=st.sampled_from([0, 1_000]),
        assignor=st.sampled_from([None, "range"]),
        regex=st.sampled_from([None, None, "a|b", "[bc]"]),
    )
    def join(self, member_id, names, interval, assignor, regex):
        self.desk.config.values["consumer.assignment.interval.ms"] = interval
        full = self.group and len(self.state.members) >= 5 and member_id not in self.state.members
        instance_id = INSTANCES.get(member_id)
        owner = self.state.static_members.get(instance_id) if self.group else None
        here = owner is not None and self.state.current[owner].member_epoch != -2
        names = [] if regex else names
        self.clients[member_id] = client = Client(names, regex or "")
        reply = self.desk.consume(
            member_id,
            0,
            names,
            regex=regex or "",
            instance=instance_id,
            assignor=assignor,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )
        if isinstance(reply, Refusal):
            assert reply.code == (
                ErrorCode.GROUP_MAX_SIZE_REACHED if full else ErrorCode.UNRELEASED_INSTANCE_ID
            )
            assert full or here
            del self.clients[member_id]
            return
        assert reply.assigned is not None
        assert not here
        if owner is not None and owner != member_id:
            self.clients.pop(owner, None)
        client.hear(reply)

    @initialize(count=st.integers(1, 4))
    def begin(self, count):
        for member_id in "mnop"[:count]:
            self.join(member_id, ["a"], 0, None, None)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(beats=st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=3, max_size=10))
    def some_heartbeats(self, beats):
        """One after the other; some of the clients give up what they shall, others have not come to
        it yet.
        """
        for number, gives_up in beats:
            if not self.clients:
                return
            member_id = sorted(self.clients)[number % len(self.clients)]
            if gives_up:
                self.clients[member_id].give_up()
            self.beat(member_id)

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        lost=st.sampled_from([False, False, True]),
        names=st.none() | NAMES,
        full=st.booleans(),
    )
    def heartbeat(self, data, lost, names, full):
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        self.beat(member_id, lost=lost, names=names, full=full)

    @precondition(lambda self: self.clients and self.group)
    @rule(data=st.data(), gives_up=st.booleans())
    def an_epoch_of_long_ago_is_fenced(self, data, gives_up):
        """But for the one before the present, whose answer may have been lost, of who holds nothing
        that it lost.
        """
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        current = self.state.current.get(member_id)
        if current is None or current.member_epoch < 3:
            return
        epoch = data.draw(st.integers(1, current.member_epoch - 1))
        owned = {} if gives_up else self.owned(self.clients[member_id])
        if epoch == current.previous_member_epoch:
            lost = {(t, p) for t, numbers in self.clients[member_id].reads.items() for p in numbers}
            lost -= {(t, p) for t, numbers in current.assigned.items() for p in numbers}
            if gives_up or not lost:
                return
        reply = self.desk.consume(member_id, epoch, owned=owned, instance=INSTANCES.get(member_id))
        assert isinstance(reply, Refusal)
        assert reply.code == ErrorCode.FENCED_MEMBER_EPOCH
        assert self.state.current[member_id] == current

    @precondition(lambda self: self.clients and self.group)
    @rule(restarts=st.booleans())
    def who_gives_nothing_up_goes(self, restarts):
        """It says that it is alive, but after its rebalance timeout it is out; a restart gives it
        as long again.
        """
        asked = [one for one in sorted(self.clients) if self.shall_give_up(one)]
        if not asked:
            return
        if restarts:
            self.desk.pass_ms(REBALANCE_TIMEOUT_MS // 2)
            self.desk.restart()
        for _ in range(REBALANCE_TIMEOUT_MS // 1_000):
            self.lose_the_fenced()
            if not self.shall_give_up(asked[0]):
                return  # its topic is gone, or it is
            self.beat(asked[0])
            self.desk.pass_ms(1_000)
        self.lose_the_fenced()
        assert not self.shall_give_up(asked[0]), "it is still waited for"

    def shall_give_up(self, member_id):
        current = self.state.current.get(member_id)
        return (
            member_id in self.clients
            and current is not None
            and current.state is MemberState.UNREVOKED
        )

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def take_over(self, data):
        """A client does what it was told, and reports it with its next heartbeat."""
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        self.clients[member_id].give_up()
        self.beat(member_id, full=True)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data(), away=st.booleans())
    def leave(self, data, away):
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        instance_id = INSTANCES.get(member_id)
        del self.clients[member_id]
        epoch = -2 if away and instance_id else -1
        reply = self.desk.consume(member_id, epoch, instance=instance_id)
        if not isinstance(reply, Refusal) and epoch == -1:
            assert member_id not in self.state.members

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), back=st.sampled_from([0, 0, 1, -1]))
    def commit(self, data, back):
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        topic = data.draw(
            st.sampled_from(sorted(self.desk.topics.values(), key=lambda topic: topic.name))
        )
        current = self.state.current.get(member_id)
        epoch = (current.member_epoch if current else 1) - back
        commits = [(topic.name, topic.topic_id, 0, 1)]
        (code,) = self.desk.commit_all(commits, MemberIdentity(member_id), epoch, group="c")
        if current is None:
            assert code == ErrorCode.UNKNOWN_MEMBER_ID
        elif back <= 0:
            assert code == (ErrorCode.STALE_MEMBER_EPOCH if back else ErrorCode.NONE)
        elif not code:
            held = {
                **current.assigned.get(topic.topic_id, {}),
                **current.pending_revocation.get(topic.topic_id, {}),
            }
            assert held[0] <= epoch

    @rule(name=st.sampled_from("abc"), partitions=st.integers(1, 6))
    def create_or_grow(self, name, partitions):
        topic = self.desk.topics.get(name)
        if topic is None:
            self.incarnation += 1
            self.desk.add_topic(name, partitions, self.incarnation)
        elif partitions > topic.partitions:
            self.desk.add_topic(name, partitions, topic.incarnation)

    @precondition(lambda self: len(self.desk.topics) > 1)
    @rule(data=st.data())
    def delete_topic(self, data):
        topic = self.desk.topics[data.draw(st.sampled_from(sorted(self.desk.topics)))]
        self.desk.delete_topic(topic.name)
        for client in self.clients.values():
            for held in (client.reads, client.told):
                held.pop(topic.topic_id, None)

    @rule(
        duration_ms=st.sampled_from([500, 1_000, 1_000, 9_999, 10_000, 45_000]),
        is_full=st.sampled_from([False, False, True]),
    )
    def pass_ms(self, duration_ms, is_full):
        self.desk.is_full = is_full
        self.desk.pass_ms(duration_ms)
        self.desk.is_full = False
        self.lose_the_fenced()

    def lose_the_fenced(self):
        """A client that the group has removed stops by itself: its own session is over too."""
        known = self.state.members if self.group else {}
        self.clients = {
            member_id: client for member_id, client in self.clients.items() if member_id in known
        }

    @precondition(lambda self: self.clients and self.group)
    @rule(data=st.data(), names=NAMES, what=st.sampled_from(["join", "beat", "leave", "wait"]))
    def nothing_happens_on_a_full_disk(self, data, names, what):
        member_id = data.draw(st.sampled_from(sorted(self.clients)))
        client, instance = self.clients[member_id], INSTANCES.get(member_id)
        with self.desk.full_disk():
            if what == "join":
                self.desk.consume("late", 0, names, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS)
            elif what == "beat":
                self.desk.consume(member_id, client.epoch, names, instance=instance)
            elif what == "leave":
                self.desk.consume(member_id, -1, instance=instance)
            else:
                self.desk.pass_ms(1_000)

    @rule()
    def restart(self):
        self.desk.restart()

    @precondition(lambda self: self.group and not self.state.members)
    @rule()
    def delete_group(self):
        self.desk.submit(self.desk.coordinator.delete("c"))
        assert self.group is None
        self.epochs.clear()

    @precondition(lambda self: self.clients and self.group)
    @rule()
    def after_some_heartbeats_everybody_has_its_target(self):
        self.desk.config.values["consumer.assignment.interval.ms"] = 0
        for _ in range(6):
            # Silent members go, also those that are fenced here, having lost several answers.
            for member_id in set(self.state.members) - set(self.clients):
                self.desk.consume(member_id, -1, instance=INSTANCES.get(member_id))
            for member_id in sorted(self.clients):
                if isinstance(self.beat(member_id, full=True), Refusal):
                    continue
                self.clients[member_id].give_up()
                self.beat(member_id, full=True)
        if not self.clients:
            return
        assert self.group.state_name == "Stable"
        topics = self.desk.topics
        subscribed = {member_id: self.subscription(member_id) for member_id in self.state.members}
        wanted = set().union(*subscribed.values())
        expected = {
            (topics[name].topic_id, p) for name in wanted for p in range(topics[name].partitions)
        }
        assert set(self.holders()) == expected
        for member_id, assignment in self.state.target.items():
            current = self.state.current[member_id].assigned
            assert {t: set(numbers) for t, numbers in current.items()} == {
                t: set(n) for t, n in assignment.items()
            }
            assert set(self.desk.by_name(assignment)) <= subscribed[member_id]
            assert self.clients[member_id].reads == {
                t: set(numbers) for t, numbers in assignment.items()
            }
        epoch = self.state.epoch
        for member_id in sorted(self.clients):
            assert self.beat(member_id).assigned is None
        assert self.state.epoch == epoch

    def subscription(self, member_id):
        member = self.state.members[member_id]
        regex = member.subscribed_topic_regex
        names = {"a|b": "ab", "[bc]": "bc", "": ""}[regex]
        return {
            name for name in (*member.subscribed_topic_names, *names) if name in self.desk.topics
        }

    def holders(self):
        """(topic id, partition) → the members that hold it."""
        found = {}
        for member_id, current in self.state.current.items():
            for held in (current.assigned, current.pending_revocation):
                for topic_id, numbers in held.items():
                    for number in numbers:
                        found.setdefault((topic_id, number), []).append(member_id)
        return found

    @invariant()
    def replay_equals_live(self):
        assert durable(self.desk.restarted()) == durable(self.desk.coordinator)

    @invariant()
    def no_partition_has_two_holders(self):
        if self.group:
            assert all(len(members) == 1 for members in self.holders().values())

    @invariant()
    def no_partition_is_read_by_two(self):
        readers = [
            (t, p)
            for client in self.clients.values()
            for t, numbers in client.reads.items()
            for p in numbers
        ]
        assert len(readers) == len(set(readers))

    @invariant()
    def epochs_are_in_order(self):
        if not self.group:
            return
        assert self.state.epoch >= self.state.target_epoch.epoch
        assert self.state.members.keys() == self.state.current.keys()
        assert self.state.target.keys() <= self.state.members.keys()
        for current in self.state.current.values():
            assert -2 <= current.member_epoch <= self.state.target_epoch.epoch
            assert bool(current.pending_revocation) == (current.state is MemberState.UNREVOKED) or (
                current.member_epoch == -2
            )

    @invariant()
    def epochs_never_go_back(self):
        now = (
            {"group": self.state.epoch, "target": self.state.target_epoch.epoch}
            if self.group
            else {}
        )
        assert all(now.get(kind, epoch) >= epoch for kind, epoch in self.epochs.items())
        self.epochs |= now

    @invariant()
    def nobody_is_waited_for_for_ever(self):
        if self.group and self.state.members:
            assert self.desk.awaits_someone


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
