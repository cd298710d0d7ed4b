"""What is left of a compacted topic: the same records on both targets."""

from __future__ import annotations

import random
import time

import pytest

from tests.clients.compacted import CompactedTopic
from tests.support import unique

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [random.randrange(10**6)])
def test_the_last_record_of_each_key_stays(bootstrap_servers: str, seed: int) -> None:
    topic = CompactedTopic(bootstrap_servers, unique("compacted"), random.Random(seed))
    for _ in range(2):
        topic.write(20)
        found = topic.wait_until_compacted()
        assert topic.read("read_committed") == found
        for offset in random.Random(seed).sample(range(found[-1][0]), 5):
            assert topic.read(start=offset) == [one for one in found if one[0] >= offset]


@pytest.mark.parametrize("seed", [random.randrange(10**6)])
def test_tombstones_go_after_their_time(bootstrap_servers: str, seed: int) -> None:
    """delete.retention.ms counts from the first time that the cleaner meets them: they go with the second."""
    rng = random.Random(seed)
    topic = CompactedTopic(bootstrap_servers, unique("tombstones"), rng, **{"delete.retention.ms": "1"})
    topic.write(20)
    topic.wait_until_compacted()
    time.sleep(0.1)
    for _ in range(2):
        topic.time_ms += 1000
        topic.committed += topic._send(topic.producers[0], 1, key=99)
    topic.wait_until_compacted(tombstones=False)
