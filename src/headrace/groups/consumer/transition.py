"""One member's transition: its new subscription, and the resulting epochs and assignments.

ConsumerGroupHeartbeat and the JoinGroup of a classic member have the same transition (KIP-848). The
records come in the order in which Kafka writes them: the member, the group epoch, the target
assignment, the member's current assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.errors import ErrorCode, Refusal
from headrace.groups.heartbeats import assignment_due
from headrace.groups.records import (
    Assignment,
    AssignmentEpoch,
    ConsumerAssignment,
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupTargetAssignmentMember,
    ConsumerGroupTargetAssignmentMetadata,
    ConsumerMember,
    GroupEpoch,
    GroupRecord,
    MemberState,
    ResolvedRegex,
)
from headrace.groups.settings import ConsumerSettings, MaySee, TopicCatalog

from .assignors import ASSIGNORS, Subscriber
from .reconciliation import Goal, Owned, reconcile
from .regex import RegexMatch
from .state import ConsumerState


class MemberTransition:
    """The transition of an accepted member. Changes nothing; collects records.

    :param member: the member with its new subscription
    :param owned: the partitions that the member reports; None when it reports none
    :param regex_match: the topics that match the member's regular expression. Without them the
        group keeps those it has, and a member with a new expression gets no partitions for it yet
    :param may_see: the topics that the regular expression may match; None for all
    :param assigns: a target assignment may be computed; else the member waits while the current one
        is out of date
    :ivar was: the member's assignment before
    :ivar now: the member's assignment after
    :ivar resolved_version: the catalog version whose topics were matched with the member's regular
        expression; None if they were not, or without an expression
    """

    def __init__(
        self,
        group: ConsumerState,
        member_id: str,
        member: ConsumerMember,
        owned: Owned | None,
        catalog: TopicCatalog,
        settings: ConsumerSettings,
        wall_ms: int,
        *,
        assigns: bool = True,
        regex_match: RegexMatch | None = None,
        may_see: MaySee | None = None,
    ) -> None:
        self.assigns = assigns
        self._regex_match = regex_match
        self._may_see = may_see
        self.group, self.member_id, self.member, self.owned = group, member_id, member, owned
        self.catalog, self.settings, self.wall_ms = catalog, settings, wall_ms
        self.known = group.members.get(member_id) or ConsumerMember()
        self.was = group.current.get(member_id) or ConsumerAssignment()
        self.now = self.was
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.target: Assignment = group.target.get(member_id, {})
        self.regexes: Mapping[str, ResolvedRegex] = group.regexes
        self.resolved_version = group.resolved_versions.get(member.subscribed_topic_regex)
        self.records: list[GroupRecord] = []

    def run(self) -> Refusal | None:
        """Decide the transition.

        :returns: the error of a regular expression that is invalid
        """
        if self.member != self.group.members.get(self.member_id):
            self._write(
                ConsumerGroupMemberMetadata(self.group.group_id, self.member_id, self.member)
            )
        refusal = self._resolve()
        if refusal is not None:
            return refusal
        self._bump_epoch()
        if self.assigns and self.epoch > self.target_epoch.epoch and self._assignment_due():
            self._assign()
        if self.assigns or self.epoch == self.target_epoch.epoch:
            self._reconcile()
        return None

    @property
    def is_settled(self) -> bool:
        """True if the member has its target assignment, and the group needs no other one."""
        is_resolved = (
            not self.member.subscribed_topic_regex or self.resolved_version == self.catalog.version
        )
        return (
            is_resolved
            and self.now.state is MemberState.STABLE
            and self.now.member_epoch == self.target_epoch.epoch == self.epoch
        )

    def _write(self, record: GroupRecord) -> None:
        self.records.append(record)

    @property
    def _resubscribed(self) -> bool:
        return self._subscription(self.member) != self._subscription(self.known)

    @staticmethod
    def _subscription(member: ConsumerMember) -> tuple[tuple[str, ...], str]:
        return member.subscribed_topic_names, member.subscribed_topic_regex

    # Regular expressions --------------------------------------------------------------------------

    def _resolve(self) -> Refusal | None:
        """Take the topics that match the member's regular expression, and forget an expression that
        no member has any more.
        """
        old, new = self.known.subscribed_topic_regex, self.member.subscribed_topic_regex
        match = self._regex_match
        if match is None or match.regex != new:
            match = None
        elif match.error:
            return Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{new}` is not a valid regular expression: {match.error}.",
            )
        regexes = dict(self.group.regexes)
        if old in regexes and old != new and self.group.regex_users[old] == 1:
            del regexes[old]
            self._write(ConsumerGroupRegularExpression(self.group.group_id, old, None))
        resolved_version = self.resolved_version
        # Another member may have brought the topics while this match waited.
        if match is not None and (resolved_version is None or match.version > resolved_version):
            self.resolved_version = match.version
            topics = match.topics
            if self._may_see is not None:
                topics = tuple(filter(self._may_see, topics))
            if new not in regexes or regexes[new].topics != topics:
                regexes[new] = ResolvedRegex(topics, 0, self.wall_ms)
                self._write(ConsumerGroupRegularExpression(self.group.group_id, new, regexes[new]))
        self.regexes = regexes
        return None

    # Epochs and assignments -----------------------------------------------------------------------

    def _bump_epoch(self) -> None:
        changed = self._resubscribed or self.regexes != self.group.regexes
        new_hash = self._topics_hash() if changed else self.group.topics_hash(self.catalog)
        if changed or new_hash != self.group.metadata_hash:
            self.epoch += 1
            self._write(
                ConsumerGroupMetadata(self.group.group_id, GroupEpoch(self.epoch, new_hash))
            )

    def _topics_hash(self) -> int:
        names = Counter(self.group.name_users)
        names.subtract(self.known.subscribed_topic_names)
        names.update(self.member.subscribed_topic_names)
        subscribed = {name for name, count in names.items() if count > 0}
        for resolved in self.regexes.values():
            subscribed.update(resolved.topics)
        return self.group.topics_hash(self.catalog, frozenset(subscribed))

    def _assignment_due(self) -> bool:
        interval_ms = self.settings.assignment_interval_ms
        return assignment_due(self.target_epoch, interval_ms, self.wall_ms)

    def _assign(self) -> None:
        """Compute a target assignment."""
        members = {**self.group.members, self.member_id: self.member}
        subscriptions: dict[tuple[tuple[str, ...], str], frozenset[UUID]] = {}
        subscribers = {}
        for member_id, member in members.items():
            said = self._subscription(member)
            if said not in subscriptions:
                subscriptions[said] = frozenset(self._topic_ids(member))
            subscribers[member_id] = Subscriber(member.group_instance_id, subscriptions[said])
        wanted: set[UUID] = set().union(*subscriptions.values())
        named = sorted(
            (self.catalog.topics_by_id[topic_id] for topic_id in wanted),
            key=lambda topic: topic.name,
        )
        assign = ASSIGNORS[preferred_assignor(members.values(), self.settings.assignors)]
        target = assign(
            subscribers, {topic.topic_id: topic.partitions for topic in named}, self.group.target
        )
        for member_id, assignment in target.items():
            if assignment != self.group.target.get(member_id):
                self._write(
                    ConsumerGroupTargetAssignmentMember(self.group.group_id, member_id, assignment)
                )
        self.target, self.target_epoch = (
            target[self.member_id],
            AssignmentEpoch(self.epoch, self.wall_ms),
        )
        self._write(ConsumerGroupTargetAssignmentMetadata(self.group.group_id, self.target_epoch))

    def _topic_ids(self, member: ConsumerMember) -> set[UUID]:
        names: set[str] = set(member.subscribed_topic_names)
        resolved = self.regexes.get(member.subscribed_topic_regex)
        if resolved is not None:
            names.update(resolved.topics)
        topics = self.catalog.topics
        return {topics[name].topic_id for name in names if name in topics}

    def _reconcile(self) -> None:
        """Reconcile the member with its target assignment."""
        settled = (
            self.was.state is MemberState.STABLE
            and self.was.member_epoch == self.target_epoch.epoch
        )
        if settled and not self._resubscribed:
            return
        goal = Goal(
            self.target_epoch.epoch, self.target, self._topic_ids(self.member), self.group.is_free
        )
        self.now = reconcile(self.was, goal, self.owned, resubscribed=self._resubscribed)
        if self.now != self.was:
            self._write(
                ConsumerGroupCurrentMemberAssignment(self.group.group_id, self.member_id, self.now)
            )


def preferred_assignor(members: Iterable[ConsumerMember], assignors: tuple[str, ...]) -> str:
    """Return the assignor that most members prefer; on a tie, the one configured first."""
    votes = Counter(member.server_assignor for member in members)
    return max(assignors, key=votes.__getitem__)
