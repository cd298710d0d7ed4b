"""What the options of all sources have in common: names, kinds of values, and how to reach the
cluster.

``kafka.*`` options are librdkafka's settings with a prefix, as with Spark's own Kafka source. They
serve both ends: the executors' librdkafka consumers get them all, our own connections in the driver
what concerns addresses, TLS and SASL.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from confluent_kafka import Consumer, KafkaException

from headrace.client import Cluster
from headrace.client.cluster import parse_bootstrap
from headrace.client.security import Security
from headrace.client.settings import from_java, settings

# What Spark itself hands to every source and sink.
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
_JAVA_STORES = (
    "ssl.truststore.location",
    "ssl.keystore.location",
    "ssl.truststore.password",
    "ssl.keystore.password",
)


class SourceError(Exception):
    """A query cannot go on as it was asked for; the text is one line that says what to change."""


def one_line(error: Exception) -> SourceError:
    """The error to raise in a Spark worker process, so that the user sees its text without the
    worker's stack.
    """
    sys.tracebacklimit = 0  # the process ends with this error: Spark reports traceback.format_exc()
    return SourceError(str(error))


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How to reach the cluster. Plain values: they travel to the executors.

    :param librdkafka: the other ``kafka.*`` options, without the prefix and without ``group.id``
    """

    bootstrap_servers: str
    librdkafka: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Let librdkafka and our own connections look at the settings; nothing is connected.

        :raises SourceError: one of them does not take a setting
        """
        _ = self.security  # first, because it says more clearly what is wrong with files
        try:
            Consumer(
                {**self.librdkafka, "group.id": "check", "log_level": "0"}, logger=None
            ).close()
        except KafkaException as refusal:
            raise SourceError(
                f"librdkafka does not take an option kafka.*: {refusal.args[0].str()}"
            ) from None

    @property
    def security(self) -> Security:
        """TLS and login of our own connections.

        :raises SourceError: they cannot do what the settings ask for
        """
        try:
            return settings(
                {**self.librdkafka, "bootstrap.servers": self.bootstrap_servers}
            ).security
        except ValueError as error:
            raise SourceError(f"option kafka.{error}") from None

    def cluster(self, *, client_id: str = "headrace-spark", timeout_ms: int = 30_000) -> Cluster:
        """The cluster, for our own connections; nothing is connected yet.

        :raises SourceError: the security settings cannot be used
        """
        return Cluster(
            self.bootstrap_servers,
            client_id=client_id,
            timeout_ms=timeout_ms,
            security=self.security,
        )

    def consumer_config(
        self, defaults: Mapping[str, str], fixed: Mapping[str, str]
    ) -> dict[str, Any]:
        """A librdkafka configuration: ``defaults``, over them what the user says, over that what is
        ``fixed``.
        """
        return {**defaults, **self.librdkafka, "bootstrap.servers": self.bootstrap_servers, **fixed}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name (``subscribe``), or those whose whole name matches a pattern
    (``subscribePattern``).
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of all topics' ``names`` that the pattern means, in order; ``topics`` when there is
        no pattern.
        """
        if self.pattern is None:
            return self.topics
        return tuple(sorted(name for name in names if re.fullmatch(self.pattern, name)))


class GivenOptions:
    """What a user gave to one source, whatever the case of the names.

    :param source: the name of the source, for errors
    :param known: the names that it takes, spelled as in the documentation; ``kafka.*`` is always
        taken
    :raises SourceError: a name is unknown
    """

    def __init__(self, source: str, options: Mapping[str, str], known: Iterable[str]) -> None:
        self._source = source
        self._given = {name.lower(): str(value) for name, value in options.items()}
        spelled = {name.lower(): name for name in known}
        for name in self._given:
            if name in spelled or name in _SPARKS_OWN or name.startswith("kafka."):
                continue
            near = get_close_matches(name, spelled, n=1)
            hint = (
                f"did you mean {spelled[near[0]]}?"
                if near
                else f"known are {', '.join(sorted(spelled.values()))}"
            )
            raise SourceError(f"unknown option '{name}': {hint}")

    def text(self, name: str) -> str | None:
        """The value; None where the user says nothing, or nothing but blanks."""
        return self._given.get(name.lower(), "").strip() or None

    def required(self, name: str, meaning: str) -> str:
        """The value of what must be given.

        :param meaning: what it is, for the error
        """
        value = self.text(name)
        if value is None:
            raise SourceError(f"set the option {name}: {meaning}")
        return value

    def number(self, name: str, *, lowest: int = 1) -> int | None:
        """A whole number from ``lowest``."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or int(value) < lowest:
            raise SourceError(f"option {name} is '{value}': say a whole number from {lowest}")
        return int(value)

    def truth(self, name: str, *, default: bool = False) -> bool:
        """``true`` or ``false``."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """One of ``choices``, whatever its case; they are all in lower case."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise SourceError(f"option {name} is '{self.text(name)}': say {', '.join(choices)}")
        return value

    def listed(self, name: str) -> tuple[str, ...]:
        """What stands between commas."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def subscription(self, *, required: bool = True) -> Subscription:
        """``subscribe`` or ``subscribePattern``, of which one must be given."""
        topics, pattern = self.listed("subscribe"), self.text("subscribePattern")
        if topics and pattern:
            raise SourceError("set one of the options subscribe and subscribePattern, not both")
        if required and not topics and not pattern:
            raise SourceError(
                "set the option subscribe: topics, separated by commas; or subscribePattern"
            )
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise SourceError(
                f"option subscribePattern is not a regular expression: {error}"
            ) from None
        return Subscription(tuple(dict.fromkeys(topics)), pattern)

    def kafka(self, refused: Mapping[str, str] | None = None) -> KafkaOptions:
        """``kafka.*``: ``kafka.bootstrap.servers`` must be given, ``kafka.group.id`` is left out.

        :param refused: names without the prefix that the source cannot take, with the reason
        """
        bootstrap_servers = self.required("kafka.bootstrap.servers", "HOST:PORT of the cluster")
        try:
            parse_bootstrap(bootstrap_servers)
        except ValueError as error:
            raise SourceError(f"option kafka.bootstrap.servers: {error}") from None
        passed = {
            k.removeprefix("kafka."): v for k, v in self._given.items() if k.startswith("kafka.")
        }
        for name in ("bootstrap.servers", "group.id"):
            passed.pop(name, None)
        passed = from_java(passed)
        for name in passed:
            if refused and name in refused:
                raise SourceError(f"remove the option kafka.{name}: {refused[name]}")
            if name in _JAVA_STORES:
                raise SourceError(
                    f"option kafka.{name} is for Java: give PEM files with kafka.ssl.ca.location, "
                    "kafka.ssl.certificate.location and kafka.ssl.key.location; or set its "
                    "type to PEM, if it is that"
                )
        return KafkaOptions(bootstrap_servers, passed)
