"""The heartbeat of a member and its answer: what those of all kinds of groups have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.protocol.configuration import Configuration
from headrace.protocol.errors import Refusal, invalid_request

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
NO_TIMEOUT = -1
_NO_CHANGE = (None, NO_TIMEOUT)

HeldT = TypeVar("HeldT")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat request; equal heartbeats have equal fields. None stands for no change.

    :param member_epoch: 0 to join or rejoin, -1 to leave, -2 for a static member that leaves
        temporarily
    :param instance_id: None in share groups, which have no static members
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str

    @property
    def joins(self) -> bool:
        """True if the member joins or rejoins."""
        return self.member_epoch == JOIN_EPOCH

    @property
    def leaves(self) -> bool:
        """True if the member leaves, for ever or temporarily."""
        return self.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def asks_assignment(self) -> bool:
        """True if the answer has the assignment, even if it is unchanged."""
        return self.joins

    def check(self, group_id: str, config: Configuration) -> Refusal | None:
        """Return the error of a request that is invalid for any group."""
        names = {
            "MemberId": self.member_id,
            "GroupId": group_id,
            "InstanceId": self.instance_id,
            "RackId": self.rack_id,
        }
        for name, text in names.items():
            if text is not None and not text.strip():
                return invalid_request(f"{name} can't be empty.")
        if self.member_epoch == STATIC_LEAVE_EPOCH and self.instance_id is None:
            return invalid_request("InstanceId can't be null.")
        fault = self._fault()
        return None if fault is None else invalid_request(fault)

    def _fault(self) -> str | None:
        """Return the error text of other fields than names."""
        raise NotImplementedError

    def member(self, former: Any) -> Any:
        """Return the member with the changes of this heartbeat, whose fields have its names."""
        fields = (
            getattr(former, name) if value in _NO_CHANGE else value
            for name in former.FIELDS
            for value in (getattr(self, name),)
        )
        return type(former)(*fields)


@dataclass(frozen=True, slots=True)
class HeartbeatReply(Generic[HeldT]):
    """The answer to a heartbeat.

    :param assigned: the assignment; None if unchanged
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: HeldT | None = None
