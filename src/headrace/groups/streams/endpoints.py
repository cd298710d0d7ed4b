"""The endpoints of a streams group's members, for interactive queries (KIP-1071)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.groups.records import HeldTaskAssignment, StreamsMember
from headrace.groups.settings import Topics

from .member import EndpointPartitions
from .topics import ConfiguredTopology, sources


def endpoint_partitions(
    members: Iterable[tuple[StreamsMember, HeldTaskAssignment]],
    configured: ConfiguredTopology,
    topics: Topics,
) -> tuple[EndpointPartitions, ...]:
    """Return the partitions that members with an endpoint read.

    :param members: members with the tasks that they may run
    """
    endpoints = []
    for member, held in members:
        if member.user_endpoint is not None:
            active = _partitions(held.active, configured, topics)
            standby = _partitions(held.standby, configured, topics)
            endpoints.append(EndpointPartitions(member.user_endpoint, active, standby))
    return tuple(endpoints)


def _partitions(
    tasks: Mapping[str, Collection[int]], configured: ConfiguredTopology, topics: Topics
) -> list[tuple[str, tuple[int, ...]]]:
    by_topic = []
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            continue
        for name in sorted({*sources(subtopology.subtopology)} & topics.keys()):
            count = topics[name].partitions
            read = sorted(partitions)
            if count < len(read):  # as in Kafka
                read = read[:count]
            by_topic.append((name, tuple(read)))
    return by_topic
