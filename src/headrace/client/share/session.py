"""The state of a share group's member: membership, share sessions, held records (KIP-932).

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.errors import ErrorCode
from headrace.protocol.partitions import TopicIdPartition

from .spans import Span, intersect, normalize, subtract

_MAX_EPOCH = 2**31 - 1
LEAVE_EPOCH = -1
"""The member epoch that leaves the group."""
CLOSE_EPOCH = -1
"""The share session epoch that closes a session and releases its records."""

# Errors after which the member joins again with epoch 0.
_REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
# Errors after which the member repeats the heartbeat.
_RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}

_EAGER_HEARTBEAT_INTERVAL_MS = 100
_MIN_HEARTBEAT_INTERVAL_MS = 100
"""The shortest interval between heartbeats, whatever the broker says."""


@dataclass(slots=True)
class ShareMembership:
    """A membership: the content of the next heartbeat, and the effect of a response.

    :param member_id: chosen by the client, and never changed
    :param topics: names of the subscribed topics
    """

    member_id: str
    topics: tuple[str, ...]
    member_epoch: int = 0
    assignment: frozenset[TopicIdPartition] = frozenset()
    heartbeat_interval_ms: int = 1000
    _announcing: tuple[str, ...] | None = field(default=None, repr=False)
    _announced: tuple[str, ...] | None = field(default=None, repr=False)
    _eager_heartbeats: int = field(default=0, repr=False)

    @property
    def may_be_member(self) -> bool:
        """True once a heartbeat was built: the coordinator may know the member, even if the answer
        has not come.
        """
        return self._announcing is not None

    def left(self) -> None:
        """Apply the answer to the heartbeat that leaves the group."""
        self.member_epoch = 0
        self._announcing = None

    def next_heartbeat(self) -> tuple[int, tuple[str, ...] | None]:
        """Return the member epoch and the subscribed topics of the next heartbeat.

        The topics are None if they have not changed.
        """
        unchanged = self.member_epoch > 0 and self._announced == self.topics
        self._announcing = self.topics
        return self.member_epoch, None if unchanged else self.topics

    def joined(
        self,
        member_epoch: int,
        heartbeat_interval_ms: int,
        assigned: frozenset[TopicIdPartition] | None,
    ) -> None:
        """Apply a response without error.

        :param assigned: the assignment; None if it has not changed
        """
        self._announced = self._announcing  # not the topics of now: they may have changed meanwhile
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = max(_MIN_HEARTBEAT_INTERVAL_MS, heartbeat_interval_ms)
        if assigned is not None:
            self.assignment = assigned
        self._eager_heartbeats = 0 if self.assignment else self._eager_heartbeats + 1

    def refused(self, code: int) -> bool:
        """Apply a response with an error.

        :returns: whether to send another heartbeat; False if the error is final
        """
        if code in _REJOIN:
            self.member_epoch = 0
            self.assignment = frozenset()
            return True
        return code in _RETRY

    def heartbeat_delay_ms(self) -> int:
        """Return the time until the next heartbeat.

        The first members of a group get an empty assignment until the share-partitions are
        initialized. They repeat the heartbeat soon, and then at growing intervals.
        """
        if self.assignment:
            return self.heartbeat_interval_ms
        return min(
            self.heartbeat_interval_ms,
            _EAGER_HEARTBEAT_INTERVAL_MS * (1 + self._eager_heartbeats // 10),
        )


@dataclass(frozen=True, slots=True)
class SessionStep:
    """The session fields of a ShareFetch.

    :param epoch: share session epoch; 0 opens a session
    :param add: partitions to add to the session
    :param forget: partitions to remove from it
    """

    epoch: int
    add: tuple[TopicIdPartition, ...]
    forget: tuple[TopicIdPartition, ...]


@dataclass(slots=True)
class ShareSession:
    """The share session with one node.

    :param epoch: of the next request; 0 while no session is open
    :param partitions: the partitions in the session
    """

    epoch: int = 0
    partitions: frozenset[TopicIdPartition] = frozenset()

    @property
    def is_open(self) -> bool:
        """True while a session is open, which acknowledgements need."""
        return self.epoch > 0

    def fetch(self, wanted: Iterable[TopicIdPartition]) -> SessionStep:
        """Return the fields of a ShareFetch after which the session has exactly ``wanted``."""
        wanted = frozenset(wanted)
        add = tuple(sorted(wanted - self.partitions))
        return SessionStep(self.epoch, add, tuple(sorted(self.partitions - wanted)))

    def fetched(self, step: SessionStep) -> None:
        """Apply a ShareFetch that the node accepted."""
        self.partitions = (self.partitions - frozenset(step.forget)) | frozenset(step.add)
        self._advance()

    def acknowledged(self) -> None:
        """Apply a ShareAcknowledge that the node accepted."""
        self._advance()

    def lost(self) -> None:
        """Discard the session, which the node has lost or has with another epoch."""
        self.epoch = 0
        self.partitions = frozenset()

    def _advance(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1


@dataclass(slots=True)
class HeldRecords:
    """The records that this member holds acquisition locks on, by topic id and partition."""

    _spans: dict[TopicIdPartition, list[Span]] = field(default_factory=dict)
    _locked_at_ms: dict[TopicIdPartition, int] = field(default_factory=dict)

    def spans(self, partition: TopicIdPartition) -> list[Span]:
        """Return the held runs of one partition."""
        return self._spans.get(partition, [])

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions with held records."""
        return list(self._spans)

    def add(self, partition: TopicIdPartition, spans: Iterable[Span], now_ms: int) -> None:
        """Add acquired runs."""
        self._spans[partition] = normalize([*self.spans(partition), *spans])
        self._locked_at_ms.setdefault(partition, now_ms)

    def held(self, partition: TopicIdPartition, spans: Iterable[Span]) -> list[Span]:
        """Return the parts of ``spans`` that are held."""
        return intersect(self.spans(partition), normalize(spans))

    def drop(self, partition: TopicIdPartition, spans: Iterable[Span]) -> None:
        """Remove runs that were acknowledged or lost."""
        rest = subtract(self.spans(partition), normalize(spans))
        if rest:
            self._spans[partition] = rest
        else:
            self._spans.pop(partition, None)
            self._locked_at_ms.pop(partition, None)

    def locked_before(self, at_ms: int) -> list[TopicIdPartition]:
        """Return the partitions with a lock acquired or renewed at ``at_ms`` or earlier."""
        return [
            partition
            for partition, locked_at_ms in self._locked_at_ms.items()
            if locked_at_ms <= at_ms
        ]

    def renewed(self, partition: TopicIdPartition, now_ms: int) -> None:
        """Record that all locks of the partition were renewed."""
        if partition in self._spans:
            self._locked_at_ms[partition] = now_ms
