"""An honest client beside large requests: it records its latencies while another client asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.wire_client import PRODUCE, batch, connection, receive_frame, request_frame

HONEST_TOPIC = "honest"
PAUSE_S = 0.002
"""The time between two requests of the honest client."""


@dataclass
class Watch:
    """The honest client's latencies during one piece of work.

    :ivar latencies_s: the latencies of its requests
    :ivar took_s: the time that the work took
    """

    latencies_s: list[float] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def worst_s(self) -> float:
        """The largest latency."""
        return max(self.latencies_s)


class HonestClient:
    """A client that produces one small record after the other, in a thread of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._watch = Watch()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> HonestClient:
        with connection(self._bootstrap_servers) as client:
            if (
                client.ask(3, 9, topics=[{"name": HONEST_TOPIC}], allow_auto_topic_creation=False)
                .topics[0]
                .error_code
            ):
                client.create_topic(HONEST_TOPIC)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with connection(self._bootstrap_servers, timeout_s=120) as client:
            partition = {"index": 0, "records": batch([b"honest"])}
            topic = {"name": HONEST_TOPIC, "partition_data": [partition]}
            frame = request_frame(PRODUCE, 3, acks=-1, timeout=30_000, topic_data=[topic])
            while not self._stopping.is_set():
                started = time.perf_counter()
                client.send(frame)
                if receive_frame(client.socket) is None:
                    return
                self._watch.latencies_s.append(time.perf_counter() - started)
                time.sleep(PAUSE_S)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Collect the latencies during a block, and of the request after it."""
        watch = self._watch = Watch()
        started = time.perf_counter()
        yield watch
        watch.took_s = time.perf_counter() - started
        seen = len(watch.latencies_s)
        deadline = time.monotonic() + 120
        while len(watch.latencies_s) <= seen + 1 and time.monotonic() < deadline:
            time.sleep(0.001)
        self._watch = Watch()
