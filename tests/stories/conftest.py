"""A broker on a socket and clients of groups on it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

import headrace
from tests.group_client import GroupClient
from tests.support import unique

GROUP_CONFIGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[headrace.Broker]:
    with headrace.Broker(config=GROUP_CONFIGS) as broker:
        yield broker


@pytest.fixture
def client(broker: headrace.Broker) -> Iterator[GroupClient]:
    with GroupClient(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def another(broker: headrace.Broker) -> Iterator[GroupClient]:
    with GroupClient(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(client: GroupClient) -> tuple[str, UUID]:
    """A topic of three partitions: (name, id)."""
    name = unique("topic")
    return name, client.create_topic(name)
