"""The cost of a heartbeat that changes nothing for the broker, by kind of group.

    python -m bench.heartbeats

Each kind has a group with one member. The kinds take turns on one broker, and the first turn is not
counted. Measured is the broker's CPU time (user and system) for a heartbeat and its response; the
values are medians.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.idle_groups import used
from tests import wire_client
from tests.support import COMMON_CONFIGS, HeadraceProcess

FIND_COORDINATOR, CONSUMER_HEARTBEAT, STREAMS_HEARTBEAT = 10, 68, 88
HEARTBEATS, TURNS = 6_000, 3
SETTLE_S = 0.3
"""The pause between the heartbeats that settle a group."""

Ask = Callable[..., Any]
"""Send a heartbeat with an epoch; without fields it changes nothing."""

TOPOLOGY = {
    "epoch": 0,
    "subtopologies": [
        {
            "subtopology_id": "0",
            "source_topics": ["t"],
            "source_topic_regex": [],
            "state_changelog_topics": [],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
    ],
}
JOINING: Mapping[str, Mapping[str, Any]] = {
    "consumer": {
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    },
    "streams": {
        "rebalance_timeout": 30_000,
        "topology": TOPOLOGY,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "p",
        "client_tags": [],
    },
}
"""The fields of a first heartbeat."""


def heartbeat(connection: wire_client.Connection, kind: str, epoch: int, **fields: Any) -> Any:
    """Send a heartbeat with the given fields."""
    request: dict[str, Any] = {
        "group_id": kind,
        "member_id": "m",
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
    }
    if kind == "consumer":
        absent = (
            "subscribed_topic_names",
            "subscribed_topic_regex",
            "server_assignor",
            "topic_partitions",
        )
        answer = connection.ask(
            CONSUMER_HEARTBEAT, 1, **{**request, **dict.fromkeys(absent), **fields}
        )
    else:
        absent = (
            "topology",
            "active_tasks",
            "standby_tasks",
            "warmup_tasks",
            "process_id",
            "user_endpoint",
            "client_tags",
            "task_offsets",
            "task_end_offsets",
        )
        request |= {"endpoint_information_epoch": 0, "shutdown_application": False}
        answer = connection.ask(
            STREAMS_HEARTBEAT, 0, **{**request, **dict.fromkeys(absent), **fields}
        )
    assert answer.error_code == 0, answer
    return answer


def measure(heartbeats: int = HEARTBEATS) -> Mapping[str, float]:
    """Measure on a new broker; return CPU microseconds by kind of group."""
    found: dict[str, list[float]] = {kind: [] for kind in JOINING}
    with (
        tempfile.TemporaryDirectory() as directory,
        HeadraceProcess(Path(directory) / "data", COMMON_CONFIGS) as broker,
        wire_client.connection(broker.bootstrap_servers) as connection,
    ):
        connection.create_topic("t", 4)
        # which creates the topic of the coordinator
        connection.ask(FIND_COORDINATOR, 6, key_type=0, coordinator_keys=list(JOINING))
        epochs = {
            kind: heartbeat(connection, kind, 0, **fields).member_epoch
            for kind, fields in JOINING.items()
        }
        for _ in range(5):
            time.sleep(SETTLE_S)
            for kind, epoch in epochs.items():
                epochs[kind] = heartbeat(connection, kind, epoch).member_epoch

        def repeat(kind: str) -> None:
            for _ in range(heartbeats):
                heartbeat(connection, kind, epochs[kind])

        for turn in range(1 + TURNS):
            for kind, values in found.items():
                used_s = used(broker, lambda kind=kind: repeat(kind))  # type: ignore[misc]
                if turn:
                    values.append(1e6 * used_s / heartbeats)
    return {kind: median(values) for kind, values in found.items()}


def main() -> None:
    print("CPU for each heartbeat that changes nothing")
    for kind, us in measure().items():
        print(f"  {kind} group {us:8.1f} µs")


if __name__ == "__main__":
    main()
