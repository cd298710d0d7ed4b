"""A short choice of Kafka's own tests against headrace; ``make kafka-tests`` runs all of them."""

from __future__ import annotations

import pytest

from .runs import ClassResult, outcomes, table

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

CHOICE = (
    "kafka.server.OffsetFetchRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest",
    "org.apache.kafka.clients.admin.AdminFenceProducersTest",
    "org.apache.kafka.clients.admin.DynamicGroupConfigIntegrationTest",
    "org.apache.kafka.clients.producer.ProducerIntegrationTest",
    "org.apache.kafka.tools.LogDirsCommandTest",
)


def test_no_test_of_these_classes_fails() -> None:
    """Run the classes in one JVM: its start and what it compiles cost more than their tests."""
    ran = list(outcomes(CHOICE))
    for name in CHOICE:
        result = ClassResult(name, [one for one in ran if one.test_class == name], table()[name])
        assert [(one.name, one.first_line) for one in result.failures] == []
        assert result.unlisted == []
        assert result.passed
