"""The verbs that reset and delete the offsets of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cli.clients import Cluster, errors, groups, offsets
from headrace.cli.errors import BadUsage, Failure
from headrace.cli.options import DRY_RUN, YES, arg, one_of, repeatable, switch, topic_and_partitions
from headrace.cli.output import Output, Row
from headrace.cli.tables import tell
from headrace.positions import EARLIEST, LATEST, Position, position
from headrace.protocol.partitions import TopicPartition

from .kafka_format import kafka_format
from .verbs import NOUN

Scope = Sequence[tuple[str, tuple[int, ...] | None]]
"""Topics, each with the numbers of partitions, or None for all."""
Offsets = dict[TopicPartition, int]
_ATTEMPTS = 3
"""How often to ask for the leader of a partition; that of a deleted topic has none."""
_GROUP = arg("group_id", "GROUP", "id of the group")


# Reset --------------------------------------------------------------------------------------------


@NOUN.cluster_verb(
    "reset",
    "set the offsets of a consumer or share group without members",
    _GROUP,
    one_of(
        arg(
            "--to",
            "TARGET",
            "earliest, latest, an offset, -N: before the last N, or a time such as -1h, "
            "yesterday or 2026-11-20T08:00:00+01:00: the first record from then on, or the end",
            type=position,
        ),
        arg("--shift", "N", "forward by N records; backward if negative", type=int),
        required=True,
    ),
    repeatable(
        "--topic",
        "TOPIC",
        "a topic, or some of its partitions as TOPIC:0,1,2",
        dest="topics",
        type=topic_and_partitions,
    ),
    switch("--all-topics", "all topics in which the group has offsets"),
    arg("--type", choices=("consumer", "share"), help="type of a group that does not exist yet"),
    kafka_format("GROUP:15|TOPIC:15|PARTITION:10|NEW-OFFSET"),
    DRY_RUN,
    YES,
    examples="headrace groups reset billing --topic orders --to earliest --dry-run\n"
    "headrace groups reset packers --topic orders:0,3 --to -1h\n"
    "headrace groups reset billing --all-topics --shift -100",
)
async def reset(
    cluster: Cluster,
    output: Output,
    *,
    group_id: str,
    to: Position | None,
    shift: int | None,
    topics: Scope,
    all_topics: bool,
    type: str | None,
) -> None:
    """Set the offsets of a group; an offset outside of the log becomes the nearest inside.

    :raises Failure: the group has members, or some offsets are not set
    """
    if not topics and not all_topics:
        raise BadUsage("say which topics: --topic or --all-topics")
    is_share = await _is_share(cluster, group_id, type, may_have_members=False)
    current = await _current(cluster, group_id, is_share)
    partitions: set[TopicPartition] = set()
    if all_topics and is_share:
        topics = [*topics, *((topic, None) for topic in {topic for topic, _ in current})]
    elif all_topics:
        partitions.update(current)
    partitions |= await _existing(cluster, topics)
    problems: list[str] = []
    targets = dict.fromkeys(partitions, to or LATEST)
    named: Offsets = {}
    if shift is not None:
        problems += (
            f"the group has no offset in {_name(key)} to shift"
            for key in sorted(partitions - current.keys())
        )
        named = {key: current[key] + shift for key in partitions & current.keys()}
        targets = {key: Position(max(0, offset)) for key, offset in named.items()}
    elif to is not EARLIEST and to is not None and to.offset is not None and to.offset >= 0:
        # EARLIEST equals --to 0, which names an offset.
        named = dict.fromkeys(partitions, to.offset)
    plan = await _plan(cluster, targets, named, problems)
    alter = offsets.alter_share_offsets if is_share else offsets.commit_offsets
    await output.change(
        {
            key: {
                "group_id": group_id,
                "topic": key[0],
                "partition": key[1],
                "start_offset" if is_share else "committed_offset": current.get(key),
                "new_offset": offset,
                "result": "reset",
            }
            for key, offset in sorted(plan.items())
        },
        lambda: alter(cluster, group_id, plan),
        f"Reset these offsets of group '{group_id}'?",
        problems=problems,
    )


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


async def _is_share(
    cluster: Cluster, group_id: str, new_type: str | None, *, may_have_members: bool
) -> bool:
    """Return whether a group is a share group, not a consumer group.

    :param new_type: the type of a group that does not exist
    :raises UnknownGroup: it does not exist, and has no new type
    :raises Failure: it is of another type, or has members and must not
    """
    await cluster.connection()  # without a broker, questions to coordinators are repeatable
    group = await groups.describe_group(cluster, group_id)
    if group is None:
        if new_type is None:
            if may_have_members:
                raise errors.UnknownGroup(group_id)
            raise errors.UnknownGroup(group_id, "give --type share or --type consumer to make it")
        return new_type == groups.SHARE
    if group.type == groups.STREAMS or group.protocol_type not in ("", "consumer", "share"):
        raise Failure(f"group '{group_id}' is neither a consumer group nor a share group")
    if group.members and not may_have_members:
        raise Failure(
            f"group '{group_id}' has members ({len(group.members)}): stop them before its offsets "
            "are reset"
        )
    return group.type == groups.SHARE


async def _current(cluster: Cluster, group_id: str, is_share: bool) -> Offsets:
    """Return the start offsets of a share group, or the committed offsets of another one."""
    if not is_share:
        committed = errors.raised(await offsets.committed_offsets(cluster, [group_id]))
        return {key: commit.offset for key, commit in committed[group_id].items()}
    answer = (await offsets.share_offsets(cluster, [group_id]))[group_id]
    if errors.is_missing_group(answer):
        return {}
    return {
        key: progress.start_offset
        for key, progress in errors.raised(errors.raised({group_id: answer})[group_id]).items()
        if progress.start_offset is not None
    }


async def _existing(cluster: Cluster, topics: Scope) -> set[TopicPartition]:
    """Return the partitions of topics.

    :raises UnknownTopic: a topic does not exist
    :raises Failure: a partition does not exist
    """
    metadata = await cluster.topics([topic for topic, _ in topics]) if topics else {}
    partitions: set[TopicPartition] = set()
    for topic, numbers in topics:
        existing = metadata[topic].leaders.keys()
        for number in sorted(set(numbers or ()) - existing):
            raise Failure(f"topic '{topic}' has no partition {number}")
        partitions |= {(topic, number) for number in numbers or existing}
    return partitions


async def _plan(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Position],
    named: Offsets,
    problems: list[str],
) -> Offsets:
    """Return the offsets of positions; say on stderr which are outside of their logs.

    :param named: the positions that are offsets, perhaps negative
    :param problems: gets what failed
    """
    plan: Offsets = {}
    answers = await offsets.offsets_of_positions(cluster, targets, attempts=_ATTEMPTS)
    for key, answer in sorted(answers.items()):
        if isinstance(answer, errors.ClientError):
            problems.append(str(answer))
            continue
        plan[key] = answer
        offset = named.get(key, answer)
        if offset != answer:
            tell(f"offset {offset} is not in the log of {_name(key)}: {answer} is")
    return plan


# Delete -------------------------------------------------------------------------------------------


@NOUN.cluster_verb(
    "delete-offsets",
    "delete the offsets of a group in topics that it does not read any more",
    _GROUP,
    repeatable(
        "--topic",
        "TOPIC",
        "a topic; of a consumer group also some of its partitions, as TOPIC:0,1,2",
        dest="topics",
        required=True,
        type=topic_and_partitions,
    ),
    kafka_format("TOPIC:15|PARTITION:10|STATUS:15"),
    DRY_RUN,
    YES,
    examples="headrace groups delete-offsets billing --topic orders:0,1\n"
    "headrace groups delete-offsets packers --topic orders",
)
async def delete_offsets(cluster: Cluster, output: Output, *, group_id: str, topics: Scope) -> None:
    """Delete committed offsets (KIP-496), or the state of a share group in whole topics.

    :raises Failure: some are not deleted
    """
    is_share = await _is_share(cluster, group_id, None, may_have_members=True)
    if is_share and any(numbers is not None for _, numbers in topics):
        raise BadUsage("a share group has one state of a topic: leave out the partitions")
    keys = [
        key
        for key in sorted(await _current(cluster, group_id, is_share))
        if any(
            key[0] == topic and (numbers is None or key[1] in numbers) for topic, numbers in topics
        )
    ]
    missing = {topic for topic, _ in topics} - {topic for topic, _ in keys}
    problems = [f"the group has no offsets in '{topic}'" for topic in sorted(missing)]

    rows: dict[Any, Row] = {
        topic if is_share else (topic, number): {
            "group_id": group_id,
            "topic": topic,
            **({} if is_share else {"partition": number}),
            "result": "deleted",
        }
        for topic, number in keys
    }

    await output.change(
        rows,
        lambda: (
            offsets.delete_share_offsets(cluster, group_id, rows)
            if is_share
            else offsets.delete_offsets(cluster, group_id, rows)
        ),
        f"Delete these offsets of group '{group_id}'?",
        problems=problems,
    )
