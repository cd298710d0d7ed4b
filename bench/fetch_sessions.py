"""The cost of a poll for the broker: a consumer of many partitions without new records.

    python -m bench.fetch_sessions                      10,000 partitions
    python -m bench.fetch_sessions --partitions 1000

With a fetch session (KIP-227) a Fetch and its response name only changed partitions; without one,
both name all partitions. Measured is the broker's CPU time (user and system) for a Fetch that finds
no record.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from bench.idle_groups import CREATE_TOPICS, used
from tests import wire_client
from tests.support import HeadraceProcess

FETCH = 1
PARTITIONS = 10_000
POLLS = {True: 1_000, False: 20}
"""The number of polls, with a session and without."""
MAX_WAIT_MS = 1
NO_SESSION, NEW_SESSION = -1, 0


class Costs(NamedTuple):
    """CPU milliseconds of the broker for each poll."""

    in_session_ms: float
    without_ms: float


def fetch(
    connection: wire_client.Connection, topic_id: UUID, partitions: int, session_id: int, epoch: int
) -> Any:
    """Send a Fetch that names the given number of partitions."""
    asked = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        for index in range(partitions)
    ]
    answer = connection.ask(
        FETCH,
        17,
        max_wait=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        rack_id="",
        forgotten_topics_data=[],
        topics=[{"topic_id": topic_id, "partitions": asked}] if asked else [],
    )
    assert answer.error_code == 0, answer
    return answer


def measure(partitions: int) -> Costs:
    """Measure on a new broker, with one topic of the given number of partitions."""
    with (
        HeadraceProcess(None, {}) as broker,
        wire_client.connection(broker.bootstrap_servers) as connection,
    ):
        topic = {
            "name": "t",
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        made = connection.ask(CREATE_TOPICS, 7, topics=[topic], timeout=60_000, validate_only=False)
        ask = partial(fetch, connection, made.topics[0].topic_id)
        ask(partitions, 0, NO_SESSION)  # opens the logs
        session_id = ask(partitions, 0, NEW_SESSION).session_id

        def in_session() -> None:
            for epoch in range(1, POLLS[True] + 1):
                assert not ask(0, session_id, epoch).responses

        def without() -> None:
            for _ in range(POLLS[False]):
                assert len(ask(partitions, 0, NO_SESSION).responses[0].partitions) == partitions

        return Costs(
            1e3 * used(broker, in_session) / POLLS[True], 1e3 * used(broker, without) / POLLS[False]
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    partitions = parser.parse_args(arguments).partitions
    costs = measure(partitions)
    print(f"CPU for each poll of {partitions:,} partitions without news")
    print(f"  in a fetch session {costs.in_session_ms:8.3f} ms")
    print(f"  without one        {costs.without_ms:8.3f} ms")


if __name__ == "__main__":
    main()
