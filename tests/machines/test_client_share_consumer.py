"""A share consumer whose brokers answer as the test says."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from headrace.client.cluster import TopicMetadata
from headrace.client.share.consumer import ShareConsumer
from headrace.client.share.node import ShareNode
from headrace.client.share.types import Acknowledgement, AcknowledgeType
from headrace.errors import ErrorCode
from tests.support import story

TOPIC_ID = UUID(int=1)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> ShareConsumer:
    """A member that holds the offsets 0 to 9 of a partition at the brokers 1 and 2. With each
    request, it gets to know another broker.
    """
    consumer = ShareConsumer("nowhere:9092", "g", ["t"])
    consumer._topics[TOPIC_ID] = TopicMetadata("t", TOPIC_ID, {0: 1, 1: 2})
    for partition in (0, 1):
        consumer._node(partition + 1).held.add((TOPIC_ID, partition), [(0, 9)], 0)

    async def acknowledge(
        node: ShareNode, batches: Mapping[object, object]
    ) -> dict[object, object]:
        consumer._node(len(consumer._nodes) + 1)
        return dict.fromkeys(batches, ErrorCode.NONE)

    monkeypatch.setattr(ShareNode, "acknowledge", acknowledge)
    return consumer


@story
async def test_acknowledging_while_a_broker_joins(consumer: ShareConsumer):
    accept = [Acknowledgement("t", partition, 0, 9, AcknowledgeType.ACCEPT) for partition in (0, 1)]
    assert await consumer.acknowledge(accept) == accept


@story
async def test_renewing_while_a_broker_joins(consumer: ShareConsumer):
    await consumer.renew()
    assert len(consumer._nodes) == 4
