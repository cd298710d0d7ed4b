"""The heartbeat of a consumer group's member and its answer (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import ErrorCode, Refusal
from headrace.groups.records import ConsumerMember, HeldPartitions
from headrace.groups.settings import MaySee

from .reconciliation import Owned
from .regex import RegexMatch

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
NO_TIMEOUT = -1


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request. None stands for no change.

    :param member_epoch: 0 to join or rejoin, -1 to leave, -2 for a static member that leaves
        temporarily
    :param rebalance_timeout_ms: the longest time to revoke partitions; -1 for no change
    :param subscribed_topic_regex: "" for none
    :param owned: the partitions that the member reports as its own
    :param may_see: the topics that the regular expression may match; None for all
    :param regex_match: the topics that match the member's regular expression, if they were matched
        for this heartbeat
    """

    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    owned: Owned | None
    client_id: str
    client_host: str
    may_see: MaySee | None = field(default=None, compare=False)
    regex_match: RegexMatch | None = field(default=None, compare=False)

    @property
    def leaves(self) -> bool:
        """True if the member leaves, for ever or temporarily."""
        return self.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_full(self) -> bool:
        """True if the request has all fields, so that its answer has the assignment."""
        subscribes = (
            self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        )
        return self.rebalance_timeout_ms != NO_TIMEOUT and subscribes and self.owned is not None

    def check(self, group_id: str, assignors: Collection[str]) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        message = self._fault(group_id)
        if message is not None:
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        if self.server_assignor is not None and self.server_assignor not in assignors:
            return Refusal(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                (
                    f"ServerAssignor {self.server_assignor} is not supported. Supported "
                    f"assignors: {', '.join(assignors)}."
                ),
            )
        return None

    def _fault(self, group_id: str) -> str | None:
        named = (
            ("MemberId", self.member_id),
            ("GroupId", group_id),
            ("InstanceId", self.group_instance_id),
            ("RackId", self.rack_id),
        )
        for name, text in named:
            if text is not None and not text.strip():
                return f"{name} can't be empty."
        if self.member_epoch == JOIN_EPOCH:
            if self.rebalance_timeout_ms == NO_TIMEOUT:
                return "RebalanceTimeoutMs must be provided in first request."
            if self.owned is None or self.owned:
                return "TopicPartitions must be empty when (re-)joining."
            if self.subscribed_topic_names is None and self.subscribed_topic_regex is None:
                return (
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                    "(re-)joining."
                )
        elif self.member_epoch == STATIC_LEAVE_EPOCH:
            return "InstanceId can't be null." if self.group_instance_id is None else None
        return "MemberEpoch is invalid." if self.member_epoch < STATIC_LEAVE_EPOCH else None

    def member(self, known: ConsumerMember) -> ConsumerMember:
        """Return the member of the consumer protocol with the changes of this heartbeat."""
        names, regex, assignor = (
            self.subscribed_topic_names,
            self.subscribed_topic_regex,
            self.server_assignor,
        )
        told = self.rebalance_timeout_ms != NO_TIMEOUT
        return replace(
            known,
            group_instance_id=known.group_instance_id
            if self.group_instance_id is None
            else self.group_instance_id,
            rack_id=known.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=known.subscribed_topic_names
            if names is None
            else tuple(sorted(set(names))),
            subscribed_topic_regex=known.subscribed_topic_regex if regex is None else regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms if told else known.rebalance_timeout_ms,
            server_assignor=known.server_assignor if assignor is None else assignor,
            classic=None,
        )


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    """The answer to a heartbeat.

    :param assigned: the assignment; None if unchanged
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: HeldPartitions | None = None
