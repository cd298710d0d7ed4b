"""The metadata of a ScaledObject: the group, its topics, and the thresholds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.protocol.primitives import MAX_STRING_BYTES

from .collector import CONSUMER, SHARE, Backlog, BacklogQuery

DEFAULT_LAG_THRESHOLD = 10.0
MAX_TOPICS = 100

_KEYS = frozenset({"group", "groupType", "topics", "lagThreshold", "activationLagThreshold"})
_KEYS_OF_KEDA = frozenset(
    {"scalerAddress", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey", "unsafeSsl"}
    | {"enableTLS", "metricType"}
)


class InvalidMetadata(ValueError):
    """The metadata is wrong. The text is one line."""


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """The metadata of a ScaledObject, checked.

    :param lag_threshold: records for each replica
    :param activation: a group without members is activated by more records than this
    """

    query: BacklogQuery
    lag_threshold: float
    activation: float

    @property
    def metric_name(self) -> str:
        """The name of the metric."""
        group = re.sub("[^a-z0-9]+", "-", self.query.group_id.lower()).strip("-")
        return f"headrace-{self.query.kind}-{group}".rstrip("-")

    def metric(self, backlog: Backlog) -> float:
        """Return the value of the metric.

        For a consumer group it never asks for more replicas than partitions: they would idle.
        """
        if self.query.kind == SHARE:
            return float(backlog.records)
        return min(float(backlog.records), self.lag_threshold * backlog.partitions)


def parse(metadata: Mapping[str, str]) -> ScaledObject:
    """Read the metadata of a trigger.

    :raises InvalidMetadata: it is wrong
    """
    unknown = sorted(metadata.keys() - _KEYS - _KEYS_OF_KEDA)
    if unknown:
        raise InvalidMetadata(f"unknown metadata: {', '.join(unknown)}")
    group_id = metadata.get("group", "")
    if not group_id:
        raise InvalidMetadata("group is missing")
    group_type = metadata.get("groupType", SHARE).lower()
    if group_type not in (SHARE, CONSUMER):
        raise InvalidMetadata(f"groupType is '{group_type}', not share or consumer")
    topics = list(filter(None, map(str.strip, metadata.get("topics", "").split(","))))
    if len(topics) > MAX_TOPICS:
        raise InvalidMetadata(f"topics are {len(topics)}, more than {MAX_TOPICS}")
    # One request has the names of many scaled objects: it must not fail because of one of them.
    if max(len(name.encode()) for name in (group_id, *topics)) > MAX_STRING_BYTES:
        raise InvalidMetadata(f"a name is longer than {MAX_STRING_BYTES} bytes")
    threshold = _number(metadata, "lagThreshold", DEFAULT_LAG_THRESHOLD)
    if not threshold:
        raise InvalidMetadata("lagThreshold is 0")
    return ScaledObject(
        BacklogQuery(group_id, group_type, tuple(topics)),
        threshold,
        _number(metadata, "activationLagThreshold", 0.0),
    )


def _number(metadata: Mapping[str, str], key: str, default: float) -> float:
    text = metadata.get(key) or str(default)
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,6})?", text, re.ASCII):
        raise InvalidMetadata(f"{key} is '{text}', not a number from 0 on")
    return float(text)
