"""Actions: each is a function whose parameters are the fields of its form and of its JSON, and
whose result is a plan that shows what would change; executing it changes just that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from confluent_kafka import KafkaException, Producer

from headrace.amounts import count_of
from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, alter_configs, describe_config
from headrace.client.dead_letters.letters import LetterFilter
from headrace.client.dead_letters.redrive import Redrive, RedriveOptions
from headrace.client.errors import ClientError, UnknownGroup, raised
from headrace.client.offsets import (
    alter_share_offsets,
    commit_offsets,
    delete_share_offsets,
    offsets_of_positions,
)
from headrace.client.offsets import delete_offsets as delete_committed_offsets
from headrace.client.share_state import release_records, share_states
from headrace.positions import position
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.share_inspection import SpanState

from .errors import BadRequest, NotThere
from .groups import group_lag
from .limits import MAX_SPANS_OF_RECORD
from .plans import Plan
from .redriving import Redrives, redrive_changes
from .schemas import About, Parameter, parameters_of, parsed, parsed_text
from .texts import exact, short
from .views import Change

_ANY_PARTITION = -1
_MAX_PARTITION = (1 << 31) - 1
_PRODUCE_S = 10.0
_MAX_CHANGES = 1000
_MAX_HEADERS = 100
_MAX_VALUE_CHARS = 1 << 20
"""No request is larger."""

GroupId = Annotated[str, About("Group")]
Topic = Annotated[str, About("Topic")]
AnyTopic = Annotated[str, About("Topic", "all")]
Partition = Annotated[int, About("Partition", most=_MAX_PARTITION)]
AnyPartition = Annotated[int | None, About("Partition", "all", most=_MAX_PARTITION)]


@dataclass(frozen=True, slots=True)
class Tools:
    """What actions work with.

    :param producer_config: librdkafka's configuration, for records to produce
    """

    cluster: Cluster
    producer_config: Mapping[str, str]
    redrives: Redrives


@dataclass(frozen=True, slots=True)
class Action:
    """An action.

    :param title: above its form
    :param needs: the permissions that it takes in the cluster
    :param make_plan: makes its plan; its keyword-only parameters are the fields
    """

    name: str
    title: str
    needs: str
    make_plan: Callable[..., Awaitable[Plan]]

    @property
    def fields(self) -> Sequence[Parameter]:
        """The fields of its form."""
        return parameters_of(self.make_plan)

    async def plan(self, tools: Tools, form: Mapping[str, str]) -> Plan:
        """Return its plan.

        :raises BadRequest: a field is missing or wrong
        :raises NotThere: what it names does not exist
        :raises ClientError: the cluster refuses or does not answer
        """
        plan = await self.make_plan(tools, **parsed(self.fields, form))
        plan.action = self.name
        return plan


# Offsets ------------------------------------------------------------------------------------------


async def _idle_group(
    tools: Tools, group_id: str, topic: str, partition: int | None = None
) -> tuple[bool, dict[TopicPartition, int | None]]:
    """Return whether a group is a share group, and its offsets in the chosen partitions.

    :raises UnknownGroup: the group does not exist
    :raises BadRequest: the group has members
    """
    group = await group_lag(tools.cluster, group_id)
    if group is None:
        raise UnknownGroup(group_id)
    if group.members:
        members = count_of(len(group.members), "member")
        raise BadRequest(
            f"The group has {members}: stop its consumers first. The cluster changes offsets only "
            "of groups without members."
        )
    return group.type == "share", {
        (lag.topic, lag.partition): lag.position
        for lag in group.partitions
        if topic in ("", lag.topic) and partition in (None, lag.partition)
    }


async def reset_offsets(
    tools: Tools,
    *,
    group_id: GroupId,
    topic: AnyTopic = "",
    partition: AnyPartition = None,
    to: Annotated[str, About("To", "earliest, latest, an offset or -1h")],
) -> Plan:
    """Set the offsets of a group without members to earliest, latest, an offset, or a time."""
    cluster = tools.cluster
    is_share, before = await _idle_group(tools, group_id, topic, partition)
    keys = list(before)
    if topic and not keys:  # new to the group
        leaders = (await cluster.topics([topic]))[topic].leaders
        keys = [(topic, number) for number in sorted(leaders) if partition in (None, number)]
    if not keys:
        raise BadRequest("The group has no such partitions: name a topic.")
    if len(keys) > _MAX_CHANGES:
        raise BadRequest(f"At most {_MAX_CHANGES} partitions at a time: name a topic.")
    positions = dict.fromkeys(keys, parsed_text(position, to.strip()))
    targets = raised(await offsets_of_positions(cluster, positions))

    async def execute() -> str:
        change = alter_share_offsets if is_share else commit_offsets
        raised(await change(cluster, group_id, targets))
        return f"{count_of(len(targets), 'partition')} set"

    moves = [(before.get(key), at) for key, at in targets.items()]
    cautions = []
    if any(old is not None and old > at for old, at in moves):
        cautions.append("Records that were finished will be delivered again.")
    if any(old is not None and old < at for old, at in moves):
        cautions.append("Records in between will not be delivered.")
    return Plan(
        f"Set the offsets of group {group_id!r} to {to}",
        [
            Change(f"{key[0]}-{key[1]}", exact(before.get(key)), exact(at))
            for key, at in targets.items()
        ],
        execute,
        cautions,
    )


async def delete_offsets(tools: Tools, *, group_id: GroupId, topic: Topic) -> Plan:
    """Delete the offsets of a group without members in a topic."""
    cluster = tools.cluster
    is_share, before = await _idle_group(tools, group_id, topic)
    if not before:
        raise NotThere(f"The group has no offsets in topic {topic!r}.")

    async def execute() -> str:
        if is_share:
            raised(await delete_share_offsets(cluster, group_id, [topic]))
        else:
            raised(await delete_committed_offsets(cluster, group_id, before))
        return f"the offsets of {count_of(len(before), 'partition')} are deleted"

    return Plan(
        f"Delete the offsets of group {group_id!r} in topic {topic!r}",
        [Change(f"{topic}-{number}", exact(at), "none") for (_, number), at in before.items()],
        execute,
        ["The group will begin there as a new one does."],
    )


# Settings -----------------------------------------------------------------------------------------


async def set_config(
    tools: Tools,
    *,
    group_id: GroupId,
    name: Annotated[str, About("Name")],
    value: Annotated[str, About("Value", "its default")] = "",
) -> Plan:
    """Change a setting of a group; without a value it gets its default."""
    cluster = tools.cluster
    name, value = name.strip(), value.strip()

    changes = {name: value or None}
    before = (await describe_config(cluster, ConfigType.GROUP, group_id, [name])).get(name)
    await alter_configs(cluster, ConfigType.GROUP, group_id, changes, validate_only=True)

    async def execute() -> str:
        await alter_configs(cluster, ConfigType.GROUP, group_id, changes)
        return f"{name} is {value or 'at its default'}"

    change = Change(name, before or "empty", value or "its default")
    return Plan(f"Set {name} of group {group_id!r}", [change], execute)


# Records ------------------------------------------------------------------------------------------


async def release(
    tools: Tools,
    *,
    group_id: GroupId,
    topic: Topic,
    partition: Partition,
    first: Annotated[int, About("From offset")],
    last: Annotated[int | None, About("To offset", "the same")] = None,
) -> Plan:
    """Release records that members of a share group hold (headrace only)."""
    last = first if last is None else last
    key = (topic, partition)
    state = (await share_states(tools.cluster, group_id, [key], MAX_SPANS_OF_RECORD)).get(key)
    if state is None or state.spans is None:
        raise BadRequest("This broker cannot release records that members hold.")
    held = [
        span
        for span in state.spans
        if span.state is SpanState.LOCKED
        and span.last_offset >= first
        and span.first_offset <= last
    ]
    if not held:
        raise BadRequest("No member holds a record of this range.")

    async def execute() -> str:
        await release_records(tools.cluster, group_id, key, first, last)
        return "released"

    return Plan(
        f"Release the records {first} to {last} of {topic}-{partition} in group {group_id!r}",
        [
            Change(
                f"{topic}-{partition} {max(first, span.first_offset)} to "
                f"{min(last, span.last_offset)}",
                f"held by {span.member_id}",
                "available",
            )
            for span in held[:_MAX_CHANGES]
        ],
        execute,
        [
            "Another member may get them while this one still works on them.",
            "At the delivery limit of the group they are archived instead.",
        ],
    )


async def produce(
    tools: Tools,
    *,
    topic: Topic,
    key: Annotated[str, About("Key", "null")] = "",
    partition: Annotated[int | None, About("Partition", "by key", most=_MAX_PARTITION)] = None,
    value: Annotated[str, About("Value", max_chars=_MAX_VALUE_CHARS, is_long=True)] = "",
    tombstone: Annotated[bool, About("null instead of the value (a tombstone)")] = False,
    headers: Annotated[
        str,
        About("Headers, NAME=VALUE, one on a line", max_chars=_MAX_VALUE_CHARS, is_long=True),
    ] = "",
) -> Plan:
    """Produce a record."""
    numbers = (await tools.cluster.topics([topic]))[topic].leaders
    if partition is not None and partition not in numbers:
        raise BadRequest(f"Topic {topic!r} has no partition {partition}.")
    key_bytes = key.encode() or None
    value_bytes = None if tombstone else value.encode()
    pairs = _headers(headers)

    def send() -> str:
        """Produce the record, and wait until it is written."""
        reports: list[Any] = []
        producer = Producer(
            {**tools.producer_config, "acks": "all", "message.timeout.ms": int(_PRODUCE_S * 1000)}
        )
        producer.produce(
            topic,
            value_bytes,
            key_bytes,
            _ANY_PARTITION if partition is None else partition,
            lambda *report: reports.append(report),
            headers=pairs,
        )
        producer.flush(_PRODUCE_S + 1)
        if not reports:
            raise ClientError("the record was not written in time")
        error, message = reports[0]
        if error is not None:
            raise KafkaException(error)
        return f"written to {topic}-{message.partition()} at offset {message.offset()}"

    async def execute() -> str:
        return await asyncio.to_thread(send)

    new = {
        "topic": topic,
        "partition": "by the key" if partition is None else str(partition),
        "key": "null" if key_bytes is None else short(key_bytes, 200),
        "value": "null" if value_bytes is None else short(value_bytes, 500),
    }
    changes = [Change(what, "", text) for what, text in new.items()]
    changes += [Change(f"header {name}", "", str(content)) for name, content in pairs]
    return Plan(f"Produce a record to topic {topic!r}", changes, execute)


def _headers(text: str) -> list[tuple[str, str | bytes | None]]:
    """Parse headers, one on a line."""
    headers: list[tuple[str, str | bytes | None]] = []
    for line in filter(str.strip, text.splitlines()):
        name, separator, content = line.partition("=")
        if not separator or not name.strip():
            raise BadRequest("A header is NAME=VALUE, one on a line.")
        if "\0" in name:
            raise BadRequest("The name of a header has a NUL, which cannot be written.")
        headers.append((name.strip(), content))
    if len(headers) > _MAX_HEADERS:
        raise BadRequest(f"At most {_MAX_HEADERS} headers.")
    return headers


async def redrive(
    tools: Tools,
    *,
    queue: Annotated[str, About("Dead-letter queue")],
    source: Annotated[str, About("Source topic", "all")] = "",
    group_id: Annotated[str, About("Group", "all")] = "",
    key: Annotated[str, About("Key", "any")] = "",
    rate: Annotated[int, About("Records a second", "no limit")] = 0,
    max: Annotated[int, About("At most", "all")] = 0,
    max_redrives: Annotated[int, About("Skip after so many redrives", "3")] = 3,
) -> Plan:
    """Redrive the dead letters of a queue to their sources."""
    await tools.cluster.topics([queue])
    options = RedriveOptions(
        max_redrives=max_redrives, records_per_s=rate or None, max_records=max or None
    )
    chosen = LetterFilter(
        sources=(source,) if source else (),
        groups=(group_id,) if group_id else (),
        key=key.encode() or None,
    )
    work = Redrive(tools.producer_config, queue, chosen, options)
    changes = redrive_changes(await tools.redrives.plan(work))
    if not changes:
        raise BadRequest("No such dead letters are pending in this queue.")

    async def execute() -> str:
        return await tools.redrives.run(work)

    return Plan(
        f"Redrive the dead letters of queue {queue!r} to their sources",
        changes,
        execute,
        [
            f"Records that were redriven {max_redrives} times before are skipped.",
            f"The progress is kept as the offsets of group {work.group_id!r}, so that the next "
            "redrive continues where an interrupted one ended.",
        ],
    )


ACTIONS = {
    action.name: action
    for action in (
        Action("reset-offsets", "Set offsets", "READ on the group and topics", reset_offsets),
        Action("delete-offsets", "Delete offsets", "DELETE on the group", delete_offsets),
        Action("set-config", "Change a setting", "ALTER_CONFIGS on the group", set_config),
        Action("release", "Release held records", "READ on the group and topic", release),
        Action("produce", "Produce a record", "WRITE on the topic", produce),
        Action(
            "redrive",
            "Redrive its dead letters",
            "READ on the queue and sources, WRITE on the sources and a transactional id",
            redrive,
        ),
    )
}
