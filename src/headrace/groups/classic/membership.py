"""The membership of a classic group: copied, changed and replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import ErrorCode
from headrace.groups.records import NO_TIMESTAMP, Generation
from headrace.protocol.consumer_protocol import PROTOCOL_TYPE

from .members import Members
from .states import TRANSITIONS, Event, State
from .subscriptions import subscribed_topics


class Membership:
    """The state, generation and members of a classic group.

    A decision changes a :meth:`copy`, not the group.

    :ivar state_since_ms: when the group entered its state, in epoch milliseconds; -1 if an old
        record does not have it
    :ivar protocol: the protocol of the generation; None without members
    :ivar subscribed: the topics to which the generation is subscribed; None if unknown
    :ivar initial_delay_left_ms: remaining delay of the initial rebalance, in milliseconds; None in
        other rebalances
    :ivar has_newcomer: a member has joined since the initial rebalance was last delayed
    """

    def __init__(self) -> None:
        self.state = State.EMPTY
        self.state_since_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol: str | None = None
        self.members = Members()
        self.subscribed: frozenset[str] | None = None
        self.initial_delay_left_ms: int | None = None
        self.has_newcomer = False

    def copy(self) -> Membership:
        """Return a copy that changes independently."""
        other = Membership.__new__(Membership)
        other.__dict__.update(self.__dict__)
        other.members = self.members.copy()
        return other

    @property
    def is_empty(self) -> bool:
        """True in the state EMPTY."""
        return self.state is State.EMPTY

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members, such as ``consumer``; empty if none is known."""
        return self.members.protocol_type

    def check(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Return NONE if the member exists, owns the instance id and names this generation."""
        members = self.members
        if instance_id is not None or member_id not in members.by_id:
            code = members.check(member_id, instance_id)
            if code:
                return code
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def handle(self, event: Event, wall_ms: int) -> None:
        """Enter the next state after an event."""
        self.state = TRANSITIONS[self.state, event]
        self.state_since_ms = wall_ms

    def begin_generation(self) -> None:
        """Begin the next generation with the current members."""
        self.generation_id += 1
        self.protocol = self.members.select_protocol()
        self._learn_subscriptions()

    def generation(self, assignments: Mapping[str, bytes] | None = None) -> Generation:
        """Return the generation for its record.

        :param assignments: by member id; None for the assignments that members have
        """
        members = self.members
        return Generation(
            members.protocol_type,
            self.generation_id,
            self.protocol,
            members.leader,
            self.state_since_ms,
            members.record(self.protocol, assignments),
        )

    def restore(self, generation: Generation) -> None:
        """Restore a recorded generation."""
        self.generation_id, self.protocol = generation.generation, generation.protocol
        self.state = State.STABLE if generation.members else State.EMPTY
        self.state_since_ms = generation.current_state_timestamp
        self.members.restore(generation)
        self._learn_subscriptions()

    def _learn_subscriptions(self) -> None:
        self.subscribed = None
        if self.protocol_type == PROTOCOL_TYPE:
            metadata = {member.metadata(self.protocol) for member in self.members.all()}
            self.subscribed = subscribed_topics(metadata)
