"""Connections to a cluster that outlive a Spark task."""

from __future__ import annotations

import atexit
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.client import Cluster
from headrace.client.loop_thread import LoopThread
from headrace.spark.option_parsing import KafkaOptions

T = TypeVar("T")

_STOP_TIMEOUT_S = 2.0


class ClusterThread:
    """An event loop thread and the connections of one cluster that live in it."""

    def __init__(self, kafka: KafkaOptions) -> None:
        self._thread = LoopThread("headrace-fetch")
        self.cluster: Cluster = kafka.cluster()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return self._thread.run(work)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._thread.close(_STOP_TIMEOUT_S, last=self.cluster.close())


_threads: dict[tuple[Any, ...], ClusterThread] = {}


def shared_cluster_thread(kafka: KafkaOptions) -> ClusterThread:
    """Return this process's thread for a cluster; it is kept for the next tasks of the process."""
    # A forked child must not use the threads and sockets of its parent.
    key = (os.getpid(), kafka.bootstrap_servers, tuple(sorted(kafka.librdkafka.items())))
    if key not in _threads:
        _threads[key] = ClusterThread(kafka)
    return _threads[key]


@atexit.register
def _close_all() -> None:
    for (process_id, *_), thread in _threads.items():
        if process_id == os.getpid():
            thread.close()
    _threads.clear()
