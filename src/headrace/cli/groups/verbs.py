"""The verbs that list, describe, set and delete groups, and show their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from headrace.cli.clients import Cluster, errors, groups, model, offsets, share_state, snapshot
from headrace.cli.configs import SETTINGS, UNSET, alter_configs
from headrace.cli.errors import BadUsage
from headrace.cli.nouns import Noun
from headrace.cli.options import (
    DRY_RUN,
    GROUP_TYPES,
    TYPES,
    YES,
    arg,
    one_of,
    pattern,
    switch,
)
from headrace.cli.output import Output, Row
from headrace.cli.progress import in_steps
from headrace.cli.tables import tell
from headrace.patterns import matches
from headrace.protocol.partitions import by_topic

from .kafka_format import kafka_format

NOUN = Noun()
_GROUPS_AT_ONCE = 100
"""The number of groups in one request; it bounds memory and requests in flight."""
_GROUPS = (
    arg("group_ids", "GROUP", "ids of groups", nargs="*"),
    switch("--all", "all groups"),
    TYPES,
)


_FIELDS = (
    *("group_id", "group_type", "topic", "partition", "start_offset", "committed_offset"),
    *("end_offset", "lag", "leader_epoch", "member_id", "client_id", "host"),
)


@NOUN.cluster_verb(
    "list",
    "list groups of all types",
    arg(
        "patterns",
        "GROUP",
        "a group, or a regular expression of whole ids (default: all)",
        nargs="*",
    ),
    TYPES,
    arg("--state", "STATE,…", "only groups in these states, such as empty,stable"),
    kafka_format("GROUP:15|STATE", is_list=True),
    examples="headrace groups list\nheadrace groups list 'team-.*' --type share --state empty",
)
async def list_groups(
    cluster: Cluster,
    output: Output,
    *,
    patterns: Sequence[str],
    types: Sequence[str],
    state: Sequence[str] | None,
) -> None:
    """Print groups.

    :param patterns: a group with this very id comes before those that match it; empty for all
    :raises Failure: not all brokers answered
    :raises ArgumentTypeError: a pattern is malformed
    """
    listed = await _listed(cluster, _types(output, types))
    ids = {group.group_id for group in listed.groups}
    expressions = [pattern(text) for text in patterns if text not in ids]
    output.rows(
        [
            {
                "group_id": group.group_id,
                "group_type": group.type,
                "group_state": group.state,
                "protocol_type": group.protocol_type,
                "coordinator_id": group.node_id,
            }
            for group in listed.groups
            if (not state or group.state.lower() in state)
            and (
                not patterns
                or group.group_id in patterns
                or any(matches(text, group.group_id) for text in expressions)
            )
        ],
        wide=("coordinator_id",),
        nothing="there are no such groups",
        problems=[f"not all brokers answered: {error}" for error in listed.errors],
    )


def _types(output: Output, types: Sequence[str]) -> Sequence[str]:
    """Return the types of groups that an output or an option chooses; empty for all.

    :raises BadUsage: both do
    """
    if types and output.group_types:
        raise BadUsage("--kafka-format is for share groups: leave out --type")
    return types or output.group_types


async def _listed(cluster: Cluster, types: Sequence[str]) -> groups.GroupList:
    listed = await groups.list_groups(cluster, types=types)
    if listed.advice is not None:
        tell(listed.advice)
    return listed


async def _described(
    cluster: Cluster, output: Output, *, group_ids: Sequence[str], all: bool, types: Sequence[str]
) -> tuple[list[groups.GroupDescription], list[object]]:
    """Describe the groups that :data:`_GROUPS` choose.

    :returns: the descriptions, and what failed
    :raises BadUsage: groups are named beside ``--all``, or none
    """
    if all == bool(group_ids):
        raise BadUsage("name groups, or give --all")
    problems: list[object] = []
    types = _types(output, types)
    if all:
        listed = await _listed(cluster, types)
        group_ids = [group.group_id for group in listed.groups]
        problems += listed.errors
    await cluster.connection()  # without a broker, questions to coordinators are repeatable
    answers = await in_steps(
        group_ids,
        _GROUPS_AT_ONCE,
        "describing groups",
        partial(groups.describe_groups, cluster, types=types or groups.TYPES),
    )
    described = [group for group in answers.values() if isinstance(group, groups.GroupDescription)]
    problems += (error for error in answers.values() if isinstance(error, Exception))
    return described, problems


@NOUN.cluster_verb(
    "describe",
    "describe groups: their states, or records in flight; for members see groups members",
    *_GROUPS,
    one_of(
        switch("--in-flight", "the records that members of share groups hold, or that wait"),
        kafka_format(
            "GROUP:15|COORDINATOR (ID):25|STATE:15|#MEMBERS",
            "GROUP:15|COORDINATOR (ID):25|STATE:15|GROUP-EPOCH:12|ASSIGNMENT-EPOCH:17|#MEMBERS",
        ),
    ),
    examples="headrace groups describe packers billing\n"
    "headrace groups describe packers --in-flight",
)
async def describe_groups(
    cluster: Cluster, output: Output, *, in_flight: bool, **chosen: Any
) -> None:
    """Print groups, or what is in flight.

    :raises Failure: some cannot be described
    """
    described, problems = await _described(cluster, output, **chosen)
    if in_flight:
        rows, failures = await _spans(cluster, described)
        output.rows(rows, nothing="no records are in flight", problems=[*problems, *failures])
        return
    wide = ("protocol_type", "group_epoch", "assignment_epoch", "topology_epoch")
    output.rows(map(_state_row, described), wide=wide, problems=problems)


@NOUN.cluster_verb(
    "members",
    "show the members of groups, with their assignments",
    *_GROUPS,
    kafka_format(
        "GROUP:15|CONSUMER-ID:15|HOST:15|CLIENT-ID:15|#PARTITIONS:12|ASSIGNMENT",
        "GROUP:15|CONSUMER-ID:15|HOST:15|CLIENT-ID:15|#PARTITIONS:12|MEMBER-EPOCH:13|ASSIGNMENT",
    ),
    examples="headrace groups members packers\nheadrace groups members --all -o wide",
)
async def print_members(cluster: Cluster, output: Output, **chosen: Any) -> None:
    """Print the members of groups.

    :raises Failure: some groups cannot be described
    """
    described, problems = await _described(cluster, output, **chosen)
    rows = [
        {
            "group_id": group.group_id,
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "instance_id": member.instance_id,
            "member_epoch": member.epoch,
            "process_id": member.process_id,
            "assignment": by_topic(sorted(member.assignment)),
            "target_assignment": by_topic(sorted(member.target_assignment or ())),
            "tasks": _tasks(member.tasks),
        }
        for group in described
        for member in group.members
    ]
    wide = ("instance_id", "member_epoch", "process_id", "target_assignment", "tasks")
    output.rows(rows, wide=wide, nothing="there are no members", problems=problems)


def _state_row(group: groups.GroupDescription) -> Row:
    node = group.coordinator
    return {
        "group_id": group.group_id,
        "group_type": group.type,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "member_count": len(group.members),
        "assignor": group.assignor or None,
        "coordinator": None if node is None else f"{node.host}:{node.port} ({node.node_id})",
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
    }


def _tasks(tasks: groups.StreamsTasks | None) -> dict[str, tuple[int, ...]] | None:
    """Return the tasks of a member of a streams group, such as ``active 0`` → (0, 1)."""
    if tasks is None:
        return None
    return {
        f"{role} {subtopology}": numbers
        for role, of_role in tasks.items()
        for subtopology, numbers in sorted(of_role.items())
    }


async def _spans(
    cluster: Cluster, described: Iterable[groups.GroupDescription]
) -> tuple[list[Row], list[object]]:
    """Return a row for each run of records in flight, and what failed."""
    rows: list[Row] = []
    problems: list[object] = []
    for group in described:
        if group.type != groups.SHARE:
            problems.append(f"group '{group.group_id}' is not a share group")
            continue
        try:
            progress = errors.raised(await offsets.share_offsets(cluster, [group.group_id]))
            partitions = progress[group.group_id]
            states = await share_state.share_states(cluster, group.group_id, partitions)
        except errors.ClientError as error:
            problems.append(error)
            continue
        client_ids = {member.member_id: member.client_id for member in group.members}
        for (topic, number), state in sorted(states.items()):
            if state.spans is None:
                problems.append("only headrace's broker tells which records are in flight")
            rows += (
                {
                    "group_id": group.group_id,
                    "topic": topic,
                    "partition": number,
                    "first_offset": span.first_offset,
                    "last_offset": span.last_offset,
                    "state": span.state,
                    "delivery_count": span.delivery_count,
                    "remaining_ms": span.remaining_ms,
                    "member_id": span.member_id,
                    "client_id": client_ids.get(span.member_id or ""),
                }
                for span in state.spans or ()
                if span.state != "finished"
            )
            if state.is_cut:
                tell(f"there are more in {topic}-{number}")
    return rows, problems


@NOUN.cluster_verb(
    "offsets",
    "show the committed offsets or start offsets of groups, and the lag, of each partition",
    *_GROUPS,
    kafka_format(
        "GROUP:15|TOPIC:15|PARTITION:10|START-OFFSET:13|LAG",
        "GROUP:15|TOPIC:15|PARTITION:10|LEADER-EPOCH:13|START-OFFSET:13|LAG",
    ),
    examples="headrace groups offsets packers\nheadrace groups offsets billing -o jsonl > saved",
)
async def print_offsets(
    cluster: Cluster, output: Output, *, group_ids: Sequence[str], all: bool, types: Sequence[str]
) -> None:
    """Print the progress of groups, partition by partition.

    :raises Failure: some is unknown
    """
    if all == bool(group_ids):
        raise BadUsage("name groups, or give --all")
    types = _types(output, types) or GROUP_TYPES
    query = model.LagQuery(groups=tuple(group_ids), group_types=tuple(types), time_lag=False)
    shown = await snapshot.snapshot(cluster, query)
    output.rows(
        [
            {field: row[field] for field in _FIELDS}
            for row in model.rows(shown)
            if row["topic"] is not None
        ],
        wide=("leader_epoch", "member_id", "host"),
        nothing="there are no offsets",
        problems=shown.warnings,
    )


@NOUN.cluster_verb(
    "set",
    "set and delete configs of a group, such as share.auto.offset.reset",
    arg("group_id", "GROUP", "id of the group, which need not exist yet"),
    SETTINGS,
    UNSET,
    DRY_RUN,
    YES,
    examples="headrace groups set packers share.auto.offset.reset=earliest\n"
    "headrace groups set packers --delete share.record.lock.duration.ms",
)
async def set_configs(
    cluster: Cluster,
    output: Output,
    *,
    group_id: str,
    settings: Sequence[tuple[str, str]],
    delete: Sequence[str],
) -> None:
    """Set configs of a group, if the broker accepts all of them.

    :raises ClientError: it does not
    """
    changes = {**dict(settings), **dict.fromkeys(delete)}
    await alter_configs(cluster, output, "group", group_id, changes)


@NOUN.cluster_verb(
    "delete",
    "delete groups without members, with their offsets",
    *_GROUPS,
    DRY_RUN,
    YES,
    examples="headrace groups delete packers\nheadrace groups delete --all --type share --dry-run",
)
async def delete_groups(cluster: Cluster, output: Output, **chosen: Any) -> None:
    """Delete groups.

    :raises Failure: some are not deleted
    """
    described, problems = await _described(cluster, output, **chosen)
    rows = {
        group.group_id: {
            "group_id": group.group_id,
            "group_type": group.type,
            "group_state": group.state,
            "result": "deleted",
        }
        for group in described
    }
    await output.change(
        rows,
        lambda: in_steps(
            list(rows),
            _GROUPS_AT_ONCE,
            "deleting groups",
            partial(groups.delete_groups, cluster),
        ),
        "Delete these groups with their offsets?",
        problems=problems,
    )
