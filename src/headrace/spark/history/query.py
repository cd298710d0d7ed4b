"""Parameters of a history: its period, its groups, and the target of its advice."""

from __future__ import annotations

from dataclasses import dataclass

from .advice import Target


@dataclass(frozen=True, slots=True)
class Period:
    """Points in time, ``step_ms`` apart, the last of them ``until_ms``.

    :param since_ms: milliseconds since 1970, as is ``until_ms``
    :param stall_ms: time without progress after which a partition counts as stalled
    """

    since_ms: int
    until_ms: int
    step_ms: int
    stall_ms: int

    @property
    def times_ms(self) -> list[int]:
        """The points; the first is at or before ``since_ms``."""
        first_ms = self.until_ms - self.steps * self.step_ms
        return list(range(first_ms, self.until_ms + 1, self.step_ms))

    @property
    def steps(self) -> int:
        """Number of steps between the points."""
        return max(1, -(-(self.until_ms - self.since_ms) // self.step_ms))

    @property
    def least_steps(self) -> int:
        """Number of steps without progress that make a stall."""
        return max(1, -(-self.stall_ms // self.step_ms))


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """The parameters of one history.

    :param target: the aim of the advice on numbers of consumers
    :param groups: a regular expression (RE2's) that whole group ids must match; None for all groups
    """

    period: Period
    target: Target
    groups: str | None = None
