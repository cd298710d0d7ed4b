"""Share sessions: the partitions that a member fetches. Requests list only changes.

A ShareFetch with epoch 0 opens a session, which ends with its connection. Every further ShareFetch
and ShareAcknowledge has the next epoch; epoch -1 ends the session. Source: KIP-932,
"Share sessions".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.protocol.errors import ErrorCode, Refusal

from .records import SharePartitionKey

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 0x7FFF_FFFF

ACKNOWLEDGES_BEFORE_OPENING = Refusal(ErrorCode.INVALID_REQUEST)
NOT_FOUND = Refusal(ErrorCode.SHARE_SESSION_NOT_FOUND)
INVALID_EPOCH = Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
LIMIT_REACHED = Refusal(ErrorCode.SHARE_SESSION_LIMIT_REACHED)


@dataclass(slots=True, eq=False)
class ShareSession:
    """The share session of one member.

    :ivar epoch: the epoch that the next request must have
    :ivar partitions: the fetched partitions; an ordered set
    :ivar acquired_from: the share-partitions of which the member may hold records, also forgotten
        ones
    """

    group_id: str
    member_id: str
    connection_id: int
    epoch: int = 1
    partitions: dict[SharePartitionKey, None] = field(default_factory=dict)
    acquired_from: set[SharePartitionKey] = field(default_factory=set)

    def update(self, add: Iterable[SharePartitionKey], forget: Iterable[SharePartitionKey]) -> None:
        """Add and remove partitions."""
        self.partitions.update(dict.fromkeys(add))
        for partition in forget:
            self.partitions.pop(partition, None)


class ShareSessions:
    """All sessions of this broker, by (group, member). Volatile: a restart ends them."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[int, set[tuple[str, str]]] = {}
        self._by_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions(self) -> int:
        """Return the number of partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        connection_id: int,
        *,
        acknowledges: bool,
        limit: int,
    ) -> ShareSession | Refusal:
        """Return the session of a ShareFetch: a new one for epoch 0, else the open one, moved to
        its next epoch.

        :param acknowledges: the request contains acknowledgements
        :param limit: ``group.share.max.share.sessions``
        """
        if epoch != INITIAL_EPOCH:
            return self._advance(group_id, member_id, epoch)
        if acknowledges:
            return ACKNOWLEDGES_BEFORE_OPENING
        key = (group_id, member_id)
        if key not in self._sessions and len(self._sessions) >= limit:
            return LIMIT_REACHED
        replaced = self.close(group_id, member_id)
        session = ShareSession(group_id, member_id, connection_id)
        if replaced is not None:  # the member still holds what it has acquired
            session.acquired_from = replaced.acquired_from
        self._sessions[key] = session
        self._by_connection.setdefault(connection_id, set()).add(key)
        self._by_group[group_id] += 1
        return session

    def is_open(self, session: ShareSession) -> bool:
        """Return True if a session was neither closed nor replaced."""
        return self._sessions.get((session.group_id, session.member_id)) is session

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession | Refusal:
        """Return the session of a ShareAcknowledge, moved to its next epoch."""
        if epoch == INITIAL_EPOCH:
            return INVALID_EPOCH
        return self._advance(group_id, member_id, epoch)

    def _advance(self, group_id: str, member_id: str, epoch: int) -> ShareSession | Refusal:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return NOT_FOUND
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                return INVALID_EPOCH
            session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def close(self, group_id: str, member_id: str) -> ShareSession | None:
        """End a session. The caller releases the records that the member holds."""
        key = (group_id, member_id)
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        keys = self._by_connection[session.connection_id]
        keys.discard(key)
        if not keys:
            del self._by_connection[session.connection_id]
        self._by_group[group_id] -= 1
        if not self._by_group[group_id]:
            del self._by_group[group_id]
        return session

    def disconnected(self, connection_id: int) -> list[ShareSession]:
        """End the sessions that a connection opened, and return them."""
        keys = sorted(self._by_connection.get(connection_id, ()))
        return [session for key in keys if (session := self.close(*key))]

    def in_group(self, group_id: str) -> int:
        """Return the number of sessions of a group."""
        return self._by_group[group_id]
