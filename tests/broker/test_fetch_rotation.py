"""No partition of a fetch session that has records waits longer than a round."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.broker import Broker
from headrace.broker.config.broker_config import Config
from tests.handler_client import ask
from tests.wire_client import batch

PARTITIONS = 4
VALUE_BYTES = (1, 1, 900, 5_000)
"""The size of a record of each partition."""


class Step(NamedTuple):
    """A Fetch: its limits, and the partitions that the client pauses for this one Fetch."""

    max_bytes: int
    partition_max_bytes: int
    paused: frozenset[int]


steps = st.lists(
    st.builds(
        Step,
        max_bytes=st.sampled_from((1, 1_000, 10_000)),
        partition_max_bytes=st.sampled_from((1, 2_000)),
        paused=st.just(frozenset()) | st.frozensets(st.integers(0, PARTITIONS - 1), max_size=2),
    ),
    max_size=16,
)


@given(steps)
def test_each_partition_has_its_turn(steps: list[Step]) -> None:
    broker = Broker(Config({}))
    try:
        asyncio.run(fetch_in_turns(broker, steps))
    finally:
        broker.close()


async def fetch_in_turns(broker: Broker, steps: list[Step]) -> None:
    topic_id = broker.catalog.create_topic("t", PARTITIONS).topic_id
    for index, value_bytes in enumerate(VALUE_BYTES):
        for _ in steps:
            broker.topic_logs.append(
                broker.topic_logs.partition(topic_id, index), batch([b"v" * value_bytes])
            )
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    passed_over = dict.fromkeys(offsets, 0)
    session_id = epoch = 0
    in_session: set[int] = set()
    served: set[int] = set()
    for step in steps:
        fetched = offsets.keys() - step.paused
        named = sorted(served & fetched | fetched - in_session)
        forgotten = sorted(in_session - fetched)
        response = await ask(
            broker,
            1,
            session_id=session_id,
            session_epoch=epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=step.max_bytes,
            topics=of_topic(topic_id, [fetch_partition(step, offsets, index) for index in named]),
            forgotten_topics_data=of_topic(topic_id, forgotten),
        )
        assert response.error_code == 0
        session_id, epoch, in_session = response.session_id, epoch + 1, fetched
        served = {
            one.partition_index
            for topic in response.responses
            for one in topic.partitions
            if one.records
        }
        for index in offsets:
            offsets[index] += index in served
            if index in served or index not in in_session:
                passed_over[index] = 0
            elif served:
                passed_over[index] += 1
        assert max(passed_over.values()) < PARTITIONS, passed_over


def fetch_partition(step: Step, offsets: dict[int, int], index: int) -> dict[str, int]:
    return {
        "partition": index,
        "fetch_offset": offsets[index],
        "partition_max_bytes": step.partition_max_bytes,
    }


def of_topic(topic_id: Any, partitions: list[Any]) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": partitions}] if partitions else []
