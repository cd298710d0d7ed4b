"""Heartbeats that change nothing, as nearly all do.

A member repeats the same heartbeat until its group changes. If neither the group nor topics nor
configs have changed since a heartbeat without effect, the next equal one has the same reply. Then
nothing is decided again; the heartbeat only restarts the member's session.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, TypeVar

from headrace.groups.deadlines import SESSION, GroupDeadlines
from headrace.groups.records import GroupOutcome
from headrace.outcome import Outcome

from .member import Heartbeat

RequestT = TypeVar("RequestT", bound=Heartbeat)
ReplyT = TypeVar("ReplyT")


class SteadyHeartbeats(Generic[RequestT, ReplyT]):
    """The last heartbeat without effect of each member of one group, with its reply.

    :param timers: the timers of the group
    """

    __slots__ = ("_by_member", "_timers")

    def __init__(self, timers: GroupDeadlines) -> None:
        self._timers = timers
        self._by_member: dict[str, tuple[RequestT, int, ReplyT, int]] = {}

    def repeat(self, request: RequestT, version: int, now_ms: int) -> GroupOutcome[ReplyT] | None:
        """Return the outcome of a heartbeat that equals the one before; None if it has to be
        decided.

        :param version: the version of topics and configs
        """
        last = self._by_member.get(request.member_id)
        if last is None or last[1] != version or last[0] != request:
            return None
        _, _, reply, session_timeout_ms = last
        deadline_ms = now_ms + session_timeout_ms
        return Outcome(
            reply, apply=partial(self._timers.set, SESSION, request.member_id, deadline_ms)
        )

    def remembering(
        self,
        outcome: GroupOutcome[ReplyT],
        request: RequestT,
        version: int,
        session_timeout_ms: int,
    ) -> GroupOutcome[ReplyT]:
        """Return the outcome of a heartbeat without effect; applying it remembers the heartbeat.

        The reply must not depend on time.
        """
        last = request, version, outcome.reply, session_timeout_ms
        return outcome.then(partial(self._by_member.__setitem__, request.member_id, last))

    def forget(self) -> None:
        """Forget all heartbeats, as the group has changed."""
        self._by_member.clear()
