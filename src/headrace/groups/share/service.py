"""Commands to share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headrace.deadlines import Deadlines
from headrace.errors import ErrorCode, Refusal
from headrace.groups.deadlines import TimerKey
from headrace.groups.kinds import Group, group_not_found, group_of_kind, wrong_kind
from headrace.groups.records import GroupRecord
from headrace.groups.settings import Configuration, ShareGroupSettings, Topics
from headrace.outcome import Outcome

from .group import ShareGroup
from .member import LEAVE_EPOCH, ShareHeartbeat, ShareHeartbeatReply
from .transition import ShareMemberTransition


class ShareGroupService:
    """Commands to share groups. They decide; the coordinator replays their records.

    :param groups: all groups by id
    """

    def __init__(
        self, groups: Mapping[str, Group], config: Configuration, timers: Deadlines[TimerKey]
    ) -> None:
        self._groups, self._config, self._timers = groups, config, timers

    def settings(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a group, as configured now."""
        return ShareGroupSettings.of(self._config, group_id)

    # Members --------------------------------------------------------------------------------------

    def member_group(self, group_id: str, request: ShareHeartbeat) -> ShareGroup | Refusal:
        """Return the group of a heartbeat, new if the heartbeat creates it, or the error of the
        heartbeat.
        """
        refusal = request.check(group_id)
        if refusal is not None:
            return refusal
        group = self._groups.get(group_id)
        if group is None:
            if request.member_epoch == LEAVE_EPOCH:
                return group_not_found(group_id)
            if request.member_epoch > 0:
                return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            group = ShareGroup(group_id, self._timers)
        if not isinstance(group, ShareGroup):
            return wrong_kind(group_id, "share")
        return group.check_member(request, self._config.get_int("group.share.max.size")) or group

    def heartbeat(
        self, group_id: str, request: ShareHeartbeat, topics: Topics, now_ms: int, wall_ms: int
    ) -> Outcome[GroupRecord, ShareHeartbeatReply]:
        """Join, keep or remove a member (ShareGroupHeartbeat).

        :meth:`member_group` must have accepted the heartbeat, and the share state of
        :meth:`ShareGroup.to_initialize` should be initialised.
        """
        group = self._groups.get(group_id) or ShareGroup(group_id, self._timers)
        assert isinstance(group, ShareGroup)
        member_id = request.member_id
        if request.member_epoch == LEAVE_EPOCH:
            reply = ShareHeartbeatReply(member_id, LEAVE_EPOCH)
            return group.leave(member_id, topics).with_reply(reply)
        settings = self.settings(group_id)
        transition = ShareMemberTransition(group, request, topics, settings, wall_ms)
        transition.run()
        apply = partial(group.restart_session, member_id, settings, now_ms)
        return Outcome(transition.reply(), tuple(transition.records), apply=apply)

    # Groups ---------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ShareGroup | Refusal:
        """Return a share group, or GROUP_ID_NOT_FOUND."""
        return group_of_kind(self._groups, group_id, ShareGroup)

    def empty_group(self, group_id: str, *, create: bool) -> ShareGroup | Refusal:
        """Return an empty share group, whose offsets may be changed, or the error of the request.

        :param create: create a group that does not exist; its first record makes it durable
        """
        if not group_id:
            return Refusal(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        if create and group_id not in self._groups:
            return ShareGroup(group_id, self._timers)
        group = self.group(group_id)
        if isinstance(group, ShareGroup) and not group.is_empty:
            return Refusal(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def all(self) -> list[ShareGroup]:
        """Return all share groups."""
        return [group for group in self._groups.values() if isinstance(group, ShareGroup)]
