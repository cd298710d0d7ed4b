"""Values for the fields of requests: plausible ones, so that requests get deep into the broker, odd
ones, and those that the broker has told.
"""

from __future__ import annotations

import dataclasses
import math
import random
import string
from collections import deque
from collections.abc import Mapping
from typing import Any
from uuid import UUID

TOPICS = ("t0", "t1", "compacted", "dlq.letters", "new.1", "new.2")
"""Names of topics, which exist or may be created."""

GROUPS = ("g-classic", "g-consumer", "g-share", "g-new")
TRANSACTIONAL_IDS = ("x1", "x2")
QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
ODD_STRINGS = (
    "",
    " ",
    ".",
    "..",
    "../../etc/passwd",
    "/",
    "a\0b",
    "a\nERROR headrace: forged",
    "\x1b[31m",
    "é",
    "\U0001f600",
    "%s%d{0}",
    "x" * 249,
    "x" * 250,
    "x" * 32_767,
    "__consumer_offsets",
    "__share_group_state",
    "__transaction_state",
    "null",
    "-1",
    "NaN",
    "a" * 37,
)
CONFIG_NAMES = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
    "compression.type",
    "flush.messages",
    "share.auto.offset.reset",
    "share.record.lock.duration.ms",
    "share.isolation.level",
    "consumer.session.timeout.ms",
    "share.session.timeout.ms",
    "errors.deadletterqueue.topic.name",
    "no.such.config",
)
CONFIG_VALUES = (
    "delete",
    "compact",
    "compact,delete",
    "earliest",
    "latest",
    "by_duration:PT1H",
    "by_duration:P9999999999999999D",
    "read_committed",
    "LogAppendTime",
    "zstd",
    "true",
    "0",
    "-1",
    "1",
    "1000",
    "1048576",
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "dlq.letters",
    "",
)
REGEXES = ("t.*", "[", "(a*)*b", "t0|t1", "(?=x)", "\\", "a{1000}{1000}", ".*", "(" * 500)

_BY_NAME: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("topic", "topic_name", "topic_names", "topics", "subscribed_topic_names"), TOPICS
    ),
    **dict.fromkeys(("group_id", "group_ids", "groups_names", "groups"), GROUPS),
    "coordinator_keys": GROUPS + TRANSACTIONAL_IDS,
    "key": (*GROUPS, *TRANSACTIONAL_IDS, *QUOTAS),
    "transactional_id": TRANSACTIONAL_IDS,
    "transactional_ids": TRANSACTIONAL_IDS,
    "v3_and_below_transactional_id": TRANSACTIONAL_IDS,
    "transactional_id_pattern": REGEXES,
    "subscribed_topic_regex": REGEXES,
    "configuration_keys": CONFIG_NAMES,
    "value": CONFIG_VALUES,
    "name": TOPICS + TOPICS + GROUPS + CONFIG_NAMES + ("range", "roundrobin", "cooperative-sticky"),
    "resource_name": TOPICS + GROUPS + ("1", "", "2"),
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "protocol_name": ("range", "roundrobin"),
    "server_assignor": ("uniform", "range", "simple", "none"),
    "member_id": ("", "m1", "m2"),
    "group_instance_id": ("i1", "i2"),
    "instance_id": ("i1", "i2"),
    "rack_id": ("r1",),
    "states_filter": ("Stable", "Empty", "Dead", "x"),
    "state_filters": ("Ongoing", "Empty", "x"),
    "types_filter": ("classic", "consumer", "share", "x"),
    "client_software_name": ("fuzz", "-", "a b"),
    "client_software_version": ("1.0", "", "-1"),
    "committed_metadata": ("", "note"),
    "reason": ("why",),
    "entity_type": ("user", "client-id", "ip", "group"),
    "entity_name": ("alice", "c1", "127.0.0.2", "localhost"),
}

_SMALL = (0, 0, 0, 0, 1, 1, 1, 2, 3, -1, -1, -2)
_EDGES = {
    "int8": (-128, 127),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1, 1 << 20, 10_001),
    "int64": (-(1 << 63), (1 << 63) - 1, 1 << 40, 1_750_000_000_000),
    "timedelta_i32": (-(1 << 31), (1 << 31) - 1, 10, 100),
    "timedelta_i64": (-(1 << 63), (1 << 63) - 1, 10, 100),
}
_FLOATS = (1e9, 1e9, 1e9, 1e9, 1e308, math.inf, 0.5, 0.0, -0.0, -1.0, -math.inf, math.nan)
"""Mostly quotas that nobody exceeds: throttled clients are served little of what follows."""
_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "acks": (-1, -1, -1, 1, 0, 2),
    "timeout": (100, 1000),
    "session_timeout": (6000, 10_000, 6000, 45_000),
    "rebalance_timeout": (100, 1000, 10_000),
    "transaction_timeout": (100, 1000, 60_000),
    "max_wait": (0, 10, 100, 500),
    "min_bytes": (0, 1),
    "max_bytes": (1, 1000, 1 << 20),
    "partition_max_bytes": (1, 1000, 1 << 20),
    "num_partitions": (1, 2, 3, -1, 0),
    "count": (1, 2, 3, 4, 5, 6),
    "replication_factor": (1, 1, 1, -1, 2),
    "resource_type": (2, 4, 32, 16, 8, 0),
    "resource_types": (2, 4, 16, 32),
    "key_type": (0, 1, 2, 3),
    "replica_id": (-1, -1, 1, 0),
    "broker_ids": (1, 1, 2),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_750_000_000_000),
}
_EPOCHS = frozenset(
    (
        "generation_id",
        "generation_id_or_member_epoch",
        "member_epoch",
        "share_session_epoch",
        "session_epoch",
        "state_epoch",
        "producer_epoch",
        "v3_and_below_producer_epoch",
        "leader_epoch",
    )
)
_ALIASES: Mapping[str, str] = {
    **dict.fromkeys(_EPOCHS, "epoch"),
    "v3_and_below_producer_id": "producer_id",
    "producer_id_filters": "producer_id",
    "session_id": "session_id",
    "group_instance_id": "instance_id",
}
_WORTH_LEARNING = frozenset(
    ("member_id", "topic_id", "producer_id", "session_id", "assignment", *_EPOCHS)
)
_REMEMBERED = 32
_MAX_UUID = (1 << 128) - 1


class Words:
    """Values by field name, drawn by a seeded random source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.forbidden: frozenset[Any] = frozenset()
        """Values that must not be used: the honest topic's id."""
        self._told: dict[str, deque[Any]] = {}

    def tell(self, name: str, value: Any) -> None:
        """Remember a value for a field."""
        told = self._told.setdefault(_ALIASES.get(name, name), deque(maxlen=_REMEMBERED))
        if value not in told and value not in self.forbidden:
            told.append(value)

    def learn(self, message: Any) -> None:
        """Remember the ids and epochs in a response."""
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if isinstance(value, tuple):
                for one in value[:5]:
                    if dataclasses.is_dataclass(one):
                        self.learn(one)
            elif dataclasses.is_dataclass(value):
                self.learn(value)
            elif field.name in _WORTH_LEARNING and value is not None:
                self.tell(field.name, value)

    def _told_of(self, name: str) -> Any:
        told = self._told.get(_ALIASES.get(name, name))
        if told and self.rng.random() < 0.6:
            return self.rng.choice(told)
        return None

    def string(self, name: str) -> str:
        rng = self.rng
        told = self._told_of(name)
        if isinstance(told, str):
            return told
        dice = rng.random()
        known = _BY_NAME.get(name)
        if known is not None and dice < 0.9:
            return rng.choice(known)
        if dice < 0.95:
            return rng.choice(ODD_STRINGS)
        return "".join(rng.choices(string.printable, k=rng.randrange(20)))

    def number(self, name: str, kind: str) -> int:
        rng = self.rng
        told = self._told_of(name)
        low, high = _EDGES[kind][:2]
        if isinstance(told, int):
            return min(high, max(low, told + rng.choice((0, 0, 0, 1, -1))))
        dice = rng.random()
        if dice < 0.9:
            return max(low, min(high, rng.choice(_NUMBERS.get(name, _SMALL))))
        if dice < 0.97:
            return rng.choice(_EDGES[kind])
        return rng.randint(low, high)

    def float(self) -> float:
        return self.rng.choice(_FLOATS)

    def uuid(self, name: str) -> UUID:
        told = self._told_of(name)
        if isinstance(told, UUID):
            return told
        rng = self.rng
        return UUID(int=rng.choice((0, 0, 1, _MAX_UUID, rng.getrandbits(128))))
