"""The records that remain in a compacted topic are the same on both targets."""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka.admin import ResourceType

from tests.clients.compacted import CompactedTopic
from tests.clients.confluent import set_configs
from tests.support import RUN_SEED, unique

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [RUN_SEED])
def test_the_last_record_of_each_key_stays(bootstrap_servers: str, seed: int) -> None:
    topic = CompactedTopic(bootstrap_servers, unique("compacted"), random.Random(seed))
    for _ in range(2):
        topic.write(20)
        found = topic.wait_until_compacted()
        assert topic.read("read_committed") == found
        for offset in random.Random(seed).sample(range(found[-1][0]), 5):
            assert topic.read(start=offset) == [one for one in found if one[0] >= offset]


@pytest.mark.parametrize("seed", [RUN_SEED])
def test_tombstones_go_after_their_time(bootstrap_servers: str, seed: int) -> None:
    """delete.retention.ms counts from the first time that the cleaner meets them: they go with the
    second.
    """
    rng = random.Random(seed)
    # The cleaner must not meet some of them early: it begins when all is written.
    configs = {"delete.retention.ms": "1", "min.compaction.lag.ms": "86400000"}
    topic = CompactedTopic(bootstrap_servers, unique("tombstones"), rng, **configs)
    topic.write(20)
    set_configs(bootstrap_servers, ResourceType.TOPIC, topic.name, min_compaction_lag_ms="0")
    topic.wait_until_compacted()
    time.sleep(0.1)
    for _ in range(2):
        topic.time_ms += 1000
        topic.committed += topic._send(topic.producers[0], 1, key=99)
    topic.wait_until_compacted(tombstones=False)
