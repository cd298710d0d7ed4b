"""The protocols of groups that a broker serves: ``group.coordinator.rebalance.protocols``.

The classic protocol cannot be disabled. Share groups are served whether they are listed or not, as
in Apache Kafka.
"""

from __future__ import annotations

from headrace.topics.settings import BrokerValue

REBALANCE_PROTOCOLS = "group.coordinator.rebalance.protocols"
CLASSIC, CONSUMER, STREAMS = "classic", "consumer", "streams"


def check_rebalance_protocols(broker: BrokerValue) -> str | None:
    """Return the error for a list of protocols that does not have the classic one, or None."""
    protocols = broker(REBALANCE_PROTOCOLS)
    assert isinstance(protocols, tuple), REBALANCE_PROTOCOLS
    return None if CLASSIC in protocols else f"Disabling the '{CLASSIC}' protocol is not supported."
