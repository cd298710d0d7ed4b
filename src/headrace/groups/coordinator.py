"""The group coordinator: all groups and their committed offsets, in ``__consumer_offsets``.

The first request to a group sets its kind: JoinGroup or a commit without a member makes it classic,
a heartbeat makes it a consumer, share or streams group. A classic group can become a consumer group
and the other way round (KIP-848). The coordinator refuses requests for groups of another kind, and
passes the others to the module of the group's kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from headrace.deadlines import RETRY_MS, Deadlines
from headrace.outcome import NOWHERE, Outcome, Position, Unapplied
from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_topics import CONSUMER_OFFSETS

from . import record_schemas
from .catalog import Topic, TopicCatalog
from .classic.group import ClassicGroup
from .classic.member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from .consumer.classic_members import ClassicMembers
from .consumer.group import ConsumerGroup, ConsumerGroupService
from .deadlines import OFFSETS, TimerKey
from .meters import GroupMeters
from .offsets.service import OffsetService
from .records import GroupOutcome, GroupRecord, OffsetCommit
from .service import ClassicGroupService, Group
from .share.group import ShareGroupService
from .streams.group import StreamsGroupService

TIMEOUTS_AT_ONCE = 50
"""The timeouts that are handled before other requests are served, in 5 to 10 ms. The sessions of
all members may end together: when a network fails, or after a restart.
"""


class GroupListing(NamedTuple):
    """A group as ListGroups returns it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupCoordinator:
    """All groups and all committed offsets. Commands decide; :meth:`replay` applies their records.

    ``now_ms`` is the steady time of timers, ``wall_ms`` the epoch time of records.

    :param config: the configuration, read whenever a value is needed
    :param catalog: the topics to which consumer groups may subscribe
    :ivar groups: all groups by id
    :ivar offsets: commands on committed offsets
    :ivar classic: commands to classic groups
    :ivar consumer: commands to consumer groups
    :ivar share: commands to share groups
    :ivar streams: commands to streams groups
    """

    topic = CONSUMER_OFFSETS

    def __init__(self, config: Configuration, catalog: TopicCatalog) -> None:
        self.groups: dict[str, Group] = {}
        self.meters = GroupMeters()
        self._config = config
        self._timers: Deadlines[TimerKey] = Deadlines()
        self.offsets = OffsetService(self.groups, config, self._timers, self.meters)
        shared = self.groups, config, catalog, self._timers, self.meters
        self.classic = ClassicGroupService(*shared)
        self.consumer = ConsumerGroupService(*shared)
        self.share = ShareGroupService(*shared)
        self.streams = StreamsGroupService(*shared)
        services: tuple[Any, ...] = (self.classic, self.consumer, self.share, self.streams)
        self._services = {service.kind.type_name: service for service in services}
        self._replays = {
            record_type: service.replay
            for service in services
            for record_type in service.record_types
        }

    # The classic protocol -------------------------------------------------------------------------

    def join(
        self, group_id: str, request: JoinRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[JoinReply | None]:
        """Let a member join (JoinGroup); a reply of None is completed later under ``ticket``."""
        least_ms = self._config.get_int("group.min.session.timeout.ms")
        most_ms = self._config.get_int("group.max.session.timeout.ms")
        if not group_id:
            return Outcome(JoinReply(ErrorCode.INVALID_GROUP_ID, request.member_id))
        if not least_ms <= request.session_timeout_ms <= most_ms:
            return Outcome(JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        group = self.groups.get(group_id)
        if group is None or (group.becomes_classic and group.is_empty):
            if request.member_id:
                return Outcome(JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return self.classic.join_new(group_id, request, ticket, now_ms, wall_ms)
        protocol = self._classic_protocol(group_id)
        if isinstance(protocol, ErrorCode):
            return Outcome(JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
        return protocol.join(request, ticket, now_ms, wall_ms)

    def sync(
        self, group_id: str, request: SyncRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> GroupOutcome[SyncReply | None]:
        """Send or request assignments (SyncGroup); a reply of None is completed later under
        ``ticket``.
        """
        protocol = self._classic_protocol(group_id)
        if isinstance(protocol, ErrorCode):
            return Outcome(SyncReply(protocol))
        return protocol.sync(request, ticket, now_ms, wall_ms)

    def heartbeat(
        self, group_id: str, member: MemberIdentity, generation_id: int, now_ms: int
    ) -> GroupOutcome[ErrorCode]:
        """Extend the session of a classic member (Heartbeat)."""
        protocol = self._classic_protocol(group_id)
        if isinstance(protocol, ErrorCode):
            return Outcome(protocol)
        return protocol.heartbeat(member, generation_id, now_ms)

    def leave(
        self, group_id: str, leavers: Sequence[MemberIdentity], now_ms: int, wall_ms: int
    ) -> GroupOutcome[LeaveReply]:
        """Remove members (LeaveGroup)."""
        protocol = self._classic_protocol(group_id)
        if isinstance(protocol, ErrorCode):
            return Outcome((protocol,) * len(leavers) if group_id else protocol)
        return protocol.leave(leavers, now_ms, wall_ms)

    def _classic_protocol(self, group_id: str) -> ClassicGroup | ClassicMembers | ErrorCode:
        """Return what serves the classic members of a group, or the error of the request."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if isinstance(group, ConsumerGroup):
            return ClassicMembers(self.consumer, group)
        return ErrorCode.UNKNOWN_MEMBER_ID

    # All groups -----------------------------------------------------------------------------------

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """List groups (ListGroups).

        :param states: names of states, in any case; empty for all states
        :param types: names of group types, in any case; empty for all types
        """
        states = {state.strip().lower() for state in states}
        types = {type_.strip().lower() for type_ in types}
        return [
            GroupListing(group.group_id, group.protocol_type, group.state_name, group.type_name)
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states)
            and (not types or group.type_name in types)
        ]

    def delete(self, group_id: str) -> GroupOutcome[ErrorCode]:
        """Delete an empty group and its offsets (DeleteGroups). The share state of a share group
        must be deleted before.
        """
        group = self.groups.get(group_id)
        if group is None:
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return Outcome(ErrorCode.NON_EMPTY_GROUP)
        offsets = self.offsets.committed.tombstones(group_id)
        return Outcome(ErrorCode.NONE, (*offsets, *group.tombstones()))

    def topics_deleted(self, topics: Iterable[Topic]) -> Iterable[tuple[str, GroupOutcome[None]]]:
        """Delete the offsets and share state of deleted topics; yield (group id, outcome) for each
        group that has any. Apply each one before requesting the next.
        """
        deleted = {topic.name: topic.topic_id for topic in topics}
        for group_id, tombstones in self.offsets.committed.topic_tombstones(deleted):
            yield group_id, Outcome(None, tombstones)
        topic_ids = frozenset(deleted.values())
        for group in self.share.all():
            outcome = group.deleted(topic_ids)
            if outcome.records:
                yield group.group_id, outcome

    # Time -----------------------------------------------------------------------------------------

    def loaded(self, now_ms: int) -> None:
        """Start the sessions of all members after all records have been replayed."""
        self.meters.completed_rebalances = 0
        self.offsets.start(now_ms)
        for group in self.groups.values():
            group.start_sessions(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next timer runs out, in milliseconds of the steady clock, or None."""
        return self._timers.next_ms()

    def expire(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, GroupOutcome[None]]]:
        """Handle some due timers; yield (group id, outcome). Apply each one before requesting the
        next. Further timers stay due; one whose outcome is not applied runs out again after
        :data:`RETRY_MS`.
        """
        for _ in range(TIMEOUTS_AT_ONCE):
            due = self._timers.pop_due(now_ms)
            if due is None:
                return
            if due == OFFSETS:
                yield from self.offsets.expire(now_ms, wall_ms)
                continue
            group_id, timer, member_id = due
            group = self.groups.get(group_id)
            if group is not None:
                service = self._services[group.type_name]
                outcome = service.expire(group, timer, member_id, now_ms, wall_ms)
                unapplied = Unapplied()
                yield group_id, unapplied.watch(outcome)
                if unapplied.count:
                    self._timers.set(due, now_ms + RETRY_MS)

    # Replay ---------------------------------------------------------------------------------------

    encode = staticmethod(record_schemas.encode)
    decode = staticmethod(record_schemas.decode)

    def replay(self, record: GroupRecord, at: Position = NOWHERE) -> None:
        """Apply one durable record."""
        if not isinstance(record, OffsetCommit):
            self._replays[type(record)](record)
            return
        self.offsets.committed.replay(record, at)
        if record.group_id not in self.groups and record.value is not None:
            self.groups[record.group_id] = self.classic.new_group(record.group_id)
