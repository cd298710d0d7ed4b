"""The course of a run: its steps, the lines that tell of them, and the digest of both."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Sequence

from .disk import PowerCut
from .power import Machine
from .witness import Violation

TRACE_TAIL = 60
Action = Callable[[], str]
"""Something that may happen; it returns what has happened."""


class Course:
    """The steps of one run.

    :param say: is called with each line
    :ivar step: the number of the present step
    :ivar tail: the last lines
    """

    def __init__(self, machine: Machine, say: Callable[[str], None] | None) -> None:
        self.step = 0
        self.tail: deque[str] = deque(maxlen=TRACE_TAIL)
        self._machine, self._say = machine, say
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """A digest of all lines, and of all frames that the broker sent."""
        return self._digest.hexdigest()

    def sent(self, frame: bytes) -> None:
        """Take note of a frame that the broker sent."""
        self._digest.update(frame)

    def note(self, text: str) -> None:
        """Add a line."""
        line = f"{self.step} {self._machine.loop.now_ms % 100_000_000} {text}"
        self._digest.update(line.encode())
        self.tail.append(line)
        if self._say is not None:
            self._say(line)

    def run(
        self,
        rng: random.Random,
        actions: Sequence[tuple[Action, int]],
        steps: int,
        end_step: Callable[[], None],
    ) -> None:
        """Take this many steps.

        :param actions: all actions, with their weights
        :param end_step: is called after each step
        """
        possible, weights = zip(*actions, strict=True)
        for self.step in range(1, steps + 1):
            action = rng.choices(possible, weights)[0]
            try:
                done = action()
            except PowerCut:
                done = "not any more"
            self.note(f"{action.__name__}: {done}")
            end_step()

    def check_failures(self) -> None:
        """Check that no callback or task of the broker has failed.

        :raises Violation: when one has
        """
        for failure in self._machine.loop.failures:
            error = failure.get("exception")
            if isinstance(error, Violation):
                raise error
            raise Violation(f"{failure['message']}: {error!r}") from error
