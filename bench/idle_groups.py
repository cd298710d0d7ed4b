"""The cost of idle share groups.

    python -m bench.idle_groups                 1,000 groups on one topic
    python -m bench.idle_groups --groups 10000

Each group has one member, which has fetched all records and keeps its share session open. Measured
is the broker's CPU time (user and system): without requests; with a heartbeat of each member every
five seconds; and for a produce request to the topic, beside a broker without groups.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psutil

from tests import wire_client
from tests.support import HeadraceProcess

HEARTBEAT, SHARE_FETCH, CREATE_TOPICS = 76, 78, 19
HEARTBEAT_INTERVAL_S = 5.0
IDLE_S = 20.0
PRODUCES = 3_000
CONFIGS = {"group.share.session.timeout.ms": "60000", "group.share.max.share.sessions": "20000"}


def cpu_seconds(broker: HeadraceProcess) -> float:
    """Return the CPU seconds of the broker so far."""
    user, system, *_ = psutil.Process(broker.pid).cpu_times()
    return float(user + system)


def used(broker: HeadraceProcess, work: Callable[[], None]) -> float:
    """Return the CPU seconds of the broker while ``work`` runs."""
    before = cpu_seconds(broker)
    work()
    return cpu_seconds(broker) - before


def heartbeat(
    connection: wire_client.Connection, group_id: str, epoch: int, names: list[str] | None = None
) -> int:
    """Send a heartbeat; return the member's epoch."""
    answer = connection.ask(
        HEARTBEAT,
        1,
        group_id=group_id,
        member_id="m",
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=names,
    )
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


def join(connection: wire_client.Connection, group_id: str, topic: str, topic_id: object) -> int:
    """Join, open a share session and send a fetch that finds nothing; return the member's epoch."""
    epoch = heartbeat(connection, group_id, 0, [topic])
    fetched = connection.ask(
        SHARE_FETCH,
        2,
        group_id=group_id,
        member_id="m",
        share_session_epoch=0,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        share_acquire_mode=0,
        is_renew_ack=False,
        topics=[
            {
                "topic_id": topic_id,
                "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
            }
        ],
        forgotten_topics_data=[],
    )
    assert fetched.error_code == 0, fetched
    return epoch


def produce(connection: wire_client.Connection, topic: str) -> None:
    """Produce records one after another."""
    records = wire_client.batch([b"v" * 100])
    for _ in range(PRODUCES):
        code, _ = connection.produce(topic, records)
        assert code == 0


def heartbeats(connection: wire_client.Connection, epochs: dict[str, int]) -> None:
    """Send heartbeats of all members, spread evenly over their interval, for as long as idleness is
    measured.
    """
    begin, sent = time.monotonic(), 0
    gap_s = HEARTBEAT_INTERVAL_S / len(epochs)
    while time.monotonic() - begin < IDLE_S:
        for group_id, epoch in epochs.items():
            heartbeat(connection, group_id, epoch)
            sent += 1
            time.sleep(max(0.0, begin + sent * gap_s - time.monotonic()))


class Costs(NamedTuple):
    """CPU seconds of the broker, except ``joined_s``: the time until all members have joined."""

    joined_s: float
    idle_s: float
    heartbeats_s: float
    produce_alone_s: float
    produce_s: float


def measure(groups: int) -> Costs:
    """Have groups join a new broker, and measure their cost."""
    with (
        HeadraceProcess(None, CONFIGS) as broker,
        wire_client.connection(broker.bootstrap_servers) as connection,
    ):
        topic = {
            "name": "t",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        made = connection.ask(CREATE_TOPICS, 7, topics=[topic], timeout=5_000, validate_only=False)
        topic_id = made.topics[0].topic_id
        produce(connection, "t")  # warm
        alone_s = used(broker, lambda: produce(connection, "t"))
        began = time.perf_counter()
        epochs = {
            f"g{number}": join(connection, f"g{number}", "t", topic_id) for number in range(groups)
        }
        joined_s = time.perf_counter() - began
        time.sleep(1)
        return Costs(
            joined_s,
            idle_s=used(broker, lambda: time.sleep(IDLE_S)),
            heartbeats_s=used(broker, lambda: heartbeats(connection, epochs)),
            produce_alone_s=alone_s,
            produce_s=used(broker, lambda: produce(connection, "t")),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=1_000)
    count = parser.parse_args(arguments).groups
    costs = measure(count)
    beats = IDLE_S / HEARTBEAT_INTERVAL_S * count
    print(
        f"{count:,} share groups with a member each on one topic, joined in {costs.joined_s:.1f} s"
    )
    print(
        f"  nobody sends anything   {costs.idle_s / IDLE_S:8.2%} of a CPU "
        f"({costs.idle_s:.2f} s in {IDLE_S:g} s)"
    )
    print(
        f"  members send heartbeats {costs.heartbeats_s / IDLE_S:8.2%} of a CPU, "
        f"{1e6 * costs.heartbeats_s / beats:.0f} µs each"
    )
    print(
        f"  a produce request       {1e6 * costs.produce_s / PRODUCES:8.0f} µs of CPU; "
        f"without groups {1e6 * costs.produce_alone_s / PRODUCES:.0f} µs"
    )


if __name__ == "__main__":
    main()
