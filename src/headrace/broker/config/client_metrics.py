"""Subscriptions of client metrics (KIP-714), the resources of type CLIENT_METRICS.

A subscription has the metrics that it asks for (prefixes of names, or ``*`` for all), the interval
in which clients push them, and the clients that it is for. Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode, Refusal

from .keys import InvalidValue, config_keys

if TYPE_CHECKING:
    from headrace.groups.consumer.regex import Regex

KIND = "client-metrics"
"""The kind of these resources in the catalog."""

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"

CLIENT_INSTANCE_ID = "client_instance_id"
CLIENT_ID = "client_id"
SOFTWARE_NAME = "client_software_name"
SOFTWARE_VERSION = "client_software_version"
SOURCE_ADDRESS = "client_source_address"
SOURCE_PORT = "client_source_port"
_ATTRIBUTES = frozenset(
    (CLIENT_INSTANCE_ID, CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS, SOURCE_PORT)
)
"""The attributes of clients that ``match`` selects by."""

_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000


class Subscription(NamedTuple):
    """A subscription.

    :param metrics: prefixes of metric names
    :param match: a regular expression for each attribute; a client has to match all
    """

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Regex]

    def is_for(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the subscription is for a client with these attributes."""
        return all(
            name in attributes and regex.matches(attributes[name])
            for name, regex in self.match.items()
        )


def subscription(configs: Mapping[str, str]) -> Subscription:
    """Return the subscription with valid configs."""
    values = {}
    for name, key in config_keys(KIND).items():
        assert key.default is not None
        values[name] = key.parse(configs.get(name, key.default))
    metrics, interval_ms, match = (values[name] for name in (METRICS, INTERVAL_MS, MATCH))
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    return Subscription(frozenset(metrics), interval_ms, _patterns(match))


def check_client_metrics(configs: Mapping[str, str]) -> Refusal | None:
    """Return the error for the configs of a subscription, None if they are valid."""
    keys = config_keys(KIND)
    for name in configs:
        if name not in keys:
            message = f"Unknown client metrics configuration: {name}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    try:
        values = {name: keys[name].parse(text) for name, text in configs.items()}
        for name, value in values.items():
            if isinstance(value, tuple) and "" in value:
                message = f"Configuration '{name}' values must not be empty."
                return Refusal(ErrorCode.INVALID_CONFIG, message)
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
        _patterns(match)
    except InvalidValue as error:
        return Refusal(ErrorCode.INVALID_CONFIG, str(error))
    return None


def _patterns(match: Sequence[str]) -> dict[str, Regex]:
    """Parse the elements of ``match``: ``attribute=expression``.

    :raises InvalidValue: when one is invalid
    """
    from headrace.groups.consumer.regex import InvalidRegex, Regex  # a start needs no groups

    patterns = {}
    for pattern in match:
        name, separator, expression = pattern.rstrip("=").partition("=")
        invalid = InvalidValue(f"Illegal client matching pattern: {pattern}")
        if not separator or "=" in expression or name.strip() not in _ATTRIBUTES:
            raise invalid
        try:
            patterns[name.strip()] = Regex(expression.strip())
        except InvalidRegex:
            raise invalid from None
    return patterns
