"""An event loop and counters for coordinators without a broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.coordinators.share_metrics import ShareMetrics
from tests.simulation.loop import VirtualLoop


class Meters:
    """The counters of a broker, as far as coordinators use them. Writes are not counted."""

    def __init__(self) -> None:
        self.coordinators: defaultdict[str, Meters] = defaultdict(Meters)
        self.share = ShareMetrics(known_topics=())

    def wrote(self, records: Sequence[object], started: float) -> None:
        pass


class Turns(VirtualLoop):
    """An event loop that stands still between the turns that a test asks for. No timer runs."""

    def __init__(self) -> None:
        super().__init__(0, lambda: True)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(when, callback, args, self, context)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run what the block submits, to its end."""
        asyncio._set_running_loop(self)
        try:
            yield
            self.settle()
        finally:
            asyncio._set_running_loop(None)
        assert not self.failures
