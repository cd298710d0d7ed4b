"""The log of share state stays small, and is complete after `kill -9`."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.clients.confluent import PATIENCE_S, consumer
from tests.conformance.world import OK, ShareState, World
from tests.support import HeadraceProcess, unique, wait_until

pytestmark = pytest.mark.broker

STATE_TOPIC = "__share_group_state"
CONFIGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.segment.bytes": "2000",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.prune.interval.ms": "50",
    "share.coordinator.cold.partition.snapshot.interval.ms": "100",
    "log.retention.check.interval.ms": "50",
}


def log_start(bootstrap_servers: str) -> int:
    with consumer(bootstrap_servers, unique("group")) as source:
        low, _ = source.get_watermark_offsets(TopicPartition(STATE_TOPIC, 0), timeout=PATIENCE_S)
        return int(low)


def test_share_state_is_pruned_and_found_again(tmp_path: Path) -> None:
    server = HeadraceProcess(tmp_path / "data", CONFIGS).start()
    try:
        with World(server.bootstrap_servers, "headrace") as world:
            topic_id = world.connection.create_topic("t", 1)
            idle, busy, deleted = (
                ShareState(world, name, topic_id) for name in ("idle", "busy", "deleted")
            )
            for state in (idle, busy, deleted):
                assert state.initialize(4, 10) == OK
            written = idle.write(
                (12, 13, 2, 1), state_epoch=4, start_offset=11, delivery_complete_count=2
            )
            assert (written, deleted.delete()) == (OK, OK)
            start = 10

            def pruned() -> bool:
                nonlocal start
                for _ in range(30):
                    start += 1
                    written = busy.write(
                        (start + 2, start + 2, 4, 3),
                        state_epoch=4,
                        start_offset=start,
                        delivery_complete_count=1,
                    )
                    assert written == OK
                return log_start(server.bootstrap_servers) > 100

            wait_until(
                pruned, PATIENCE_S, "the log to be pruned, past the snapshot of the idle group"
            )
            first = f"{0:020}.log"
            wait_until(
                lambda: (
                    first
                    not in {
                        path.name for path in (tmp_path / "data" / f"{STATE_TOPIC}-0").glob("*.log")
                    }
                ),
                PATIENCE_S,
                "the first file to be deleted",
            )
        server.kill()
        server.start()
        with World(server.bootstrap_servers, "headrace") as world:
            for state in (idle, busy, deleted):
                state.world = world
            assert idle.summary == "start 11 complete 2"
            assert idle.read() == "se 4 start 11: 12-13 state 2 c1"
            assert busy.summary == f"start {start} complete 1"
            assert busy.read() == f"se 4 start {start}: {start}-{start + 2} state 4 c3"
            assert deleted.summary == "start -1 complete -1"
            assert busy.write(state_epoch=4, start_offset=start + 1) == OK
    finally:
        server.kill()
