"""A circuit breaker: when most records of a function fail, it pauses. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import Literal

from headrace.client.arguments import Seconds, seconds
from headrace.client.errors import ClientError

_MAX_DOUBLINGS = 6
"""Of the time after which a record is probed again: an hour and a half by default."""

BreakerState = Literal["closed", "open", "probing"]
"""Records flow while it is closed, none while it is open, one at a time while it is probing."""


class Breaker:
    """Counts the last outcomes of a function, and says whether to go on.

    It opens when more than ``failures`` of the last ``of`` outcomes were failures, of which there
    must be 20, and of 5 records: a record alone that fails again and again is not a reason. After
    ``pause`` it lets one record through: if that one succeeds, it closes; else the next pause is
    twice as long, up to ``max_pause``.

    :param failures: a share, from 0 to 1, which is never reached
    :param of: the number of outcomes that count
    :raises ClientError: a parameter makes no sense
    """

    MIN_OUTCOMES = 20
    MIN_RECORDS = 5

    def __init__(
        self,
        failures: float = 0.5,
        of: int = 100,
        *,
        pause: Seconds = 10.0,
        max_pause: Seconds = 60.0,
    ) -> None:
        if not 0 <= failures <= 1 or isinstance(of, bool) or of < self.MIN_OUTCOMES:
            raise ClientError(
                f"failures is {failures!r} and of {of!r}: from 0 to 1, and a number from "
                f"{self.MIN_OUTCOMES}"
            )
        self.failures, self.of = failures, of
        self._first_pause_s = seconds(pause, "pause")
        self._max_pause_s = max(seconds(max_pause, "max_pause"), self._first_pause_s)
        self._last: deque[Hashable] = deque(maxlen=of)
        """The records of the last outcomes; None for a success."""
        self._pause_s = self._first_pause_s
        self._probes_at_s: float | None = None
        self._failed_while_open: Counter[Hashable] = Counter()
        self.reason = ""
        """Why it is not closed: the last failure."""

    def state(self, now_s: float) -> BreakerState:
        """Return whether records are let through."""
        if self._probes_at_s is None:
            return "closed"
        return "probing" if now_s >= self._probes_at_s else "open"

    def is_probe(self, began_s: float) -> bool:
        """Return whether a function that began then is one that was let through after a pause."""
        return self._probes_at_s is not None and began_s >= self._probes_at_s

    def opens_for_s(self, now_s: float) -> float:
        """Return the seconds until the next probe; 0 unless it is open."""
        return 0.0 if self._probes_at_s is None else max(self._probes_at_s - now_s, 0.0)

    @property
    def is_pausing(self) -> bool:
        """True while it is not closed."""
        return self._probes_at_s is not None

    @property
    def is_doubtful(self) -> bool:
        """True while it is not closed, or is about to open: then a failure says more of what the
        function needs than of its record.
        """
        return self.is_pausing or self._most_fail()

    def _most_fail(self) -> bool:
        failed = [record for record in self._last if record is not None]
        is_most = len(failed) > self.failures * len(self._last)
        return is_most and len(set(failed)) >= self.MIN_RECORDS

    def retry_after_s(self, record: Hashable, delay_s: float, now_s: float) -> float:
        """Return the delay of a record that :meth:`failed` has counted: while it is open, others
        are probed before this one, which may be one of those that always fail. With each time,
        twice as many: so there is a turn for a record behind all of them.
        """
        opens_for_s = self.opens_for_s(now_s)
        if not opens_for_s:
            return delay_s
        doublings = min(self._failed_while_open[record] - 1, _MAX_DOUBLINGS)
        return max(delay_s, 1.5 * opens_for_s * 2**doublings + 1)

    def succeeded(self, began_s: float) -> bool:
        """Count a success. One that began before the probe does not close it.

        :returns: whether this has closed it
        """
        closes = self.is_probe(began_s)
        if closes:
            self._probes_at_s = None
            self._last.clear()
            self._failed_while_open.clear()
            self._pause_s, self.reason = self._first_pause_s, ""
        self._last.append(None)
        return closes

    def failed(self, record: Hashable, reason: str, began_s: float, now_s: float) -> bool:
        """Count a failure. One that began before the probe does not keep it open for longer.

        :param record: which record it is of
        :returns: whether this has opened it, or kept it open after a probe
        """
        self._last.append(record)
        if not self.is_pausing and (len(self._last) < self.MIN_OUTCOMES or not self._most_fail()):
            return False
        self._failed_while_open[record] += 1
        if self.is_pausing:
            if not self.is_probe(began_s):
                return False
            self._pause_s = min(self._pause_s * 2, self._max_pause_s)
        self._probes_at_s, self.reason = now_s + self._pause_s, reason
        return True
