"""The group coordinator: all groups and their committed offsets, in ``__consumer_offsets``.

The first request to a group sets its kind: JoinGroup or a commit without a member makes it classic,
a heartbeat makes it a consumer, share or streams group. A classic group can become a consumer group
and the other way round (KIP-848). The coordinator refuses requests for groups of another kind, and
passes the others to the module of the group's kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from headrace.deadlines import RETRY_MS, Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.internal_topics import CONSUMER_OFFSETS
from headrace.outcome import NOWHERE, Apply, Outcome, Position

from . import record_schemas
from .classic.group import ClassicGroup, new_generation
from .classic.member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from .consumer import classic_members
from .consumer.group import ConsumerGroup
from .consumer.service import ConsumerGroupService
from .deadlines import OFFSETS, TimerKey
from .kinds import Group, group_of_kind
from .limits import TIMEOUTS_AT_ONCE
from .meters import GroupMeters
from .offsets.service import OffsetService
from .records import (
    ConsumerGroupMetadata,
    ConsumerGroupRecord,
    GroupMetadata,
    GroupRecord,
    OffsetCommit,
    ShareGroupMetadata,
    StreamsGroupMetadata,
    StreamsGroupRecord,
)
from .settings import ClassicSettings, Configuration, NoTopics, Topic, TopicCatalog
from .share.group import ShareGroup
from .share.service import ShareGroupService
from .streams.group import StreamsGroup
from .streams.service import StreamsGroupService


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
    :ivar consumer: commands to consumer groups
    :ivar share: commands to share groups
    :ivar streams: commands to streams groups
    """

    topic = CONSUMER_OFFSETS

    def __init__(self, config: Configuration, catalog: TopicCatalog | None = None) -> None:
        self.groups: dict[str, Group] = {}
        self.meters = GroupMeters()
        self._config = config
        self._timers: Deadlines[TimerKey] = Deadlines()
        self.offsets = OffsetService(self.groups, config, self._timers, self.meters)
        catalog = catalog or NoTopics()
        self.consumer = ConsumerGroupService(
            self.groups, config, catalog, self._timers, self.meters
        )
        self.share = ShareGroupService(self.groups, config, self._timers)
        self.streams = StreamsGroupService(self.groups, config, catalog, self._timers, self.meters)

    # Classic groups -------------------------------------------------------------------------------

    def join(
        self, group_id: str, request: JoinRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, JoinReply | None]:
        """Let a member join (JoinGroup); a reply of None is completed later under ``ticket``."""
        settings = ClassicSettings.of(self._config)
        code = self._check_join(group_id, request, settings)
        if code:
            is_other_kind = code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return Outcome(JoinReply(code, "" if is_other_kind else request.member_id))
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.consumer.join(group, request, now_ms, wall_ms)
        if isinstance(group, ClassicGroup):
            return group.join(request, ticket, settings, now_ms, wall_ms)
        # A new group, or an empty one of another protocol, which becomes classic.
        tombstones = () if group is None else tuple(group.tombstones())
        new = ClassicGroup(group_id, self._timers)
        begun = new_generation(wall_ms)
        new.replay(begun)
        outcome = new.join(request, ticket, settings, now_ms, wall_ms)
        records = (*tombstones, GroupMetadata(group_id, begun), *outcome.records)
        register = partial(self.groups.__setitem__, group_id, new)
        return outcome._replace(records=records).then(register)

    def _check_join(
        self, group_id: str, request: JoinRequest, settings: ClassicSettings
    ) -> ErrorCode:
        """Return the error of a JoinGroup that is invalid for any group."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if (
            not settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self.groups.get(group_id)
        if group is None or (isinstance(group, ConsumerGroup | StreamsGroup) and group.is_empty):
            return ErrorCode.UNKNOWN_MEMBER_ID if request.member_id else ErrorCode.NONE
        return (
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            if isinstance(group, ShareGroup | StreamsGroup)
            else ErrorCode.NONE
        )

    def sync(
        self, group_id: str, request: SyncRequest, ticket: int, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, SyncReply | None]:
        """Send or request assignments (SyncGroup); a reply of None is completed later under
        ``ticket``.
        """
        group = self._joinable(group_id)
        if isinstance(group, ErrorCode):
            return Outcome(SyncReply(group))
        if isinstance(group, ConsumerGroup):
            return self.consumer.sync(group, request, now_ms)
        return group.sync(request, ticket, now_ms, wall_ms)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now_ms: int,
    ) -> Outcome[GroupRecord, ErrorCode]:
        """Extend the session of a classic member (Heartbeat)."""
        group = self._joinable(group_id)
        if isinstance(group, ErrorCode):
            return Outcome(group)
        if isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(
                group, MemberIdentity(member_id, instance_id), generation_id, now_ms
            )
        return group.heartbeat(member_id, instance_id, generation_id, now_ms)

    def leave(
        self, group_id: str, leavers: Sequence[MemberIdentity], now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, LeaveReply]:
        """Remove members (LeaveGroup)."""
        group = self._joinable(group_id)
        if isinstance(group, ErrorCode):
            return Outcome((group,) * len(leavers) if group_id else group)
        if isinstance(group, ConsumerGroup):
            return self.consumer.leave(group, leavers, now_ms, wall_ms)
        return group.leave(leavers, now_ms, wall_ms)

    def _joinable(self, group_id: str) -> ClassicGroup | ConsumerGroup | ErrorCode:
        """Return a group that can have classic members, or the error of the request."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group

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

    def classic_group(self, group_id: str) -> ClassicGroup | Refusal:
        """Return a classic group, or GROUP_ID_NOT_FOUND."""
        return group_of_kind(self.groups, group_id, ClassicGroup)

    def delete(self, group_id: str) -> Outcome[GroupRecord, ErrorCode]:
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

    def topics_deleted(
        self, topics: Iterable[Topic]
    ) -> Iterable[tuple[str, Outcome[GroupRecord, None]]]:
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
            if isinstance(group, ShareGroup):
                group.start_sessions(self.share.settings(group.group_id), now_ms)
            elif isinstance(group, ConsumerGroup):
                group.start_sessions(self.consumer.settings(group.group_id), now_ms)
            elif isinstance(group, StreamsGroup):
                group.start_sessions(self.streams.settings(group.group_id), now_ms)
            else:
                group.start_sessions(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next timer runs out, in milliseconds of the steady clock, or None."""
        return self._timers.next_ms()

    def expire(self, now_ms: int, wall_ms: int) -> Iterable[tuple[str, Outcome[GroupRecord, None]]]:
        """Handle some due timers; yield (group id, outcome). Apply each one before requesting the
        next. Further timers stay due; one whose outcome is not applied runs out again after
        :data:`RETRY_MS`.
        """
        left = TIMEOUTS_AT_ONCE
        while left > 0 and (due := self._timers.pop_due(now_ms)) is not None:
            left -= 1
            if due == OFFSETS:
                yield from self.offsets.expire(now_ms, wall_ms)
                continue
            group_id = due[0]
            outcome = self._expire_timer(*due, now_ms, wall_ms)
            if outcome is not None:
                self._timers.set(due, now_ms + RETRY_MS)
                yield group_id, outcome._replace(apply=partial(self._run_out, due, outcome.apply))

    def _run_out(self, due: TimerKey, apply: Apply | None) -> None:
        self._timers.cancel(due)
        if apply is not None:
            apply()

    def _expire_timer(
        self, group_id: str, kind: str, member_id: str, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, None] | None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumer.expire(group, kind, member_id, now_ms, wall_ms)
        if isinstance(group, ClassicGroup):
            settings = ClassicSettings.of(self._config)
            return group.expire(kind, member_id, settings, now_ms, wall_ms)
        if isinstance(group, StreamsGroup):
            return self.streams.expire(group, kind, member_id, wall_ms)
        if isinstance(group, ShareGroup) and member_id in group.members:
            return group.expire(member_id)
        return None

    # Replay ---------------------------------------------------------------------------------------

    encode = staticmethod(record_schemas.encode)
    decode = staticmethod(record_schemas.decode)

    def replay(self, record: GroupRecord, at: Position = NOWHERE) -> None:
        """Apply one durable record."""
        group_id = record.group_id
        if isinstance(record, OffsetCommit):
            self.offsets.committed.replay(record, at)
            if group_id not in self.groups and record.value is not None:
                self.groups[group_id] = ClassicGroup(group_id, self._timers)
            return
        group = self.groups.get(group_id)
        if isinstance(record, GroupMetadata):
            if record.value is not None:
                if not isinstance(group, ClassicGroup):
                    group = self.groups[group_id] = ClassicGroup(group_id, self._timers)
                before = -1 if group.recorded is None else group.recorded.generation
                self.meters.completed_rebalances += (
                    bool(record.value.members) and record.value.generation > before
                )
                group.replay(record.value)
            elif isinstance(group, ClassicGroup):
                del self.groups[group_id]
        elif isinstance(record, ConsumerGroupRecord):
            self._replay(record, ConsumerGroup, ConsumerGroupMetadata)
        elif isinstance(record, StreamsGroupRecord):
            self._replay(record, StreamsGroup, StreamsGroupMetadata)
        else:
            self._replay(record, ShareGroup, ShareGroupMetadata)

    def _replay(
        self,
        record: GroupRecord,
        kind: type[ConsumerGroup | ShareGroup | StreamsGroup],
        epoch_record: type[ConsumerGroupMetadata | ShareGroupMetadata | StreamsGroupMetadata],
    ) -> None:
        """Apply a record of a kind of groups.

        :param epoch_record: the type whose tombstone deletes the group
        """
        group: Any = self.groups.get(record.group_id)
        if not isinstance(group, kind):
            if record.value is None:
                return
            group = self.groups[record.group_id] = kind(record.group_id, self._timers)
        group.replay(record)
        if isinstance(record, epoch_record) and record.value is None:
            del self.groups[record.group_id]
