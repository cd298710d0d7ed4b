"""What a worker measures of one task: counts, times, and how busy its slots are."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping

from headrace.metric_family import Histogram

WINDOW_S = 15.0
"""The time over which occupancy and rates are means."""

_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Meter:
    """The measurements of one task.

    :param slots: how many records it processes at once
    :param counts: what has become of records, by its name; others count
    :ivar started_after: the seconds from the sending of records to the start of their functions
    :ivar durations: the seconds for which functions have run
    """

    def __init__(self, slots: int, counts: Mapping[str, int]) -> None:
        self.slots = slots
        self.started_after = Histogram(_BOUNDS_S)
        self.durations = Histogram(_BOUNDS_S)
        self._counts = counts
        self._busy = 0
        self._busy_s = 0.0
        self._at_s = time.monotonic()
        self._retries: Counter[int] = Counter()
        """The second in which records are due again, on a steady clock → their number."""
        self._samples: deque[tuple[float, dict[str, float]]] = deque()
        """(time, counts and busy seconds) of the last :data:`WINDOW_S`, and one before."""

    def begin(self, now_s: float) -> None:
        """Count a slot that becomes busy."""
        self._advance(now_s)
        self._busy += 1

    def end(self, began_s: float, now_s: float) -> None:
        """Count a slot that becomes free."""
        self._advance(now_s)
        self._busy -= 1
        self.durations.observe(now_s - began_s)

    def _advance(self, now_s: float) -> None:
        self._busy_s += self._busy * (now_s - self._at_s)
        self._at_s = now_s

    @property
    def busy_s(self) -> float:
        """The sum of the times for which slots were busy, until now."""
        self._advance(time.monotonic())
        return self._busy_s

    def sample(self) -> None:
        """Note where the counts are; call it every few seconds."""
        samples, busy_s = self._samples, self.busy_s
        samples.append((self._at_s, {**self._counts, "busy_s": busy_s}))
        while len(samples) > 2 and samples[1][0] <= self._at_s - WINDOW_S:
            samples.popleft()

    def rate(self, name: str) -> float:
        """Return how much a count grows in a second."""
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last.get(name, 0) - first.get(name, 0)) / max(last_s - first_s, 1e-9)

    @property
    def occupancy(self) -> float:
        """The busy share of the slots, from 0 to 1."""
        return min(max(self.rate("busy_s") / self.slots, 0.0), 1.0)

    def retry_in(self, delay_s: float) -> None:
        """Count a record that is due again later."""
        self._retries[int(time.monotonic() + delay_s)] += 1

    @property
    def waiting(self) -> int:
        """The number of records that were given back, and are due later."""
        now_s = time.monotonic()
        for due_s in [due_s for due_s in self._retries if due_s < now_s]:
            del self._retries[due_s]
        return self._retries.total()
