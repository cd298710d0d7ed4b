"""The topics of a streams group's topology: numbers of partitions, and what is missing (KIP-1071).

Source topics must exist. The number of partitions of a repartition topic is given, or is the
greatest among the topics that its writer, another subtopology, reads. Copartitioned topics must
have the same number. A changelog topic has one partition for each task of its subtopology, which is
the greatest number of partitions of the topics that the subtopology reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from headrace.groups.catalog import Topics
from headrace.groups.records import CopartitionGroup, InternalTopic, Subtopology, Topology
from headrace.protocol.errors import ErrorCode, Refusal

from .member import Status, StatusCode

MAX_STREAMS_TASKS = 20_000
"""The limit of tasks of a streams group: assigning so many takes about 130 ms."""

MAX_SUBTOPOLOGIES = 1_000
"""The limit of subtopologies of a streams group: deriving their partitions takes up to 200 ms."""

_NAMES_TOLD = 3


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose topics all have numbers of partitions.

    :param tasks: the number of tasks
    :param changelogs: its changelog topics with numbers of partitions; likewise ``repartitions``,
        the repartition topics that it reads
    """

    subtopology: Subtopology
    tasks: int
    changelogs: tuple[InternalTopic, ...]
    repartitions: tuple[InternalTopic, ...]


def in_order(subtopologies: Iterable[Subtopology]) -> list[Subtopology]:
    """Return subtopologies sorted by id."""
    return sorted(subtopologies, key=attrgetter("subtopology_id"))


def sources(subtopology: Subtopology) -> tuple[str, ...]:
    """Return the topics that a subtopology reads."""
    return (
        *subtopology.source_topics,
        *(topic.name for topic in subtopology.repartition_source_topics),
    )


def required_topics(subtopologies: Iterable[Subtopology]) -> frozenset[str]:
    """Return the topics that must exist before tasks are assigned."""
    return frozenset(
        name
        for subtopology in subtopologies
        for name in (
            *sources(subtopology),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )


class ConfiguredTopology(NamedTuple):
    """A topology with the numbers of partitions of its topics.

    :param epoch: the topology epoch
    :param subtopologies: by id, sorted; empty if source topics are missing or numbers contradict
        each other
    :param missing: internal topics that do not exist
    :param problem: None if all topics exist with the right numbers of partitions
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    missing: tuple[InternalTopic, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """True if all topics exist with the right numbers of partitions."""
        return self.problem is None


class _Unfit(Exception):
    """The topics do not fit the topology, which a status tells the members, or it contradicts
    itself, and the heartbeat is refused.
    """

    def __init__(self, reason: Status | Refusal) -> None:
        super().__init__(reason)
        self.reason = reason


def _invalid(message: str) -> _Unfit:
    return _Unfit(Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message))


def _misfit(detail: str) -> _Unfit:
    return _Unfit(Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail))


def check_topology(topology: Topology) -> Refusal | None:
    """Return the error of a topology that Kafka Streams never sends: a negative epoch, an id that
    is used twice, an index out of bounds.
    """
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    is_valid = (
        topology.epoch >= 0
        and len(set(ids)) == len(ids)
        and all(map(_has_valid_groups, topology.subtopologies))
    )
    return None if is_valid else Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def _has_valid_groups(subtopology: Subtopology) -> bool:
    lists = (
        subtopology.source_topics,
        subtopology.source_topic_regex,
        subtopology.repartition_source_topics,
    )
    return all(
        0 <= index < len(topics)
        for group in subtopology.copartition_groups
        for indexes, topics in zip(group.as_tuple(), lists, strict=True)
        for index in indexes
    )


def configure(topology: Topology, topics: Topics) -> ConfiguredTopology | Refusal:
    """Derive the numbers of partitions of a topology's topics from the topics that exist."""
    try:
        return _Configuration(topology, topics).run()
    except _Unfit as unfit:
        if isinstance(unfit.reason, Refusal):
            return unfit.reason
        return ConfiguredTopology(topology.epoch, {}, problem=unfit.reason)


class _Configuration:
    """The derivation of numbers of partitions.

    :ivar decided: the numbers for internal topics
    """

    def __init__(self, topology: Topology, topics: Topics) -> None:
        self.epoch, self.topics = topology.epoch, topics
        self.subtopologies = topology.subtopologies
        self.decided = {
            topic.name: topic.partitions
            for subtopology in topology.subtopologies
            for topic in subtopology.repartition_source_topics
            if topic.partitions
        }
        self._fixed = frozenset(self.decided)

    def run(self) -> ConfiguredTopology:
        """Return the configured topology.

        :raises _Unfit: topics are missing, or have the wrong number of partitions; or none can fit
            the topology
        """
        if len(self.subtopologies) > MAX_SUBTOPOLOGIES:
            raise _invalid(f"The topology has more than {MAX_SUBTOPOLOGIES} subtopologies.")
        self._check_sources()
        self._decide_repartitions()
        for subtopology in self.subtopologies:
            for group in subtopology.copartition_groups:
                self._copartition(subtopology, group)
        self._decide_changelogs()
        if any(count < 1 for count in self.decided.values()):
            raise _Unfit(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR))
        configured = {
            subtopology.subtopology_id: ConfiguredSubtopology(
                subtopology,
                self._tasks(subtopology),
                self._counted(subtopology.state_changelog_topics),
                self._counted(subtopology.repartition_source_topics),
            )
            for subtopology in in_order(self.subtopologies)
        }
        if sum(subtopology.tasks for subtopology in configured.values()) > MAX_STREAMS_TASKS:
            raise _invalid(f"The topology has more than {MAX_STREAMS_TASKS} tasks.")
        missing = self._missing(configured.values())
        problem = None
        if missing:
            problem = Status(
                StatusCode.MISSING_INTERNAL_TOPICS,
                f"Internal topics are missing: {_summary(topic.name for topic in missing)}",
            )
        return ConfiguredTopology(self.epoch, configured, missing, problem)

    def _counted(self, topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        """Return topics with their numbers of partitions."""
        return tuple(
            InternalTopic(
                topic.name,
                topic.partitions or self.decided[topic.name],
                topic.replication_factor,
                topic.topic_configs,
            )
            for topic in topics
        )

    def _count_of(self, name: str) -> int:
        """Return the number of partitions of a topic that exists or is decided."""
        topic = self.topics.get(name)
        return self.decided[name] if topic is None else topic.partitions

    def _check_sources(self) -> None:
        missing = {
            name
            for subtopology in self.subtopologies
            for name in subtopology.source_topics
            if name not in self.topics
        }
        if missing:
            raise _Unfit(
                Status(
                    StatusCode.MISSING_SOURCE_TOPICS,
                    f"Source topics {_summary(missing)} are missing.",
                )
            )

    # Repartition topics ---------------------------------------------------------------------------

    def _decide_repartitions(self) -> None:
        decided = self.decided
        while True:
            before, waits = len(decided), False
            for subtopology in self.subtopologies:
                sinks = [
                    name for name in subtopology.repartition_sink_topics if name not in decided
                ]
                count = self._most_partitions(subtopology) if sinks else None
                if count is not None:
                    decided.update(dict.fromkeys(sinks, count))
                elif sinks:
                    waits = True
            if not waits:
                break
            if len(decided) == before:
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics. There may "
                    "be loops in the topology that cannot be resolved."
                )
        for subtopology in self.subtopologies:
            if any(topic.name not in decided for topic in subtopology.repartition_source_topics):
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics, because a "
                    "repartition source topic is never used as a sink topic."
                )

    def _most_partitions(self, subtopology: Subtopology) -> int | None:
        counts = [
            self.decided[topic.name]
            for topic in subtopology.repartition_source_topics
            if topic.name in self.decided
        ]
        counts += (self.topics[name].partitions for name in subtopology.source_topics)
        return max(counts, default=None)

    # Copartitioned topics -------------------------------------------------------------------------

    def _copartition(self, subtopology: Subtopology, group: CopartitionGroup) -> None:
        """Give the repartition topics of a group the number of partitions of the other topics."""
        repartitions = subtopology.repartition_source_topics
        internal = {repartitions[index].name for index in group.repartition_source_topics}
        external = {subtopology.source_topics[index] for index in group.source_topics} - internal
        if not internal and not external:
            return
        before = {name: self._count_of(name) for name in internal}
        if external:
            counts = {name: self._count_of(name) for name in external}
            if len(set(counts.values())) > 1:
                raise _misfit(_unequal(counts))
            count = next(iter(counts.values()))
        elif self._fixed:
            count = self._count_of(min(self._fixed))
            if any(self._count_of(name) != count for name in self._fixed):
                raise _misfit(_unequal(before))
        else:
            count = max(before.values())
        for name, had in before.items():
            self.decided[name] = count
            if name in self._fixed and had != count:
                raise _misfit(
                    f"Number of partitions [{had}] of repartition topic [{name}] doesn't match "
                    f"number of partitions [{count}] of the source topic.",
                )

    # Changelog topics -----------------------------------------------------------------------------

    def _decide_changelogs(self) -> None:
        for subtopology in self.subtopologies:
            if not sources(subtopology):
                raise _invalid(
                    f"No source topics found for subtopology {subtopology.subtopology_id}"
                )
            count = self._tasks(subtopology)
            for topic in subtopology.state_changelog_topics:
                self.decided[topic.name] = count

    def _tasks(self, subtopology: Subtopology) -> int:
        return max(map(self._count_of, sources(subtopology)))

    def _missing(self, subtopologies: Iterable[ConfiguredSubtopology]) -> tuple[InternalTopic, ...]:
        internal = {
            topic.name: topic
            for subtopology in subtopologies
            for topic in (*subtopology.repartitions, *subtopology.changelogs)
        }
        for name in sorted(internal.keys() & self.topics.keys()):
            count, expected = self.topics[name].partitions, internal.pop(name).partitions
            if count != expected:
                raise _misfit(
                    f"Existing topic {name} has different number of partitions: expected "
                    f"{expected}, found {count}",
                )
        return tuple(internal.values())


def _unequal(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
    return f"Following topics do not have the same number of partitions: [{{{listed}}}]"


def _summary(names: Iterable[str]) -> str:
    ascending = sorted(names)
    listed = ", ".join(ascending[:_NAMES_TOLD])
    more = len(ascending) - _NAMES_TOLD
    return f"{listed} and {more} additional topics" if more > 0 else listed
