"""Members of a classic group: assignments are the leader's, and generations follow each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode

from ..witness import Violation
from .actor import Actor

if TYPE_CHECKING:
    from .world import World

HEARTBEAT, JOIN, LEAVE, SYNC = 12, 11, 13, 14
SESSION_MS, REBALANCE_MS = 30_000, 60_000
OUT, JOINED, STABLE = "out", "joined", "stable"


class ClassicGroup:
    """The expectations of one group.

    :ivar generation: the highest generation in which a member got its assignment
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.generation = -1
        self._offered: dict[int, list[dict[str, bytes]]] = {}

    def offer(self, generation: int, assignment: dict[str, bytes]) -> None:
        """Take note of the assignment that a leader sends."""
        self._offered.setdefault(generation, []).append(assignment)

    def assigned(self, generation: int, member_id: str, assignment: bytes) -> None:
        """Check an assignment that a member gets: all members have it from one leader."""
        fitting = [
            one
            for one in self._offered.get(generation, [])
            if one.get(member_id, b"") == assignment
        ]
        if not fitting:
            raise Violation(
                f"{member_id} gets {assignment!r} in generation {generation}, which is of no "
                f"leader: {self._offered.get(generation)}"
            )
        self._offered[generation] = fitting
        self.generation = max(self.generation, generation)


class ClassicMember(Actor):
    """A member of a classic group."""

    def __init__(self, world: World, name: str, group: ClassicGroup) -> None:
        super().__init__(world, name)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.state = OUT
        self.partitions: list[int] = []
        self._assignments: dict[str, bytes] = {}
        self._heard_of_ms = 0
        self._life = -1

    def act(self) -> str:
        if self.is_waiting:
            return "waits"
        if self.state == OUT:
            return self._join()
        if self.state == JOINED:
            return self._sync()
        rng = self.world.rng
        if self.world.is_calm:
            return self._heartbeat()
        if rng.random() < 0.03:
            return self._leave()
        if rng.random() < 0.5 and self.partitions:
            return self._commit(rng.choice(self.partitions))
        return self._heartbeat()

    def _in_time(self) -> None:
        self._heard_of_ms, self._life = self.asked_ms, self.world.life

    def _lost(self, code: int) -> bool:
        """Return whether a request failed; begin anew as the error says."""
        failed = self.failed(
            code,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        if not failed:
            self._in_time()
            return False
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            silent_ms = self.world.machine.loop.now_ms - self._heard_of_ms
            if self._life == self.world.life and silent_ms < SESSION_MS and self.state == STABLE:
                raise Violation(f"{self.name} is removed after {silent_ms} ms")
            self.member_id = ""
        if code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ):
            self.state, self.partitions = OUT, []
        return True

    def _join(self) -> str:
        def answered(answer: Any) -> None:
            if answer is None:
                return
            if int(answer.error_code) == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                return
            if self._lost(int(answer.error_code)):
                return
            if answer.generation_id < self.group.generation:
                raise Violation(
                    f"generation {answer.generation_id} of {self.group.group_id} comes after "
                    f"{self.group.generation}"
                )
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.state = JOINED
            self._assignments = {}
            if answer.leader == answer.member_id:
                ids = sorted(one.member_id for one in answer.members)
                self._assignments = {
                    one: json.dumps(list(range(3))[i :: len(ids)] + [self.generation]).encode()
                    for i, one in enumerate(ids)
                }

        self.ask(
            JOIN,
            9,
            answered,
            group_id=self.group.group_id,
            session_timeout=SESSION_MS,
            rebalance_timeout=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "simple", "metadata": b""}],
        )
        return "joins"

    def _sync(self) -> str:
        generation = self.generation

        def answered(answer: Any) -> None:
            if answer is None or self._lost(int(answer.error_code)):
                return
            self.group.assigned(generation, self.member_id, answer.assignment)
            self.state = STABLE
            self.partitions = json.loads(answer.assignment)[:-1] if answer.assignment else []
            self.world.counts["classic assignments"] += 1

        if self._assignments:
            self.group.offer(generation, self._assignments)
        self.ask(
            SYNC,
            5,
            answered,
            group_id=self.group.group_id,
            generation_id=generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="simple",
            assignments=[
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in self._assignments.items()
            ],
        )
        return f"syncs generation {generation}"

    def _heartbeat(self) -> str:
        def answered(answer: Any) -> None:
            if answer is not None:
                self._lost(int(answer.error_code))

        self.ask(
            HEARTBEAT,
            4,
            answered,
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
        )
        return "says that it is there"

    def _commit(self, partition: int) -> str:
        generation, newest = self.generation, self.group.generation

        def failed(code: int) -> bool:
            if self._lost(code):
                return True
            if newest > generation:
                raise Violation(
                    f"{self.name} commits in generation {generation}, and {newest} has begun"
                )
            return False

        member = self.member_id, generation
        self.world.offsets.commit(self, self.group.group_id, partition, member, failed)
        return f"commits for {partition}"

    def _leave(self) -> str:
        def answered(answer: Any) -> None:
            if answer is not None:
                self.failed(answer.error_code)

        self.ask(
            LEAVE,
            5,
            answered,
            group_id=self.group.group_id,
            members=[{"member_id": self.member_id, "group_instance_id": None}],
        )
        self.member_id, self.state, self.partitions = "", OUT, []
        return "leaves"
