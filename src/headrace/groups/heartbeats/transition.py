"""One member's heartbeat, and the resulting epochs and assignments.

The records come in the order in which Kafka writes them: the member, the group epoch, the target
assignment, the member's current assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.groups.records import AssignmentEpoch, GroupRecord, MemberState
from headrace.groups.settings import (
    ConsumerSettings,
    ShareGroupSettings,
    StreamsSettings,
    TopicCatalog,
)
from headrace.protocol.errors import Refusal

from .state import HeartbeatState

StateT = TypeVar("StateT", bound=HeartbeatState[Any, Any, Any, Any])
SettingsT = TypeVar("SettingsT", bound=ConsumerSettings | ShareGroupSettings | StreamsSettings)


class Context(NamedTuple, Generic[SettingsT]):
    """What a decision depends on beside the group and the request.

    :param settings: of the group, as configured now
    :param now_ms: the steady time of timers
    :param wall_ms: the epoch time of records
    """

    catalog: TopicCatalog
    settings: SettingsT
    now_ms: int
    wall_ms: int


class HeartbeatTransition(Generic[StateT, SettingsT]):
    """The transition of an accepted member. Changes nothing; collects records.

    A kind of groups says when the group needs a new epoch, how it assigns, and how the assignment
    of a member follows its target.

    :param member: the member with the changes of this heartbeat
    :ivar records: to append, in order
    :ivar was: the member's assignment before
    :ivar now: the member's assignment after
    """

    def __init__(
        self, state: StateT, member_id: str, member: Any, context: Context[SettingsT]
    ) -> None:
        self.state, self.member_id, self.context = state, member_id, context
        self.catalog, self.settings = context.catalog, context.settings
        self.member = member
        self.was = self.now = state.current.get(member_id, state.no_current)
        self.epoch = state.group_epoch
        self.target_epoch = state.target_epoch
        self.target = state.target.get(member_id, state.no_target)
        self.records: list[GroupRecord] = []

    def run(self) -> Refusal | None:
        """Decide the transition.

        :returns: the error of a heartbeat that the group refuses
        """
        state, types = self.state, self.state.records
        if self.member != state.members.get(self.member_id):
            self.records.append(types.member(state.group_id, self.member_id, self.member))
        refusal = self._prepare()
        if refusal is not None:
            return refusal
        epoch = self._next_epoch()
        if epoch is not None:
            self.epoch = epoch
            self.records.append(types.group(state.group_id, epoch))
        if self._assigns():
            target = self._assign()
            self.target = target.get(self.member_id, state.no_target)
            self.target_epoch = AssignmentEpoch(self.epoch.epoch, self.context.wall_ms)
            self.records += state.retarget(target, self.target_epoch)
        self.now = self._reconcile()
        if self.now != self.was:
            self.records.append(types.current(state.group_id, self.member_id, self.now))
        return None

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        return (
            self.now.state is MemberState.STABLE
            and self.now.member_epoch == self.target_epoch.epoch == self.epoch.epoch
        )

    @property
    def members(self) -> dict[str, Any]:
        """All members, with the changes of this heartbeat."""
        return {**self.state.members, self.member_id: self.member}

    def _is_due(self) -> bool:
        """Return whether the interval between two target assignments has passed."""
        age_ms = self.context.wall_ms - self.target_epoch.timestamp_ms
        # The wall clock may have been set back since.
        return not 0 <= age_ms < self.settings.assignment_interval_ms

    def _assigns(self) -> bool:
        """Return whether the group needs a target assignment, and may compute it now."""
        return self.epoch.epoch > self.target_epoch.epoch and self._is_due()

    # The policy of a kind of groups ---------------------------------------------------------------

    def _prepare(self) -> Refusal | None:
        """Check and take what the member brings beside its own fields."""
        return None

    def _next_epoch(self) -> Any:
        """Return the group epoch that this heartbeat begins, None if it begins none."""
        raise NotImplementedError

    def _assign(self) -> Mapping[str, Any]:
        """Return a target assignment for each member."""
        raise NotImplementedError

    def _reconcile(self) -> Any:
        """Return the member's next assignment."""
        raise NotImplementedError
