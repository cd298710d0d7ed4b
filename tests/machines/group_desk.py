"""A group coordinator with everything around it that a broker would be: a log, a clock, parked
requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from headrace.errors import Refusal, StorageError
from headrace.groups.classic.member import JoinRequest, MemberIdentity, SyncRequest
from headrace.groups.consumer.member import ConsumerHeartbeat
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.deadlines import OFFSETS, RETRY_MS
from headrace.groups.offsets.committed import NO_RETENTION, commit_record
from headrace.groups.records import SharedTopic
from headrace.groups.share.member import LEAVE_EPOCH, ShareHeartbeat

NAMESPACE = UUID(int=7)

DEFAULTS = {
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.size": 1_000,
    "offset.metadata.max.bytes": 4096,
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
}


class Config:
    def __init__(self, **values):
        self.values = DEFAULTS | {name.replace("_", "."): value for name, value in values.items()}

    def get_int(self, name):
        return self.values[name]

    get_str = get_list = get_int

    def group_int(self, group_id, name):
        return self.values[name]


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
    """

    def __init__(self, **config):
        self.config = Config(**config)
        self.coordinator = GroupCoordinator(self.config, self)
        self.now_ms = 1_000_000  # of the steady clock
        self.wall_ahead_ms = 0
        self.observes = True  # that deciding changes nothing
        self.is_full = False  # the disk
        self.version = 0  # of the topics
        self.log = []
        self.answers = {}
        self.tickets = 0
        self.topics = {}
        self.state_works = True
        # the share coordinator: (group id, topic id, partition) -> start offset
        self.share_state = {}

    @property
    def wall_ms(self):
        """Epoch time; other than ``now_ms`` it can be set."""
        return self.now_ms + self.wall_ahead_ms

    @property
    def times(self):
        return self.now_ms, self.wall_ms

    def decide(self, command, group_id, *arguments, **options):
        """Decide a command and apply its outcome. Deciding alone must change nothing."""
        before = self.observes and observable(self.coordinator, group_id)
        outcome = command(group_id, *arguments, **options)
        assert before == (self.observes and observable(self.coordinator, group_id))
        return self.submit(outcome)

    def submit(self, outcome):
        if outcome.records and self.is_full:
            raise StorageError("the disk is full")
        for record in outcome.records:
            key, value = self.coordinator.encode(record)
            self.log.append((key, value))
            self.coordinator.replay(self.coordinator.decode(key, value))
        if outcome.apply is not None:
            outcome.apply()
        for completion in outcome.completions:
            assert completion.ticket not in self.answers
            self.answers[completion.ticket] = completion.reply
        return outcome.reply

    def pass_ms(self, duration_ms):
        """Let time pass, stopping at every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while (
            deadline_ms := self.coordinator.next_deadline_ms()
        ) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            try:
                for _, outcome in self.coordinator.expire(*self.times):
                    self.submit(outcome)
            except StorageError:
                self.now_ms += RETRY_MS
        self.now_ms = max(self.now_ms, end_ms)

    @property
    def awaits_someone(self):
        """Whether a deadline of a member or a rebalance is set; the next look at offsets always
        is."""
        timers = self.coordinator._timers
        return len(timers) > (OFFSETS in timers)

    def restarted(self, log=None):
        """Another coordinator, from the log alone."""
        fresh = GroupCoordinator(self.config, self)
        for key, value in self.log if log is None else log:
            fresh.replay(fresh.decode(key, value))
        return fresh

    def restarted_from_compacted(self):
        """Two more: from a log with the last record of each key, and from one without the
        tombstones among them.
        """
        last = {key: number for number, (key, _) in enumerate(self.log)}
        log = [(key, value) for number, (key, value) in enumerate(self.log) if last[key] == number]
        return self.restarted(log), self.restarted(
            [(key, value) for key, value in log if value is not None]
        )

    def restart(self):
        """Replay, and settle as broker.share_group_state does."""
        self.coordinator = self.restarted()
        for group in self.coordinator.share.all():
            for topic_id in group.state_partitions.deleting:
                self.forget_state(group, topic_id)
            stateful = {
                topic_id: SharedTopic(name, there)
                for topic_id, (name, partitions) in group.stateful().items()
                if (
                    there := tuple(
                        p for p in partitions if (group.group_id, topic_id, p) in self.share_state
                    )
                )
            }
            self.submit(group.settled(stateful))
        self.coordinator.loaded(self.now_ms)

    def add_topic(self, name, partitions, incarnation=0):
        self.topics[name] = topic = Topic(name, partitions, incarnation)
        self.version += 1
        return topic

    @property
    def topics_by_id(self):
        return {topic.topic_id: topic for topic in self.topics.values()}

    def delete_topic(self, name):
        topic = self.topics.pop(name)
        self.version += 1
        for _, outcome in self.coordinator.topic_deleted(topic, self.now_ms):
            self.submit(outcome)
        self.share_state = {
            key: start for key, start in self.share_state.items() if key[1] != topic.topic_id
        }

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
        self.tickets += 1
        ticket = self.tickets
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
            new_member_id=f"m{ticket}",
            known_member_id_required=version >= 4,
            skips_assignment=version >= 9,
        )
        reply = self.decide(self.coordinator.join, group, request, ticket, *self.times)
        if reply is not None:
            self.answers[ticket] = reply
        return ticket

    def answer(self, ticket):
        """The answer to a parked request, None while it waits."""
        return self.answers.get(ticket)

    def sync(self, member_id, generation_id, assignments=(), *, group="g", instance=None, **fields):
        self.tickets += 1
        ticket = self.tickets
        request = SyncRequest(
            member_id,
            instance,
            generation_id,
            fields.get("protocol_type"),
            fields.get("protocol"),
            tuple(assignments),
        )
        reply = self.decide(self.coordinator.sync, group, request, ticket, *self.times)
        if reply is not None:
            self.answers[ticket] = reply
        return ticket

    def heartbeat(self, member_id, generation_id, *, group="g", instance=None):
        return self.decide(
            self.coordinator.heartbeat, group, member_id, instance, generation_id, self.now_ms
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
        return self.decide(commit, group, member, generation_id, records, self.now_ms, **fields)

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
        request = ConsumerHeartbeat(
            member_id,
            epoch,
            fields.get("instance"),
            fields.get("rack"),
            fields.get("rebalance_timeout_ms", 10_000 if joins else -1),
            names if names is not None or regex is not None or not joins else [],
            regex,
            fields.get("assignor"),
            None
            if owned is None
            else {self.id_of(name): frozenset(numbers) for name, numbers in owned.items()},
            fields.get("client", "c"),
            "/h",
        )
        return self.decide(self.coordinator.consumer.heartbeat, group, request, *self.times)

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
        request = ShareHeartbeat(member_id, epoch, rack, names, client, "/h")
        found = self.coordinator.share.member_group(group, request)
        if isinstance(found, Refusal):
            return found
        if epoch != LEAVE_EPOCH and self.state_works:
            wanted = found.to_initialize(request, self.topics)
            if wanted:
                self.initialize(
                    found,
                    {id_: dict.fromkeys(topic.partitions, -1) for id_, topic in wanted.items()},
                )
        return self.decide(
            self.coordinator.share.heartbeat, group, request, self.topics, *self.times
        )

    def alter(self, starts, *, group="s", lines=3):
        """Set offsets by topic name and partition. After so many ``lines`` of
        broker.share_group_state it crashes.
        """
        found = self.coordinator.share.empty_group(group, create=True)
        if not isinstance(found, Refusal):
            self.initialize(
                found, {self.topics[name].topic_id: of for name, of in starts.items()}, lines
            )
        return found

    def initialize(self, group, starts, lines=3):
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        partitions = {
            topic_id: SharedTopic(names[topic_id], tuple(sorted(of)))
            for topic_id, of in starts.items()
        }
        if lines > 0:
            self.submit(group.initializing(partitions))
        if lines > 1:
            for topic_id, of in starts.items():
                self.share_state |= {
                    (group.group_id, topic_id, p): start for p, start in of.items()
                }
        if lines > 2:
            self.submit(self.coordinator.groups[group.group_id].initialized(partitions))

    def delete_offsets(self, names, *, group="s", lines=3):
        """Delete offsets in topics. After so many ``lines`` of broker.share_group_state it
        crashes."""
        found = self.coordinator.share.empty_group(group, create=False)
        if isinstance(found, Refusal):
            return found
        topic_ids = {self.topics[name].topic_id for name in names if name in self.topics}
        if lines > 0:
            self.submit(found.deleting(topic_ids))
        if lines > 1:
            for topic_id in topic_ids:
                self.forget_state(found, topic_id)
        if lines > 2:
            self.submit(found.deleted(topic_ids))
        return found

    def forget_state(self, group, topic_id):
        of_group = (group.group_id, topic_id)
        self.share_state = {
            key: start for key, start in self.share_state.items() if key[:2] != of_group
        }


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


DERIVED = {"_timers", "timers", "_hash", "_covered", "_config"}
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
    groups = {}
    for group_id, group in coordinator.groups.items():
        if group.type_name == "classic":
            if group.recorded is not None or group_id in coordinator.offsets.committed:
                groups[group_id] = group.recorded
        elif group.type_name == "consumer":
            state = dict(vars(group.state))
            for volatile in ("resolved_version", "_hash"):
                del state[volatile]
            groups[group_id] = state
        else:
            groups[group_id] = (
                group.epoch,
                group.metadata_hash,
                group.members,
                group.target_epoch,
                group.target,
                group.current,
                group.state_partitions,
            )
    committed = coordinator.offsets.committed
    return groups, {group_id: committed.of_group(group_id) for group_id in groups}
