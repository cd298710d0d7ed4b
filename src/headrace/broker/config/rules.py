"""Validation of configs beyond the range of each: unknown names, bounds by other configs, read-only
configs.

Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.errors import ErrorCode, Refusal
from headrace.net.authorization import check_authorizer
from headrace.net.connection_limits import check_connection_limits
from headrace.net.group_protocols import check_rebalance_protocols
from headrace.topics.settings import BrokerValue, Value

from .keys import InvalidValue, config_keys
from .providers import has_variable
from .security import listener_key, unserved


class _Bounded(NamedTuple):
    """A group config and the broker configs that bound it."""

    prefix: str
    name: str

    @property
    def group_name(self) -> str:
        return f"{self.prefix}.{self.name}"

    @property
    def broker_name(self) -> str:
        return f"group.{self.prefix}.{self.name}"

    @property
    def minimum(self) -> str:
        return f"group.{self.prefix}.min.{self.name}"

    @property
    def maximum(self) -> str:
        return f"group.{self.prefix}.max.{self.name}"


_BOUNDED = (
    *(
        _Bounded(prefix, name)
        for prefix in ("consumer", "share", "streams")
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
    ),
    _Bounded("share", "record.lock.duration.ms"),
    _Bounded("share", "delivery.count.limit"),
    _Bounded("share", "partition.max.record.locks"),
)
_MAXIMA = {
    "streams.num.standby.replicas": "group.streams.max.standby.replicas",
    "streams.num.warmup.replicas": "group.streams.max.warmup.replicas",
}
_MINIMA = {"streams.task.offset.interval.ms": "group.streams.min.task.offset.interval.ms"}
"""Group configs that one broker config bounds."""

_RACK_TAGS = "streams.rack.aware.assignment.tags"
_ASSIGNOR, _ASSIGNORS = "streams.assignor.name", "group.streams.assignors"
_BOUNDED_BY_NAME = {one.group_name: one for one in _BOUNDED}
_PREFIXES = ("consumer", "share", "streams")
_PER_BROKER_ONLY = frozenset(("listeners", "sasl.jaas.config"))
_AT_START_ONLY = frozenset(("listeners", "listener.security.protocol.map"))
_PER_LISTENER_PREFIXES = ("ssl.keystore.", "ssl.truststore.")


def clamp(name: str, value: int, broker: BrokerValue) -> int:
    """Clamp the value of a group config to the broker's present bounds."""
    if name in _MAXIMA:
        return min(value, _number(broker, _MAXIMA[name]))
    if name in _MINIMA:
        return max(value, _number(broker, _MINIMA[name]))
    one = _BOUNDED_BY_NAME.get(name)
    return (
        value
        if one is None
        else max(_number(broker, one.minimum), min(value, _number(broker, one.maximum)))
    )


def _has_twice(value: Value | None) -> bool:
    return isinstance(value, tuple) and len(set(value)) < len(value)


def _number(broker: BrokerValue, name: str) -> int:
    value = broker(name)
    assert isinstance(value, int), name
    return value


def check_broker(broker: BrokerValue) -> str | None:
    """Return the error for broker configs that contradict each other, None if there is none."""
    for one in _BOUNDED:
        if _number(broker, one.maximum) < _number(broker, one.minimum):
            return f"{one.maximum} must be greater than or equal to {one.minimum}"
        value = _number(broker, one.broker_name)
        if value < _number(broker, one.minimum):
            return f"{one.broker_name} must be greater than or equal to {one.minimum}"
        if value > _number(broker, one.maximum):
            return f"{one.broker_name} must be less than or equal to {one.maximum}"
    for prefix in _PREFIXES:
        heartbeat, session = (
            f"group.{prefix}.heartbeat.interval.ms",
            f"group.{prefix}.session.timeout.ms",
        )
        if _number(broker, heartbeat) >= _number(broker, session):
            return f"{heartbeat} must be less than {session}"
    for name, maximum in _MAXIMA.items():
        if _number(broker, f"group.{name}") > _number(broker, maximum):
            return f"group.{name} must be less than or equal to {maximum}"
    for name, minimum in _MINIMA.items():
        if _number(broker, f"group.{name}") < _number(broker, minimum):
            return f"group.{name} must be greater than or equal to {minimum}"
    if _has_twice(broker(f"group.{_RACK_TAGS}")):
        return f"group.{_RACK_TAGS} must not contain duplicate tag keys."
    if _number(broker, "group.share.max.share.sessions") < _number(broker, "group.share.max.size"):
        return (
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size"
        )
    return (
        check_rebalance_protocols(broker)
        or check_connection_limits(broker)
        or check_authorizer(broker)
    )


def check_broker_changes(
    changes: Mapping[str, str], broker: BrokerValue, *, default: bool = False
) -> Refusal | None:
    """Return the error for a change of broker configs at run time, None if it is valid.

    :param default: True for a change for all brokers
    """
    known = config_keys("broker")
    keys = {}
    for name in changes:
        of_listener = listener_key(name)
        key = known.get(name) if of_listener is None else known[of_listener.key]
        if key is None:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {name}")
        keys[name] = key
    for listing, message in (
        (
            [name for name in changes if not keys[name].dynamic],
            "Cannot update these configs dynamically",
        ),
        (
            [name for name in changes if name.startswith(_PER_LISTENER_PREFIXES)],
            (
                "These security configs can be dynamically updated only per-listener using the "
                "listener prefix"
            ),
        ),
        (
            [
                name
                for name in changes
                if default and (name in _PER_BROKER_ONLY or name not in known)
            ],
            "Cannot update these configs at default cluster level, broker id must be specified",
        ),
        (
            [name for name in changes if name in _AT_START_ONLY],
            "Listeners are taken from the configuration at the start of the broker",
        ),
    ):
        if listing:
            return Refusal(ErrorCode.INVALID_REQUEST, f"{message}: [{', '.join(listing)}]")
    variables = [name for name, text in changes.items() if has_variable(text)]
    if variables:
        # Kafka stores the text. Whoever may change configs would read files and the environment.
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Variables of config providers are replaced only in the configuration at the start of "
            f"the broker: [{', '.join(variables)}]",
        )
    for name, text in changes.items():
        not_served = unserved(name, text)
        if not_served is not None:
            return Refusal(ErrorCode.INVALID_REQUEST, not_served)
    try:
        changed = {name: keys[name].parse(text) for name, text in changes.items()}
    except InvalidValue as error:
        return Refusal(ErrorCode.INVALID_REQUEST, str(error))
    wrong = check_broker(lambda name: changed[name] if name in changed else broker(name))
    return None if wrong is None else Refusal(ErrorCode.INVALID_REQUEST, wrong)


def _parsed(kind: str, configs: Mapping[str, str]) -> dict[str, Value] | Refusal:
    keys = config_keys(kind)
    for name in configs:
        if name not in keys:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name}")
    try:
        return {name: keys[name].parse(text) for name, text in configs.items()}
    except InvalidValue as error:
        return Refusal(ErrorCode.INVALID_CONFIG, str(error))


def check_topic(configs: Mapping[str, str]) -> Refusal | None:
    """Return the error for the configs of a topic, None if they are valid."""
    values = _parsed("topic", configs)
    if isinstance(values, Refusal):
        return values
    shortest, longest = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms")
    message = None
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )
    elif values.get("remote.storage.enable"):
        message = (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return None if message is None else Refusal(ErrorCode.INVALID_CONFIG, message)


def check_group(configs: Mapping[str, str], broker: BrokerValue) -> Refusal | None:
    """Return the error for the configs of a group, None if they are valid."""
    values = _parsed("group", configs)
    if isinstance(values, Refusal):
        return values
    message = next(_group_conflicts(values, broker), None)
    return None if message is None else Refusal(ErrorCode.INVALID_CONFIG, message)


def _group_conflicts(values: Mapping[str, Value], broker: BrokerValue) -> Iterator[str]:
    if _has_twice(values.get(_RACK_TAGS)):
        yield f"{_RACK_TAGS} must not contain duplicate tag keys."
    for one in _BOUNDED:
        value = values.get(one.group_name)
        lowest, highest = _number(broker, one.minimum), _number(broker, one.maximum)
        if isinstance(value, int) and not lowest <= value <= highest:
            yield f"{one.group_name} must be in the range {lowest} to {highest} inclusive."
    for name, maximum in _MAXIMA.items():
        value, highest = values.get(name), _number(broker, maximum)
        if isinstance(value, int) and value > highest:
            yield f"{name} must be less than or equal to {highest}"
    for name, minimum in _MINIMA.items():
        value, lowest = values.get(name), _number(broker, minimum)
        if isinstance(value, int) and value < lowest:
            yield f"{name} must be greater than or equal to {lowest}"
    assignors = broker(_ASSIGNORS)
    assert isinstance(assignors, tuple), _ASSIGNORS
    if _ASSIGNOR in values and values[_ASSIGNOR] not in assignors:
        yield (
            f"{_ASSIGNOR} '{values[_ASSIGNOR]}' is not a registered task assignor. Registered "
            f"assignors are: [{', '.join(assignors)}]."
        )
    for prefix in _PREFIXES:
        heartbeat, session = f"{prefix}.heartbeat.interval.ms", f"{prefix}.session.timeout.ms"
        if heartbeat in values or session in values:
            longest, interval = (
                values.get(name, _number(broker, f"group.{name}")) for name in (session, heartbeat)
            )
            assert isinstance(longest, int)
            assert isinstance(interval, int)
            if longest <= interval:
                yield f"{session} must be greater than {heartbeat}"
    if str(values.get("errors.deadletterqueue.topic.name", "")).startswith("__"):
        yield "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"
