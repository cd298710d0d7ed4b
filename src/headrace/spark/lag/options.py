"""The options of ``format("kafka-lag")``, checked before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.lag.rows import GROUP_TYPES, LagQuery
from headrace.spark.option_parsing import GivenOptions, KafkaOptions, SourceError

DEFAULT_GROUPS_PER_TASK = 250

_OPTIONS = (
    "groups",
    "groupsPattern",
    "groupTypes",
    "topics",
    "topicsPattern",
    "timeLag",
    "groupsPerTask",
)
_ISOLATION_LEVELS = {"read_uncommitted": False, "read_committed": True}


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Checked options. Plain values: they travel to the executors."""

    kafka: KafkaOptions
    query: LagQuery
    groups_per_task: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LagOptions:
        """Read what the user gave.

        :raises SourceError: something is missing, unknown, or has a value that makes no sense
        """
        given = GivenOptions("kafka-lag", options, _OPTIONS)
        kafka = given.kafka()
        isolation = kafka.librdkafka.get("isolation.level", "read_uncommitted").lower()
        if isolation not in _ISOLATION_LEVELS:
            raise SourceError(
                f"option kafka.isolation.level is '{isolation}': say {', '.join(_ISOLATION_LEVELS)}"
            )
        types = (
            tuple(dict.fromkeys(one.lower() for one in given.listed("groupTypes"))) or GROUP_TYPES
        )
        for unknown in set(types) - set(GROUP_TYPES):
            raise SourceError(
                f"option groupTypes has '{unknown}': say some of {', '.join(GROUP_TYPES)}"
            )
        query = LagQuery(
            groups=given.listed("groups"),
            groups_pattern=_pattern(given, "groups"),
            group_types=types,
            topics=given.listed("topics"),
            topics_pattern=_pattern(given, "topics"),
            read_committed=_ISOLATION_LEVELS[isolation],
            time_lag=given.truth("timeLag", default=True),
        )
        return cls(kafka, query, given.number("groupsPerTask") or DEFAULT_GROUPS_PER_TASK)


def _pattern(given: GivenOptions, names: str) -> str | None:
    pattern = given.text(f"{names}Pattern")
    if pattern and given.listed(names):
        raise SourceError(f"set one of the options {names} and {names}Pattern, not both")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise SourceError(f"option {names}Pattern is not a regular expression: {error}") from None
    return pattern
