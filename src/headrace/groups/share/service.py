"""Commands to share groups (KIP-932)."""

from __future__ import annotations

from headrace.groups.heartbeats.service import HeartbeatService
from headrace.groups.settings import ShareGroupSettings
from headrace.protocol.errors import ErrorCode, Refusal

from .group import ShareGroup
from .member import ShareHeartbeat, ShareHeartbeatReply
from .partitions import Partitions


class ShareGroupService(
    HeartbeatService[ShareGroup, ShareHeartbeat, ShareHeartbeatReply, ShareGroupSettings]
):
    """Commands to share groups."""

    kind = ShareGroup
    settings_type = ShareGroupSettings

    def to_initialize(
        self, group_id: str, request: ShareHeartbeat
    ) -> tuple[ShareGroup, Partitions] | None:
        """Return the group of a heartbeat, and the partitions whose share state should be
        initialised before; None if there are none, or the heartbeat will be refused.
        """
        settings = self.settings(group_id)
        if request.leaves or request.check(group_id, settings) is not None:
            return None
        group = self.member_group(group_id, request)
        if isinstance(group, Refusal) or group.check(request, settings.max_size) is not None:
            return None
        partitions = group.to_initialize(request, self.catalog.topics)
        return (group, partitions) if partitions else None

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
