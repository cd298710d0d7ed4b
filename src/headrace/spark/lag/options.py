"""Options of ``format("kafka-lag")``, validated before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.lag.model import GROUP_TYPES, LagQuery
from headrace.spark.errors import SourceError
from headrace.spark.option_parsing import KafkaOptions, UserOptions

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


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Validated options. Plain values: Spark sends them to the executors."""

    kafka: KafkaOptions
    query: LagQuery
    groups_per_task: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LagOptions:
        """Parse the user's options.

        :raises SourceError: an option is missing, unknown, or has an invalid value
        """
        user_options = UserOptions(options, _OPTIONS)
        kafka = user_options.kafka()
        groups, groups_pattern = user_options.names_or_pattern("groups", "groupsPattern")
        topics, topics_pattern = user_options.names_or_pattern("topics", "topicsPattern")
        query = LagQuery(
            groups=groups,
            groups_pattern=groups_pattern,
            group_types=_group_types(user_options),
            topics=topics,
            topics_pattern=topics_pattern,
            read_committed=kafka.read_committed,
            time_lag=user_options.boolean("timeLag", default=True),
        )
        return cls(kafka, query, user_options.number("groupsPerTask") or DEFAULT_GROUPS_PER_TASK)


def _group_types(user_options: UserOptions) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(name.lower() for name in user_options.listed("groupTypes")))
    for name in types:
        if name not in GROUP_TYPES:
            raise SourceError(
                f"option groupTypes has '{name}': use some of {', '.join(GROUP_TYPES)}"
            )
    return types or GROUP_TYPES
