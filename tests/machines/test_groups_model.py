"""Groups through thousands of random steps: no request is lost, no group gets stuck, and replay
equals live.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.groups.classic.member import JoinReply, MemberIdentity, SyncReply
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from tests.machines.group_desk import Desk, durable

PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")])
INSTANCES = st.sampled_from([None, None, "one", "two"])


class ClassicGroupMachine(RuleBasedStateMachine):
    """Clients of one classic group that do what they like, in any order."""

    def __init__(self):
        super().__init__()
        self.desk = Desk(
            group_initial_rebalance_delay_ms=1_000,
            group_max_size=4,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=30_000,
        )
        self.desk.coordinator.loaded(self.desk.now_ms)
        self.waiting = set()
        self.leaders = {}
        self.seen = 0
        self.syncs = {}  # ticket → member and generation of those that may be answered well
        self.before = ("", -1)  # state and generation one step ago

    @property
    def group(self):
        return self.desk.coordinator.groups.get("g")

    def known_ids(self):
        return sorted(self.group.members.by_id) if self.group else []

    def pick(self, data):
        ids = [*self.known_ids(), *self.known_ids(), "stranger"]
        member_id = data.draw(st.sampled_from(ids))
        member = self.group.members.by_id.get(member_id) if self.group else None
        return member_id, member.group_instance_id if member else None

    @rule(
        protocols=PROTOCOLS,
        instance=INSTANCES,
        version=st.sampled_from([3, 8, 9]),
        delay=st.sampled_from([0, 1_000]),
    )
    def join_anew(self, protocols, instance, version, delay):
        self.desk.config.values["group.initial.rebalance.delay.ms"] = delay
        ticket = self.desk.join(
            protocols=protocols, instance=instance, version=version, rebalance_timeout_ms=20_000
        )
        self.waiting.add(ticket)
        answer = self.desk.answer(ticket)
        if answer and answer.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.waiting.add(
                self.desk.join(answer.member_id, protocols=protocols, rebalance_timeout_ms=20_000)
            )

    def gather(self, count, synced):
        """Several members come, and join once more until all are in one generation."""
        for _ in range(count):
            self.join_anew(("range", "sticky"), None, 8, 0)
        self.all_join()
        if synced:
            self.all_sync()

    @initialize(count=st.integers(0, 3), synced=st.booleans())
    def begin(self, count, synced):
        self.gather(count, synced)

    @rule(count=st.integers(1, 2), synced=st.booleans())
    def more_come(self, count, synced):
        self.gather(count, synced)

    @rule(protocols=PROTOCOLS, data=st.data())
    def join_again(self, protocols, data):
        member_id, instance = self.pick(data)
        self.waiting.add(
            self.desk.join(
                member_id, protocols=protocols, instance=instance, rebalance_timeout_ms=20_000
            )
        )

    @rule()
    def all_join(self):
        for member_id in self.known_ids():
            member = self.group.members.by_id[member_id]
            if self.group.state_name == "PreparingRebalance" and member.join_ticket is None:
                instance = member.group_instance_id
                self.waiting.add(
                    self.desk.join(member_id, instance=instance, rebalance_timeout_ms=20_000)
                )

    def ask_for_assignment(self, member_id, instance, off=0):
        generation_id = (self.group.members.generation_id if self.group else 1) + off
        given = [(m, f"for {m} in {generation_id}".encode()) for m in self.known_ids()]
        ticket = self.desk.sync(member_id, generation_id, given, instance=instance)
        self.waiting.add(ticket)
        if off:
            assert self.desk.answer(ticket).code in (
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        elif instance is None:
            # static members may get what was meant for the id that they had before
            self.syncs[ticket] = f"for {member_id} in {generation_id}".encode()

    @rule(data=st.data(), off=st.sampled_from([0, 0, 1, -1]))
    def sync(self, data, off):
        self.ask_for_assignment(*self.pick(data), off)

    @rule()
    def all_sync(self):
        for member_id in self.known_ids():
            member = self.group.members.by_id[member_id]
            if member.sync_ticket is None:
                self.ask_for_assignment(member_id, member.group_instance_id)

    @rule(data=st.data())
    def leave(self, data):
        self.desk.leave(self.pick(data))

    @rule(data=st.data(), off=st.sampled_from([0, 0, 1, -1]))
    def heartbeat(self, data, off):
        member_id, instance = self.pick(data)
        generation_id = self.group.members.generation_id if self.group else 1
        code = self.desk.heartbeat(member_id, generation_id + off, instance=instance)
        if member_id not in self.known_ids():
            assert code == ErrorCode.UNKNOWN_MEMBER_ID
        elif off:
            assert code == ErrorCode.ILLEGAL_GENERATION
        else:
            preparing = self.group.state_name == "PreparingRebalance"
            assert code == (ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE)

    @rule(
        data=st.data(),
        offset=st.integers(0, 9),
        partition=st.integers(0, 2),
        off=st.sampled_from([None, 0, 0, 1]),
    )
    def commit(self, data, offset, partition, off):
        member_id, instance = self.pick(data)
        generation_id = (
            -1 if off is None or self.group is None else self.group.members.generation_id + off
        )
        state, known = self.group and self.group.state_name, member_id in self.known_ids()
        (code,) = self.commit_one(member_id, instance, generation_id, offset, partition)
        if state and known and off is not None:
            expected = (
                ErrorCode.REBALANCE_IN_PROGRESS
                if state == "CompletingRebalance"
                else ErrorCode.NONE
            )
            assert code == (ErrorCode.ILLEGAL_GENERATION if off else expected)
        elif self.known_ids():
            assert code != ErrorCode.NONE

    def commit_one(self, member_id, instance, generation_id, offset=0, partition=0):
        identity = MemberIdentity(member_id, instance)
        return self.desk.commit_all([("t", None, partition, offset)], identity, generation_id)

    @rule()
    def who_has_the_instance_id_of_another_is_fenced(self):
        for member in self.group.members.all() if self.group else ():
            if member.group_instance_id is not None:
                instance, generation_id = member.group_instance_id, self.group.members.generation_id
                fenced = ErrorCode.FENCED_INSTANCE_ID
                assert self.desk.heartbeat("stranger", generation_id, instance=instance) == fenced
                assert (
                    self.desk.answer(
                        self.desk.sync("stranger", generation_id, instance=instance)
                    ).code
                    == fenced
                )
                assert self.commit_one("stranger", instance, generation_id) == (fenced,)

    @rule()
    def who_is_alive_but_never_syncs_goes(self):
        if self.group is None or self.group.state_name != "CompletingRebalance":
            return
        generation_id = self.group.members.generation_id
        late = {
            member.member_id for member in self.group.members.all() if member.sync_ticket is None
        }
        for _ in range(20):
            for member in self.group.members.all() if self.group else ():
                self.desk.heartbeat(
                    member.member_id, generation_id, instance=member.group_instance_id
                )
            self.desk.pass_ms(1_000)
        assert not late & set(self.known_ids())

    @rule()
    def nobody_is_left_after_a_long_silence(self):
        self.desk.pass_ms(1_000_000)
        assert not self.known_ids()
        assert self.waiting <= self.desk.answers.keys()

    @rule(
        data=st.data(),
        what=st.sampled_from(["join", "join again", "sync", "leave", "commit", "delete", "wait"]),
    )
    def nothing_happens_on_a_full_disk(self, data, what):
        member_id, instance = self.pick(data)
        generation_id = self.group.members.generation_id if self.group else 1
        with self.desk.full_disk():
            if what == "join":
                self.waiting.add(self.desk.join(version=3, rebalance_timeout_ms=20_000))
            elif what == "join again":
                again = self.desk.join(member_id, instance=instance, rebalance_timeout_ms=20_000)
                self.waiting.add(again)
            elif what == "sync":
                given = [(m, b"lost") for m in self.known_ids()]
                self.waiting.add(self.desk.sync(member_id, generation_id, given, instance=instance))
            elif what == "leave":
                self.desk.leave((member_id, instance))
            elif what == "commit":
                self.commit_one(member_id, instance, generation_id)
            elif what == "delete":
                self.desk.submit(self.desk.coordinator.delete("g"))
            else:
                self.desk.pass_ms(10_000)

    @rule(partition=st.integers(0, 2))
    def delete_offset(self, partition):
        codes = self.desk.delete_committed(("t", partition))
        if self.group is None:
            assert codes == ErrorCode.GROUP_ID_NOT_FOUND
        elif self.group.state_name == "Empty":
            assert codes == (ErrorCode.NONE,)
        elif self.group.state_name != "PreparingRebalance":
            # nobody understands the members' metadata
            assert codes == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)

    @rule(
        duration_ms=st.sampled_from([1, 1_000, 9_999, 10_000, 20_000, 300_000]),
        is_full=st.sampled_from([False, False, True]),
    )
    def pass_ms(self, duration_ms, is_full):
        self.desk.is_full = is_full
        self.desk.pass_ms(duration_ms)
        self.desk.is_full = False

    @rule(hours=st.sampled_from([-1, 0, 1]))
    def somebody_sets_the_clock(self, hours):
        self.desk.wall_ahead_ms = hours * 3_600_000

    @rule()
    def delete(self):
        self.desk.submit(self.desk.coordinator.delete("g"))

    @rule()
    def restart(self):
        self.desk.restart()
        self.waiting.clear()  # connections are gone
        self.leaders.clear()
        self.before = ("", -1)

    @invariant()
    def replay_equals_live(self):
        live, replayed = durable(self.desk.coordinator), durable(self.desk.restarted())
        assert replayed == live
        for compacted in self.desk.restarted_from_compacted():
            assert durable(compacted) == live

    @invariant()
    def every_request_is_answered_or_waits_with_its_member(self):
        parked = set()
        if self.group:
            for member in self.group.members.by_id.values():
                parked |= {member.join_ticket, member.sync_ticket} - {None}
        self.waiting -= self.desk.answers.keys()
        assert self.waiting <= parked
        for ticket in parked - self.waiting:  # told of a full disk: it asks again
            assert isinstance(self.desk.answer(ticket), StorageError)

    @invariant()
    def the_state_fits_the_members(self):
        if self.group is None:
            return
        members, state = self.group.members.by_id, self.group.state_name
        assert not (state == "Empty" and members)
        assert members or state in ("Empty", "PreparingRebalance")
        assert (self.group.members.leader in members) == bool(members)
        if state == "Stable":
            assert {m.member_id for m in self.group.recorded.members} == set(members)
            assert not any(m.join_ticket or m.sync_ticket for m in members.values())
        if state in ("Stable", "CompletingRebalance"):
            assert self.group.members.protocol is not None
        instances = [m.group_instance_id for m in members.values() if m.group_instance_id]
        assert len(instances) == len(set(instances))

    @invariant()
    def nothing_waits_for_ever(self):
        if self.group and (self.group.state_name != "Empty" or self.group.members.pending):
            assert self.desk.awaits_someone

    @invariant()
    def a_generation_has_one_leader(self):
        new, self.seen = list(self.desk.answers.values())[self.seen :], len(self.desk.answers)
        for reply in new:
            if isinstance(reply, JoinReply) and reply.code == ErrorCode.NONE and reply.members:
                if not reply.skip_assignment:
                    assert reply.leader == reply.member_id
                assert {m.member_id for m in reply.members} >= {reply.member_id}
            if isinstance(reply, SyncReply) and reply.code == ErrorCode.NONE:
                assert reply.protocol in ("range", "sticky")
        for ticket in self.syncs.keys() & self.desk.answers.keys():
            expected, reply = self.syncs.pop(ticket), self.desk.answers[ticket]
            if isinstance(reply, SyncReply) and reply.code == ErrorCode.NONE:
                assert reply.assignment == expected

    @invariant()
    def each_generation_has_a_number_of_its_own(self):
        now = (self.group.state_name, self.group.members.generation_id) if self.group else ("", -1)
        (state, generation_id), self.before = self.before, now
        if now[0]:
            assert now[1] >= generation_id
            if now[0] == "CompletingRebalance" and state != now[0]:
                assert now[1] > generation_id


LINES = st.sampled_from([0, 1, 2, 3, 3, 3])
"""After which line of a change of share state it fails; after the third it is done."""


class ShareGroupMachine(RuleBasedStateMachine):
    """Members of one share group, topics that come, grow and go, administrators, crashes."""

    def __init__(self):
        super().__init__()
        self.desk = Desk(group_share_max_size=4)
        self.incarnation = 0
        self.names = {}  # of all topics that ever were, by id
        self.seen = {}  # the highest epochs so far
        self.add_topic("a", 2)

    @property
    def group(self):
        return self.desk.coordinator.groups.get("s")

    def add_topic(self, name, partitions, incarnation=0):
        self.names[self.desk.add_topic(name, partitions, incarnation).topic_id] = name

    @rule(
        member_id=st.sampled_from("mnopq"),
        names=st.lists(st.sampled_from("abc"), min_size=1, unique=True),
        interval=st.sampled_from([0, 0, 1_000]),
    )
    def join(self, member_id, names, interval):
        self.desk.config.values["share.assignment.interval.ms"] = interval
        full = (
            self.group is not None
            and len(self.group.state.members) >= 4
            and member_id not in self.group.state.members
        )
        reply = self.desk.beat(member_id, 0, names)
        assert isinstance(reply, Refusal) == full
        assert full or reply.assigned is not None

    @precondition(lambda self: self.group)
    @rule(
        member_id=st.sampled_from("mnopq"),
        back=st.sampled_from([0, 0, 0, 1]),
        names=st.none() | st.just(["a", "c"]),
    )
    def beat(self, member_id, back, names):
        known = self.group.state.current.get(member_id)
        before = known and known.assigned
        reply = self.desk.beat(member_id, max(known.member_epoch - back, 1) if known else 1, names)
        if isinstance(reply, Refusal):
            assert known is None or back
            return
        now = self.group.state.current[member_id]
        assert reply.member_epoch == now.member_epoch
        assert reply.assigned == (
            now.assigned if names is not None or now.assigned != before else None
        )

    @precondition(lambda self: self.group)
    @rule(member_id=st.sampled_from("mnopq"))
    def leave(self, member_id):
        self.desk.beat(member_id, -1)
        assert member_id not in self.group.state.members
        self.seen.pop(member_id, None)

    @rule(name=st.sampled_from("abc"), partitions=st.integers(1, 6))
    def create_or_grow(self, name, partitions):
        topic = self.desk.topics.get(name)
        if topic is None:
            self.incarnation += 1
            self.add_topic(name, partitions, self.incarnation)
        elif partitions > topic.partitions:
            self.add_topic(name, partitions, topic.incarnation)

    @rule(name=st.sampled_from("abc"))
    def delete_topic(self, name):
        if name in self.desk.topics:
            self.desk.delete_topic(name)

    @rule(name=st.sampled_from("abc"), start=st.integers(-1, 9), lines=LINES, crash=st.booleans())
    def alter_offsets(self, name, start, lines, crash):
        topic = self.desk.topics.get(name)
        if topic is None:
            return
        found = self.desk.alter(
            {name: dict.fromkeys(range(0, topic.partitions, 2), start)}, lines=lines
        )
        assert isinstance(found, Refusal) == bool(self.group and self.group.state.members)
        if lines < 3 and crash:
            self.restart()
        elif lines > 1 and not isinstance(found, Refusal):
            assert self.desk.share_state["s", topic.topic_id, 0] == start

    @rule(names=st.lists(st.sampled_from("abc"), unique=True), lines=LINES, crash=st.booleans())
    def delete_offsets(self, names, lines, crash):
        found = self.desk.delete_offsets(names, lines=lines)
        if lines < 3 and crash:
            self.restart()
        if (lines > 1 or (lines == 1 and crash)) and not isinstance(found, Refusal):
            gone = {self.desk.topics[name].topic_id for name in names if name in self.desk.topics}
            assert not gone & {topic_id for _, topic_id, _ in self.desk.share_state}
            assert not gone & self.group.stateful().keys()

    @precondition(lambda self: self.group and not self.group.state.members)
    @rule()
    def delete_group(self):
        self.desk.delete_offsets({self.names[topic_id] for topic_id in self.group.topic_ids()})
        self.desk.submit(self.desk.coordinator.delete("s"))
        assert self.group is None
        assert not self.desk.share_state
        self.seen.clear()

    @rule(
        member_id=st.sampled_from("mnopq"),
        names=st.lists(st.sampled_from("abc"), min_size=1, unique=True),
        what=st.sampled_from(["join", "beat", "leave", "wait"]),
    )
    def nothing_happens_on_a_full_disk(self, member_id, names, what):
        known = self.group.state.current.get(member_id) if self.group else None
        with self.desk.full_disk():
            if what == "join":
                self.desk.beat(member_id, 0, names)
            elif what == "beat" and known:
                self.desk.beat(member_id, known.member_epoch, names)
            elif what == "leave" and known:
                self.desk.beat(member_id, -1)
            elif what == "wait":
                self.desk.pass_ms(30_000)

    @rule(works=st.booleans())
    def break_or_mend_the_state(self, works):
        self.desk.state_works = works

    @rule(
        duration_ms=st.sampled_from([500, 1_000, 30_000, 45_000]),
        is_full=st.sampled_from([False, False, True]),
    )
    def pass_ms(self, duration_ms, is_full):
        self.desk.is_full = is_full
        self.desk.pass_ms(duration_ms)
        self.desk.is_full = False

    @rule()
    def restart(self):
        before = self.group.state.partitions.initialized if self.group else {}
        self.desk.restart()
        if self.group:
            after = self.group.state.partitions
            assert not after.initializing
            assert not after.deleting
            for topic_id, topic in before.items():
                assert set(topic.partitions) <= set(after.initialized[topic_id].partitions)

    @precondition(lambda self: self.group and self.group.state.members)
    @rule()
    def after_some_heartbeats_everything_is_shared(self):
        self.desk.config.values["share.assignment.interval.ms"] = 0
        self.desk.state_works = True
        for _ in range(2):
            for member_id in self.group.state.members:
                self.desk.beat(member_id, self.group.state.current[member_id].member_epoch)
        epoch = self.group.state.epoch
        wanted = {
            name
            for member in self.group.state.members.values()
            for name in member.subscribed_topic_names
        }
        expected = {
            (t.topic_id, p)
            for t in self.desk.topics.values()
            if t.name in wanted
            for p in range(t.partitions)
        }
        assigned = {
            (topic_id, partition)
            for current in self.group.state.current.values()
            for topic_id, partitions in current.assigned.items()
            for partition in partitions
        }
        assert assigned == expected
        for member_id, current in self.group.state.current.items():
            assert self.desk.beat(member_id, current.member_epoch).assigned is None
        assert self.group.state.epoch == epoch

    @invariant()
    def replay_equals_live(self):
        assert durable(self.desk.restarted()) == durable(self.desk.coordinator)
        for compacted in self.desk.restarted_from_compacted():
            assert durable(compacted) == durable(self.desk.coordinator)

    @invariant()
    def who_has_a_partition_is_subscribed_to_it(self):
        for member_id, current in self.group.state.current.items() if self.group else ():
            topics = {self.names[topic_id] for topic_id in current.assigned}
            assert topics <= set(self.group.state.members[member_id].subscribed_topic_names)

    @invariant()
    def what_is_ready_has_state(self):
        if self.group:
            initialized = self.group.state.partitions.initialized
            ready = {
                ("s", topic_id, p)
                for topic_id, topic in initialized.items()
                for p in topic.partitions
            }
            assert ready <= self.desk.share_state.keys()

    @invariant()
    def epochs_are_in_order(self):
        if self.group:
            assert self.group.state.epoch >= self.group.state.target_epoch.epoch
            assert all(
                c.member_epoch <= self.group.state.target_epoch.epoch
                for c in self.group.state.current.values()
            )
            assert self.group.state.members.keys() == self.group.state.current.keys()
            assert self.group.state.target.keys() <= self.group.state.members.keys()

    @invariant()
    def epochs_never_go_back(self):
        if self.group is None:
            return
        now = {
            "the group": self.group.state.epoch,
            "the assignment": self.group.state.target_epoch.epoch,
        }
        now |= {
            member_id: current.member_epoch
            for member_id, current in self.group.state.current.items()
        }
        assert all(epoch >= self.seen.get(name, 0) for name, epoch in now.items())
        self.seen = now

    @invariant()
    def every_member_has_a_deadline(self):
        assert bool(self.group and self.group.state.members) == self.desk.awaits_someone


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestShareGroup = ShareGroupMachine.TestCase
TestShareGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
