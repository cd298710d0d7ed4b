"""Validation of configs beyond the range of each: unknown names, bounds by other configs, read-only
configs.

Messages are Kafka's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from headrace.net.listeners import OVERRIDES, PER_IP, parse_overrides
from headrace.protocol.configuration import Configuration, Value
from headrace.protocol.errors import Refusal, invalid_config, invalid_request
from headrace.security.principal import super_users
from headrace.topics.settings import Settings

from .keys import ConfigKey, InvalidValue, config_keys
from .providers import has_variable
from .security import broker_key, unserved

MIN_INSYNC_REPLICAS = "min.insync.replicas"

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only authorizer."""
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_RACK_TAGS = "streams.rack.aware.assignment.tags"
_ASSIGNOR, _ASSIGNORS = "streams.assignor.name", "group.streams.assignors"
_TIMEOUTS = tuple(
    (f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms")
    for kind in ("consumer", "share", "streams")
)
"""The configs of a group whose first must be less than the second."""
_PER_BROKER_ONLY = frozenset(("listeners", "sasl.jaas.config"))
_AT_START_ONLY = frozenset(("listeners", "listener.security.protocol.map"))
_PER_LISTENER_PREFIXES = ("ssl.keystore.", "ssl.truststore.")


def bounds(key: ConfigKey, config: Configuration) -> tuple[float, float]:
    """Return the lowest and the highest value that a broker allows a group config."""
    return (
        -math.inf if key.minimum is None else config.get_int(key.minimum),
        math.inf if key.maximum is None else config.get_int(key.maximum),
    )


def _has_twice(value: Value | None) -> bool:
    return isinstance(value, tuple) and len(set(value)) < len(value)


def check_broker(config: Configuration) -> str | None:
    """Return the error for broker configs that contradict each other, None if there is none."""
    return next(_broker_conflicts(config), None)


def _broker_conflicts(config: Configuration) -> Iterator[str]:
    number = config.get_int
    for key in config_keys("group").values():
        if not (key.minimum or key.maximum):
            continue
        lowest, highest = bounds(key, config)
        if highest < lowest:
            yield f"{key.maximum} must be greater than or equal to {key.minimum}"
        name = key.synonyms[0].name
        if number(name) < lowest:
            yield f"{name} must be greater than or equal to {key.minimum}"
        if number(name) > highest:
            yield f"{name} must be less than or equal to {key.maximum}"
    for heartbeat, session in _TIMEOUTS:
        if number(f"group.{heartbeat}") >= number(f"group.{session}"):
            yield f"group.{heartbeat} must be less than group.{session}"
    if _has_twice(config.value(f"group.{_RACK_TAGS}")):
        yield f"group.{_RACK_TAGS} must not contain duplicate tag keys."
    if number("group.share.max.share.sessions") < number("group.share.max.size"):
        yield "group.share.max.share.sessions must be greater than or equal to group.share.max.size"
    if "classic" not in config.get_list("group.coordinator.rebalance.protocols"):
        yield "Disabling the 'classic' protocol is not supported."
    yield from _connection_conflicts(config)
    authorizer = config.value("authorizer.class.name")
    if authorizer not in ("", None, _AUTHORIZER):
        yield f"authorizer.class.name must be empty or {_AUTHORIZER}, not {authorizer}"
    try:
        super_users(config.get_str("super.users") or "")
    except ValueError as error:
        yield f"Invalid value for configuration super.users: {error}"


def _connection_conflicts(config: Configuration) -> Iterator[str]:
    text = config.get_str(OVERRIDES) or ""
    try:
        overrides = parse_overrides(text)
    except ValueError:
        yield f"Invalid value {text} for configuration {OVERRIDES}: expected ADDRESS:NUMBER,..."
        return
    if config.value(PER_IP) == 0 and not overrides:
        yield f"{PER_IP} can be set to zero only if {OVERRIDES} property is set."
    invalid = [host for host in overrides if not _HOST.fullmatch(host)]
    if invalid:
        yield f"{OVERRIDES} contains invalid addresses : {','.join(invalid)}"


def check_broker_changes(
    broker_name: str, values: Mapping[str, str | None], config: Settings
) -> Refusal | None:
    """Return the error for a change of broker configs at run time, None if it is valid.

    Apache Kafka computes eligible leader replicas with one value of ``min.insync.replicas`` for the
    whole cluster (KIP-966): it can be changed, but not removed, and brokers have no value of their
    own.

    :param broker_name: the id of the broker; empty for all brokers
    :param values: the new values, None for configs to remove
    """
    if broker_name and MIN_INSYNC_REPLICAS in values:
        return invalid_config(
            f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        )
    if values.get(MIN_INSYNC_REPLICAS, "") is None:
        return invalid_config(
            f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )
    changes = {name: text for name, text in values.items() if text is not None}
    keys = {}
    for name in changes:
        key = broker_key(name)
        if key is None:
            return invalid_config(f"Unknown broker config name: {name}")
        keys[name] = key
    refused: Mapping[str, Callable[[str], bool]] = {
        "Cannot update these configs dynamically": lambda name: not keys[name].dynamic,
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix": lambda name: name.startswith(_PER_LISTENER_PREFIXES),
        "Cannot update these configs at default cluster level, broker id must be specified": (
            lambda name: not broker_name and (name in _PER_BROKER_ONLY or name != keys[name].name)
        ),
        "Listeners are taken from the configuration at the start of the broker": (
            lambda name: name in _AT_START_ONLY
        ),
        # Kafka stores the text. Who may change configs would read files and the environment.
        "Variables of config providers are replaced only in the configuration at the start of the "
        "broker": lambda name: has_variable(changes[name]),
    }
    for message, is_refused in refused.items():
        names = list(filter(is_refused, changes))
        if names:
            return invalid_request(f"{message}: [{', '.join(names)}]")
    wrong = next(filter(None, (unserved(name, text) for name, text in changes.items())), None)
    if wrong is None:
        try:
            for name, text in changes.items():
                keys[name].parse(text)
        except InvalidValue as error:
            wrong = str(error)
        else:
            wrong = check_broker(config.with_changes(changes))
    return None if wrong is None else invalid_request(wrong)


def check(kind: str, configs: Mapping[str, str], config: Configuration) -> Refusal | None:
    """Return the error for all configs of a resource, None if they are valid.

    :param kind: ``topic``, ``group`` or ``client-metrics``
    """
    keys = config_keys(kind)
    for name in configs:
        if name not in keys:
            if kind == "client-metrics":
                return invalid_request(f"Unknown client metrics configuration: {name}")
            return invalid_config(f"Unknown {kind} config name: {name}")
    try:
        values = {name: keys[name].parse(text) for name, text in configs.items()}
    except InvalidValue as error:
        return invalid_config(str(error))
    if kind == "client-metrics":
        return _client_metrics_conflict(values)
    conflicts = _topic_conflicts(values) if kind == "topic" else _group_conflicts(values, config)
    message = next(conflicts, None)
    return None if message is None else invalid_config(message)


def _topic_conflicts(values: Mapping[str, Value]) -> Iterator[str]:
    shortest, longest = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        yield (
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )
    if values.get("remote.storage.enable"):
        yield (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def _group_conflicts(values: Mapping[str, Value], config: Configuration) -> Iterator[str]:
    if _has_twice(values.get(_RACK_TAGS)):
        yield f"{_RACK_TAGS} must not contain duplicate tag keys."
    for key in config_keys("group").values():
        value = values.get(key.name)
        lowest, highest = bounds(key, config)
        if not isinstance(value, int) or lowest <= value <= highest:
            continue
        if key.minimum is None:
            yield f"{key.name} must be less than or equal to {highest}"
        elif key.maximum is None:
            yield f"{key.name} must be greater than or equal to {lowest}"
        else:
            yield f"{key.name} must be in the range {lowest} to {highest} inclusive."
    assignors = config.get_list(_ASSIGNORS)
    if _ASSIGNOR in values and values[_ASSIGNOR] not in assignors:
        yield (
            f"{_ASSIGNOR} '{values[_ASSIGNOR]}' is not a registered task assignor. Registered "
            f"assignors are: [{', '.join(assignors)}]."
        )
    for heartbeat, session in _TIMEOUTS:
        if heartbeat in values or session in values:
            interval, longest = (
                values.get(name, config.get_int(f"group.{name}")) for name in (heartbeat, session)
            )
            assert isinstance(longest, int)
            assert isinstance(interval, int)
            if longest <= interval:
                yield f"{session} must be greater than {heartbeat}"
    if str(values.get("errors.deadletterqueue.topic.name", "")).startswith("__"):
        yield "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"


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


def _client_metrics_conflict(values: Mapping[str, Value]) -> Refusal | None:
    """Return the error for the values of a subscription of client metrics (KIP-714), None if they
    are valid.

    A subscription has the metrics that it asks for (prefixes of names, or ``*`` for all), the
    interval in which clients push them, and the clients that it is for. It is checked, stored and
    described, and has no effect: like Apache Kafka without a plugin for the metrics of clients,
    this broker does not ask for them.
    """
    interval_ms, match = values.get("interval.ms", _MIN_INTERVAL_MS), values.get("match", ())
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        return invalid_request(
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)"
        )
    for pattern in match:
        if not _selects_clients(pattern):
            return invalid_config(f"Illegal client matching pattern: {pattern}")
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
