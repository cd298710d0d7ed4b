"""Connections to a cluster that outlive a Spark task."""

from __future__ import annotations

import atexit
import os
from typing import Any

from headrace.client import Cluster
from headrace.client.loop_thread import LoopThread
from headrace.spark.option_parsing import KafkaOptions

_STOP_TIMEOUT_S = 2.0


class ClusterThread(LoopThread):
    """An event loop thread and the connections of one cluster that live in it."""

    def __init__(self, kafka: KafkaOptions) -> None:
        super().__init__("headrace-fetch")
        self.cluster: Cluster = kafka.cluster()


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
            thread.close(_STOP_TIMEOUT_S, last=thread.cluster.close())
    _threads.clear()
