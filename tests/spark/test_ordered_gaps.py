"""`kafka-ordered` with compacted topics: missing offsets are no loss and cause no wait."""

from __future__ import annotations

import json
import random

import pytest

from headrace.spark.ordered.source import JsonOffsets
from tests.clients.compacted import CompactedTopic
from tests.spark.ordered_query import Query, batch
from tests.spark.ordered_topics import Topics
from tests.support import RUN_SEED, unique

pytestmark = pytest.mark.slow

COMMITTED = {"kafka__isolation__level": "read_committed"}


@pytest.fixture(scope="module")
def topics(bootstrap_servers: str) -> Topics:
    """Create two compacted topics and a plain one."""
    print(f"seed {RUN_SEED}")
    chance = random.Random(RUN_SEED)
    compacted = [CompactedTopic(bootstrap_servers, unique("compacted"), chance) for _ in range(2)]
    for one in compacted:
        one.write(20)
    for one in compacted:
        one.wait_until_compacted()
    made = Topics(bootstrap_servers, (*(one.name for one in compacted), unique("plain")), 1)
    made.add(made.names[2])
    made.produce(2, range(compacted[0].time_ms - 5_000, compacted[0].time_ms, 100))
    return made


def by_partition(offsets: dict[str, int]) -> JsonOffsets:
    return {topic: {"0": offset} for topic, offset in offsets.items()}


@pytest.mark.parametrize("committed", [False, True])
def test_batches_of_everything_and_of_any_range(topics: Topics, committed: bool) -> None:
    print(f"seed {RUN_SEED}")
    chance = random.Random(RUN_SEED)
    level = COMMITTED if committed else {}
    assert batch(topics, **level) == topics.merged(committed=committed)
    ends = {topic: by["0"] for topic, by in topics.ends().items()}
    for _ in range(6):
        end = {topic: chance.randint(0, offset) for topic, offset in ends.items()}
        start = {topic: chance.randint(0, offset) for topic, offset in end.items()}
        bounds = {
            "startingOffsets": json.dumps(by_partition(start)),
            "endingOffsets": json.dumps(by_partition(end)),
            "minPartitions": chance.choice([1, 4]),
        }
        expected = topics.merged(by_partition(start), by_partition(end), committed)
        assert batch(topics, **bounds, **level) == expected, bounds


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("most", [None, 7, 60])
def test_streams_reach_the_end(topics: Topics, committed: bool, most: int | None) -> None:
    limit = {} if most is None else {"maxOffsetsPerTrigger": most}
    query = Query(topics, **limit, **(COMMITTED if committed else {}))
    assert query.until_idle() == topics.merged(committed=committed)
    assert query.offset == topics.ends()
    assert {lag for by in query.report()["lag"].values() for lag in by.values()} == {0}


def test_invisible_records_at_the_end_count_as_caught_up(
    bootstrap_servers: str, topics: Topics
) -> None:
    """The log ends with aborted records and markers. The other topic does not wait for them."""
    chance = random.Random(RUN_SEED)
    one = CompactedTopic(bootstrap_servers, unique("compacted"), chance)
    one.write(8)
    one.wait_until_compacted()
    both = Topics(bootstrap_servers, (one.name, unique("plain")), 1)
    both.add(both.names[1])
    both.produce(1, [one.time_ms + 60_000])
    for more in (1, 2):
        both.transaction(0, [one.time_ms + more] * 3, commit=False)

    waits = Query(both, **COMMITTED, maxTaskIdleMs=3_600_000)
    merged = both.merged(committed=True)
    assert waits.until_idle() == merged[:-1]
    assert waits.offset[one.name] == both.ends()[one.name]
    assert f"Partition {one.name}-0 has current lag 0" in waits.report()["waiting"]["0"]
    goes_on = Query(both, waits.offset, **COMMITTED)
    assert goes_on.until_idle() == merged[-1:]
    assert goes_on.offset == both.ends()
