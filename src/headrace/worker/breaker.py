"""A circuit breaker: when most records of a function fail, it pauses. Pure."""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from .outcomes import Seconds, seconds


class BreakerState(StrEnum):
    """Kafka's records flow in CLOSED, none in OPEN, one at a time in PROBING."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class Breaker:
    """Counts the last outcomes of a function, and says whether to go on.

    It opens when more than ``failures`` of the last ``of`` outcomes were failures, of which there
    must be 20. After ``pause`` it lets one record through: if that one succeeds, it closes; else
    the next pause is twice as long, up to ``max_pause``.

    :param failures: a share, from 0 to 1
    """

    MIN_OUTCOMES = 20

    def __init__(
        self,
        failures: float = 0.5,
        of: int = 100,
        *,
        pause: Seconds = 10.0,
        max_pause: Seconds = 300.0,
    ) -> None:
        self.failures, self.of = failures, of
        self._first_pause_s, self._max_pause_s = (
            seconds(pause, "pause"),
            seconds(max_pause, "max_pause"),
        )
        self._last: deque[bool] = deque(maxlen=of)
        self._failed = 0
        self._pause_s = self._first_pause_s
        self._probes_at_s: float | None = None
        self.reason = ""
        """Why it is not closed: the last failure."""

    def new(self) -> Breaker:
        """Return another one with the same parameters, closed."""
        return Breaker(
            self.failures, self.of, pause=self._first_pause_s, max_pause=self._max_pause_s
        )

    def state(self, now_s: float) -> BreakerState:
        if self._probes_at_s is None:
            return BreakerState.CLOSED
        return BreakerState.PROBING if now_s >= self._probes_at_s else BreakerState.OPEN

    def opens_for_s(self, now_s: float) -> float:
        """Return the seconds until the next probe; 0 unless it is open."""
        return 0.0 if self._probes_at_s is None else max(self._probes_at_s - now_s, 0.0)

    def succeeded(self) -> bool:
        """Count a success.

        :returns: whether this has closed it
        """
        self._count(False)
        closes, self._probes_at_s = self._probes_at_s is not None, None
        if closes:
            self._last.clear()
            self._failed, self._pause_s, self.reason = 0, self._first_pause_s, ""
        return closes

    def failed(self, reason: str, now_s: float) -> bool:
        """Count a failure.

        :returns: whether this has opened it, or kept it open after a probe
        """
        self._count(True)
        if self.state(now_s) is BreakerState.OPEN:
            return False
        if self._probes_at_s is not None:
            self._pause_s = min(self._pause_s * 2, self._max_pause_s)
        elif len(self._last) < self.MIN_OUTCOMES or self._failed <= self.failures * len(self._last):
            return False
        self._probes_at_s, self.reason = now_s + self._pause_s, reason
        return True

    def _count(self, is_failure: bool) -> None:
        if len(self._last) == self._last.maxlen:
            self._failed -= self._last[0]
        self._last.append(is_failure)
        self._failed += is_failure
