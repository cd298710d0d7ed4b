"""Committed offsets, which never go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode

from ..witness import Violation
from .actor import Actor

if TYPE_CHECKING:
    from .world import World

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
Key = tuple[str, int]
"""A group, and a partition of ``orders``."""


class Offsets:
    """The offsets that members commit; each is higher than all before.

    :ivar acknowledged: the highest acknowledged offset
    :ivar sent: the highest offset that was sent
    """

    def __init__(self) -> None:
        self.acknowledged: dict[Key, int] = {}
        self.sent: dict[Key, int] = {}

    def commit(
        self,
        actor: Actor,
        group_id: str,
        partition: int,
        member: tuple[str, int],
        failed: Callable[[int], bool],
    ) -> None:
        """Commit the next offset.

        :param member: member id and its generation or epoch
        :param failed: is called with the error
        """
        key = group_id, partition
        offset = self.sent[key] = self.sent.get(key, -1) + 1

        def answered(answer: Any) -> None:
            if answer is None or failed(int(answer.topics[0].partitions[0].error_code)):
                return
            self.acknowledged[key] = max(self.acknowledged.get(key, -1), offset)
            actor.world.counts["offsets committed"] += 1

        committed = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        actor.ask(
            OFFSET_COMMIT,
            9,
            answered,
            group_id=group_id,
            generation_id_or_member_epoch=member[1],
            member_id=member[0],
            topics=[{"name": "orders", "partitions": [committed]}],
        )

    def check(self, key: Key, offset: int, at_least: int) -> None:
        if not at_least <= offset <= self.sent.get(key, -1):
            raise Violation(
                f"the offset of {key} is {offset}; {at_least} was acknowledged, and "
                f"{self.sent.get(key, -1)} sent"
            )


def fetch_offset(
    actor: Actor, group_id: str, partition: int, on_offset: Callable[[int], None]
) -> None:
    """Fetch a committed offset, which must be stable."""

    def answered(answer: Any) -> None:
        if answer is None:
            return
        group = answer.groups[0]
        if actor.failed(group.error_code):
            return
        one = group.topics[0].partitions[0]
        if not actor.failed(one.error_code, ErrorCode.UNSTABLE_OFFSET_COMMIT):
            on_offset(one.committed_offset)

    topics = [{"name": "orders", "partition_indexes": [partition]}]
    actor.ask(
        OFFSET_FETCH,
        9,
        answered,
        groups=[{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}],
        require_stable=True,
    )


class Committer(Actor):
    """A consumer without membership that commits and fetches its offsets."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.group_id = f"group of {name}"

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        offsets, rng = self.world.offsets, self.world.rng
        partition = rng.randrange(3)
        if rng.random() < 0.7:
            offsets.commit(self, self.group_id, partition, ("", -1), self.failed)
            return f"commits for {partition}"
        key = self.group_id, partition
        at_least = offsets.acknowledged.get(key, -1)
        fetch_offset(
            self,
            self.group_id,
            partition,
            lambda offset: offsets.check(key, offset, at_least),
        )
        return f"fetches the offset of {partition}"
