"""The configuration of a broker, its topics and its groups, under Kafka's names.

The value of a broker config is, in this order of precedence: the one set at run time for this
broker, the one set at run time for all brokers, the one given at start, and the default. A topic
config that a topic does not have takes the value of its broker synonym (``retention.ms``:
``log.retention.ms``), a group config that of the broker config ``group.`` and its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from headrace.errors import ConfigError, Refusal
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.log.log_config import LogConfig
from headrace.net.listeners import (
    InvalidListeners,
    Listener,
    advertised_addresses,
    configured_listeners,
    make_listener,
    protocol_map,
)
from headrace.patterns import meant
from headrace.topics.settings import ConfiguredTopic, Value

from . import client_metrics, providers, retired, rules
from .cluster_rules import MIN_INSYNC_REPLICAS
from .keys import InvalidValue, config_keys, render
from .security import LISTENER_PREFIX, listener_key, unserved

_DEFAULT_NODE_ID, _NO_BROKER_ID = "1", "-1"
_NEAR = 0.85
"""The similarity of names from which one may be a misspelt other."""

DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 2, 3, 4, 5
"""Sources of values, in the numbers of DescribeConfigs."""

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_MIN_SEGMENT_BYTES = 1_048_576
"""The lower bound of ``segment.bytes``."""

TOPIC_SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""The broker synonyms of each topic config in order of precedence, with the factor from the
synonym's unit to the topic config's.
"""


class ConfigStore(Protocol):
    """The store of configs set at run time: the catalog."""

    def configs(self, kind: str, name: str) -> Mapping[str, str]: ...


class _EmptyStore:
    def configs(self, kind: str, name: str) -> Mapping[str, str]:
        return {}


class _ChangedStore:
    """A store in which one broker has other configs."""

    def __init__(self, store: ConfigStore, broker_id: str, configs: Mapping[str, str]) -> None:
        self._store = store
        self._broker_id = broker_id
        self._configs = configs

    def configs(self, kind: str, name: str) -> Mapping[str, str]:
        if (kind, name) == ("broker", self._broker_id):
            return self._configs
        return self._store.configs(kind, name)


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
        given = _with_node_id(resolved.values)
        problems = [*resolved.problems, *_problems(given, resolved.replaced)]
        if problems:
            raise ConfigError("; ".join(problems))
        keys = config_keys("broker")
        ignored = []
        retired_names = []
        for name in given:
            of_listener = listener_key(name)
            key = keys.get(name if of_listener is None else of_listener.key)
            if key is None and retired.origin(name) is not None:
                retired_names.append(name)
            elif key is None or key.documentation is None:
                ignored.append(name)
        self.without_effect = tuple(ignored)
        self.retired = tuple(retired_names)
        self.node_id = int(given["node.id"])
        self._static = {**given, "broker.id": str(self.node_id)}
        self._store: ConfigStore = _EmptyStore()
        self._values: dict[str, Value | None] = {}
        self._log_config: LogConfig | None = None
        refusal = rules.check_broker(self.value)
        if refusal is not None:
            raise ConfigError(refusal)
        try:
            protocol_map(self)
            advertised_addresses(self)
        except InvalidListeners as error:
            raise ConfigError(str(error)) from None

    # Values of the broker -------------------------------------------------------------------------

    def unserved(self) -> list[str]:
        """Return a warning for each stored setting that promises security which this broker does
        not have.
        """
        return [
            warning
            for name in (str(self.node_id), "")
            for key, text in self._store.configs("broker", name).items()
            if (warning := unserved(key, text)) is not None
        ]

    def attach(self, store: ConfigStore) -> None:
        """Take the run-time configs of the broker and of groups from ``store``."""
        self._store = store
        self.refresh()

    def refresh(self) -> None:
        """Apply broker configs that changed in the store."""
        self._values.clear()
        self._log_config = None

    def layers(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the source and the value (as text) of each layer of a broker config.

        The first one is in effect.
        """
        for source, values in (
            (DYNAMIC_BROKER, self._store.configs("broker", str(self.node_id))),
            (DYNAMIC_DEFAULT_BROKER, self.cluster_configs()),
            (STATIC_BROKER, self._static),
        ):
            if name in values:
                yield source, values[name]
        default = config_keys("broker")[name].default
        if default is not None:
            yield DEFAULT, default

    def cluster_configs(self) -> Mapping[str, str]:
        """Return the configs set at run time for all brokers, as text.

        ``min.insync.replicas`` is always among them: a new cluster of Apache Kafka gets it there
        (KIP-966).
        """
        stored = self._store.configs("broker", "")
        if MIN_INSYNC_REPLICAS in stored:
            return stored
        return {MIN_INSYNC_REPLICAS: self._static.get(MIN_INSYNC_REPLICAS, "1"), **stored}

    def value(self, name: str) -> Value | None:
        """Return the parsed value of a broker config, None if it has none.

        :raises KeyError: for an unknown name
        """
        try:
            return self._values[name]
        except KeyError:
            key = config_keys("broker")[name]
        text = next((text for _, text in self.layers(name)), None)
        value = self._values[name] = None if text is None else key.parse(text)
        return value

    def get_int(self, name: str) -> int:
        """Return the value of a broker config of an integer type."""
        value = self.value(name)
        assert type(value) is int, name
        return value

    def get_float(self, name: str) -> float:
        """Return the value of a broker config of type DOUBLE."""
        value = self.value(name)
        assert isinstance(value, float), name
        return value

    def get_bool(self, name: str) -> bool:
        """Return the value of a broker config of type BOOLEAN."""
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return the value of a broker config of type LIST, empty if it has none."""
        value = self.value(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def get_str(self, name: str) -> str | None:
        """Return the value of a broker config as Kafka prints it, None if it has none."""
        value = self.value(name)
        return None if value is None else render(value)

    def data_dir(self, given: Path | None) -> Path | None:
        """Return the directory of the broker's state: the given one, or that of ``log.dirs`` or
        else ``log.dir``; None if there is none.
        """
        texts = (self._static.get(name, "") for name in ("log.dirs", "log.dir"))
        configured = next((Path(entry) for text in texts for entry in _entries(text)), None)
        return given or configured

    # Listeners ------------------------------------------------------------------------------------

    def listeners(self, local_host: str) -> Sequence[Listener]:
        """Return the listeners that are configured; empty if ``listeners`` is not set.

        :param local_host: advertised for a listener on all addresses
        :raises ConfigError: when they contradict each other, or ``advertised.listeners``
        """
        if "listeners" not in self._static:
            return ()
        try:
            return configured_listeners(self, local_host)
        except InvalidListeners as error:
            raise ConfigError(str(error)) from None

    def listener(
        self,
        name: str,
        host: str,
        port: int,
        advertised: tuple[str, int] | None = None,
    ) -> Listener:
        """Return a listener of a name, with the protocol that the name is mapped to.

        :param advertised: the address that clients connect to; by default the one in
            ``advertised.listeners``, or that of the listener. Port 0 stands for the port of the
            listening socket
        :raises ConfigError: when the name has no protocol
        """
        try:
            at = advertised or advertised_addresses(self).get(name)
            return make_listener(name, host, port, at, self)
        except InvalidListeners as error:
            raise ConfigError(str(error)) from None

    def listener_text(self, listener: str, name: str, mechanism: str | None = None) -> str | None:
        """Return the value of a broker config for one listener as text, None if it has none.

        The order of precedence: ``listener.name.<listener>.<mechanism>.<name>``,
        ``listener.name.<listener>.<name>``, and the config without a prefix.

        :param listener: the name of a listener, in any case
        :param mechanism: a SASL mechanism, in any case
        """
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        names = [f"{prefix}{name}"]
        if mechanism is not None:
            names = [f"{prefix}{mechanism.lower()}.{name}", *names]
        for values in (
            self._store.configs("broker", str(self.node_id)),
            self._store.configs("broker", ""),
            self._static,
        ):
            folded = {key.lower(): text for key, text in values.items()}
            found = next((folded[one] for one in names if one in folded), None)
            if found is not None:
                return found
        return next((text for _, text in self.layers(name)), None)

    def listener_configs(self) -> list[str]:
        """Return the names of the configs that are set for single listeners, in order."""
        stored = self._store.configs("broker", str(self.node_id))
        return sorted(name for name in {*self._static, *stored} if listener_key(name) is not None)

    def listener_layers(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the source and the value (as text) of each layer of a config of one listener.

        :param name: one of :meth:`listener_configs`
        """
        stored = self._store.configs("broker", str(self.node_id))
        for source, values in ((DYNAMIC_BROKER, stored), (STATIC_BROKER, self._static)):
            if name in values:
                yield source, values[name]

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
        known = f"{LISTENER_PREFIX}{listener}.{name}"
        value = self._values.get(known)
        if value is None:
            value = self._values[known] = self.listener_value(listener, name)
        assert type(value) is int, name
        return value

    def with_changes(self, changes: Mapping[str, str | None]) -> Config:
        """Return this configuration as it would be after a change of this broker's configs at run
        time. It does not follow later changes.
        """
        changed = Config.__new__(Config)
        changed.__dict__.update(self.__dict__)
        changed._values = {}
        stored = {**self._store.configs("broker", str(self.node_id)), **changes}
        changed._store = _ChangedStore(
            self._store,
            str(self.node_id),
            {name: text for name, text in stored.items() if text is not None},
        )
        return changed

    # Topics ---------------------------------------------------------------------------------------

    def _topic_value(self, configs: Mapping[str, str], name: str) -> Value | None:
        key = config_keys("topic")[name]
        if name in configs:
            return key.parse(configs[name])
        for synonym, unit in TOPIC_SYNONYMS.get(name, ()):
            value = self.value(synonym)
            if value is not None:
                return max(value * unit, -1) if unit > 1 and isinstance(value, int) else value
        return None if key.default is None else key.parse(key.default)

    def topic_value(self, topic: ConfiguredTopic, name: str) -> str | None:
        """Return the value of a config of ``topic`` as Kafka prints it, None if it has none."""
        value = self._topic_value(_with_internal_configs(topic), name)
        return None if value is None else render(value)

    def log_config(self, topic: ConfiguredTopic) -> LogConfig:
        """Return the configuration of a topic's logs."""
        if topic.name in INTERNAL_TOPICS:
            return replace(self._make_log_config(_with_internal_configs(topic)), internal=True)
        if topic.configs:
            return self._make_log_config(topic.configs)
        if self._log_config is None:
            self._log_config = self._make_log_config({})
        return self._log_config

    def _make_log_config(self, configs: Mapping[str, str]) -> LogConfig:
        def integer(name: str) -> int:
            value = self._topic_value(configs, name)
            assert isinstance(value, int), name
            return value

        def text(name: str) -> str:
            value = self._topic_value(configs, name)
            assert value is not None, name
            return render(value)

        ratio = self._topic_value(configs, "min.cleanable.dirty.ratio")
        assert isinstance(ratio, float)
        return LogConfig(
            segment_bytes=integer(
                "internal.segment.bytes" if "internal.segment.bytes" in configs else "segment.bytes"
            ),
            segment_ms=integer("segment.ms"),
            segment_index_bytes=integer("segment.index.bytes"),
            index_interval_bytes=integer("index.interval.bytes"),
            retention_ms=integer("retention.ms"),
            retention_bytes=integer("retention.bytes"),
            flush_messages=integer("flush.messages"),
            flush_ms=integer("flush.ms"),
            max_message_bytes=integer("max.message.bytes"),
            max_decompressed_message_bytes=integer("max.decompressed.message.bytes"),
            message_timestamp_type=text("message.timestamp.type"),
            message_timestamp_before_max_ms=integer("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=integer("message.timestamp.after.max.ms"),
            cleanup_policy=text("cleanup.policy"),
            min_cleanable_dirty_ratio=ratio,
            min_compaction_lag_ms=integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=integer("max.compaction.lag.ms"),
            delete_retention_ms=integer("delete.retention.ms"),
            producer_id_expiration_ms=self.get_int("producer.id.expiration.ms"),
        )

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
        value = self._group_value(group_id, name)
        assert type(value) is int, name
        return value

    def group_list(self, group_id: str, name: str) -> tuple[str, ...]:
        """Return the value of a group config of type LIST; see :meth:`group_value`."""
        value = self._group_value(group_id, name)
        assert isinstance(value, tuple), name
        return value

    def _group_value(self, group_id: str, name: str) -> Value:
        override = self._store.configs("group", group_id).get(name)
        if override is not None:
            value = config_keys("group")[name].parse(override)
            return rules.clamp(name, value, self.value) if type(value) is int else value
        broker_name = f"group.{name}"
        if broker_name in config_keys("broker"):
            default = self.value(broker_name)
            assert default is not None, broker_name
            return default
        key = config_keys("group")[name]
        assert key.default is not None, name
        return key.parse(key.default)

    def clamped_group_configs(self, group_id: str) -> Iterator[str]:
        """Yield a warning for each config of a group that the broker's bounds clamp."""
        for name, text in self._store.configs("group", group_id).items():
            effective = self._group_value(group_id, name)
            if type(effective) is int and int(text) != effective:
                yield (
                    f"{name} of group {group_id} is {text}, which is out of the broker's bounds; "
                    f"{effective} is used"
                )

    # Changes at run time --------------------------------------------------------------------------

    def check(self, kind: str, configs: Mapping[str, str]) -> Refusal | None:
        """Return the error for a resource that would have these configs, None if they are valid.

        :param kind: ``broker``, ``topic``, ``group`` or ``client-metrics``
        :param configs: all configs that the resource itself would have; for a broker only those to
            set
        """
        if kind == "broker":
            return rules.check_broker_changes(configs, self.value)
        if kind == "topic":
            return rules.check_topic(configs)
        if kind == client_metrics.KIND:
            return client_metrics.check_client_metrics(configs)
        return rules.check_group(configs, self.value)


def _with_node_id(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the given configs with ``node.id``; ``broker.id`` is its synonym.

    :raises ConfigError: when both are given and differ
    """
    broker_id = overrides.get("broker.id", _NO_BROKER_ID).strip()
    if broker_id == _NO_BROKER_ID:
        return {"node.id": _DEFAULT_NODE_ID, **overrides}
    given = {"node.id": broker_id, **overrides}
    if given["node.id"].strip() != broker_id:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    return given


def _with_internal_configs(topic: ConfiguredTopic) -> Mapping[str, str]:
    """Return the configs of a topic; those of an internal topic include the table's."""
    internal = INTERNAL_TOPICS.get(topic.name)
    return topic.configs if internal is None else {**internal.configs, **topic.configs}


def _problems(given: Mapping[str, str], replaced: Set[str]) -> Iterator[str]:
    """Yield what must change for the broker to start, for each config by itself.

    :param replaced: the names of those whose values come from providers: no message has these
    """
    keys = config_keys("broker")
    for name, text in given.items():
        not_served = unserved(name, text)
        of_listener = listener_key(name)
        key = keys.get(name if of_listener is None else of_listener.key)
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
        elif retired.replacement(name) is not None:
            yield f"{name} is of an older Apache Kafka: {retired.replacement(name)}"
        elif not name.startswith(LISTENER_PREFIX) and retired.origin(name) is None:
            yield f"unknown config {name}{_nearest(name)}"
    roles = given.get("process.roles", "").strip()
    if roles and "broker" not in [role.strip() for role in roles.split(",")]:
        yield (
            f"process.roles is {roles}: this is the configuration of a controller, and there are "
            "none here. Start with that of a broker"
        )
    for name in ("log.dirs", "log.dir"):
        directories = set(_entries(given.get(name, "")))
        if len(directories) > 1:
            yield (
                f"{name} names {len(directories)} directories: this broker has its data in one. "
                "Name the one to use"
            )


def _entries(text: str) -> list[str]:
    return [entry for part in text.split(",") if (entry := part.strip())]


def _nearest(name: str) -> str:
    if name in TOPIC_SYNONYMS:
        return f": that is a topic config; did you mean {TOPIC_SYNONYMS[name][0][0]}?"
    question = meant(name, config_keys("broker"), _NEAR)
    return f"; {question}" if question else ""
