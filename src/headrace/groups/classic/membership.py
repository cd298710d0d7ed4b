"""The membership of a classic group: copied, changed and replaced as a whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain

from headrace.groups.records import Generation
from headrace.protocol.consumer_protocol import PROTOCOL_TYPE, read_subscribed_topics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_batch import NO_TIMESTAMP

from .member import JoinedMember, JoinRequest, Member
from .states import TRANSITIONS, Event, State


class Membership:
    """The state, generation and members of a classic group.

    A decision changes a :meth:`copy`, not the group. The checks of each JoinGroup use counts, so
    that their cost does not grow with the group.

    :ivar state_since_ms: when the group entered its state, in epoch milliseconds; -1 if an old
        record does not have it
    :ivar protocol: the protocol of the generation; None without members
    :ivar subscribed: the topics to which the generation is subscribed (KIP-496); None if unknown
    :ivar initial_delay_left_ms: remaining delay of the initial rebalance, in milliseconds; None in
        other rebalances
    :ivar has_newcomer: a member has joined since the initial rebalance was last delayed
    :ivar by_id: the members by id, in the order in which they joined
    :ivar protocol_type: of the first member, such as ``consumer``; all others must have the same
    :ivar leader: the member id of the leader; None without members
    :ivar pending: ids sent with MEMBER_ID_REQUIRED whose members have not yet rejoined
    """

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.state = State.EMPTY
        self.state_since_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol: str | None = None
        self.subscribed: frozenset[str] | None = None
        self.initial_delay_left_ms: int | None = None
        self.has_newcomer = False
        self.by_id: dict[str, Member] = {}
        self.protocol_type = ""
        self.leader: str | None = None
        self.pending: set[str] = set()
        self._static_ids: dict[str, str] = {}  # member ids by instance id
        self._supporters = defaultdict[str, int](int)  # number of members by protocol
        self._joined = 0  # number of members whose JoinGroup waits
        self._unsynced = 0
        for member in members:
            self.put(member)

    def copy(self) -> Membership:
        """Return a copy that changes independently."""
        other = Membership.__new__(Membership)
        other.__dict__.update(self.__dict__)  # copy.copy() takes six times as long
        other.by_id = self.by_id.copy()
        other.pending = self.pending.copy()
        other._static_ids = self._static_ids.copy()
        other._supporters = self._supporters.copy()
        return other

    @property
    def is_empty(self) -> bool:
        """True in the state EMPTY."""
        return self.state is State.EMPTY

    def all(self) -> list[Member]:
        """Return the current members."""
        return list(self.by_id.values())

    # Changes --------------------------------------------------------------------------------------

    def put(self, member: Member) -> Member:
        """Add a member, or replace the one with its id; return it."""
        old = self.by_id.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        self._count(member, 1)
        self.by_id[member.member_id] = member
        return member

    def add(self, member_id: str, request: JoinRequest, ticket: int) -> Member:
        """Add a new member whose JoinGroup waits. The first member becomes the leader."""
        if not self.by_id:
            self.protocol_type = request.protocol_type
        self.leader = self.leader or member_id
        return self.put(
            Member(
                member_id,
                request.group_instance_id,
                request.client_id,
                request.client_host,
                request.rebalance_timeout_ms,
                request.session_timeout_ms,
                request.protocols,
                join_ticket=ticket,
                is_new=True,
            )
        )

    def remove(self, member_id: str) -> None:
        """Remove a member. If it was the leader, the member that joined next becomes leader."""
        self._count(self.by_id.pop(member_id), -1)
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)

    def replace_static(self, old_id: str, request: JoinRequest) -> Member:
        """Replace the id of a static member that has rejoined."""
        old = self.by_id[old_id]
        new = old._replace(
            member_id=request.new_member_id,
            client_id=request.client_id,
            client_host=request.client_host,
            join_ticket=None,
            sync_ticket=None,
            is_unsynced=False,
        )
        if self.leader == old_id:
            self.leader = new.member_id
        self._count(old, -1)
        self._count(new, 1)
        members = [new if member is old else member for member in self.by_id.values()]
        self.by_id = {member.member_id: member for member in members}
        return new

    def expect_syncs(self) -> None:
        """Clear the answered JoinGroups of all members, and expect their SyncGroups."""
        self._joined, self._unsynced = 0, len(self.by_id)
        self.by_id = {
            member_id: member._replace(join_ticket=None, is_new=False, is_unsynced=True)
            for member_id, member in self.by_id.items()
        }

    # Generations ----------------------------------------------------------------------------------

    def handle(self, event: Event, wall_ms: int) -> None:
        """Enter the next state after an event."""
        self.state = TRANSITIONS[self.state, event]
        self.state_since_ms = wall_ms

    def begin_generation(self) -> None:
        """Begin the next generation with the current members."""
        self.generation_id += 1
        self.protocol = self.select_protocol()
        self._learn_subscriptions()

    def generation(self) -> Generation:
        """Return the generation for its record."""
        members = tuple(member.record(self.protocol) for member in self.by_id.values())
        return Generation(
            self.protocol_type,
            self.generation_id,
            self.protocol,
            self.leader,
            self.state_since_ms,
            members,
        )

    def restore(self, generation: Generation) -> None:
        """Restore a recorded generation; members of the last one keep their volatile state."""
        self.generation_id, self.protocol = generation.generation, generation.protocol
        self.state = State.STABLE if generation.members else State.EMPTY
        self.state_since_ms = generation.current_state_timestamp
        self.protocol_type, self.leader = generation.protocol_type, generation.leader
        before, self.by_id = self.by_id, {}
        for recorded in generation.members:
            member = before.get(recorded.member_id)
            self.by_id[recorded.member_id] = (
                Member.recorded(recorded, generation.protocol)
                if member is None
                else member._replace(assignment=recorded.assignment, sync_ticket=None)
            )
        if self.by_id.keys() != before.keys():
            self._joined = self._unsynced = 0
            self._static_ids.clear()
            self._supporters.clear()
            for member in self.by_id.values():
                self._count(member, 1)
        self._learn_subscriptions()

    def _learn_subscriptions(self) -> None:
        self.subscribed = None
        if self.protocol_type != PROTOCOL_TYPE:
            return
        subscriptions = {member.metadata(self.protocol) for member in self.by_id.values()}
        try:
            topics = chain.from_iterable(map(read_subscribed_topics, subscriptions))
            self.subscribed = frozenset(topics)
        except ValueError:
            pass  # a subscription that cannot be parsed

    def elect(self) -> bool:
        """Choose a leader among the members that have joined; keep the current one if possible.

        :returns: False when no member has joined
        """
        if self.leader is None or self.by_id[self.leader].join_ticket is None:
            joined = (m.member_id for m in self.by_id.values() if m.join_ticket is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            self.leader = leader
        return True

    def _count(self, member: Member, change: int) -> None:
        self._joined += change if member.join_ticket is not None else 0
        self._unsynced += change if member.is_unsynced else 0
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += change
        if member.group_instance_id is not None:
            if change > 0:
                self._static_ids[member.group_instance_id] = member.member_id
            else:
                self._static_ids.pop(member.group_instance_id, None)

    # Questions ------------------------------------------------------------------------------------

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Return whether a member may join; during a rebalance only members that have joined count
        against the limit.
        """
        member = self.by_id.get(member_id)
        if self.state is not State.PREPARING_REBALANCE:
            return member is not None or len(self.by_id) < max_size
        return self._joined < max_size or (member is not None and member.join_ticket is not None)

    def supports(self, request: JoinRequest) -> bool:
        """Return whether all members support one of the request's protocols."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self.by_id:
            return True
        return request.protocol_type == self.protocol_type and any(
            self._supporters.get(name) == len(self.by_id) for name, _ in request.protocols
        )

    def select_protocol(self) -> str | None:
        """Return the protocol supported by all members and preferred by most; on a tie, the one
        preferred first.
        """
        common = {name for name, count in self._supporters.items() if count == len(self.by_id)}
        votes = Counter(
            next((name for name, _ in member.protocols if name in common), None)
            for member in self.by_id.values()
        )
        return max(votes, key=votes.__getitem__, default=None)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """Return the id of a static member, or None."""
        return None if instance_id is None else self._static_ids.get(instance_id)

    def check(
        self, member_id: str, instance_id: str | None, generation_id: int | None = None
    ) -> ErrorCode:
        """Return NONE if the member exists and, where they are given, owns the instance id and
        names this generation.
        """
        if instance_id is not None:
            owner = self._static_ids.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.by_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id is not None and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def all_joined(self) -> bool:
        """Return whether all members have joined the rebalance."""
        return not self.pending and self._joined == len(self.by_id)

    def all_synced(self) -> bool:
        """Return whether all members have sent SyncGroup in this generation."""
        return self._unsynced == 0

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def introduce(self) -> tuple[JoinedMember, ...]:
        """Return all members for the leader's JoinGroup response."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol))
            for m in self.by_id.values()
        )
