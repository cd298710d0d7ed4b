"""Members of a consumer group (KIP-848): no partition has two owners at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode

from ..witness import Violation
from .actor import Actor
from .book import Where

if TYPE_CHECKING:
    from .world import World

HEARTBEAT = 68
SESSION_MS = 45_000
REBALANCE_MS = 600_000
"""Longer than any member needs to give partitions back."""


class ConsumerMember(Actor):
    """A member of a consumer group.

    :ivar owned: the partitions that it works on
    """

    def __init__(self, world: World, name: str, group_id: str) -> None:
        super().__init__(world, name)
        self.group_id = group_id
        self.epoch = 0
        self.owned: set[Where] = set()
        self._assigned: set[Where] = set()
        self._told: set[Where] | None = None
        self._heard_of_ms = 0
        self._life = -1

    @property
    def is_settled(self) -> bool:
        """True if it owns what it is assigned."""
        return self.epoch > 0 and self.owned == self._assigned == self._told

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        rng = self.world.rng
        if self.epoch > 0 and self.owned and rng.random() < 0.4 and not self.world.is_calm:
            return self._commit(rng.choice(sorted(self.owned)))
        if self.epoch > 0 and rng.random() < 0.03 and not self.world.is_calm:
            return self._heartbeat(leave=True)
        return self._heartbeat()

    def _heartbeat(self, *, leave: bool = False) -> str:
        self.owned &= self._assigned
        joins = self.epoch == 0
        is_full = joins or self._told is None
        tells = is_full or self._told != self.owned
        told = set() if joins else set(self.owned)
        if joins or leave:
            self.owned.clear()
        if leave:
            self._assigned.clear()
        topics: dict[Any, list[int]] = {}
        for topic_id, partition in sorted(told):
            topics.setdefault(topic_id, []).append(partition)
        life = self.world.life

        def answered(answer: Any) -> None:
            if answer is None:
                self._told = None
                return
            if leave:
                self.failed(answer.error_code, *LOST)
                return
            if self._lost(int(answer.error_code)):
                return
            if tells:
                self._told = told
            self.epoch = answer.member_epoch
            self._heard_of_ms, self._life = self.asked_ms, life
            if answer.assignment is not None:
                self._take(
                    {
                        (topic.topic_id, partition)
                        for topic in answer.assignment.topic_partitions
                        for partition in topic.partitions
                    }
                )

        self.ask(
            HEARTBEAT,
            1,
            answered,
            group_id=self.group_id,
            member_id=self.name,
            member_epoch=-1 if leave else self.epoch,
            rebalance_timeout=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=["orders"] if is_full else None,
            topic_partitions=[
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in topics.items()
            ]
            if tells
            else None,
        )
        if leave:
            self.epoch, self._told = 0, None
            return "leaves"
        return f"says that it owns {sorted(p for _, p in told)}"

    def _lost(self, code: int) -> bool:
        if not self.failed(code, *LOST):
            return False
        if code in LOST:
            now_ms = self.world.machine.loop.now_ms
            silent_ms = now_ms - self._heard_of_ms
            is_removed = code == ErrorCode.UNKNOWN_MEMBER_ID and self.epoch > 0
            if is_removed and self._life == self.world.life and silent_ms < SESSION_MS:
                raise Violation(f"{self.name} is removed after {silent_ms} ms")
            self.epoch, self._told = 0, None
            self.owned.clear()
            self._assigned.clear()
        return True

    def _take(self, assigned: set[Where]) -> None:
        now_ms = self.world.machine.loop.now_ms
        for other in self.world.consumers:
            both = assigned & other.owned - self.owned
            is_alive = now_ms - other._heard_of_ms < SESSION_MS
            if other is not self and other.group_id == self.group_id and both and is_alive:
                raise Violation(f"{self.name} and {other.name} own {sorted(p for _, p in both)}")
        self._assigned = assigned
        self.owned |= assigned
        self.world.counts["consumer assignments"] += 1

    def _commit(self, where: Where) -> str:
        member = self.name, self.epoch
        self.world.offsets.commit(self, self.group_id, where[1], member, self._lost_or_stale)
        return f"commits for {where[1]}"

    def _lost_or_stale(self, code: int) -> bool:
        return code == ErrorCode.STALE_MEMBER_EPOCH or self._lost(code)


LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
