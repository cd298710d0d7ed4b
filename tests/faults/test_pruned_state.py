"""The log of share state stays small, and is complete after `kill -9`."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.clients.confluent import PATIENCE_S, consumer
from tests.group_client import GroupClient
from tests.share_state_client import DONE, ShareStateClient
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
        with GroupClient(server.bootstrap_servers) as client:
            topic_id = client.create_topic("t", 1)
            idle, busy, deleted = (
                ShareStateClient(client, topic_id, name) for name in ("idle", "busy", "deleted")
            )
            for desk in (idle, busy, deleted):
                assert desk.initialize(4, 10) == DONE
            assert idle.write((12, 13, 2, 1), start=11, complete=2) == DONE
            assert deleted.delete() == DONE
            start = 10

            def pruned() -> bool:
                nonlocal start
                for _ in range(30):
                    start += 1
                    assert busy.write((start + 2, start + 2, 4, 3), start=start, complete=1) == DONE
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
        with GroupClient(server.bootstrap_servers) as client:
            idle, busy, deleted = (
                ShareStateClient(client, topic_id, name) for name in ("idle", "busy", "deleted")
            )
            assert tuple(idle.summary()) == (4, 0, 11, 2)
            assert idle.read() == (4, 11, [(12, 13, 2, 1)])
            assert tuple(busy.summary()) == (4, 0, start, 1)
            assert busy.read() == (4, start, [(start, start + 2, 4, 3)])
            assert tuple(deleted.summary()) == (0, 0, -1, -1)
            assert busy.write(start=start + 1) == DONE
    finally:
        server.kill()
