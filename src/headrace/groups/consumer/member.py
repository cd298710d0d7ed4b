"""The heartbeat of a consumer group's member (KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from headrace.groups.catalog import MaySee
from headrace.groups.classic.member import JoinRequest
from headrace.groups.heartbeats.member import (
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    Heartbeat,
    HeartbeatReply,
)
from headrace.groups.records import ConsumerMember, HeldPartitions
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.stored import ConsumerProtocolSubscription

from .assignors import configured_assignors
from .migration import as_classic
from .reconciliation import Owned
from .regex import RegexMatch


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat(Heartbeat):
    """A ConsumerGroupHeartbeat request. None stands for no change.

    :param rebalance_timeout_ms: the longest time to revoke partitions; -1 for no change
    :param subscribed_topic_names: sorted
    :param subscribed_topic_regex: "" for none
    :param owned: the partitions that the member reports as its own
    :param may_see: the topics that the regular expression may match; None for all
    :param regex_match: the topics that match the member's regular expression, if they were matched
        for this heartbeat. Without them the group keeps those it has, and a member with a new
        expression gets no partitions for it yet
    :cvar assigns: a target assignment may be computed
    """

    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    owned: Owned | None
    classic_member_metadata: ClassVar = None
    assigns: ClassVar = True
    may_see: MaySee | None = field(default=None, compare=False)
    regex_match: RegexMatch | None = field(default=None, compare=False)

    @property
    def _subscribes(self) -> bool:
        return self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None

    @property
    def asks_assignment(self) -> bool:
        """True if the request has all fields, so that its answer has the assignment."""
        has_timeout = self.rebalance_timeout_ms != NO_TIMEOUT
        return self.joins or (has_timeout and self._subscribes and self.owned is not None)

    def check(self, group_id: str, config: Configuration) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        if refusal := Heartbeat.check(self, group_id, config):
            return refusal
        if self.server_assignor is None:
            return None
        assignors = configured_assignors(config)
        if self.server_assignor not in assignors:
            return Refusal(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {self.server_assignor} is not supported. Supported "
                f"assignors: {', '.join(assignors)}.",
            )
        return None

    def _fault(self) -> str | None:
        if self.joins:
            if self.rebalance_timeout_ms == NO_TIMEOUT:
                return "RebalanceTimeoutMs must be provided in first request."
            if self.owned is None or self.owned:
                return "TopicPartitions must be empty when (re-)joining."
            if not self._subscribes:
                return (
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                    "(re-)joining."
                )
        return "MemberEpoch is invalid." if self.member_epoch < STATIC_LEAVE_EPOCH else None

    def member(self, former: ConsumerMember) -> ConsumerMember:
        """Return the member of the consumer protocol with the changes of this heartbeat."""
        member = Heartbeat.member(self, former)
        member.classic_member_metadata = None
        return member


@dataclass(frozen=True, slots=True)
class ClassicJoin:
    """The JoinGroup of a classic member, as a heartbeat.

    :param assigns: a target assignment may be computed; else the member waits while the current one
        is out of date
    """

    member_id: str
    joined: JoinRequest
    subscription: ConsumerProtocolSubscription
    owned: Owned
    assigns: bool
    regex_match: ClassVar = None
    may_see: ClassVar = None

    def member(self, former: ConsumerMember) -> ConsumerMember:
        """Return the member of the classic protocol that joins."""
        return as_classic(former, self.joined, self.subscription)


ConsumerHeartbeatReply = HeartbeatReply[HeldPartitions]
