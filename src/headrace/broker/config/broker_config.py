"""The configuration of a broker, its topics and its groups, under Kafka's names.

The value of a broker config is, in this order of precedence: the one set at run time for this
broker, the one set at run time for all brokers, the one given at start, and the default. A topic
config that a topic does not have takes the value of its broker synonym (``retention.ms``:
``log.retention.ms``), a group config that of the broker config ``group.`` and its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.log.log_config import LogConfig
from headrace.net.listeners import (
    Listener,
    advertised_addresses,
    configured_listeners,
    protocol_map,
)
from headrace.patterns import meant
from headrace.protocol.configs import ConfigSource
from headrace.protocol.configuration import Value, entries
from headrace.protocol.errors import ConfigError, Refusal
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.topics.catalog import Topic

from . import providers, retired, rules
from .keys import ConfigKey, InvalidValue, config_keys, render
from .security import LISTENER_PREFIX, ListenerKey, broker_key, listener_key, unserved

_DEFAULT_NODE_ID, _NO_BROKER_ID = "1", "-1"
_NEAR = 0.85
"""The similarity of names from which one may be a misspelt other."""

_MIN_SEGMENT_BYTES = 1_048_576
"""The lower bound of ``segment.bytes``."""

V = TypeVar("V", int, float, bool, tuple[str, ...])


StoredConfigs = Callable[[str, str], Mapping[str, str]]
"""Returns the configs set at run time of a resource, by its kind and name."""


def _checked(value: Value | None, kind: type[V], name: str) -> V:
    """Return a value that has a type by the declaration of its config."""
    assert type(value) is kind, name
    return value


class Config:
    """The configuration of one broker.

    :param overrides: values as text, by Kafka's broker config names
    :raises ConfigError: for names unknown to Apache Kafka, values that it would refuse, variables
        that nothing replaces, and settings that this broker does not serve; all in one message
    """

    without_effect: tuple[str, ...]
    """The names of the given configs of Apache Kafka 4 that have no effect here."""

    retired: tuple[str, ...]
    """The names of the given configs that Apache Kafka 4 does not have, see :mod:`.retired`."""

    node_id: int
    """The id of this node: ``node.id``, which ``broker.id`` may repeat; 1 by default."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        resolved = providers.resolve(overrides or {})
        configs = _with_node_id(resolved.values)
        problems = [*resolved.problems, *_problems(configs, resolved.replaced)]
        if problems:
            raise ConfigError("; ".join(problems))
        keys = {name: broker_key(name) for name in configs}
        self.retired = tuple(
            name for name, key in keys.items() if key is None and retired.origin(name) is not None
        )
        self.without_effect = tuple(
            name
            for name, key in keys.items()
            if name not in self.retired and (key is None or key.documentation is None)
        )
        self.node_id = int(configs["node.id"])
        self._static = {**configs, "broker.id": str(self.node_id)}
        self._stored: StoredConfigs = lambda _kind, _name: {}
        self._changes: Mapping[str, str | None] = {}
        self._values: dict[str, Value | None] = {}
        self._log_config: LogConfig | None = None
        refusal = rules.check_broker(self)
        if refusal is not None:
            raise ConfigError(refusal)
        protocol_map(self)
        advertised_addresses(self)

    # Values of the broker -------------------------------------------------------------------------

    def warnings(self, group_ids: Iterable[str]) -> Iterator[str]:
        """Yield a warning for each stored setting that promises security which this broker does not
        have, and for each config of these groups that the broker's bounds clamp.
        """
        for name in (str(self.node_id), ""):
            for key, text in self._stored("broker", name).items():
                warning = unserved(key, text)
                if warning is not None:
                    yield warning
        for group_id in group_ids:
            for name, text in self._stored("group", group_id).items():
                effective = self._group_value(group_id, name)
                if type(effective) is int and int(text) != effective:
                    yield (
                        f"{name} of group {group_id} is {text}, which is out of the broker's "
                        f"bounds; {effective} is used"
                    )

    def attach(self, stored: StoredConfigs) -> None:
        """Take the run-time configs of the broker and of groups from ``stored``."""
        self._stored = stored
        self.refresh()

    def refresh(self) -> None:
        """Apply broker configs that changed in the store."""
        self._values.clear()
        self._log_config = None

    def layers(self, name: str) -> Iterator[tuple[ConfigSource, str]]:
        """Yield the source and the value (as text) of each layer of a broker config, also of one
        with the prefix of a listener.

        The first one is in effect.
        """
        for source, values in self._sources():
            if name in values:
                yield source, values[name]
        key = config_keys("broker").get(name)
        if key is not None and key.default is not None:
            yield ConfigSource.DEFAULT_CONFIG, key.default

    def _sources(self) -> Iterator[tuple[ConfigSource, Mapping[str, str]]]:
        """Yield the sources of broker configs, by precedence, and their configs."""
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self._own_configs()
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster_configs()
        yield ConfigSource.STATIC_BROKER_CONFIG, self._static

    def _own_configs(self) -> Mapping[str, str]:
        """Return the configs set at run time for this broker, as text."""
        stored = self._stored("broker", str(self.node_id))
        if not self._changes:
            return stored
        changed = {**stored, **self._changes}
        return {name: text for name, text in changed.items() if text is not None}

    def cluster_configs(self) -> Mapping[str, str]:
        """Return the configs set at run time for all brokers, as text.

        ``min.insync.replicas`` is always among them: a new cluster of Apache Kafka gets it there
        (KIP-966).
        """
        stored = self._stored("broker", "")
        name = rules.MIN_INSYNC_REPLICAS
        return stored if name in stored else {name: self._static.get(name, "1"), **stored}

    def value(self, name: str) -> Value | None:
        """Return the parsed value of a broker config, None if it has none.

        :raises KeyError: for an unknown name
        """
        if name not in self._values:
            key = config_keys("broker")[name]
            text = next((text for _, text in self.layers(name)), None)
            self._values[name] = None if text is None else key.parse(text)
        return self._values[name]

    def get_int(self, name: str) -> int:
        """Return the value of a broker config of an integer type."""
        return _checked(self.value(name), int, name)

    def get_float(self, name: str) -> float:
        """Return the value of a broker config of type DOUBLE."""
        return _checked(self.value(name), float, name)

    def get_bool(self, name: str) -> bool:
        """Return the value of a broker config of type BOOLEAN."""
        return _checked(self.value(name), bool, name)

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return the value of a broker config of type LIST, empty if it has none."""
        return _checked(self.value(name) or (), tuple, name)

    def get_str(self, name: str) -> str | None:
        """Return the value of a broker config as Kafka prints it, None if it has none."""
        value = self.value(name)
        return None if value is None else render(value)

    @property
    def data_dir(self) -> Path | None:
        """The directory of ``log.dirs`` or else ``log.dir``; None if there is none."""
        for name in ("log.dirs", "log.dir"):
            for entry in entries(self._static.get(name, "")):
                return Path(entry)
        return None

    # Listeners ------------------------------------------------------------------------------------

    def listeners(self, local_host: str) -> Sequence[Listener]:
        """Return the listeners that are configured; empty if ``listeners`` is not set.

        :param local_host: advertised for a listener on all addresses
        :raises ConfigError: when they contradict each other, or ``advertised.listeners``
        """
        if "listeners" not in self._static:
            return ()
        return configured_listeners(self, local_host)

    def listener_text(self, listener: str, name: str, mechanism: str | None = None) -> str | None:
        """Return the value of a broker config for one listener as text, None if it has none.

        The order of precedence: ``listener.name.<listener>.<mechanism>.<name>``,
        ``listener.name.<listener>.<name>``, and the config without a prefix.

        :param listener: the name of a listener, in any case
        :param mechanism: a SASL mechanism, in any case
        """
        names = [name] if mechanism is None else [f"{mechanism.lower()}.{name}", name]
        for _, values in self._sources():
            folded = {key.lower(): text for key, text in values.items()}
            for listener_name in names:
                text = folded.get(f"{LISTENER_PREFIX}{listener.lower()}.{listener_name}")
                if text is not None:
                    return text
        return next((text for _, text in self.layers(name)), None)

    def listener_configs(self) -> Iterator[tuple[str, ListenerKey]]:
        """Yield the configs that are set for single listeners, in order of their names."""
        for name in sorted({*self._static, *self._own_configs()}):
            key = listener_key(name)
            if key is not None:
                yield name, key

    def listener_value(
        self, listener: str, name: str, mechanism: str | None = None
    ) -> Value | None:
        """Return the parsed value of a config for one listener; see :meth:`listener_text`."""
        text = self.listener_text(listener, name, mechanism)
        return None if text is None else config_keys("broker")[name].parse(text)

    def listener_int(self, listener: str, name: str) -> int:
        """Return the value of a config of an integer type for one listener. It is cached until
        configs change.
        """
        cached = f"{LISTENER_PREFIX}{listener}.{name}"
        if cached not in self._values:
            self._values[cached] = self.listener_value(listener, name)
        return _checked(self._values[cached], int, name)

    def with_changes(self, changes: Mapping[str, str | None]) -> Config:
        """Return this configuration as it would be after a change of this broker's configs at run
        time. It does not follow later changes.
        """
        changed = copy(self)
        changed._values = {}
        changed._changes = changes
        return changed

    # Topics ---------------------------------------------------------------------------------------

    def _effective(self, key: ConfigKey, configs: Mapping[str, str]) -> Value | None:
        """Return the value of a config of a topic or group, None if it has none.

        :param configs: those that the topic or group has itself
        """
        if key.name in configs:
            return key.parse(configs[key.name])
        for synonym in key.synonyms:
            value = self.value(synonym.name)
            # The list of what a config may be is no value of it.
            if value is not None and isinstance(value, tuple) == (key.type == "LIST"):
                is_converted = synonym.unit > 1 and isinstance(value, int)
                return max(value * synonym.unit, -1) if is_converted else value
        return None if key.default is None else key.parse(key.default)

    def topic_value(self, topic: Topic, name: str) -> str | None:
        """Return the value of a config of ``topic`` as Kafka prints it, None if it has none."""
        value = self._effective(config_keys("topic")[name], _with_internal_configs(topic))
        return None if value is None else render(value)

    def log_config(self, topic: Topic) -> LogConfig:
        """Return the configuration of a topic's logs."""
        if topic.name in INTERNAL_TOPICS:
            return replace(self._make_log_config(_with_internal_configs(topic)), internal=True)
        if topic.configs:
            return self._make_log_config(topic.configs)
        if self._log_config is None:
            self._log_config = self._make_log_config({})
        return self._log_config

    def _make_log_config(self, configs: Mapping[str, str]) -> LogConfig:
        keys = config_keys("topic")
        values: dict[str, Any] = {
            field: self._effective(keys[name], configs) for field, name in _LOG_FIELDS.items()
        }
        values["cleanup_policy"] = render(values["cleanup_policy"])
        values["producer_id_expiration_ms"] = self.get_int("producer.id.expiration.ms")
        if "internal.segment.bytes" in configs:
            values["segment_bytes"] = int(configs["internal.segment.bytes"])
        return LogConfig(**values)

    def internal_topic(self, name: str) -> tuple[int, dict[str, str]]:
        """Return the number of partitions and the configs to create an internal topic with."""
        topic = INTERNAL_TOPICS[name]
        segment_bytes = self.get_int(f"{topic.config_prefix}.segment.bytes")
        # segment.bytes of a topic has a lower bound, which the broker's config does not have.
        small = segment_bytes < _MIN_SEGMENT_BYTES
        segment_key = "internal.segment.bytes" if small else "segment.bytes"
        configs = {**topic.configs, segment_key: str(segment_bytes)}
        return self.get_int(f"{topic.config_prefix}.num.partitions"), configs

    # Groups ---------------------------------------------------------------------------------------

    def group_value(self, group_id: str, name: str) -> str:
        """Return the value of a config of a group as text.

        A group's own value is clamped to the broker's present bounds.
        """
        return render(self._group_value(group_id, name))

    def group_int(self, group_id: str, name: str) -> int:
        """Return the value of a group config of an integer type; see :meth:`group_value`."""
        return _checked(self._group_value(group_id, name), int, name)

    def group_list(self, group_id: str, name: str) -> tuple[str, ...]:
        """Return the value of a group config of type LIST; see :meth:`group_value`."""
        return _checked(self._group_value(group_id, name), tuple, name)

    def _group_value(self, group_id: str, name: str) -> Value:
        key, configs = config_keys("group")[name], self._stored("group", group_id)
        value = self._effective(key, configs)
        assert value is not None, name
        if name in configs and type(value) is int:
            lowest, highest = rules.bounds(key, self)
            return int(max(lowest, min(value, highest)))
        return value

    # Changes at run time --------------------------------------------------------------------------

    def check(self, kind: str, configs: Mapping[str, str]) -> Refusal | None:
        """Return the error for a resource that would have these configs, None if they are valid.

        :param kind: ``topic``, ``group`` or ``client-metrics``
        :param configs: all configs that the resource itself would have
        """
        return rules.check(kind, configs, self)


_LOG_FIELDS = {
    field.name: name
    for field in fields(LogConfig)
    if (name := field.name.replace("_", ".")) in config_keys("topic")
}
"""The topic config of each field."""


def _with_node_id(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the given configs with ``node.id``; ``broker.id`` is its synonym.

    :raises ConfigError: when both are given and differ
    """
    broker_id = overrides.get("broker.id", _NO_BROKER_ID).strip()
    if broker_id == _NO_BROKER_ID:
        return {"node.id": _DEFAULT_NODE_ID, **overrides}
    configs = {"node.id": broker_id, **overrides}
    if configs["node.id"].strip() != broker_id:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    return configs


def _with_internal_configs(topic: Topic) -> Mapping[str, str]:
    """Return the configs of a topic; those of an internal topic include the table's."""
    internal = INTERNAL_TOPICS.get(topic.name)
    return topic.configs if internal is None else {**internal.configs, **topic.configs}


def _problems(configs: Mapping[str, str], replaced: Set[str]) -> Iterator[str]:
    """Yield what must change for the broker to start, for each config by itself.

    :param replaced: the names of those whose values come from providers: no message has these
    """
    for name, text in configs.items():
        not_served = unserved(name, text)
        key = broker_key(name)
        if not_served is not None:
            yield not_served
        elif name not in replaced and providers.has_variable(text):
            continue  # told already
        elif key is not None:
            try:
                key.parse(text)
            except InvalidValue as error:
                from_provider = f"Invalid value from a provider for configuration {name}"
                yield from_provider if name in replaced else str(error)
        elif name in retired.REPLACED:
            yield f"{name} is of an older Apache Kafka: {retired.REPLACED[name]}"
        elif not name.startswith(LISTENER_PREFIX) and retired.origin(name) is None:
            yield f"unknown config {name}{_nearest(name)}"
    roles = configs.get("process.roles", "").strip()
    if roles and "broker" not in entries(roles):
        yield (
            f"process.roles is {roles}: this is the configuration of a controller, and there are "
            "none here. Start with that of a broker"
        )
    for name in ("log.dirs", "log.dir"):
        directories = set(entries(configs.get(name, "")))
        if len(directories) > 1:
            yield (
                f"{name} names {len(directories)} directories: this broker has its data in one. "
                "Name the one to use"
            )


def _nearest(name: str) -> str:
    topic_key = config_keys("topic").get(name)
    if topic_key is not None and topic_key.synonyms:
        return f": that is a topic config; did you mean {topic_key.synonyms[0].name}?"
    question = meant(name, config_keys("broker"), _NEAR)
    return f"; {question}" if question else ""
