"""The durable state of a share group (KIP-932)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from uuid import UUID

from headrace.groups.heartbeats.state import (
    FIRST_EPOCH,
    HeartbeatState,
    RecordTypes,
)
from headrace.groups.records import (
    NOTHING,
    Assignment,
    CurrentAssignment,
    GroupEpoch,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    ShareMember,
    StatePartitions,
)


class ShareState(HeartbeatState[ShareMember, GroupEpoch, Assignment, CurrentAssignment]):
    """The durable state of a share group. Only :meth:`replay` changes it.

    :ivar partitions: the partitions in which the group has share state
    """

    records = RecordTypes(
        ShareGroupMetadata,
        ShareGroupMemberMetadata,
        ShareGroupTargetAssignmentMetadata,
        ShareGroupTargetAssignmentMember,
        ShareGroupCurrentMemberAssignment,
        (ShareGroupStatePartitionMetadata,),
    )
    no_epoch = GroupEpoch(FIRST_EPOCH, 0)
    no_target = NOTHING
    no_current = CurrentAssignment(0, 0, {})

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions = StatePartitions()
        # the partitions of the target assignment; None if out of date
        self._covered: dict[UUID, set[int]] | None = None

    @property
    def state_name(self) -> str:
        """Kafka's name for the state of the group."""
        return "Stable" if self.members else "Empty"

    def subscribed_without(self, member_ids: Collection[str]) -> frozenset[str]:
        """Return the names of the topics to which other members than these are subscribed."""
        return subscribed_names(
            member for member_id, member in self.members.items() if member_id not in member_ids
        )

    def covered(self) -> Mapping[UUID, set[int]]:
        """Return the partitions that are assigned to any member, by topic id."""
        if self._covered is None:
            self._covered = {}
            for assignment in self.target.values():
                for topic_id, partitions in assignment.items():
                    self._covered.setdefault(topic_id, set()).update(partitions)
        return self._covered

    def other_tombstones(self) -> Iterator[ShareGroupStatePartitionMetadata]:
        """Yield the tombstone of the list of partitions with share state."""
        yield ShareGroupStatePartitionMetadata(self.group_id, None)

    def _replay_target(self, member_id: str, target: Assignment | None) -> None:
        super()._replay_target(member_id, target)
        self._covered = None

    def _replay_other(self, record: ShareGroupStatePartitionMetadata) -> None:
        self.partitions = record.value or StatePartitions()


def subscribed_names(members: Iterable[ShareMember]) -> frozenset[str]:
    """Return the names of the topics to which any of these members is subscribed."""
    return frozenset(name for member in members for name in member.subscribed_topic_names)
