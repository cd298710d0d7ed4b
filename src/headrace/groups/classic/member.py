"""What a classic group is asked, what it answers, and what it knows of each member."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode
from headrace.groups.records import ClassicMember

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols, the one it likes best first, each with its metadata (for consumers: its
subscription).
"""


class State(Enum):
    """Where a classic group stands, by the names that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member that wants to take part.

    :param member_id: "" for a new one
    :param new_member_id: the id that a new member gets; unique, made by the caller
    :param known_member_id_required: a new dynamic member has to come back with its id first
        (JoinGroup 4 and later), so that a client which never saw its answer leaves nothing behind
    :param skips_assignment: the client understands that it leads without assigning (JoinGroup 9)
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str
    known_member_id_required: bool = True
    skips_assignment: bool = True


class JoinedMember(NamedTuple):
    """What the leader is told of each member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a JoinGroup.

    :param members: all members, for the leader; empty for the others
    :param skip_assignment: the leader need not assign: the group goes on with what it has
    """

    code: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings everybody's.

    :param protocol_type: None where the client does not say (before SyncGroup 5), as ``protocol``
    """

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to a SyncGroup."""

    code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


LeaveReply: TypeAlias = tuple[ErrorCode, ...] | ErrorCode
"""The answer to a LeaveGroup: a code for each that leaves, or one for all of them."""


class MemberIdentity(NamedTuple):
    """Whom a LeaveGroup means: a dynamic member by its id, a static one by its instance id."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(slots=True)
class Member:
    """A member of the generation that is, or is being formed.

    :ivar join_ticket: its JoinGroup that waits for the others; None when there is none
    :ivar sync_ticket: its SyncGroup that waits for the leader
    :ivar is_new: its first JoinGroup is not yet answered: it does not know its id and cannot send
        heartbeats
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    is_new: bool = False

    @classmethod
    def recorded(cls, member: ClassicMember, protocol: str | None) -> Member:
        """A member as the last finished generation knew it."""
        return cls(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            ((protocol or "", member.subscription),),
            member.assignment,
        )

    def record(self, protocol: str | None, assignment: bytes) -> ClassicMember:
        """The member with what a finished generation gives it."""
        return ClassicMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says for a protocol; b"" when it does not speak it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")
