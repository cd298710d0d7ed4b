"""Who is in a classic group: the members of the generation that is, or is being formed, and their
leader.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import ErrorCode
from headrace.groups.records import ClassicMember, Generation

from .member import JoinedMember, JoinRequest, Member


class Roster:
    """The members by id, in the order in which they came, and the rules that need all of them at
    once.

    :ivar protocol_type: of the first member; all others must have the same
    :ivar leader: the id of the member that assigns; None without members
    :ivar pending: ids handed out with MEMBER_ID_REQUIRED, whose owners are expected back
    :ivar unsynced: members of this generation that have not yet sent a SyncGroup
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.protocol_type = ""
        self.leader: str | None = None
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()

    def __len__(self) -> int:
        return len(self.members)

    def all(self) -> list[Member]:
        """The members as they are now."""
        return list(self.members.values())

    def has_room(self, member_id: str, max_size: int, *, preparing: bool) -> bool:
        """Whether one more can be taken in; while a rebalance is prepared, those who are back
        count.
        """
        if not preparing:
            return member_id in self.members or len(self.members) < max_size
        waiting = [member for member in self.members.values() if member.join_ticket is not None]
        return len(waiting) < max_size or any(member.member_id == member_id for member in waiting)

    def speaks(self, request: JoinRequest) -> bool:
        """Whether one of the request's protocols can serve all members."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        spoken = [{name for name, _ in member.protocols} for member in self.members.values()]
        return request.protocol_type == self.protocol_type and any(
            all(name in names for names in spoken) for name, _ in request.protocols
        )

    def select_protocol(self) -> str | None:
        """The protocol that all members speak and most of them like best; of equals the one that
        was named first.
        """
        spoken = [{name for name, _ in member.protocols} for member in self.members.values()]
        common = set.intersection(*spoken) if spoken else set()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next((name for name, _ in member.protocols if name in common), None)
            if choice is not None:
                votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__, default=None)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """The id under which a static member is known; None when there is none."""
        if instance_id is None:
            return None
        return next(
            (m.member_id for m in self.members.values() if m.group_instance_id == instance_id), None
        )

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether the member exists and, if static, is the one that now owns the instance id."""
        if instance_id is not None:
            owner = self.static_member_id(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member_id: str, request: JoinRequest, ticket: int) -> Member:
        """Take in a new member whose JoinGroup waits."""
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member(
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
        self.members[member_id] = member
        self.leader = self.leader or member_id
        return member

    def remove(self, member: Member) -> None:
        """Let a member go; the next one leads if it did."""
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, request: JoinRequest) -> None:
        """A static member is back under a new id: it takes the place of the old one."""
        self.unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = request.new_member_id
        member.member_id = request.new_member_id
        member.client_id, member.client_host = request.client_id, request.client_host
        self.members = {m.member_id: m for m in self.members.values()}

    def elect(self) -> bool:
        """Have a leader that is here; False when nobody is."""
        if self.leader is None or self.members[self.leader].join_ticket is None:
            here = next(
                (m.member_id for m in self.members.values() if m.join_ticket is not None), None
            )
            if here is None:
                return False
            self.leader = here
        return True

    def all_joined(self) -> bool:
        """Whether a rebalance need not wait for anybody."""
        return not self.pending and all(
            member.join_ticket is not None for member in self.members.values()
        )

    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may wait: what the most patient member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def record(
        self, protocol: str | None, assignments: Mapping[str, bytes] | None
    ) -> tuple[ClassicMember, ...]:
        """The members for a record: with these assignments, or with what they have."""
        return tuple(
            member.record(
                protocol,
                member.assignment if assignments is None else assignments.get(member_id, b""),
            )
            for member_id, member in self.members.items()
        )

    def restore(self, generation: Generation) -> None:
        """Be what a record says; of members that are here already everything else is kept."""
        self.protocol_type, self.leader = generation.protocol_type, generation.leader
        members = {}
        for recorded in generation.members:
            member = self.members.get(recorded.member_id) or Member.recorded(
                recorded, generation.protocol
            )
            member.assignment = recorded.assignment
            member.sync_ticket = None
            members[member.member_id] = member
        self.members = members

    def introduce(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """What the leader is told of all members."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(protocol))
            for m in self.members.values()
        )
