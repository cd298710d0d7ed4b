"""ListOffsets: requests that no honest client sends."""

from __future__ import annotations

import pytest

from tests.conformance.world import World


@pytest.mark.parametrize("version", [4, 7, 11])
def test_a_partition_that_list_offsets_names_twice(world: World, version: int) -> None:
    """It gets one answer, an error; so do those of a topic that is named twice."""
    topic = world.topic(partitions=3, records=10)
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index, timestamp in ((0, -1), (1, -2), (0, -2), (0, -1), (9, -1), (9, -1))
    ]
    for named in ([partitions], [partitions[:3], partitions[3:]]):
        response = world.ask(
            2,
            version,
            replica_id=-1,
            timeout=1000,
            topics=[{"name": topic.name, "partitions": some} for some in named],
        )
        (found,) = response.topics
        assert sorted(
            (one.partition_index, one.error_code.name, one.offset) for one in found.partitions
        ) == [(0, "invalid_request", -1), (1, "none", 0), (9, "invalid_request", -1)]
