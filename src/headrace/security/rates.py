"""The rate of a client over sliding samples, and a bucket of tokens, as Apache Kafka measures
quotas (``Rate`` and ``TokenBucket`` of its metrics).

Both take the time as an argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

MAX_THROTTLE_MS = (1 << 31) - 1
"""The longest throttle time that a response can have."""


class Windows(NamedTuple):
    """The samples that a rate is measured over.

    :ivar samples: the number of samples, the present one included (``quota.window.num``)
    :ivar size_ms: the time that each spans (``quota.window.size.seconds``)
    """

    samples: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        """The time after which a value has no effect."""
        return self.samples * self.size_ms


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class Rate:
    """A rate per second over sliding samples.

    It is measured over at least all samples but one, so a client that begins may send as much as
    the limit allows in that time at once.
    """

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def charge(self, value: float, limit: float, now_ms: int) -> int:
        """Record a value and return the time until the rate is at the limit, 0 if it is not above
        it.
        """
        self.record(value, now_ms)
        total, window_ms = self.measure(now_ms)
        rate = total / (window_ms / 1000)
        if rate <= limit:
            return 0
        if not limit:
            return MAX_THROTTLE_MS
        return round_ms((rate - limit) / limit * window_ms)

    def record(self, value: float, now_ms: int) -> None:
        """Record a value; a negative one takes back what was recorded."""
        samples = self._samples
        if samples and now_ms - samples[self._current].start_ms >= self._windows.size_ms:
            self._current = (self._current + 1) % (self._windows.samples + 1)
            # In the place of the oldest one, once there are all.
            samples[self._current : self._current + 1] = [_Sample(now_ms, now_ms)]
        elif not samples:
            samples.append(_Sample(now_ms, now_ms))
        sample = samples[self._current]
        sample.value += value
        sample.last_ms = now_ms

    def is_idle(self, now_ms: int) -> bool:
        """Return whether a new rate would measure the same."""
        span_ms = self._windows.span_ms
        return all(now_ms - sample.last_ms >= span_ms for sample in self._samples)

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Return the sum of the values, and the time in milliseconds that they are from."""
        total, oldest_ms = 0.0, now_ms
        samples, size_ms = self._windows
        span_ms = samples * size_ms
        for number, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= span_ms:
                sample = self._samples[number] = _Sample(now_ms, now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = samples - 1 - elapsed_ms // size_ms
        if missing > 0:
            elapsed_ms += missing * size_ms
        return total, max(elapsed_ms, 1)


class TokenBucket:
    """Tokens that are filled at the rate of a limit, up to those of all samples together (KIP-599).

    A request may take more than there are; then the next one has to wait.
    """

    __slots__ = ("_filled_ms", "_span_s", "_tokens")

    def __init__(self, windows: Windows) -> None:
        self._span_s = windows.span_ms / 1000
        self._tokens = 0.0
        self._filled_ms: int | None = None

    def charge(self, count: float, limit: float, now_ms: int) -> int:
        """Take tokens and return the time until there are none missing, 0 if none are."""
        self._tokens = self.tokens(limit, now_ms) - count
        return self.wait_ms(limit, now_ms)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until no tokens are missing, 0 if none are."""
        tokens = self.tokens(limit, now_ms)
        return round_ms(-tokens / limit * 1000) if tokens < 0 else 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Return the number of tokens, negative if some are missing."""
        most = self._span_s * limit
        if self._filled_ms is None:
            self._tokens = most
        else:
            filled = limit * (now_ms - self._filled_ms) / 1000
            self._tokens = min(most, self._tokens + filled)
        self._filled_ms = now_ms
        return self._tokens

    def is_full(self, limit: float, now_ms: int) -> bool:
        """Return whether a new bucket would have the same tokens."""
        return self.tokens(limit, now_ms) >= self._span_s * limit


def round_ms(value: float) -> int:
    """Return a time as Java rounds it, as far as a response can have it."""
    return MAX_THROTTLE_MS if value >= MAX_THROTTLE_MS else math.floor(value + 0.5)
