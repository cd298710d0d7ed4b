"""What a classic group lets happen to its committed offsets: deletion (KIP-496) and expiration
(KIP-211).
"""

from __future__ import annotations

from headrace.errors import ErrorCode
from headrace.groups.records import NO_TIMESTAMP, CommittedOffset
from headrace.protocol.consumer_protocol import PROTOCOL_TYPE

from .member import State
from .members import Roster
from .subscriptions import subscribed_topics


class ClassicOffsets:
    """Where a classic group stands, and what that means to its offsets.

    :ivar state_since_ms: since when the group is in its state; -1 when records of older brokers do
        not say
    :ivar subscribed: the topics that the last generation was subscribed to; None when that is not
        known
    """

    def __init__(self) -> None:
        self.state = State.EMPTY
        self.state_since_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol: str | None = None
        self.roster = Roster()
        self.subscribed: frozenset[str] | None = None

    @property
    def protocol_type(self) -> str:
        return self.roster.protocol_type

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def check_offset_delete(self) -> ErrorCode:
        """Whether offsets may be deleted, but for those in topics that :meth:`is_subscribed`
        has."""
        says_topics = self.is_empty or self.protocol_type == PROTOCOL_TYPE
        return ErrorCode.NONE if says_topics else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        """Whether the group needs its offsets in a topic; of consumers that nobody understands,
        everywhere.
        """
        if self.subscribed is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed

    def retention_starts_ms(self, committed: CommittedOffset) -> int | None:
        """Since when an offset is only kept for a time; None while it is kept without end."""
        if self.is_empty and self.protocol_type and self.state_since_ms != NO_TIMESTAMP:
            return self.state_since_ms
        stable = self.state is State.STABLE and self.subscribed is not None
        return (
            committed.commit_timestamp_ms
            if self.is_empty or not self.protocol_type or stable
            else None
        )

    def learn_subscriptions(self) -> None:
        """A generation has begun: see what its members are subscribed to."""
        metadata = (member.metadata(self.protocol) for member in self.roster.all())
        self.subscribed = (
            subscribed_topics(metadata) if self.protocol_type == PROTOCOL_TYPE else None
        )
