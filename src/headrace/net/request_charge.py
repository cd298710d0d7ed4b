"""The use of client quotas by one connection's requests, and the throttle time that follows.

Requests are charged for the time that they take on the event loop (``request_percentage``), Produce
for the bytes of requests, Fetch and ShareFetch for those of responses. Apache Kafka's request
handlers work alike (docs/behaviour/security.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from headrace.security.quota_entities import FETCH, MUTATION, PRODUCE, REQUEST
from headrace.security.quotas import Limit
from headrace.security.rates import MAX_THROTTLE_MS

from .client_quotas import Quotas

_PRODUCE, _WRITE_MARKERS, _SHARE_FETCH = 0, 27, 78
_PERCENT = 100


@dataclass(slots=True)
class RequestCharge:
    """The use of quotas by the present request of one connection.

    :ivar user: the name of the client's principal
    :ivar client_id: of the request, "" for none
    :ivar throttle_ms: the throttle time of the request so far
    """

    _quotas: Quotas
    user: str = ""
    client_id: str = ""
    throttle_ms: int = 0
    _request_bytes: int = 0
    _started_s: float | None = None
    _used_s: float = 0.0
    _is_charged: bool = False
    _is_open: bool = False

    # The time -------------------------------------------------------------------------------------

    def begin(self, request_bytes: int) -> None:
        """Begin a request."""
        self._request_bytes = request_bytes
        self._started_s = perf_counter()
        self._used_s = 0.0
        self.throttle_ms = 0
        self._is_charged = False
        self._is_open = True

    def pause(self) -> None:
        """Note that the request waits from now on."""
        if self._started_s is not None:
            self._used_s += perf_counter() - self._started_s
            self._started_s = None

    def resume(self) -> None:
        """Note that the request is worked on again."""
        if self._started_s is None:
            self._started_s = perf_counter()

    # Charges --------------------------------------------------------------------------------------

    def most_fetch_bytes(self) -> int | None:
        """Return the most bytes that the client may fetch at once; None for no limit."""
        limit = self._limit(FETCH)
        return None if limit is None else self._quotas.machine.most_bytes(limit)

    def fetch_ms(self, response_bytes: int) -> int:
        """Charge a Fetch, and return its throttle time. If it is above 0, send an empty response:
        the bytes are not charged.
        """
        if not self._is_open:
            return 0
        self._charge_request()
        limit = self._limit(FETCH)
        if limit is not None:
            self._charge(FETCH, limit, response_bytes)
            if self.throttle_ms:
                self._quotas.machine.take_back(FETCH, limit, response_bytes, self._quotas.now_ms())
        return self.throttle_ms

    def admit_mutations(self, count: int, *, strict: bool) -> bool:
        """Charge the creation or deletion of partitions; return False if it must be refused.

        :param strict: refuse it while earlier ones exceed the quota; otherwise it only is throttled
        """
        limit = self._limit(MUTATION)
        if limit is None:
            return True
        if not strict:
            self._charge(MUTATION, limit, count)
            return True
        wait_ms = self._admit(limit, count)
        self.throttle_ms = max(self.throttle_ms, wait_ms)
        return not wait_ms

    def admit_auto_creation(self, count: int) -> bool:
        """Charge the partitions of a topic that a request creates on the way, such as Metadata;
        return False if the topic must not be created now. The request itself is not throttled: in
        Apache Kafka the controller meters a CreateTopics request of the broker.
        """
        limit = self._limit(MUTATION)
        return limit is None or not self._admit(limit, count)

    def _admit(self, limit: Limit, count: int) -> int:
        """Charge mutations unless earlier ones exceed the quota; return the time until they do not,
        0 for now.
        """
        machine, now_ms = self._quotas.machine, self._quotas.now_ms()
        wait_ms = machine.wait_ms(limit, now_ms)
        if not wait_ms:
            machine.charge(MUTATION, limit, count, now_ms)
        return wait_ms

    def settle(self, api_key: int, response_bytes: int) -> int:
        """End a request and return its throttle time.

        :param response_bytes: the size of the response, 0 without one
        """
        if not self._is_open:
            return 0
        self._is_open = False
        key, size_bytes = PRODUCE, self._request_bytes
        if api_key == _SHARE_FETCH:
            key, size_bytes = FETCH, response_bytes
        if api_key in (_PRODUCE, _SHARE_FETCH):
            limit = self._limit(key)
            if limit is not None:
                self._charge(key, limit, size_bytes)
        if api_key != _WRITE_MARKERS and (response_bytes or api_key != _PRODUCE):
            self._charge_request()
        return min(self.throttle_ms, MAX_THROTTLE_MS)

    def _charge_request(self) -> None:
        """Charge the time of the request, once."""
        if self._is_charged:
            return
        self._is_charged = True
        limit = self._limit(REQUEST)
        if limit is None:
            return
        used_s = self._used_s
        if self._started_s is not None:
            used_s += perf_counter() - self._started_s
        self._charge(REQUEST, limit, used_s * _PERCENT, self._quotas.machine.windows.size_ms)

    def _limit(self, key: str) -> Limit | None:
        return self._quotas.machine.limit_of(key, self.user, self.client_id)

    def _charge(self, key: str, limit: Limit, value: float, most_ms: int = MAX_THROTTLE_MS) -> None:
        """Charge a quota. The longest throttle time of all of a request counts."""
        throttle_ms = self._quotas.machine.charge(key, limit, value, self._quotas.now_ms())
        self.throttle_ms = max(self.throttle_ms, min(throttle_ms, most_ms))


class Mute:
    """The time in which a throttled connection is not served. It stands in the place of the request
    that a connection waits for.

    :param end: called at the end
    """

    __slots__ = ("_timer",)

    def __init__(self, throttle_ms: int, end: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(throttle_ms / 1000, end)

    def cancel(self) -> None:
        """End it without being served again: the connection closes."""
        self._timer.cancel()
