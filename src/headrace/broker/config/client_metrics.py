"""Subscriptions of client metrics (KIP-714), the resources of type CLIENT_METRICS.

A subscription has the metrics that it asks for (prefixes of names, or ``*`` for all), the interval
in which clients push them, and the clients that it is for. It is checked, stored and described, and
has no effect: like Apache Kafka without a plugin for the metrics of clients, this broker does not
ask for them. Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.protocol.configuration import Value
from headrace.protocol.errors import ErrorCode, Refusal

KIND = "client-metrics"
"""The kind of these resources in the catalog."""

INTERVAL_MS, MATCH = "interval.ms", "match"

_ATTRIBUTES = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)
"""The attributes of clients that ``match`` selects by."""

_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000


def conflict(values: Mapping[str, Value]) -> Refusal | None:
    """Return the error for the values of a subscription, None if they are valid."""
    interval_ms, match = values.get(INTERVAL_MS, _MIN_INTERVAL_MS), values.get(MATCH, ())
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        message = (
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
            f"{_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)"
        )
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    for pattern in match:
        if not _selects_clients(pattern):
            message = f"Illegal client matching pattern: {pattern}"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None


def _selects_clients(pattern: str) -> bool:
    """Return whether an element of ``match`` is valid: ``attribute=expression``."""
    from headrace.groups.consumer.regex import InvalidRegex, Regex  # a start needs no groups

    name, separator, expression = pattern.rstrip("=").partition("=")
    if not separator or "=" in expression or name.strip() not in _ATTRIBUTES:
        return False
    try:
        Regex(expression.strip())
    except InvalidRegex:
        return False
    return True
