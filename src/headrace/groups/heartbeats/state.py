"""The durable state of a group whose members send heartbeats: members, epochs and assignments.

Three epochs track the progress of a change::

    group epoch        grows when a subscription or a subscribed topic changes, or a member leaves
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has reached
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from headrace.groups.catalog import Topic, TopicCatalog
from headrace.groups.records import (
    AssignmentEpoch,
    ConsumerMember,
    CurrentAssignment,
    GroupEpoch,
    GroupRecord,
    MemberState,
    RecordTypes,
    ShareMember,
    StreamsEpoch,
    StreamsMember,
)

K = TypeVar("K")
V = TypeVar("V")
MemberT = TypeVar("MemberT", bound=ConsumerMember | ShareMember | StreamsMember)
EpochT = TypeVar("EpochT", bound=GroupEpoch | StreamsEpoch)
TargetT = TypeVar("TargetT")
CurrentT = TypeVar("CurrentT", bound=CurrentAssignment)

FIRST_EPOCH = 1
"""The epoch of a group without an epoch record; the first member makes it 2."""

NO_TARGET = AssignmentEpoch(FIRST_EPOCH, 0)
"""The epoch of the target assignment before the first one."""


class HeartbeatState(Generic[MemberT, EpochT, TargetT, CurrentT]):
    """The durable state of a group. Only :meth:`replay` changes it.

    :cvar records: the types of its records
    :cvar no_epoch: the epoch of a group without a record of it; likewise ``no_target`` and
        ``no_current`` of a member
    :cvar no_member: what a new member becomes with its first heartbeat
    :ivar group_epoch: the group epoch as it is recorded
    :ivar target: the target assignment of each member, as of ``target_epoch``
    :ivar current: the current assignment of each member
    :ivar static_members: member ids by instance id
    :ivar classic_members: the members of the classic protocol, which only consumer groups have
    """

    records: ClassVar[RecordTypes]
    no_member: MemberT
    no_epoch: EpochT
    no_target: TargetT
    no_current: CurrentT

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = self.no_epoch
        self.members: dict[str, MemberT] = {}
        self.target_epoch = NO_TARGET
        self.target: dict[str, TargetT] = {}
        self.current: dict[str, CurrentT] = {}
        # derived from these
        self.static_members: dict[str, str] = {}
        self.classic_members: set[str] = set()
        # version of the catalog, names of topics, hash of those that exist
        self._hash: tuple[int, Collection[str], int] | None = None

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return self.group_epoch.epoch

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group. The cost is proportional to the members."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch.epoch:
            return "Assigning"
        is_settled = all(
            current.state is MemberState.STABLE and current.member_epoch == self.target_epoch.epoch
            for current in self.current.values()
        )
        return "Stable" if is_settled else "Reconciling"

    def topics_hash(self, catalog: TopicCatalog, names: Collection[str]) -> int:
        """Return the hash of the topics with these names that exist. The last hash is kept, as most
        members come and go without changing it.
        """
        if self._hash is not None and self._hash[:2] == (catalog.version, names):
            return self._hash[2]
        topics = catalog.topics
        hash_ = topics_hash([topics[name] for name in sorted(names) if name in topics])
        self._hash = catalog.version, names, hash_
        return hash_

    def subscribed_without(self, member_ids: Collection[str]) -> frozenset[str]:
        """Return the names of the topics to which other members than these are subscribed."""
        raise NotImplementedError

    def epoch_without(self, member_ids: Collection[str], catalog: TopicCatalog) -> Any:
        """Return the group epoch when these members have left."""
        new_hash = self.topics_hash(catalog, self.subscribed_without(member_ids))
        return GroupEpoch(self.epoch + 1, new_hash)

    # Records --------------------------------------------------------------------------------------

    def removal(self, member_ids: Collection[str]) -> Iterator[GroupRecord]:
        """Yield the records that remove members."""
        types = self.records
        for member_id in member_ids:
            for record_type in (types.current, types.target, types.member):
                yield record_type(self.group_id, member_id, None)

    def orphans(self, member_ids: Collection[str]) -> Iterator[GroupRecord]:
        """Yield the tombstones of what no member needs when these have left."""
        yield from ()

    def replacement(self, old_id: str, new_id: str) -> tuple[GroupRecord, ...]:
        """Return the records that replace the id of a static member, which keeps what it has."""
        returned = replace(self.current[old_id], member_epoch=0, previous_member_epoch=0)
        return (
            *self.removal((old_id,)),
            self.records.member(self.group_id, new_id, self.members[old_id]),
            self.records.target(self.group_id, new_id, self.target.get(old_id, self.no_target)),
            self.records.current(self.group_id, new_id, returned),
        )

    def retarget(self, target: Mapping[str, TargetT], epoch: AssignmentEpoch) -> list[GroupRecord]:
        """Return the records of a new target assignment."""
        records: list[GroupRecord] = [
            self.records.target(self.group_id, member_id, assignment)
            for member_id, assignment in target.items()
            if assignment != self.target.get(member_id)
        ]
        return [*records, self.records.target_epoch(self.group_id, epoch)]

    def tombstones(self) -> Iterator[GroupRecord]:
        """Yield the records that delete the group, except its offsets and share state."""
        types = self.records
        for record_type in (types.current, types.target):
            for member_id in self.members:
                yield record_type(self.group_id, member_id, None)
        yield types.target_epoch(self.group_id, None)
        for member_id in self.members:
            yield types.member(self.group_id, member_id, None)
        yield from self.other_tombstones()
        yield types.group(self.group_id, None)

    def other_tombstones(self) -> Iterator[GroupRecord]:
        """Yield the tombstones of the records that only this kind of groups has."""
        return self.orphans(self.members)

    def after(self, records: Collection[GroupRecord]) -> Self:
        """Return a copy of the state with these records replayed. The cost is proportional to the
        members and what they have.
        """
        other = copy(self)
        vars(other).update((name, copy(value)) for name, value in vars(self).items())
        for record in records:
            other.replay(record)
        return other

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: Any) -> None:
        """Apply one durable record of this group."""
        types, value = self.records, record.value
        match type(record):
            case types.current:
                self._replay_current(record.member_id, value)
            case types.target:
                put(self.target, record.member_id, value)
            case types.member:
                self._replay_member(record.member_id, value)
            case types.target_epoch:
                self.target_epoch = value or NO_TARGET
            case types.group:
                self.group_epoch = value or self.no_epoch
            case _:
                self._replay_other(record)

    def complete_members(self) -> None:
        """Give members without a current assignment an empty one; drop those without a member.

        A member whose record could not be decoded at the start has to rejoin.
        """
        for member_id in self.members.keys() ^ self.current.keys():
            self._replay_current(member_id, self.no_current if member_id in self.members else None)

    def _replay_member(self, member_id: str, member: MemberT | None) -> None:
        self._count_member(member_id, -1)
        put(self.members, member_id, member)
        self._count_member(member_id, 1)

    def _replay_current(self, member_id: str, current: CurrentT | None) -> None:
        self._count_current(member_id, -1)
        put(self.current, member_id, current)
        self._count_current(member_id, 1)

    def _count_member(self, member_id: str, change: int) -> None:
        """Count what is derived from the record of a member, or count it no longer."""
        # Members of share groups have no instance id.
        instance_id = getattr(self.members.get(member_id), "instance_id", None)
        if instance_id is None:
            return
        if change > 0:
            self.static_members[instance_id] = member_id
        elif self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _count_current(self, member_id: str, change: int) -> None:
        """Count what is derived from the current assignment of a member, or count it no longer."""

    def _replay_other(self, record: Any) -> None:
        """Apply a record that only this kind of groups has."""
        raise NotImplementedError


def put(mapping: dict[str, V], key: str, value: V | None) -> None:
    """Replay a record of one key; None is a tombstone."""
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def count(users: Counter[K], keys: Iterable[K], change: int) -> None:
    """Count users of each key; forget keys that have none."""
    for key in keys:
        users[key] += change
        if not users[key]:
            del users[key]


def topics_hash(topics: Sequence[Topic]) -> int:
    """Return an int64 hash of the topics; 0 for none. It changes with each deletion, creation or
    growth.
    """
    if not topics:
        return 0
    text = "\n".join(f"{topic.name} {topic.topic_id} {topic.partitions}" for topic in topics)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
