"""The actions of ``headrace topics``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.cli.cluster_run import on_cluster
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.progress import in_steps
from headrace.cli.tables import as_json, one_line
from headrace.client import Cluster, RequestRefused
from headrace.client.configs import Config, ConfigType, describe_configs
from headrace.client.errors import ClientError, UnknownTopic, has_code
from headrace.client.topics import (
    NewTopic,
    PartitionInfo,
    TopicDescription,
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
)
from headrace.errors import ErrorCode
from headrace.patterns import matches
from headrace.uuid_text import uuid_text

TOPICS_AT_ONCE = 500
"""The number of topics in one request."""


def execute(options: Namespace) -> int:
    """Execute the action of ``options``, as :func:`.command.check` leaves them.

    :returns: the exit status
    :raises Failure: no broker answers, or it refuses
    """
    actions = {
        "list": _list,
        "describe": _describe,
        "create": _create,
        "alter": _alter,
        "delete": _delete,
    }
    on_cluster(options, lambda cluster: actions[options.action](cluster, options))
    return 0


async def _chosen(cluster: Cluster, options: Namespace) -> dict[str, bool]:
    """Return the topics that the options name, or all of them.

    :returns: name → whether it is internal, by name
    :raises UnknownTopic: a pattern matches none, and ``--if-exists`` is not given
    """
    found = {
        name: topic.is_internal
        for name, topic in sorted((await cluster.metadata(None)).items())
        if not isinstance(topic, ErrorCode)
    }
    if not options.topics:
        return found
    chosen: dict[str, bool] = {}
    for pattern in options.topics:
        some = {name: found[name] for name in found if matches(pattern, name)}
        if pattern in found:
            some = {pattern: found[pattern]}
        if not some and not options.if_exists and options.action != "list":
            raise UnknownTopic(pattern)
        chosen.update(some)
    return chosen


async def _list(cluster: Cluster, options: Namespace) -> None:
    topics = await _chosen(cluster, options)
    if options.exclude_internal:
        topics = {name: internal for name, internal in topics.items() if not internal}
    if options.json:
        print(as_json({"topic": name, "internal": topics[name]} for name in topics))
    else:
        for name in topics:
            print(one_line(name))


async def _describe(cluster: Cluster, options: Namespace) -> None:
    topics = await _chosen(cluster, options)
    if options.exclude_internal:
        topics = {name: internal for name, internal in topics.items() if not internal}
    described: list[TopicDescription] = []
    refused: list[str] = []
    for some in in_steps(list(topics), TOPICS_AT_ONCE, "describing topics"):
        for answer in (await describe_topics(cluster, some)).values():
            if isinstance(answer, TopicDescription):
                described.append(answer)
            elif not has_code(
                answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):  # else deleted meanwhile
                refused.append(str(answer))
    if options.topic_id is not None:
        described = [one for one in described if uuid_text(one.topic_id) == options.topic_id]
        if not described and not options.if_exists:
            raise Failure(f"no topic has the id '{options.topic_id}'")
    configs = await _configs(cluster, [one.name for one in described])
    rows: list[dict[str, Any]] = []
    for topic in described:
        own = [one for one in configs.get(topic.name, ()) if one.source != "DEFAULT_CONFIG"]
        partitions = [one for one in topic.partitions if _is_wanted(one, options)]
        filtered = options.under_replicated_partitions or options.unavailable_partitions
        if (options.topics_with_overrides and not own) or (filtered and not partitions):
            continue
        if options.json:
            rows.append(_row(topic, own, partitions))
        else:
            _print(topic, own, partitions, options, filtered)
    if options.json:
        print(as_json(rows))
    if refused:
        raise Failure("; ".join(refused))


async def _configs(cluster: Cluster, names: Sequence[str]) -> Mapping[str, Sequence[Config]]:
    found: dict[str, Sequence[Config]] = {}
    for start in range(0, len(names), TOPICS_AT_ONCE):
        some = names[start : start + TOPICS_AT_ONCE]
        described = await describe_configs(cluster, ConfigType.TOPIC, some)
        for name, configs in described.items():
            if isinstance(configs, ClientError):  # as Kafka's tool: show the rest
                print(f"Warn: the configs are not shown: {one_line(str(configs))}", file=sys.stderr)
            else:
                found[name] = configs
    return found


def _is_wanted(partition: PartitionInfo, options: Namespace) -> bool:
    if options.under_replicated_partitions and len(partition.isr) >= len(partition.replicas):
        return False
    return not options.unavailable_partitions or partition.leader < 0


def _print(
    topic: TopicDescription,
    configs: Sequence[Config],
    partitions: Sequence[PartitionInfo],
    options: Namespace,
    filtered: bool,
) -> None:
    name = one_line(topic.name)
    if not filtered:
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        shown = ",".join(f"{one.name}={one.value}" for one in configs)
        print(
            f"Topic: {name}\tTopicId: {uuid_text(topic.topic_id)}"
            f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {replicas}"
            f"\tConfigs: {one_line(shown)}"
        )
    if options.topics_with_overrides:
        return
    for one in partitions:
        leader = one.leader if one.leader >= 0 else "none"
        print(
            f"\tTopic: {name}\tPartition: {one.number}\tLeader: {leader}"
            f"\tReplicas: {_nodes(one.replicas)}\tIsr: {_nodes(one.isr)}"
            f"\tElr: {_nodes(one.elr)}\tLastKnownElr: {_nodes(one.last_known_elr)}"
        )


def _nodes(nodes: Iterable[int] | None) -> str:
    return "N/A" if nodes is None else ",".join(map(str, nodes))


def _row(
    topic: TopicDescription, configs: Sequence[Config], partitions: Sequence[PartitionInfo]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "configs": {one.name: one.value for one in configs},
        "partitions": [
            {
                "partition": one.number,
                "leader": one.leader if one.leader >= 0 else None,
                "replicas": one.replicas,
                "isr": one.isr,
                "elr": one.elr,
                "last_known_elr": one.last_known_elr,
            }
            for one in partitions
        ],
    }


async def _create(cluster: Cluster, options: Namespace) -> None:
    for name in options.topics:
        if ("." in name or "_" in name) and not options.json:
            print(
                "WARNING: Due to limitations in metric names, topics with a period ('.') or "
                "underscore ('_') could collide. To avoid issues it is best to use either, but "
                "not both.",
                file=sys.stderr,
            )
    # All are checked before the first one is created.
    missing: list[str] = []
    for validate_only in (True, False):
        for name in list(options.topics if validate_only else missing):
            topic = NewTopic(
                name,
                -1 if options.partitions is None else options.partitions,
                -1 if options.replication_factor is None else options.replication_factor,
                options.replica_assignment or (),
                dict(options.config),
            )
            try:
                await create_topic(cluster, topic, validate_only=validate_only)
            except RequestRefused as error:
                if not options.if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            else:
                if validate_only:
                    missing.append(name)
        if options.dry_run:
            break
    _tell(missing, "created", options)


async def _alter(cluster: Cluster, options: Namespace) -> None:
    names = list(await _chosen(cluster, options))
    assignments: dict[str, Sequence[Sequence[int]] | None] = dict.fromkeys(names)
    if options.replica_assignment:
        if len(options.replica_assignment) != options.partitions:
            raise BadUsage("--replica-assignment names the brokers of all --partitions")
        for name, topic in (await describe_topics(cluster, names)).items():
            if isinstance(topic, TopicDescription):
                assignments[name] = options.replica_assignment[len(topic.partitions) :]
    for validate_only in (True, False):
        if options.dry_run and not validate_only:
            break
        for name in names:
            await create_partitions(
                cluster, name, options.partitions, assignments[name], validate_only=validate_only
            )
    _tell(names, "altered", options)


async def _delete(cluster: Cluster, options: Namespace) -> None:
    chosen = await _chosen(cluster, options)
    # A pattern does not reach the internal topics: they have to be named.
    names = [name for name, internal in chosen.items() if not internal or name in options.topics]
    if options.dry_run:
        _tell(names, "deleted", options)
        return
    problems: list[str] = []
    deleted: list[str] = []
    for some in in_steps(names, TOPICS_AT_ONCE, "deleting topics"):
        for name, refusal in (await delete_topics(cluster, some)).items():
            if refusal is None:
                deleted.append(name)
            else:
                problems.append(str(refusal))
    _tell(deleted, "deleted", options)
    if problems:
        raise Failure("; ".join(problems))


def _tell(names: Sequence[str], done: str, options: Namespace) -> None:
    """Print the topics that were changed, or would be."""
    if options.json:
        key = f"would_be_{done}" if options.dry_run else done
        print(as_json({"topic": name, key: True} for name in names))
        return
    for name in names:
        shown = one_line(name)
        if options.dry_run:
            print(f"Topic {shown} would be {done}.")
        elif done == "created":
            print(f"Created topic {shown}.")
        else:
            print(f"Topic {shown} is {done}.")
