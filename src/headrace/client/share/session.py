"""What a member remembers of its share group and of one node's share session. Pure: no IO, no clock
(KIP-932).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition

from .spans import Span, intersect, normalize, subtract

_MAX_EPOCH = 2**31 - 1
_LEAVE_EPOCH = -1
CLOSE_EPOCH = -1
"""The share session epoch that closes a session and releases what it holds."""

# Answers after which the member starts again from epoch 0.
_REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
# Answers after which the same heartbeat is worth sending again, to whoever is coordinator then.
_RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}

_EAGER_HEARTBEAT_INTERVAL_MS = 100


@dataclass(slots=True)
class ShareMembership:
    """This member's place in the group: what its next heartbeat says, and what an answer means.

    :param member_id: made by the client and kept for life
    :param topics: the names subscribed to
    """

    member_id: str
    topics: tuple[str, ...]
    member_epoch: int = 0
    assignment: frozenset[TopicIdPartition] = frozenset()
    heartbeat_interval_ms: int = 1000
    _announcing: tuple[str, ...] | None = field(default=None, repr=False)
    _announced: tuple[str, ...] | None = field(default=None, repr=False)
    _eager_heartbeats: int = field(default=0, repr=False)

    def next_heartbeat(self) -> tuple[int, tuple[str, ...] | None]:
        """(member epoch, subscribed topic names or None for "unchanged") of the next request."""
        unchanged = self.member_epoch > 0 and self._announced == self.topics
        self._announcing = self.topics
        return self.member_epoch, None if unchanged else self.topics

    def joined(
        self,
        member_epoch: int,
        heartbeat_interval_ms: int,
        assigned: frozenset[TopicIdPartition] | None,
    ) -> None:
        """A heartbeat was answered without error; ``assigned`` is None where the answer leaves it
        unchanged.
        """
        self._announced = self._announcing  # the topics may have changed since it was asked
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        if assigned is not None:
            self.assignment = assigned
        self._eager_heartbeats = 0 if self.assignment else self._eager_heartbeats + 1

    def refused(self, code: int) -> bool:
        """A heartbeat was refused. True: send another; False: the error is final."""
        if code in _REJOIN:
            self.member_epoch = 0
            self.assignment = frozenset()
            return True
        return code in _RETRY

    def heartbeat_delay_ms(self) -> int:
        """How long to wait before the next heartbeat.

        A group's first members get an empty assignment, because the state of the share-partitions
        is still being initialised; they ask again soon, and ever less often.
        """
        if self.assignment:
            return self.heartbeat_interval_ms
        return min(
            self.heartbeat_interval_ms,
            _EAGER_HEARTBEAT_INTERVAL_MS * (1 + self._eager_heartbeats // 10),
        )

    def leave_epoch(self) -> int:
        """The member epoch that says good-bye."""
        return _LEAVE_EPOCH


@dataclass(frozen=True, slots=True)
class SessionStep:
    """What a ShareFetch tells the node about the session.

    :param epoch: 0 opens a session
    :param add: partitions that the node does not have in the session yet
    :param forget: partitions that it is to drop
    """

    epoch: int
    add: tuple[TopicIdPartition, ...]
    forget: tuple[TopicIdPartition, ...]


@dataclass(slots=True)
class ShareSession:
    """The share session with one node: its epoch, and the partitions that the node knows to be in
    it.
    """

    epoch: int = 0
    partitions: frozenset[TopicIdPartition] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether acknowledgements can be sent: a session has been opened and not been lost
        since."""
        return self.epoch > 0

    def fetch(self, wanted: Iterable[TopicIdPartition]) -> SessionStep:
        """What the next ShareFetch says so that the session holds exactly ``wanted``."""
        wanted = frozenset(wanted)
        add = tuple(sorted(wanted - self.partitions))
        return SessionStep(self.epoch, add, tuple(sorted(self.partitions - wanted)))

    def fetched(self, step: SessionStep) -> None:
        """The node took that ShareFetch."""
        self.partitions = (self.partitions - frozenset(step.forget)) | frozenset(step.add)
        self._advance()

    def acknowledged(self) -> None:
        """The node took a ShareAcknowledge."""
        self._advance()

    def lost(self) -> None:
        """The node does not know the session any more (or disagrees about its epoch): begin
        again."""
        self.epoch = 0
        self.partitions = frozenset()

    def _advance(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1


@dataclass(slots=True)
class HeldRecords:
    """Which records this member holds acquisition locks on, by topic id and partition."""

    _spans: dict[TopicIdPartition, list[Span]] = field(default_factory=dict)
    _locked_at_ms: dict[TopicIdPartition, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def spans(self, partition: TopicIdPartition) -> list[Span]:
        """What is held of one partition."""
        return self._spans.get(partition, [])

    def partitions(self) -> list[TopicIdPartition]:
        """The partitions of which anything is held."""
        return list(self._spans)

    def add(self, partition: TopicIdPartition, spans: Iterable[Span], now_ms: int) -> None:
        """These were just acquired."""
        self._spans[partition] = normalize([*self.spans(partition), *spans])
        self._locked_at_ms.setdefault(partition, now_ms)

    def held(self, partition: TopicIdPartition, spans: Iterable[Span]) -> list[Span]:
        """Those of ``spans`` that are held."""
        return intersect(self.spans(partition), normalize(spans))

    def drop(self, partition: TopicIdPartition, spans: Iterable[Span] | None = None) -> None:
        """No longer held: acknowledged, or lost; None drops all of the partition."""
        rest = [] if spans is None else subtract(self.spans(partition), normalize(spans))
        if rest:
            self._spans[partition] = rest
        else:
            self._spans.pop(partition, None)
            self._locked_at_ms.pop(partition, None)

    def locked_before(self, at_ms: int) -> list[TopicIdPartition]:
        """The partitions with a lock taken, or last renewed, at ``at_ms`` or earlier."""
        return [
            partition
            for partition, locked_at_ms in self._locked_at_ms.items()
            if locked_at_ms <= at_ms
        ]

    def renewed(self, partition: TopicIdPartition, now_ms: int) -> None:
        """All locks of the partition run anew from now."""
        if partition in self._spans:
            self._locked_at_ms[partition] = now_ms
