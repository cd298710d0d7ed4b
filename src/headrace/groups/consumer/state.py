"""The durable state of a consumer group: members, epochs and assignments (KIP-848).

Three epochs track the progress of a change::

    group epoch        grows when a subscription or a subscribed topic changes, or a member leaves
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has reached
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from copy import copy
from uuid import UUID

from headrace.groups.heartbeats import FIRST_EPOCH, NO_TARGET, put
from headrace.groups.records import (
    Assignment,
    ConsumerAssignment,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerMember,
    GroupEpoch,
    HeldPartitions,
    MemberState,
    ResolvedRegex,
)
from headrace.groups.settings import TopicCatalog
from headrace.groups.topics import topics_hash


class ConsumerState:
    """The durable state of a consumer group. Only :meth:`replay` changes it.

    :ivar target: the target assignment of each member, as of ``target_epoch``
    :ivar current: the current assignment of each member
    :ivar regexes: the topics that match each subscribed regular expression
    :ivar static_members: member ids by instance id
    :ivar name_users: the number of members subscribed to each topic by name; ``regex_users`` and
        ``classic_protocols`` count in the same way
    :ivar resolved_versions: the catalog version whose topics were last matched with each regular
        expression, since the start
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target_epoch = NO_TARGET
        self.target: dict[str, Assignment] = {}
        self.current: dict[str, ConsumerAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # derived from these
        self.static_members: dict[str, str] = {}
        self.name_users: Counter[str] = Counter()
        self.regex_users: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.classic_members: set[str] = set()
        self.resolved_versions: dict[str, int] = {}
        self._holders: dict[tuple[UUID, int], str] = {}
        self._subscribed: frozenset[str] | None = None
        # version of the catalog, names of topics, hash of those that exist
        self._hash: tuple[int, frozenset[str], int] | None = None

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group. The cost is proportional to the members."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch.epoch:
            return "Assigning"
        settled = all(self.is_settled(member_id) for member_id in self.members)
        return "Stable" if settled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    def is_settled(self, member_id: str) -> bool:
        """Return whether a member has its target assignment."""
        now = self.current.get(member_id)
        return (
            now is not None
            and now.state is MemberState.STABLE
            and now.member_epoch == self.target_epoch.epoch
        )

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        """Return whether no member holds a partition."""
        return (topic_id, partition) not in self._holders

    @property
    def subscribed(self) -> frozenset[str]:
        """The names of all subscribed topics, by name or regular expression."""
        if self._subscribed is None:
            self._subscribed = self.subscribed_without(())
        return self._subscribed

    def subscribed_without(self, member_ids: Collection[str]) -> frozenset[str]:
        """Return the names of the topics to which other members than these are subscribed."""
        names, regexes = Counter(self.name_users), Counter(self.regex_users)
        for member_id in member_ids:
            names.subtract(self.members[member_id].subscribed_topic_names)
            regexes.subtract((self.members[member_id].subscribed_topic_regex,))
        subscribed = {name for name, count in names.items() if count > 0}
        for regex, resolved in self.regexes.items():
            if regexes[regex] > 0:
                subscribed.update(resolved.topics)
        return frozenset(subscribed)

    def topics_hash(self, catalog: TopicCatalog, names: frozenset[str] | None = None) -> int:
        """Return the hash of the topics with these names that exist; by default, of the subscribed
        topics. The last hash is kept, as most members come and go without changing it.
        """
        if names is None:
            names = self.subscribed
        if self._hash is not None and self._hash[:2] == (catalog.version, names):
            return self._hash[2]
        topics = catalog.topics
        found = topics_hash([topics[name] for name in sorted(names) if name in topics])
        self._hash = catalog.version, names, found
        return found

    def tombstones(self) -> Iterator[ConsumerGroupRecord]:
        """Yield the records that delete the group."""
        group_id = self.group_id
        yield from (
            ConsumerGroupCurrentMemberAssignment(group_id, member_id, None)
            for member_id in self.members
        )
        yield from (
            ConsumerGroupTargetAssignmentMember(group_id, member_id, None)
            for member_id in self.members
        )
        yield ConsumerGroupTargetAssignmentMetadata(group_id, None)
        yield from (
            ConsumerGroupMemberMetadata(group_id, member_id, None) for member_id in self.members
        )
        yield from (ConsumerGroupRegularExpression(group_id, regex, None) for regex in self.regexes)
        yield ConsumerGroupMetadata(group_id, None)

    def after(self, records: Collection[ConsumerGroupRecord]) -> ConsumerState:
        """Return a copy of the state with these records replayed. The cost is proportional to the
        members.
        """
        other = ConsumerState(self.group_id)
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        for record in records:
            other.replay(record)
        return other

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply one durable record of this group."""
        match record:
            case ConsumerGroupMemberMetadata(_, member_id, member):
                self._replay_member(member_id, member)
            case ConsumerGroupMetadata(_, value):
                self.epoch, self.metadata_hash = value or GroupEpoch(FIRST_EPOCH, 0)
            case ConsumerGroupTargetAssignmentMember(_, member_id, target):
                put(self.target, member_id, target)
            case ConsumerGroupTargetAssignmentMetadata(_, epoch):
                self.target_epoch = epoch or NO_TARGET
            case ConsumerGroupCurrentMemberAssignment(_, member_id, current):
                self._replay_current(member_id, current)
            case ConsumerGroupRegularExpression(_, regex, resolved):
                put(self.regexes, regex, resolved)
                if resolved is None:
                    self.resolved_versions.pop(regex, None)
                self._subscribed = None

    def complete_members(self) -> None:
        """Give members without a current assignment an empty one; drop those without a member.

        A member whose record could not be decoded at the start has to rejoin.
        """
        for member_id in self.members.keys() - self.current.keys():
            self._replay_current(member_id, ConsumerAssignment())
        for member_id in self.current.keys() - self.members.keys():
            self._replay_current(member_id, None)

    def _replay_member(self, member_id: str, member: ConsumerMember | None) -> None:
        old = self.members.get(member_id)
        put(self.members, member_id, member)
        for one, count in ((old, -1), (member, 1)):
            if one is None:
                continue
            _count(self.name_users, one.subscribed_topic_names, count)
            _count(
                self.regex_users,
                (one.subscribed_topic_regex,) if one.subscribed_topic_regex else (),
                count,
            )
            if one.classic is not None:
                _count(self.classic_protocols, tuple(dict(one.classic.protocols)), count)
        self.classic_members.discard(member_id)
        if member is not None and member.classic is not None:
            self.classic_members.add(member_id)
        instance_id = None if old is None else old.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if member is not None and member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member_id
        self._subscribed = None

    def _replay_current(self, member_id: str, current: ConsumerAssignment | None) -> None:
        old = self.current.get(member_id)
        put(self.current, member_id, current)
        if old is not None:
            for one in _each(old.assigned, old.pending_revocation):
                if self._holders.get(one) == member_id:
                    del self._holders[one]
        if current is not None:
            for one in _each(current.assigned, current.pending_revocation):
                self._holders[one] = member_id


def _each(*held: HeldPartitions) -> Iterator[tuple[UUID, int]]:
    for partitions in held:
        for topic_id, numbers in partitions.items():
            for number in numbers:
                yield topic_id, number


def _count(users: Counter[str], names: Collection[str], change: int) -> None:
    for name in names:
        users[name] += change
        if not users[name]:
            del users[name]
