"""Subscriptions of client metrics (KIP-714), the resources of type CLIENT_METRICS.

A subscription has the metrics that it asks for (prefixes of names, or ``*`` for all), the interval
in which clients push them, and the clients that it is for. It is checked, stored and described, and
has no effect: like Apache Kafka without a plugin for the metrics of clients, this broker does not
ask for them. Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.protocol.errors import ErrorCode, Refusal

from .keys import InvalidValue, config_keys

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


def check_client_metrics(configs: Mapping[str, str]) -> Refusal | None:
    """Return the error for the configs of a subscription, None if they are valid."""
    keys = config_keys(KIND)
    for name in configs:
        if name not in keys:
            message = f"Unknown client metrics configuration: {name}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    try:
        values = {name: keys[name].parse(text) for name, text in configs.items()}
        match = values.get(MATCH, ())
        assert isinstance(match, tuple)
        interval_ms = values.get(INTERVAL_MS, _MIN_INTERVAL_MS)
        assert isinstance(interval_ms, int)
        if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
            message = (
                f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between "
                f"{_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)"
            )
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        _check_match(match)
    except InvalidValue as error:
        return Refusal(ErrorCode.INVALID_CONFIG, str(error))
    return None


def _check_match(match: Sequence[str]) -> None:
    """Check the elements of ``match``: ``attribute=expression``.

    :raises InvalidValue: when one is invalid
    """
    from headrace.groups.consumer.regex import InvalidRegex, Regex  # a start needs no groups

    for pattern in match:
        name, separator, expression = pattern.rstrip("=").partition("=")
        invalid = InvalidValue(f"Illegal client matching pattern: {pattern}")
        if not separator or "=" in expression or name.strip() not in _ATTRIBUTES:
            raise invalid
        try:
            Regex(expression.strip())
        except InvalidRegex:
            raise invalid from None
