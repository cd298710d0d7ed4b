"""Wrong passwords and tokens."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from headrace.log_lines import LimitedLog

log = LimitedLog("headrace.http")

FAILED_LOGINS_S = 60
"""The time for which wrong passwords are counted."""
MAX_FAILED_LOGINS = 5
"""Wrong passwords of one address, or for one user, in that time. Further ones are answered late."""
FAILED_LOGIN_DELAY_S = 1.0
"""The time by which they are late."""
MAX_DELAYED_LOGINS = 16
"""Wrong passwords that are waiting for their late answer. Further ones are answered at once."""
MAX_COUNTED_LOGINS = 1000
"""Addresses and users whose wrong passwords are counted. The one with the oldest is forgotten."""
_Counted = tuple[str, str]
"""A kind, and an address or the name of a user."""


class FailedLogins:
    """Counts wrong passwords, and delays their answers.

    Compare a password first: a right one is served at once, however many wrong ones have come, so
    that nobody can lock others out.

    :param clock_s: a steady clock
    :ivar total: all of them
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._clock_s = clock_s
        self._recent: OrderedDict[_Counted, tuple[float, int]] = OrderedDict()
        """When the count began, and the count; the newest wrong password last."""
        self._delayed = 0

    def __len__(self) -> int:
        return len(self._recent)

    def count(self, address: str, user: str | None) -> bool:
        """Count and log a wrong password.

        :param user: None if the name is not that of a user, or a token was wrong
        :returns: whether its answer is to be delayed
        """
        self.total += 1
        log.warning(address, "wrong password or token from %s for %s", address, user or "no user")
        is_late = self._is_late(("address", address))
        return (user is not None and self._is_late(("user", user))) or is_late

    def _is_late(self, key: _Counted) -> bool:
        now_s = self._clock_s()
        since_s, count = self._recent.pop(key, (now_s, 0))
        if now_s - since_s >= FAILED_LOGINS_S:
            since_s, count = now_s, 0
        while len(self._recent) >= MAX_COUNTED_LOGINS:
            self._recent.popitem(last=False)
        self._recent[key] = since_s, count + 1
        return count >= MAX_FAILED_LOGINS

    async def delay(self) -> None:
        """Wait, unless too many others wait."""
        if self._delayed >= MAX_DELAYED_LOGINS:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(FAILED_LOGIN_DELAY_S)
        finally:
            self._delayed -= 1
