"""The heartbeat of a share group's member (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.groups.heartbeats.member import LEAVE_EPOCH, Heartbeat, HeartbeatReply
from headrace.groups.records import Assignment
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal

MAX_SHARE_MEMBER_ID_LENGTH = 36
"""Kafka's own: the length of a UUID in hexadecimal."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat(Heartbeat):
    """A ShareGroupHeartbeat request.

    :param subscribed_topic_names: sorted; None for no change
    """

    subscribed_topic_names: tuple[str, ...] | None

    @property
    def asks_assignment(self) -> bool:
        """True if the member joins or subscribes."""
        return self.joins or self.subscribed_topic_names is not None

    def check(self, group_id: str, config: Configuration) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        message = None
        if not 0 < len(self.member_id) <= MAX_SHARE_MEMBER_ID_LENGTH:
            return Refusal(ErrorCode.INVALID_REQUEST)
        if not group_id:
            message = "GroupId can't be empty."
        elif self.rack_id == "":
            message = "RackId can't be empty."
        elif self.joins and not self.subscribed_topic_names:
            message = "SubscribedTopicNames must be set in first request."
        elif self.member_epoch < LEAVE_EPOCH:
            message = "MemberEpoch is invalid."
        return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


ShareHeartbeatReply: TypeAlias = HeartbeatReply[Assignment]
