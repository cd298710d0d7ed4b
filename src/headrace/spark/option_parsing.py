"""Options, common to all sources: names, types of values, topics, and connections to the cluster.

``kafka.*`` options are librdkafka's settings with a prefix, as in Spark's own Kafka source. They
serve two clients: librdkafka consumers get all of them; headrace's own connections use those about
addresses, timeouts, TLS and SASL, and ``client.id``.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.client import Cluster, TopicMetadata
from headrace.client.cluster import parse_bootstrap
from headrace.client.config import ClientConfig, read_config
from headrace.client.errors import UnknownTopic, UnsupportedSetting
from headrace.client.java_properties import from_java
from headrace.client.loop_thread import LoopThread
from headrace.log_lines import get_logger
from headrace.patterns import InvalidPattern, compiled, matches, meant
from headrace.protocol.configuration import entries

from .errors import SourceError

_log = get_logger("headrace.spark")

# Options that Spark itself passes to every source and sink.
_SPARK_OPTIONS = {"path", "checkpointlocation", "queryname", "outputmode"}
_OF_TABLES = "provider"
"""An option that Spark adds to those of CREATE TABLE."""
_NO_TABLES = (
    "Spark does not pass the options of a table to a Python source: use CREATE TEMPORARY VIEW … "
    "USING to read, and DataFrames to write"
)
# Options of Spark's own Kafka source and sink that have no counterpart.
_NOT_OFFERED = {
    "assign": "use subscribe or subscribePattern, which read every partition",
    "groupIdPrefix": "use kafka.group.id",
    "maxRecordsPerPartition": "use minPartitions",
    "maxTriggerDelay": "use a trigger interval",
    "minOffsetsPerTrigger": "use a trigger interval, in which records gather",
    "startingOffsetsByTimestampStrategy": "without a later record reading begins at the end",
}
_JAVA_STORES = (
    "ssl.truststore.location",
    "ssl.keystore.location",
    "ssl.truststore.password",
    "ssl.keystore.password",
)
_SHOWN_KEY = (
    "a private key is given as text that is not encrypted, and Spark shows it in plans and in its "
    "event log: name a file (kafka.ssl.key.location); or encrypt it and set "
    "kafka.ssl.key.password; or set spark.redaction.regex and spark.sql.redaction.options.regex "
    "to (?i)secret|password|token|key"
)
_KAFKA_PREFIX = "kafka."
_CLIENT_ID = "headrace-spark"
_TIMEOUT_MS = 30_000
_CHECK_TIMEOUT_MS = 10_000
_CONNECT_TIMEOUT_MS = 10_000
_STOP_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Settings of connections to the cluster. Plain values: Spark sends them to the executors.

    :param librdkafka: the other ``kafka.*`` options, without the prefix and without ``group.id``
    """

    bootstrap_servers: str
    librdkafka: Mapping[str, Any] = field(default_factory=dict)

    def check(
        self,
        check_cluster: Callable[[Cluster], Coroutine[Any, Any, object]],
        config: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Validate the settings without connecting, then what the cluster has.

        :param config: other settings of librdkafka
        :raises SourceError: librdkafka or headrace's own client does not accept a setting; or an
            error of ``check_cluster``
        """
        pem = str(self.librdkafka.get("ssl.key.pem", ""))
        if "PRIVATE KEY" in pem and "ENCRYPTED" not in pem:
            _log.warning("%s", _SHOWN_KEY)
        # First, because errors about files are clearer than librdkafka's.
        connections = self.connections(timeout_ms=_CHECK_TIMEOUT_MS)
        try:
            Producer({**self.librdkafka, **config, "log_level": "0"}, logger=None)
        except KafkaException as refusal:
            raise SourceError(
                f"librdkafka does not accept an option kafka.*: {refusal.args[0].str()}"
            ) from None

        async def connected() -> None:
            async with connections.cluster() as cluster:
                await check_cluster(cluster)

        asyncio.run(connected())

    @property
    def read_committed(self) -> bool:
        """True if ``isolation.level`` is ``read_committed``.

        :raises SourceError: it is no isolation level
        """
        level = self.librdkafka.get("isolation.level", "read_uncommitted").lower()
        if level not in ("read_uncommitted", "read_committed"):
            raise SourceError(
                f"option kafka.isolation.level is '{level}': use read_uncommitted or read_committed"
            )
        return level == "read_committed"

    def connections(self, *, timeout_ms: int = _TIMEOUT_MS) -> ClientConfig:
        """Return the settings of headrace's own connections.

        :param timeout_ms: timeout of one call, retries included, without ``socket.timeout.ms``
        :raises SourceError: a setting is invalid or not supported
        """
        config = {
            "client.id": _CLIENT_ID,
            "socket.timeout.ms": timeout_ms,
            "socket.connection.setup.timeout.ms": _CONNECT_TIMEOUT_MS,
            **self.librdkafka,
            "bootstrap.servers": self.bootstrap_servers,
        }
        try:
            return read_config(config)
        except ValueError as error:
            raise SourceError(f"option kafka.{error}") from None

    def shared_thread(self) -> ClusterThread:
        """Return this process's connections to the cluster, which outlive a Spark task."""
        # A forked child must not use the threads and sockets of its parent.
        key = (os.getpid(), self.bootstrap_servers, tuple(sorted(self.librdkafka.items())))
        if key not in _threads:
            _threads[key] = ClusterThread(self)
        return _threads[key]


class ClusterThread(LoopThread):
    """An event loop thread and the connections of one cluster that live in it."""

    def __init__(self, kafka: KafkaOptions) -> None:
        super().__init__("headrace-fetch")
        self.cluster: Cluster = kafka.connections().cluster()


_threads: dict[tuple[Any, ...], ClusterThread] = {}


@atexit.register
def _close_threads() -> None:
    for (process_id, *_), thread in _threads.items():
        if process_id == os.getpid():
            thread.close(_STOP_TIMEOUT_S, last=thread.cluster.close())
    _threads.clear()


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of a query: either names (``subscribe``) or a pattern (``subscribePattern``).

    :param topics: names in the order in which the user gave them; empty with a pattern
    :param pattern: a regular expression (RE2's) that must match whole names; never Kafka's internal
        topics
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    async def existing(self, cluster: Cluster) -> dict[str, TopicMetadata]:
        """Return the subscribed topics that exist, by name; possibly none.

        :raises ClientError: the cluster does not answer
        """
        if self.pattern is None:
            return await cluster.existing_topics(self.topics)
        return {
            name: topic
            for name, topic in (await cluster.all_topics()).items()
            if not topic.is_internal and matches(self.pattern, name)
        }

    async def complete(self, cluster: Cluster) -> dict[str, TopicMetadata]:
        """Return the subscribed topics by name.

        :raises ClientError: a named topic does not exist, or the cluster does not answer
        :raises SourceError: no topic matches the pattern
        """
        topics = await self.existing(cluster)
        self.check(topics)
        return topics

    def check(self, existing: Collection[str]) -> None:
        """Check that the topics that exist are all that were named.

        :raises UnknownTopic: a named topic is missing
        :raises SourceError: no topic matches the pattern
        """
        for name in self.topics:
            if name not in existing:
                raise UnknownTopic(name)
        if not existing:
            raise SourceError(
                f"no topic matches the pattern '{self.pattern}': "
                "create one first, or correct the pattern"
            )


class UserOptions:
    """The options that a user gave to a source. Names are matched whatever their case.

    :param accepted: names that the source accepts, spelled as in the documentation
    :param prefixes: beginnings of other names that it accepts; ``kafka.*`` is always accepted
    :raises SourceError: a name is unknown, or Spark has not passed the options
    """

    def __init__(self, options: Mapping[str, str], accepted: Iterable[str], *prefixes: str) -> None:
        self._given = {name.lower(): str(value) for name, value in options.items()}
        if not self._given:
            raise SourceError(
                f"there are no options, such as kafka.bootstrap.servers. {_NO_TABLES}"
            )
        if _OF_TABLES in self._given:
            raise SourceError(_NO_TABLES)
        spelling = {name.lower(): name for name in accepted}
        for name in self._given:
            is_prefixed = name.startswith((_KAFKA_PREFIX, *prefixes))
            if name in spelling or name in _SPARK_OPTIONS or is_prefixed:
                continue
            for other, advice in _NOT_OFFERED.items():
                if name == other.lower():
                    raise SourceError(f"remove the option {other}: {advice}")
            names = sorted(spelling.values())
            hint = meant(name, names) or f"known options are {', '.join(names)}"
            raise SourceError(f"unknown option '{name}': {hint}")

    def text(self, name: str) -> str | None:
        """Return the value without surrounding blanks; None if it is not given or blank."""
        return self._given.get(name.lower(), "").strip() or None

    def required(self, name: str, meaning: str) -> str:
        """Return the value of a required option.

        :param meaning: a description of the value, for the error
        :raises SourceError: the option is not given
        """
        value = self.text(name)
        if value is None:
            raise SourceError(f"set the option {name}: {meaning}")
        return value

    def number(self, name: str, *, lowest: int = 1) -> int | None:
        """Return a whole number that is at least ``lowest``; None if it is not given.

        :raises SourceError: the value is not such a number
        """
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or int(value) < lowest:
            raise SourceError(f"option {name} is '{value}': use a whole number from {lowest}")
        return int(value)

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """Return the value of a ``true`` or ``false`` option.

        :raises SourceError: the value is neither
        """
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """Return the value in lower case.

        :param choices: the accepted values, in lower case
        :raises SourceError: the value is not one of ``choices``
        """
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise SourceError(f"option {name} is '{self.text(name)}': use {', '.join(choices)}")
        return value

    def prefixed(self, prefix: str | tuple[str, ...]) -> dict[str, str]:
        """Return the options whose names begin with a prefix, or one of some, with their whole
        names.
        """
        return {name: value for name, value in self._given.items() if name.startswith(prefix)}

    def listed(self, name: str) -> tuple[str, ...]:
        """Return the elements of a comma-separated list, without blank ones."""
        return tuple(entries(self.text(name)))

    def pattern(self, name: str) -> str | None:
        """Return a regular expression; None if it is not given.

        :raises SourceError: the value is none
        """
        pattern = self.text(name)
        try:
            if pattern is not None:
                compiled(pattern)
        except InvalidPattern as error:
            raise SourceError(f"option {name} is not a regular expression: {error}") from None
        return pattern

    def names_or_pattern(
        self, names_option: str, pattern_option: str
    ) -> tuple[tuple[str, ...], str | None]:
        """Return the names of one option and the pattern of the other; both may be missing.

        :raises SourceError: both options are given, or the pattern is no regular expression
        """
        names, pattern = self.listed(names_option), self.pattern(pattern_option)
        if names and pattern:
            raise SourceError(
                f"set one of the options {names_option} and {pattern_option}, not both"
            )
        return tuple(dict.fromkeys(names)), pattern

    def subscription(self, *, required: bool = True) -> Subscription:
        """Return the topics of ``subscribe`` or ``subscribePattern``.

        :raises SourceError: both are given, or none though ``required``, or the pattern is invalid
        """
        topics, pattern = self.names_or_pattern("subscribe", "subscribePattern")
        if required and not topics and not pattern:
            raise SourceError(
                "set the option subscribe: topics, separated by commas; or subscribePattern"
            )
        return Subscription(topics, pattern)

    def kafka(self, refused: Mapping[str, str] | None = None) -> KafkaOptions:
        """Return the ``kafka.*`` options, without ``kafka.group.id``.

        :param refused: settings that the source cannot accept, without the prefix, and the reason
        :raises SourceError: ``kafka.bootstrap.servers`` is missing or invalid, or an option is
            refused
        """
        bootstrap_servers = self.required("kafka.bootstrap.servers", "HOST:PORT of the cluster")
        try:
            parse_bootstrap(bootstrap_servers)
        except ValueError as error:
            raise SourceError(f"option kafka.bootstrap.servers: {error}") from None
        java_configs = {
            name.removeprefix(_KAFKA_PREFIX): value
            for name, value in self.prefixed(_KAFKA_PREFIX).items()
            if name not in ("kafka.bootstrap.servers", "kafka.group.id")
        }
        try:
            librdkafka = from_java(java_configs)
        except UnsupportedSetting as error:
            raise SourceError(f"option kafka.{error}") from None
        for name in librdkafka:
            if refused and name in refused:
                raise SourceError(f"remove the option kafka.{name}: {refused[name]}")
            if name in _JAVA_STORES:
                raise SourceError(
                    f"option kafka.{name} is for Java: use PEM files with kafka.ssl.ca.location, "
                    "kafka.ssl.certificate.location and kafka.ssl.key.location; or set the "
                    "store's type to PEM if it is in that format"
                )
        return KafkaOptions(bootstrap_servers, librdkafka)
