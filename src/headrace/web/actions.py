"""Actions: each is a function whose parameters are the fields of its form and of its JSON, and
whose result is a plan that shows what would change; executing it changes just that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from headrace.amounts import count_of, size
from headrace.client import offsets, topics
from headrace.client.configs import ConfigType, alter_configs, describe_config
from headrace.client.dead_letters.letters import LetterFilter
from headrace.client.dead_letters.redrive import Redrive, RedriveOptions
from headrace.client.errors import ClientError, UnknownGroup, raised
from headrace.client.lag.model import LagQuery
from headrace.client.lag.snapshot import snapshot
from headrace.client.share_state import release_records, share_states
from headrace.positions import position
from headrace.protocol.partitions import TopicPartition

from .errors import BadRequest, NotThere
from .observation import NOTHING_SEEN
from .plans import Plan, redrive_changes
from .record_views import MAX_SPANS_OF_RECORD
from .schemas import about, parsed, parsed_text, text, whole
from .site import Site
from .texts import exact, short
from .views import Change

_ANY_PARTITION = -1
_MAX_PARTITION = (1 << 31) - 1
_PRODUCE_S = 10.0
_MAX_CHANGES = 1000
_MAX_HEADERS = 100
_MAX_VALUE_CHARS = 1 << 20
"""No request is larger."""

GroupId = Annotated[str, text("the group")]
Topic = Annotated[str, text("the topic")]
Partition = Annotated[int, whole("the partition", most=_MAX_PARTITION)]


class Action(NamedTuple):
    """An action.

    :param needs: the permissions that it takes in the cluster
    :param make_plan: makes its plan; its keyword-only parameters are the fields
    """

    name: str
    needs: str
    make_plan: Callable[..., Awaitable[Plan]]

    async def plan(self, site: Site, fields: Mapping[str, object]) -> Plan:
        """Return its plan.

        :raises BadRequest: a field is missing or wrong
        :raises NotThere: what it names does not exist
        :raises ClientError: the cluster refuses or does not answer
        """
        plan = await self.make_plan(site, **parsed(self.make_plan, fields))
        plan.action = self.name
        return plan


# Offsets ------------------------------------------------------------------------------------------


async def _idle_group(
    site: Site, group_id: str, topic: str, partition: int | None = None
) -> tuple[bool, dict[TopicPartition, int | None]]:
    """Return whether a group is a share group, and its offsets in the chosen partitions.

    :raises UnknownGroup: the group does not exist
    :raises BadRequest: the group has members
    """
    query = LagQuery(groups=(group_id,), time_lag=False, complete_counts=False)
    groups = (await snapshot(site.cluster, query)).groups
    if not groups:
        raise UnknownGroup(group_id)
    (group,) = groups
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
    site: Site,
    *,
    group_id: GroupId,
    topic: Topic = "",
    partition: Partition | None = None,
    to: Annotated[str, text("earliest, latest, an offset or -1h")],
) -> Plan:
    """Set the offsets of a group without members to earliest, latest, an offset, or a time."""
    cluster = site.cluster
    is_share, before = await _idle_group(site, group_id, topic, partition)
    keys = list(before)
    if topic and not keys:  # new to the group
        leaders = (await cluster.topics([topic]))[topic].leaders
        keys = [(topic, number) for number in sorted(leaders) if partition in (None, number)]
    if not keys:
        raise BadRequest("The group has no such partitions: name a topic.")
    if len(keys) > _MAX_CHANGES:
        raise BadRequest(f"At most {_MAX_CHANGES} partitions at a time: name a topic.")
    positions = dict.fromkeys(keys, parsed_text(position, to.strip()))
    targets = raised(await offsets.offsets_of_positions(cluster, positions))

    async def execute() -> str:
        change = offsets.alter_share_offsets if is_share else offsets.commit_offsets
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


async def delete_offsets(site: Site, *, group_id: GroupId, topic: Topic) -> Plan:
    """Delete the offsets of a group without members in a topic."""
    cluster = site.cluster
    is_share, before = await _idle_group(site, group_id, topic)
    if not before:
        raise NotThere(f"The group has no offsets in topic {topic!r}.")

    async def execute() -> str:
        if is_share:
            raised(await offsets.delete_share_offsets(cluster, group_id, [topic]))
        else:
            raised(await offsets.delete_offsets(cluster, group_id, before))
        return f"the offsets of {count_of(len(before), 'partition')} are deleted"

    return Plan(
        f"Delete the offsets of group {group_id!r} in topic {topic!r}",
        [Change(f"{topic}-{number}", exact(at), "none") for (_, number), at in before.items()],
        execute,
        ["The group will begin there as a new one does."],
    )


# Settings -----------------------------------------------------------------------------------------


async def set_config(
    site: Site,
    *,
    group_id: GroupId = "",
    topic: Topic = "",
    name: Annotated[str, text("the name of the setting")],
    value: Annotated[str, text("without it, its default")] = "",
) -> Plan:
    """Change a setting of a group or a topic; without a value it gets its default."""
    if bool(group_id) == bool(topic):
        raise BadRequest("Name either a group or a topic.")
    cluster = site.cluster
    kind = ConfigType.GROUP if group_id else ConfigType.TOPIC
    entity, name, value = group_id or topic, name.strip(), value.strip()
    changes = {name: value or None}
    before = (await describe_config(cluster, kind, entity, [name])).get(name)
    await alter_configs(cluster, kind, entity, changes, validate_only=True)

    async def execute() -> str:
        await alter_configs(cluster, kind, entity, changes)
        return f"{name} is {value or 'at its default'}"

    change = Change(name, before or "empty", value or "its default")
    return Plan(f"Set {name} of {kind.name.lower()} {entity!r}", [change], execute)


# Topics -------------------------------------------------------------------------------------------


async def create_topic(
    site: Site,
    *,
    topic: Topic,
    partitions: Annotated[int, whole("their number", least=1, most=_MAX_PARTITION)] | None = None,
) -> Plan:
    """Create a topic."""
    new = topics.NewTopic(topic, -1 if partitions is None else partitions)
    await topics.create_topic(site.cluster, new, validate_only=True)

    async def execute() -> str:
        await topics.create_topic(site.cluster, new)
        return "created"

    count = "the broker's default" if partitions is None else str(partitions)
    return Plan(f"Create topic {topic!r}", [Change("partitions", "", count)], execute)


async def delete_topic(site: Site, *, topic: Topic) -> Plan:
    """Delete a topic with all its records."""
    leaders = (await site.cluster.topics([topic]))[topic].leaders
    seen = site.observer.observation or NOTHING_SEEN
    summary = seen.topics.get(topic)
    changes = [Change("partitions", str(len(leaders)), "none")]
    if summary is not None and summary.size_bytes is not None:
        changes.append(Change("size", size(summary.size_bytes), "none"))
    changes += [
        Change(f"group {group.group_id}", f"lag {exact(group.lag)}", "loses the topic")
        for group in seen.readers(topic)[:_MAX_CHANGES]
    ]

    async def execute() -> str:
        raised(await topics.delete_topics(site.cluster, [topic]))
        return "deleted"

    return Plan(f"Delete topic {topic!r}", changes, execute, ["All its records are lost."])


# Records ------------------------------------------------------------------------------------------


async def release(
    site: Site,
    *,
    group_id: GroupId,
    topic: Topic,
    partition: Partition,
    first: Annotated[int, whole("the first offset")],
    last: Annotated[int, whole("the last offset; without it, the first one")] | None = None,
) -> Plan:
    """Release records that members of a share group hold (headrace only)."""
    last = first if last is None else last
    key = (topic, partition)
    state = (await share_states(site.cluster, group_id, [key], MAX_SPANS_OF_RECORD)).get(key)
    if state is None or state.spans is None:
        raise BadRequest("This broker cannot release records that members hold.")
    held = [
        span
        for span in state.spans
        if span.state == "locked" and span.last_offset >= first and span.first_offset <= last
    ]
    if not held:
        raise BadRequest("No member holds a record of this range.")
    clients = (site.observer.observation or NOTHING_SEEN).clients

    async def execute() -> str:
        await release_records(site.cluster, group_id, key, first, last)
        return "released"

    return Plan(
        f"Release the records {first} to {last} of {topic}-{partition} in group {group_id!r}",
        [
            Change(
                f"{topic}-{partition} {max(first, span.first_offset)} to "
                f"{min(last, span.last_offset)}",
                f"held by {clients.get(span.member_id or '') or span.member_id}",
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
    site: Site,
    *,
    topic: Topic,
    key: Annotated[str, text("without it, null")] = "",
    partition: Annotated[int, whole("without it, by key", most=_MAX_PARTITION)] | None = None,
    value: Annotated[str, text("the value", _MAX_VALUE_CHARS)] = "",
    tombstone: Annotated[bool, about("null instead of the value")] = False,
    headers: Annotated[str, text("NAME=VALUE, one on a line", _MAX_VALUE_CHARS)] = "",
) -> Plan:
    """Produce a record."""
    numbers = (await site.cluster.topics([topic]))[topic].leaders
    if partition is not None and partition not in numbers:
        raise BadRequest(f"Topic {topic!r} has no partition {partition}.")
    key_bytes = key.encode() or None
    value_bytes = None if tombstone else value.encode()
    pairs = _headers(headers)

    def send() -> str:
        """Produce the record, and wait until it is written."""
        reports: list[Any] = []
        producer = Producer(
            {**site.producer_config, "acks": "all", "message.timeout.ms": int(_PRODUCE_S * 1000)}
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

    new = {
        "topic": topic,
        "partition": "by the key" if partition is None else str(partition),
        "key": "null" if key_bytes is None else short(key_bytes, 200),
        "value": "null" if value_bytes is None else short(value_bytes, 500),
    }
    changes = [Change(what, "", text) for what, text in new.items()]
    changes += [Change(f"header {name}", "", str(content)) for name, content in pairs]
    return Plan(f"Produce a record to topic {topic!r}", changes, lambda: asyncio.to_thread(send))


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
    site: Site,
    *,
    queue: Annotated[str, text("the dead-letter queue")],
    partition: Annotated[int, whole("of the queue; all without it")] | None = None,
    offset: Annotated[int, whole("only the letter at this offset")] | None = None,
) -> Plan:
    """Redrive the dead letters of a queue to their sources."""
    await site.cluster.topics([queue])
    options = RedriveOptions()
    chosen = LetterFilter(
        partitions=() if partition is None else (partition,),
        from_offset=offset or 0,
        to_offset=None if offset is None else offset + 1,
    )
    work = Redrive(site.producer_config, queue, chosen, options)
    changes = redrive_changes(await site.redrives.plan(work))
    if not changes:
        raise BadRequest("No such dead letters are pending in this queue.")

    return Plan(
        f"Redrive the dead letters of queue {queue!r} to their sources",
        changes,
        lambda: site.redrives.run(queue, work),
        [
            f"Records that were redriven {options.max_redrives} times before are skipped.",
            f"The progress is kept as the offsets of group {work.group_id!r}, so that the next "
            "redrive continues where an interrupted one ended.",
        ],
    )


ACTIONS = {
    action.name: action
    for action in (
        Action("reset-offsets", "READ on the group and topics", reset_offsets),
        Action("delete-offsets", "DELETE on the group", delete_offsets),
        Action("set-config", "ALTER_CONFIGS on the group or topic", set_config),
        Action("create-topic", "CREATE on the topic", create_topic),
        Action("delete-topic", "DELETE on the topic", delete_topic),
        Action("release", "READ on the group and topic", release),
        Action("produce", "WRITE on the topic", produce),
        Action(
            "redrive",
            "READ on the queue and sources, WRITE on the sources and a transactional id",
            redrive,
        ),
    )
}
