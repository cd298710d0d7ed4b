"""The heartbeat of a share group's member and its answer (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import ErrorCode, Refusal
from headrace.groups.records import Assignment, ShareMember

MAX_SHARE_MEMBER_ID_LENGTH = 36
"""Kafka's own: the length of a UUID in hexadecimal."""

JOIN_EPOCH, LEAVE_EPOCH = 0, -1


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat request.

    :param member_epoch: 0 to join or rejoin, -1 to leave
    :param subscribed_topic_names: None for no change
    """

    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: Sequence[str] | None
    client_id: str
    client_host: str

    def check(self, group_id: str) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        if not self.member_id:
            return Refusal(ErrorCode.INVALID_REQUEST)
        if not group_id:
            return Refusal(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        if self.rack_id == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "RackId can't be empty.")
        if self.member_epoch == JOIN_EPOCH and not self.subscribed_topic_names:
            return Refusal(
                ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."
            )
        if self.member_epoch < LEAVE_EPOCH:
            return Refusal(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
        return None

    def member(self, members: Mapping[str, ShareMember]) -> ShareMember:
        """Return the member with the changes of this heartbeat."""
        known = members.get(self.member_id)
        rack_id, names = self.rack_id, self.subscribed_topic_names
        if rack_id is None and known is not None:
            rack_id = known.rack_id
        if names is not None:
            subscribed = tuple(sorted(set(names)))
        else:
            subscribed = () if known is None else known.subscribed_topic_names
        return ShareMember(rack_id, self.client_id, self.client_host, subscribed)


@dataclass(frozen=True, slots=True)
class ShareHeartbeatReply:
    """The answer to a heartbeat.

    :param assignment: None if unchanged
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
