"""A short choice of Kafka's own tests against headrace; ``make kafka-tests`` runs all of them."""

from __future__ import annotations

import pytest

from .__main__ import run
from .runs import table

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

CHOICE = (
    "kafka.server.OffsetFetchRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest",
    "org.apache.kafka.clients.admin.AdminFenceProducersTest",
    "org.apache.kafka.clients.admin.DynamicGroupConfigIntegrationTest",
    "org.apache.kafka.clients.producer.ProducerIntegrationTest",
    "org.apache.kafka.tools.LogDirsCommandTest",
)


@pytest.mark.parametrize("name", CHOICE)
def test_no_test_of_the_class_fails(name: str) -> None:
    result = run(name, table()[name], details=True)
    assert [(one.name, one.first_line) for one in result.failures] == []
    assert result.unlisted == []
    assert result.passed
