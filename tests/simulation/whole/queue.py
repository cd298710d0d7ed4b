"""Members of a share group. What was accepted is not delivered again; other deliveries are the
matter of :mod:`tests.simulation.witness`, on disks that do not fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.share.acknowledgement import ACCEPT

from ..clients import Member
from ..network import GOOD
from ..shelf import each
from ..witness import Violation
from .actor import STORAGE
from .book import Where

if TYPE_CHECKING:
    from .world import World


class QueueMember(Member):
    """A member of a share group that accepts what it gets."""

    tolerated = STORAGE

    def __init__(self, world: World, name: str, group_id: str) -> None:
        super().__init__(world.network, name, group_id, ["orders"])
        self.world = world

    def act(self) -> str:
        world, rng = self.world, self.world.rng
        if self.next_heartbeat_ms <= world.machine.loop.now_ms and not self.heartbeats.is_waiting:
            self.heartbeat(world.machine.loop.now_ms, self._fate())
            return "says that it is there"
        if self.is_waiting:
            return "waits"
        if self.held and rng.random() < 0.5:
            return self.acknowledge_all()
        return self.fetch(rng, self._fate(), acknowledge=rng.random() < 0.5)

    def _fate(self) -> str:
        return GOOD if self.world.is_calm else self.world.fate()

    def send(self, request: Any, on_answer: Callable[[Any], None], fate: str = GOOD) -> None:
        def answered(answer: Any) -> None:
            if answer is not None:
                try:
                    self._check(request, answer)
                except Exception as error:
                    self.world.problems.append(error)
            on_answer(answer)

        super().send(request, answered, fate)

    def _check(self, request: Any, answer: Any) -> None:
        if answer.error_code:
            return
        accepted = self.world.accepted
        for topic in answer.responses:
            for partition in topic.partitions:
                where: Where = (topic.topic_id, partition.partition_index)
                for run in getattr(partition, "acquired_records", ()):
                    for offset in range(run.first_offset, run.last_offset + 1):
                        if (where, offset) in accepted:
                            raise Violation(f"offset {offset} of {where[1]} comes again")
                        self.world.counts["records delivered"] += 1
                refused = getattr(partition, "acknowledge_error_code", 0) or partition.error_code
                if not refused:
                    self._accept(request, where)

    def _accept(self, request: Any, where: Where) -> None:
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.topic_id, partition.partition_index) == where:
                    self.world.accepted.update(
                        (where, offset)
                        for offset, kind in each(partition.acknowledgement_batches)
                        if kind == ACCEPT
                    )
