"""Fair turns between the addresses of clients."""

from __future__ import annotations

import asyncio
from collections import Counter, deque


class Turns:
    """The requests that are served at a time, by addresses in turn.

    One request begins in each step of the event loop, and an address has at most half of the
    places. So a request waits for the few others that are before its address, and not for all that
    another address has sent.

    :param places: requests that are served at a time
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._share = max(1, places // 2)
        self._served: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """The requests that wait, by address; the address whose turn is next first."""
        self._step: asyncio.Handle | None = None

    async def begin(self, address: str) -> None:
        """Wait for a place. Call :meth:`end` when the request was served."""
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(address, deque()).append(turn)
        self._schedule()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(address, turn)
            else:  # its turn has come meanwhile
                self.end(address)
            raise

    def end(self, address: str) -> None:
        """Give a place back."""
        self._served[address] -= 1
        if not self._served[address]:
            del self._served[address]
        self._schedule()

    def _leave(self, address: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(address, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[address]

    def _schedule(self) -> None:
        if self._step is None and self._queues and self._served.total() < self._places:
            self._step = asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        self._step = None
        with_room = (name for name in self._queues if self._served[name] < self._share)
        address = next(with_room, None)
        if address is None:
            return
        queue = self._queues.pop(address)
        turn = queue.popleft()
        if queue:
            self._queues[address] = queue  # behind the other addresses
        # A cancelled request is in its queue until its task runs.
        if not turn.cancelled():
            self._served[address] += 1
            turn.set_result(None)
        self._schedule()
