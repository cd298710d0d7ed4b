"""The heartbeat of a share group's member (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.groups.heartbeats.member import LEAVE_EPOCH, Heartbeat, HeartbeatReply
from headrace.groups.records import Assignment, ShareMember
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal

MAX_SHARE_MEMBER_ID_LENGTH = 36
"""Kafka's own: the length of a UUID in hexadecimal."""


@dataclass(frozen=True, slots=True)
class ShareHeartbeat(Heartbeat):
    """A ShareGroupHeartbeat request.

    :param subscribed_topic_names: None for no change
    """

    subscribed_topic_names: Sequence[str] | None
    client_id: str
    client_host: str

    @property
    def asks_assignment(self) -> bool:
        """True if the member joins or subscribes."""
        return self.joins or self.subscribed_topic_names is not None

    def check(self, group_id: str, config: Configuration) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        message = None
        if not self.member_id:
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

    def member(self, former: ShareMember | None) -> ShareMember:
        """Return the member with the changes of this heartbeat."""
        rack_id, names = self.rack_id, self.subscribed_topic_names
        if rack_id is None and former is not None:
            rack_id = former.rack_id
        if names is not None:
            subscribed = tuple(sorted(set(names)))
        else:
            subscribed = () if former is None else former.subscribed_topic_names
        return ShareMember(rack_id, self.client_id, self.client_host, subscribed)


ShareHeartbeatReply: TypeAlias = HeartbeatReply[Assignment]
