"""The durable state of a consumer group (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from uuid import UUID

from headrace.groups.heartbeats.state import (
    FIRST_EPOCH,
    HeartbeatState,
    count,
    put,
)
from headrace.groups.records import (
    CONSUMER_RECORDS,
    NOTHING,
    Assignment,
    ConsumerAssignment,
    ConsumerGroupRegularExpression,
    ConsumerMember,
    GroupEpoch,
    ResolvedRegex,
    each,
)


class ConsumerState(HeartbeatState[ConsumerMember, GroupEpoch, Assignment, ConsumerAssignment]):
    """The durable state of a consumer group. Only :meth:`replay` changes it.

    :ivar regexes: the topics that match each subscribed regular expression
    :ivar name_users: the number of members subscribed to each topic by name; ``regex_users`` and
        ``classic_protocols`` count in the same way
    :ivar resolved_versions: the catalog version whose topics were last matched with each regular
        expression, since the start
    """

    records = CONSUMER_RECORDS
    no_member = ConsumerMember(None, None, subscribed_topic_regex="", server_assignor=None)
    no_epoch = GroupEpoch(FIRST_EPOCH, 0)
    no_target = NOTHING
    no_current = ConsumerAssignment()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegex] = {}
        # derived from these
        self.name_users: Counter[str] = Counter()
        self.regex_users: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.resolved_versions: dict[str, int] = {}
        # The number of members that hold a partition: one, except while a log is read.
        self._holders: Counter[tuple[UUID, int]] = Counter()
        self._subscribed: frozenset[str] | None = None

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        """Return whether no member holds a partition."""
        return (topic_id, partition) not in self._holders

    @property
    def subscribed(self) -> frozenset[str]:
        """The names of all subscribed topics, by name or regular expression."""
        if self._subscribed is None:
            self._subscribed = self.subscribed_without(())
        return self._subscribed

    def subscribed_without(self, member_ids: Collection[str]) -> frozenset[str]:
        """Return the names of the topics to which other members than these are subscribed."""
        names, regexes = Counter(self.name_users), Counter(self.regex_users)
        for member_id in member_ids:
            names.subtract(self.members[member_id].subscribed_topic_names)
            regexes.subtract((self.members[member_id].subscribed_topic_regex or "",))
        matched = (self.regexes[regex].topics for regex in +regexes if regex in self.regexes)
        return frozenset(+names).union(*matched)

    def orphans(self, member_ids: Collection[str]) -> Iterator[ConsumerGroupRegularExpression]:
        """Yield the tombstones of regular expressions that only these members have."""
        leaving = Counter(
            self.members[member_id].subscribed_topic_regex for member_id in member_ids
        )
        for regex in self.regexes:
            if leaving[regex] >= self.regex_users[regex]:
                yield ConsumerGroupRegularExpression(self.group_id, regex, None)

    # Replay ---------------------------------------------------------------------------------------

    def _replay_other(self, record: ConsumerGroupRegularExpression) -> None:
        put(self.regexes, record.regex, record.value)
        if record.value is None:
            self.resolved_versions.pop(record.regex, None)
        self._subscribed = None

    def _count_member(self, member_id: str, change: int) -> None:
        super()._count_member(member_id, change)
        self._subscribed = None
        member = self.members.get(member_id)
        if member is None:
            return
        count(self.name_users, member.subscribed_topic_names, change)
        if member.subscribed_topic_regex:
            count(self.regex_users, (member.subscribed_topic_regex,), change)
        self.classic_members.discard(member_id)
        if member.classic_member_metadata is not None:
            protocols = member.classic_member_metadata.supported_protocols
            count(self.classic_protocols, {protocol.name for protocol in protocols}, change)
            if change > 0:
                self.classic_members.add(member_id)

    def _count_current(self, member_id: str, change: int) -> None:
        current = self.current.get(member_id)
        if current is not None:
            held = *each(current.assigned), *each(current.pending_revocation)
            count(self._holders, held, change)
