"""Streams groups (KIP-1071) as conformance cases use them: requests and answers as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.two_brokers import Side
from tests.conformance.world import outcome

HEARTBEAT, DESCRIBE = 88, 89
REBALANCE_TIMEOUT_MS = 300_000

Tasks = Mapping[str, Sequence[int]]


def subtopology(
    id_: str,
    *sources: str,
    changelogs: Sequence[Mapping[str, Any]] = (),
    sinks: Sequence[str] = (),
    repartitions: Sequence[Mapping[str, Any]] = (),
    groups: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
    regex: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a subtopology as a request has it.

    :param groups: copartition groups: indexes of source topics and of repartition topics
    """
    return {
        "subtopology_id": id_,
        "source_topics": sources,
        "source_topic_regex": regex,
        "state_changelog_topics": changelogs,
        "repartition_sink_topics": sinks,
        "repartition_source_topics": repartitions,
        "copartition_groups": [
            {"source_topics": some, "source_topic_regex": (), "repartition_source_topics": others}
            for some, others in groups
        ],
    }


def internal(
    name: str, partitions: int = 0, replication_factor: int = 0, **configs: str
) -> dict[str, Any]:
    """Return a changelog or repartition topic as a request has it."""
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "topic_configs": pairs,
    }


def heartbeat(group_id: str, member_id: str, epoch: int, /, **fields: Any) -> dict[str, Any]:
    """Return the fields of a heartbeat. A join needs a ``topology``.

    :param owned: active and standby tasks; without them none are reported, but by who joins
    """
    joins = epoch == 0
    owned = fields.pop("owned", ({}, {}) if joins else None)
    active, standby = (None, None) if owned is None else map(_task_ids, owned)
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "endpoint_information_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": REBALANCE_TIMEOUT_MS if joins else -1,
        "topology": None,
        "active_tasks": active,
        "standby_tasks": standby,
        "warmup_tasks": None if owned is None else [],
        "process_id": f"p{member_id}" if joins else None,
        "user_endpoint": None,
        "client_tags": [] if joins else None,
        "task_offsets": None,
        "task_end_offsets": None,
        "shutdown_application": False,
        **fields,
    }


def _task_ids(tasks: Tasks) -> list[dict[str, Any]]:
    return [{"subtopology_id": id_, "partitions": numbers} for id_, numbers in tasks.items()]


def tasks_of(listed: Any) -> dict[str, tuple[int, ...]]:
    """Return tasks by subtopology."""
    return {one["subtopology_id"]: tuple(one["partitions"]) for one in listed}


def beat(side: Side, fields: Mapping[str, Any], version: int = 1) -> dict[str, Any]:
    """Send a heartbeat; return the answer. Its texts have sorted names, or none where any of
    several topics may be named.
    """
    response = side.world.ask(HEARTBEAT, version, **side.outward(fields))
    found: dict[str, Any] = side.plain(response)
    found["error"] = outcome(response.error_code, response.error_message)
    for status in found["status"] or ():
        status["status_detail"] = _sorted(status["status_detail"])
    return found


def _sorted(detail: str) -> str:
    if detail.startswith("Existing topic"):
        return "one of the existing topics has another number of partitions"
    if not detail.startswith("Internal topics are missing"):
        return detail
    listed = detail.partition(": ")[2].partition(";")[0]
    return f"Internal topics are missing: {sorted(listed.split(', '))}"


def describe(side: Side, group_id: str) -> Any:
    """Send StreamsGroupDescribe; return the description of a group."""
    fields = {"group_ids": [group_id], "include_topology_description": True}
    response = side.world.ask(DESCRIBE, 1, **fields)
    (described,) = response.groups
    found: dict[str, Any] = side.plain(described)
    found["error"] = outcome(described.error_code, described.error_message)
    for member in found["members"]:
        del member["client_host"]
        for kind in ("task_offsets", "task_end_offsets"):
            member[kind].sort(key=lambda task: (task["subtopology_id"], task["partition"]))
    return found
