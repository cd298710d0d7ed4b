"""The coordinators of groups with their runtime, over a log in memory and a clock moved by hand."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from uuid import UUID, uuid5

from headrace.coordinators import startup
from headrace.coordinators.clock import Clock
from headrace.coordinators.coordinators import Coordinators, load
from headrace.coordinators.environment import Environment
from headrace.coordinators.share_state_recovery import delete, initialize
from headrace.groups.classic.member import JoinRequest, MemberIdentity, SyncRequest
from headrace.groups.consumer.member import ConsumerHeartbeat
from headrace.groups.consumer.regex import InvalidRegex, Regex, RegexMatch
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.deadlines import OFFSETS
from headrace.groups.offsets.commit_batches import CommitBatches
from headrace.groups.records import ByRole, StreamsMember, Subtopology, Topology
from headrace.groups.share.group import ShareHeartbeat
from headrace.groups.streams.member import StreamsHeartbeat
from headrace.protocol.errors import Refusal, StorageError
from headrace.protocol.internal_topics import CONSUMER_OFFSETS
from tests.memory_log import MemoryLog
from tests.offset_commits import NO_RETENTION, commit_record
from tests.turns import Meters, Turns

NAMESPACE = UUID(int=7)

DEFAULTS = {
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.size": 1_000,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "group.share.max.size": 200,
    "share.session.timeout.ms": 45_000,
    "share.heartbeat.interval.ms": 5_000,
    "share.assignment.interval.ms": 0,
    "group.consumer.max.size": 1_000,
    "group.consumer.assignors": ("uniform", "range"),
    "group.consumer.migration.policy": "bidirectional",
    "consumer.session.timeout.ms": 45_000,
    "consumer.heartbeat.interval.ms": 5_000,
    "consumer.assignment.interval.ms": 0,
    "group.streams.max.size": 1_000,
    "streams.session.timeout.ms": 45_000,
    "streams.heartbeat.interval.ms": 5_000,
    "streams.assignment.interval.ms": 0,
    "streams.initial.rebalance.delay.ms": 0,
    "streams.num.standby.replicas": 0,
    "streams.task.offset.interval.ms": 60_000,
    "streams.acceptable.recovery.lag": 10_000,
    "streams.rack.aware.assignment.tags": (),
    "share.coordinator.snapshot.update.records.per.snapshot": 500,
    "share.coordinator.cold.partition.snapshot.interval.ms": 300_000,
    "share.coordinator.state.topic.prune.interval.ms": 300_000,
}


class Config:
    def __init__(self, **values):
        self.values = DEFAULTS | {name.replace("_", "."): value for name, value in values.items()}

    def get_int(self, name):
        return self.values[name]

    get_str = get_list = get_int

    def group_int(self, group_id, name):
        return self.values[name]

    group_list = group_int


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: int
    incarnation: int = 0

    @property
    def topic_id(self):
        return uuid5(NAMESPACE, f"{self.name}-{self.incarnation}")


class Desk:
    """Time stands still until :meth:`pass_ms`. ``answers`` has the replies to parked requests by
    ticket.

    :ivar disk: the internal topics, which fail on command
    :ivar matches_regexes: False while regular expressions take long to match
    """

    def __init__(self, **config):
        self.config = Config(**config)
        self.now_ms = 1_000_000  # of the steady clock
        self.wall_ahead_ms = 0
        self.observes = True  # that deciding changes nothing
        self.version = 0  # of topics and configs
        self.disk = MemoryLog()
        self.loop = Turns()
        self.answers = {}
        self.tickets = 0
        self.topics = {}
        self.state_works = True
        self.matches_regexes = True
        self.coordinators = self._coordinators()

    def _coordinators(self):
        environment = Environment(
            clock=Clock(lambda: self.wall_ms, lambda: self.now_ms),
            config=self.config,
            catalog=self,
            internal_logs=self.disk,
            logs=None,
            meters=Meters(),
            notify=lambda key: None,
            opener=None,
        )
        made = Coordinators(environment)
        made.group_runtime._tickets = count(self.tickets + 1)  # no ticket is used twice
        return made

    @property
    def coordinator(self):
        return self.coordinators.groups

    @property
    def log(self):
        """Key and value of each record of groups."""
        return self.disk.records(CONSUMER_OFFSETS)

    @property
    def share_state(self):
        """Start offsets by group id, topic id and partition, as the share coordinator has them."""
        states = self.coordinators.share_state
        return {tuple(key): state.start_offset for key, state in states._states.items()}

    @property
    def is_full(self):
        """True while the disk refuses all writes."""
        return self.disk.is_full

    @is_full.setter
    def is_full(self, is_full):
        self.disk.is_full = is_full

    @property
    def wall_ms(self):
        """Epoch time; other than ``now_ms`` it can be set."""
        return self.now_ms + self.wall_ahead_ms

    @property
    def times(self):
        return self.now_ms, self.wall_ms

    def decide(self, command, group_id, *arguments, **options):
        """Have the runtime decide a command and carry it out. Deciding alone must change nothing.

        :raises StorageError: when the disk refuses
        """

        def decided(now_ms, wall_ms):
            return self._observe(command, group_id, *arguments, **options)

        answers = []
        before = self._observed(group_id)
        with self.loop.turn():
            deferred = self.coordinators.group_runtime.write(group_id, decided)
            deferred.waiter = answers.append
        (answer,) = answers
        self._check_answer(answer, before, group_id)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    def park(self, command, group_id, request):
        """Have the runtime decide a command that may wait: the ticket, see :meth:`answer`."""
        self.tickets += 1
        ticket = self.tickets

        def decided(given, now_ms, wall_ms):
            assert given == ticket
            return self._observe(command, group_id, request, ticket, now_ms, wall_ms)

        def answer(reply):
            assert ticket not in self.answers
            self.answers[ticket] = reply

        before = self._observed(group_id)
        with self.loop.turn():
            deferred = self.coordinators.group_runtime.write_parkable(group_id, decided)
            deferred.waiter = answer
        self._check_answer(self.answers.get(ticket), before, group_id)
        return ticket

    def _observe(self, command, group_id, *arguments, **options):
        before = self._observed(group_id)
        outcome = command(group_id, *arguments, **options)
        assert before == self._observed(group_id)
        return outcome

    def _observed(self, group_id):
        return self.observes and observable(self.coordinator, group_id)

    def _check_answer(self, answer, before, group_id):
        """A command that failed has changed nothing at all, and any other error is a bug."""
        if isinstance(answer, StorageError):
            assert before == self._observed(group_id)
        elif isinstance(answer, Exception):
            raise answer

    @contextmanager
    def full_disk(self):
        """Have all appends of the block fail."""
        before = durable(self.coordinator)
        self.disk.is_full = True
        try:
            yield
        except StorageError:
            pass
        finally:
            self.disk.is_full = False
        assert before == durable(self.coordinator)

    def submit(self, outcome):
        """Carry out an outcome that was decided before."""
        with self.loop.turn():
            return self.coordinators.group_runtime.write_now("", outcome)

    def pass_ms(self, duration_ms):
        """Let time pass, stopping at every deadline on the way. A disk that fails stops nothing."""
        end_ms = self.now_ms + duration_ms
        while (
            deadline_ms := self.coordinator.next_deadline_ms()
        ) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            with self.loop.turn():
                self.coordinators.group_runtime.expire(self.now_ms)
        self.now_ms = end_ms

    @property
    def awaits_someone(self):
        """True while a member or a rebalance has a deadline. The look at offsets does not count."""
        timers = self.coordinator._timers
        return len(timers) > (OFFSETS in timers)

    def restarted(self, log=None):
        """Another coordinator, from the log alone."""
        fresh = GroupCoordinator(self.config, self)
        if log is None:
            load(self.disk, fresh, decode_batch=CommitBatches().decode)
        for key, value in log or ():
            fresh.replay(fresh.decode(key, value))
        return fresh

    def restarted_from_compacted(self):
        """Two more: from a log with the last record of each key, and from one without the
        tombstones among them.
        """
        records = self.log
        last = {key: number for number, (key, _) in enumerate(records)}
        log = [(key, value) for number, (key, value) in enumerate(records) if last[key] == number]
        return self.restarted(log), self.restarted(
            [(key, value) for key, value in log if value is not None]
        )

    def restart(self):
        """Start anew from what the disk has kept."""
        self.coordinators = self._coordinators()
        self.loop = Turns()
        with self.loop.turn():
            startup.start(self.coordinators)

    def add_topic(self, name, partitions, incarnation=0):
        self.topics[name] = topic = Topic(name, partitions, incarnation)
        self.version += 1
        return topic

    @property
    def topics_by_id(self):
        return {topic.topic_id: topic for topic in self.topics.values()}

    def configure(self, name, value):
        """Change a config, as a client does while the broker runs."""
        self.config.values[name] = value
        self.version += 1

    def delete_topic(self, name):
        topic = self.topics.pop(name)
        self.version += 1
        with self.loop.turn():
            for _ in self.coordinators.topics_deleted([topic]):
                pass

    def configs(self, kind, name):
        return {}

    # --- classic groups ---

    def join(
        self,
        member_id="",
        *,
        group="g",
        instance=None,
        protocols=("range",),
        version=9,
        host="/h",
        **fields,
    ):
        """The ticket of a JoinGroup that waits or was answered: see :meth:`answer`."""
        request = JoinRequest(
            member_id=member_id,
            group_instance_id=instance,
            client_id="c",
            client_host=host,
            session_timeout_ms=fields.get("session_timeout_ms", 10_000),
            rebalance_timeout_ms=fields.get("rebalance_timeout_ms", 60_000),
            protocol_type=fields.get("protocol_type", "consumer"),
            protocols=tuple(
                (name, fields.get("metadata", f"as {name}".encode())) for name in protocols
            ),
            new_member_id=f"m{self.tickets + 1}",
            known_member_id_required=version >= 4,
            skips_assignment=version >= 9,
        )
        return self.park(self.coordinator.join, group, request)

    def answer(self, ticket):
        """The answer to a parked request, None while it waits."""
        return self.answers.get(ticket)

    def joined(self, *arguments, **fields):
        """The answer to a JoinGroup, None while it waits."""
        return self.answer(self.join(*arguments, **fields))

    def synced(self, *arguments, **fields):
        """The answer to a SyncGroup, None while it waits."""
        return self.answer(self.sync(*arguments, **fields))

    def sync(self, member_id, generation_id, assignments=(), *, group="g", instance=None, **fields):
        request = SyncRequest(
            member_id,
            instance,
            generation_id,
            fields.get("protocol_type"),
            fields.get("protocol"),
            tuple(assignments),
        )
        return self.park(self.coordinator.sync, group, request)

    def heartbeat(self, member_id, generation_id, *, group="g", instance=None):
        return self.decide(
            self.coordinator.heartbeat,
            group,
            MemberIdentity(member_id, instance),
            generation_id,
            self.now_ms,
        )

    def leave(self, *leavers, group="g"):
        identities = [
            MemberIdentity(*leaver) if isinstance(leaver, tuple) else MemberIdentity(leaver)
            for leaver in leavers
        ]
        return self.decide(self.coordinator.leave, group, identities, *self.times)

    def stable(self, count, group="g", **fields):
        """A stable group of ``count`` members, in generation 2 (1 if alone); their ids, the
        leader's first.
        """
        ids = [f"m{self.join(group=group, version=3, **fields)}" for _ in range(count)]
        if count > 1:
            self.join(ids[0], group=group, version=3, **fields)
        for member_id in reversed(ids):
            self.sync(member_id, min(count, 2), [(m, f"a {m}".encode()) for m in ids], group=group)
        return ids

    # --- offsets ---

    def commit(
        self, *partitions, group="g", member_id="", generation_id=-1, topic="t", offset=1, **fields
    ):
        """Commit an offset in each of these partitions; the errors."""
        commits = [(topic, None, partition, offset) for partition in partitions or (0,)]
        return self.commit_all(
            commits, MemberIdentity(member_id), generation_id, group=group, **fields
        )

    def commit_all(
        self, commits, member, generation_id=-1, *, group="g", retention_ms=NO_RETENTION, **fields
    ):
        """Commit offsets given as ``commit_record`` takes them, without the group; the errors."""
        times = {"wall_ms": self.wall_ms, "retention_ms": retention_ms}
        records = [commit_record(group, *said, **times) for said in commits]
        commit = self.coordinator.offsets.commit
        code = self.decide(commit, group, member, generation_id, records, self.now_ms, **fields)
        return (code,) * len(records)

    def offsets(self, group="g"):
        """The offsets of a group by topic and partition."""
        return self.coordinator.offsets.committed.of_group(group)

    def committed(self, group="g"):
        """(topic, partition) of all offsets of a group."""
        return sorted((t, p) for t, partitions in self.offsets(group).items() for p in partitions)

    def delete_committed(self, *partitions, group="g"):
        """OffsetDelete of these (topic, partition): their errors, or that of the whole."""
        return self.decide(self.coordinator.offsets.delete, group, partitions)

    # --- consumer groups ---

    def consume(self, member_id, epoch, names=None, *, owned=None, group="c", **fields):
        """A ConsumerGroupHeartbeat. Who joins names its topics, or gives a ``regex``.

        :param owned: partitions by topic name; none for who joins
        """
        joins = epoch == 0
        regex = fields.get("regex")
        if joins and owned is None:
            owned = {}
        if joins and regex is None:
            names = names or ()
        request = ConsumerHeartbeat(
            member_id,
            epoch,
            fields.get("instance"),
            fields.get("rack"),
            fields.get("client", "c"),
            "/h",
            fields.get("rebalance_timeout_ms", 10_000 if joins else -1),
            None if names is None else tuple(sorted(set(names))),
            regex,
            fields.get("assignor"),
            None
            if owned is None
            else {self.id_of(name): frozenset(numbers) for name, numbers in owned.items()},
        )
        regex = self.coordinator.consumer.unresolved_regex(group, request)
        if regex is not None and self.matches_regexes:
            request = replace(request, regex_match=self.match(regex))
        return self.decide(self.coordinator.consumer.heartbeat, group, request, *self.times)

    def match(self, pattern):
        """The topics that match an expression now."""
        try:
            names = sorted(filter(Regex(pattern).matches, self.topics))
        except InvalidRegex as error:
            return RegexMatch(pattern, self.version, (), str(error))
        return RegexMatch(pattern, self.version, tuple(names))

    def id_of(self, name):
        return self.topics[name].topic_id

    def by_name(self, partitions):
        """Partitions by topic name, of topics that exist."""
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        return {
            names[topic_id]: sorted(numbers)
            for topic_id, numbers in partitions.items()
            if topic_id in names
        }

    # --- share groups ---

    def beat(self, member_id, epoch, names=None, *, group="s", rack=None, client="c"):
        """A share heartbeat; share state that it needs is initialised before, if
        ``state_works``."""
        names = None if names is None else tuple(sorted(set(names)))
        request = ShareHeartbeat(member_id, epoch, None, rack, client, "/h", names)
        uninitialized = self.coordinator.share.to_initialize(group, request)
        if uninitialized is not None and self.state_works:
            share_group, partitions = uninitialized
            starts = {
                topic_id: dict.fromkeys(topic.partitions, -1)
                for topic_id, topic in partitions.items()
            }
            with self.loop.turn():
                initialize(self.coordinators, share_group, starts, share_group.state.epoch + 1)
        return self.decide(self.coordinator.share.heartbeat, group, request, *self.times)

    def alter(self, starts, *, group="s", lines=3):
        """Set offsets by topic name and partition. After so many writes the disk fails."""
        found = self.coordinator.share.empty_group(group, create=True)
        if not isinstance(found, Refusal):
            by_id = {self.topics[name].topic_id: of for name, of in starts.items()}
            with self._failing_after(lines):
                initialize(self.coordinators, found, by_id, found.state.epoch)
        return found

    def delete_offsets(self, names, *, group="s", lines=3):
        """Delete offsets in topics. After so many writes the disk fails."""
        found = self.coordinator.share.empty_group(group, create=False)
        if not isinstance(found, Refusal):
            topic_ids = {self.topics[name].topic_id for name in names if name in self.topics}
            with self._failing_after(lines):
                delete(self.coordinators, found, topic_ids)
        return found

    @contextmanager
    def _failing_after(self, appends):
        with self.disk.failing_after(appends), self.loop.turn():
            try:
                yield
            except StorageError:
                pass

    # --- streams groups ---

    def run(self, member_id, epoch, topology=None, *, owned=None, group="a", **fields):
        """A StreamsGroupHeartbeat. Who joins brings the topology: one of its own, or one with the
        source topic "t".

        :param owned: active and standby tasks by subtopology; none for who joins
        """
        joins = epoch == 0
        if joins and topology is None:
            topology = Topology(0, (Subtopology("0", ("t",)),))
        if joins and owned is None:
            owned = {}, {}
        active, standby = (None, None) if owned is None else owned
        endpoint = fields.pop("endpoint", None)
        tags = fields.pop("tags", () if joins else None)
        request = StreamsHeartbeat(
            member_id,
            epoch,
            fields.pop("instance", None),
            fields.pop("rack", None),
            "c",
            "/h",
            fields.pop("rebalance_timeout_ms", 10_000 if joins else -1),
            topology,
            ByRole(active, standby, None if owned is None else {}),
            fields.pop("process", f"process of {member_id}" if joins else None),
            None if endpoint is None else StreamsMember.Endpoint(*endpoint),
            None if tags is None else tuple(StreamsMember.KeyValue(*tag) for tag in sorted(tags)),
            **fields,
        )
        return self.decide(self.coordinator.streams.heartbeat, group, request, *self.times)


def observable(coordinator, group_id):
    """All that a decision about a group might change, as values of its own."""
    groups, timers = coordinator.groups, coordinator._timers._due
    group = groups.get(group_id)
    return (
        len(groups),
        group and _copied(vars(group)),
        {key: due_ms for key, due_ms in timers.items() if key[0] in ("", group_id)},
        _copied(coordinator.offsets.committed.of_group(group_id)),
    )


DERIVED = {"_timers", "timers", "_hash", "_subscribed", "_covered", "_config"}
"""Shared by all groups, or computed again when it is missing."""


def _copied(value):
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items() if key not in DERIVED}
    if isinstance(value, set | list):
        return value.copy()
    if type(value).__module__.startswith("headrace.groups") and hasattr(value, "__dict__"):
        return type(value), _copied(vars(value))
    if hasattr(value, "__dataclass_fields__"):
        return replace(value)
    return value


def durable(coordinator):
    """All that a restart must bring back."""
    groups, committed = {}, coordinator.offsets.committed
    for group_id, group in coordinator.groups.items():
        if group.type_name == "classic":
            has_offsets = committed.of_group(group_id) or committed.pending.of_group(group_id)
            if group.recorded is not None or has_offsets:
                groups[group_id] = group.recorded
        else:
            state = dict(vars(group.state))
            for volatile in ("resolved_versions", "_hash", "_subscribed", "_covered"):
                state.pop(volatile, None)
            groups[group_id] = state
    return groups, {group_id: committed.of_group(group_id) for group_id in groups}
