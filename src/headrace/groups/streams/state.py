"""The durable state of a streams group: members, topology, epochs and assignments (KIP-1071).

The group epoch, assignment epoch and member epoch have the same meaning as in a consumer group
(:mod:`headrace.groups.consumer.state`). A fourth, the topology epoch, belongs to the topology.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from copy import copy

from headrace.groups.heartbeats import FIRST_EPOCH, NO_TARGET, put
from headrace.groups.records import (
    HeldTaskAssignment,
    StreamsAssignment,
    StreamsEpoch,
    StreamsGroupCurrentMemberAssignment,
    StreamsGroupMemberMetadata,
    StreamsGroupMetadata,
    StreamsGroupRecord,
    StreamsGroupTargetAssignmentMember,
    StreamsGroupTargetAssignmentMetadata,
    StreamsGroupTopology,
    StreamsMember,
    StreamsMemberState,
    TaskAssignment,
    Topology,
)
from headrace.groups.settings import TopicCatalog
from headrace.groups.topics import topics_hash

from .topics import required_topics, sources


class StreamsState:
    """The durable state of a streams group. Only :meth:`replay` changes it.

    :ivar epoch: the group epoch, with the hash of the topics, the validated topology epoch and the
        configs of the last assignment
    :ivar target: the target assignment of each member, as of ``target_epoch``
    :ivar current: the current assignment of each member
    :ivar topology: None before the first member
    :ivar static_members: member ids by instance id
    :ivar source_subtopologies: the id of the subtopology that reads a topic, by topic name
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = StreamsEpoch(FIRST_EPOCH, 0, 0)
        self.members: dict[str, StreamsMember] = {}
        self.target_epoch = NO_TARGET
        self.target: dict[str, TaskAssignment] = {}
        self.current: dict[str, StreamsAssignment] = {}
        self.topology: Topology | None = None
        # derived from these
        self.static_members: dict[str, str] = {}
        self.source_subtopologies: dict[str, str] = {}
        self._required: list[str] = []
        # Processes that have a task: active, and in any role.
        self._active: dict[tuple[str, int], Counter[str]] = {}
        self._processes: dict[tuple[str, int], Counter[str]] = {}
        # version of the catalog, hash of the required topics
        self._hash: tuple[int, int] | None = None

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group. The cost is proportional to the members."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.epoch.validated_topology_epoch:
            return "NotReady"
        if self.epoch.epoch > self.target_epoch.epoch:
            return "Assigning"
        return "Stable" if all(map(self.is_settled, self.members)) else "Reconciling"

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    def is_settled(self, member_id: str) -> bool:
        """Return whether a member has its target assignment."""
        now = self.current.get(member_id)
        return (
            now is not None
            and now.state is StreamsMemberState.STABLE
            and now.member_epoch == self.target_epoch.epoch
        )

    def has_active(self, subtopology_id: str, partition: int) -> bool:
        """Return whether a task is active on any member."""
        return (subtopology_id, partition) in self._active

    def is_on_process(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """Return whether a process has a task in any role."""
        return process_id in self._processes.get((subtopology_id, partition), ())

    def topics_hash(self, catalog: TopicCatalog) -> int:
        """Return the hash of the topology's topics that exist. Cached until topics change."""
        if self._hash is None or self._hash[0] != catalog.version:
            self._hash = catalog.version, hash_of(self._required, catalog)
        return self._hash[1]

    def tombstones(self) -> Iterator[StreamsGroupRecord]:
        """Yield the records that delete the group."""
        group_id = self.group_id
        for member_id in self.members:
            yield StreamsGroupCurrentMemberAssignment(group_id, member_id, None)
        for member_id in self.members:
            yield StreamsGroupTargetAssignmentMember(group_id, member_id, None)
        yield StreamsGroupTargetAssignmentMetadata(group_id, None)
        for member_id in self.members:
            yield StreamsGroupMemberMetadata(group_id, member_id, None)
        yield StreamsGroupMetadata(group_id, None)
        yield StreamsGroupTopology(group_id, None)

    def after(self, records: Collection[StreamsGroupRecord]) -> StreamsState:
        """Return a copy of the state with these records replayed. The cost is proportional to the
        members and their tasks.
        """
        other = StreamsState(self.group_id)
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        for holders in (other._active, other._processes):
            for task, counts in holders.items():
                holders[task] = copy(counts)
        for record in records:
            other.replay(record)
        return other

    # Replay ---------------------------------------------------------------------------------------

    def replay(self, record: StreamsGroupRecord) -> None:
        """Apply one durable record of this group."""
        match record:
            case StreamsGroupMemberMetadata(_, member_id, member):
                self._hold(member_id, -1)
                self._replay_instance(member_id, self.members.get(member_id), member)
                put(self.members, member_id, member)
                self._hold(member_id, 1)
            case StreamsGroupMetadata(_, value):
                self.epoch = value or StreamsEpoch(FIRST_EPOCH, 0, 0)
            case StreamsGroupTargetAssignmentMember(_, member_id, target):
                put(self.target, member_id, target)
            case StreamsGroupTargetAssignmentMetadata(_, epoch):
                self.target_epoch = epoch or NO_TARGET
            case StreamsGroupCurrentMemberAssignment(_, member_id, current):
                self._hold(member_id, -1)
                put(self.current, member_id, current)
                self._hold(member_id, 1)
            case StreamsGroupTopology(_, topology):
                self._replay_topology(topology)

    def complete_members(self) -> None:
        """Give members without a current assignment an empty one; drop those without a member.

        A member whose record could not be decoded at the start has to rejoin.
        """
        for member_id in self.members.keys() - self.current.keys():
            self.current[member_id] = StreamsAssignment()
        for member_id in self.current.keys() - self.members.keys():
            del self.current[member_id]

    def _replay_instance(
        self, member_id: str, old: StreamsMember | None, member: StreamsMember | None
    ) -> None:
        instance_id = None if old is None else old.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if member is not None and member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member_id

    def _replay_topology(self, topology: Topology | None) -> None:
        self.topology, self._hash = topology, None
        self.source_subtopologies, self._required = {}, []
        if topology is None:
            return
        self._required = sorted(required_topics(topology))
        for subtopology in topology.subtopologies:
            for name in sources(subtopology):
                self.source_subtopologies[name] = subtopology.subtopology_id

    def _hold(self, member_id: str, change: int) -> None:
        """Count the tasks of a member for its process, once its two records are known."""
        member, current = self.members.get(member_id), self.current.get(member_id)
        if member is None or current is None:
            return
        for held in (current.assigned, current.pending_revocation):
            active = _each_active(held)
            for task in active:
                _count(self._active, task, member.process_id, change)
            for task in (*active, *_each_replica(held)):
                _count(self._processes, task, member.process_id, change)


def hash_of(names: list[str], catalog: TopicCatalog) -> int:
    """Return the hash of the topics with these names that exist."""
    topics = catalog.topics
    return topics_hash([topics[name] for name in names if name in topics])


def _each_active(held: HeldTaskAssignment) -> list[tuple[str, int]]:
    return [(id_, partition) for id_, epochs in held.active.items() for partition in epochs]


def _each_replica(held: HeldTaskAssignment) -> Iterator[tuple[str, int]]:
    for tasks in (held.standby, held.warmup):
        for subtopology_id, partitions in tasks.items():
            for partition in partitions:
                yield subtopology_id, partition


def _count(
    holders: dict[tuple[str, int], Counter[str]], task: tuple[str, int], process: str, change: int
) -> None:
    counts = holders.setdefault(task, Counter())
    counts[process] += change
    if not counts[process]:
        del counts[process]
    if not counts:
        del holders[task]
