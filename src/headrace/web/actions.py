"""Changes. Each is first a plan that shows what would change; executing it changes just that."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigType, alter_configs, describe_config
from headrace.client.dead_letters.letters import LetterFilter
from headrace.client.dead_letters.originals import Evidence
from headrace.client.dead_letters.redrive import RedriveOptions
from headrace.client.errors import ClientError
from headrace.client.lag.rows import LagRow
from headrace.client.list_offsets import EARLIEST, LATEST, list_offsets
from headrace.client.offset_commits import commit_offsets
from headrace.client.offsets import alter_share_offsets, delete_offsets, delete_share_offsets
from headrace.client.share_state import release_records, share_states
from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.share_inspection import SpanState

from .groups import group_rows
from .limits import MAX_LOGGED_ACTIONS, MAX_PLANS, MAX_SPANS_OF_RECORD, PLAN_S
from .redriving import Redrives, skipped
from .requests import BadRequest, NotThere, time_of
from .texts import count_of, short, whole

log = get_logger("headrace.ui")

_ANY_PARTITION = -1
_MAX_PARTITION = (1 << 31) - 1
_PRODUCE_S = 10.0
_MAX_CHANGES = 1000
_MAX_HEADERS = 100


class Change(NamedTuple):
    """One thing that an action changes."""

    what: str
    before: str
    after: str


@dataclass(slots=True)
class Plan:
    """An action that is ready to be executed.

    :ivar action: its name
    :ivar title: a sentence, in the imperative
    :ivar changes: what would change
    :ivar cautions: warnings about the change, one line each
    :ivar execute: makes the change, and returns a sentence about it
    :ivar back: the address of the page to return to
    """

    action: str
    title: str
    changes: Sequence[Change]
    execute: Callable[[], Awaitable[str]] = field(repr=False)
    cautions: Sequence[str] = ()
    back: str = "/"


class Done(NamedTuple):
    """An action that was executed, for the list of actions.

    :param error: None if it succeeded
    """

    time_ms: int
    user: str
    action: str
    title: str
    outcome: str
    error: str | None


class Plans:
    """The plans that wait for confirmation, and the actions that were executed.

    :param clock_s: a steady clock
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._waiting: OrderedDict[str, tuple[str, float, Plan]] = OrderedDict()
        self.done: deque[Done] = deque(maxlen=MAX_LOGGED_ACTIONS)

    def keep(self, user: str, plan: Plan) -> str:
        """Keep a plan until it is confirmed, and return its id."""
        while len(self._waiting) >= MAX_PLANS:
            self._waiting.popitem(last=False)
        plan_id = secrets.token_urlsafe(24)
        self._waiting[plan_id] = (user, self._clock_s() + PLAN_S, plan)
        return plan_id

    def take(self, user: str, plan_id: str) -> Plan | None:
        """Remove and return a plan of a user; None if there is none, or it has expired."""
        owner, until_s, plan = self._waiting.get(plan_id, ("", 0.0, None))
        if plan is None or owner != user:
            return None
        del self._waiting[plan_id]
        return plan if self._clock_s() < until_s else None

    async def execute(self, user: str, host: str, plan: Plan) -> str:
        """Execute a plan, and log it.

        :param host: the address of the user
        :returns: a sentence about it
        :raises ClientError: the cluster refuses or does not answer
        """
        log_line(user, host, f"has begun {plan.action}", plan.title)
        outcome, error = "", None
        try:
            outcome = await plan.execute()
        except (ClientError, KafkaException) as failure:
            error = str(failure)
            raise ClientError(error) from failure
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            now_ms = time.time_ns() // 1_000_000
            self.done.appendleft(Done(now_ms, user, plan.action, plan.title, outcome, error))
            if error is None:
                log_line(user, host, f"has done {plan.action}", f"{plan.title}: {outcome}")
            else:
                log_line(user, host, f"has failed in {plan.action}", f"{plan.title}: {error}")
        return outcome


def log_line(user: str, host: str, deed: str, detail: str = "") -> None:
    """Log what a user of the page has done; in the form of the broker's log of changes."""
    log.info("User %s %s from host %s%s", user, deed, host, f": {detail}" if detail else "")


Form = Mapping[str, str]


class Planner:
    """A factory of the plans of all actions.

    :param producer_config: librdkafka's configuration, for records to produce
    """

    def __init__(self, cluster: Cluster, producer_config: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._producer_config = producer_config
        self.redrives = Redrives(producer_config)
        self._actions: Mapping[str, Callable[[Form], Awaitable[Plan]]] = {
            "reset-offsets": self._reset_offsets,
            "delete-offsets": self._delete_offsets,
            "set-config": self._set_config,
            "release": self._release,
            "produce": self._produce,
            "redrive": self._redrive,
        }

    async def plan(self, action: str, form: Form) -> Plan:
        """Return the plan of an action.

        :param action: a key of :data:`headrace.web.openapi.ACTIONS`
        :raises BadRequest: a field is missing or wrong
        :raises NotThere: what it names does not exist
        :raises ClientError: the cluster refuses or does not answer
        """
        make = self._actions.get(action)
        if make is None:
            raise NotThere(f"There is no action {action!r}.")
        return await make(form)

    # Offsets --------------------------------------------------------------------------------------

    async def _group(self, form: Form) -> tuple[str, str, list[LagRow]]:
        """Return the group id and type that a form names, and the rows of the chosen partitions.

        :raises NotThere: the group does not exist
        :raises BadRequest: the group has members
        """
        group_id = _field(form, "group")
        rows = await group_rows(self._cluster, group_id)
        if not rows:
            raise NotThere(f"The group {group_id!r} does not exist.")
        members = {row.member_id for row in rows if row.member_id is not None}
        if members:
            raise BadRequest(
                f"The group has {count_of(len(members), 'member')}: stop its consumers first. The "
                "cluster changes offsets only of groups without members."
            )
        topic, partition = form.get("topic", ""), form.get("partition", "")
        chosen = [
            row
            for row in rows
            if row.topic is not None
            and (not topic or row.topic == topic)
            and (not partition or row.partition == _whole(form, "partition"))
        ]
        return group_id, rows[0].group_type, chosen

    async def _reset_offsets(self, form: Form) -> Plan:
        group_id, kind, rows = await self._group(form)
        keys = [(row.topic or "", row.partition or 0) for row in rows]
        topic = form.get("topic", "")
        if topic and not keys:  # new to the group
            found = await self._cluster.topics([topic])
            keys = [(topic, number) for number in sorted(found[topic].leaders)]
            if form.get("partition"):
                keys = [key for key in keys if key[1] == _whole(form, "partition")]
        if not keys:
            raise BadRequest("The group has no such partitions: name a topic.")
        before = {
            (row.topic or "", row.partition or 0): row.start_offset
            if kind == "share"
            else row.committed_offset
            for row in rows
        }
        targets = await self._targets(form, keys)
        where = "the oldest record" if form.get("to") == "earliest" else form.get("to", "")

        async def execute() -> str:
            if kind == "share":
                answers = await alter_share_offsets(self._cluster, group_id, targets)
                _raise_first(answers.values())
            else:
                await commit_offsets(self._cluster, group_id, targets)
            return f"{count_of(len(targets), 'partition')} set"

        changes = [
            Change(f"{key[0]}-{key[1]}", whole(before.get(key)), whole(at))
            for key, at in targets.items()
        ]
        cautions = []
        if any((before.get(key) or 0) > at for key, at in targets.items()):
            cautions.append("Records that were finished will be delivered again.")
        if any((b := before.get(key)) is not None and b < at for key, at in targets.items()):
            cautions.append("Records in between will not be delivered.")
        return Plan(
            "reset-offsets",
            f"Set the offsets of group {group_id!r} to {where}",
            changes,
            execute,
            cautions,
        )

    async def _targets(
        self, form: Form, keys: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the new offsets of partitions, within their logs."""
        if len(keys) > _MAX_CHANGES:
            raise BadRequest(f"At most {_MAX_CHANGES} partitions at a time: name a topic.")
        timeout_ms = self._cluster.timeout_ms

        async def at(timestamp: int) -> dict[TopicPartition, int | None]:
            found = await list_offsets(
                self._cluster, dict.fromkeys(keys, timestamp), timeout_ms=timeout_ms
            )
            return {key: one.offset for key, one in found.items()}

        to = form.get("to", "")
        starts, ends = await at(EARLIEST), await at(LATEST)
        if to == "earliest":
            return {key: starts[key] or 0 for key in keys}
        if to == "latest":
            return {key: ends[key] or 0 for key in keys}
        if to == "offset":
            wanted = _whole(form, "offset")
            return {key: min(max(wanted, starts[key] or 0), ends[key] or 0) for key in keys}
        if to == "time":
            since = await at(time_of(_field(form, "time")))
            found = {}
            for key in keys:
                offset = since[key]
                found[key] = (ends[key] or 0) if offset is None else offset
            return found
        raise BadRequest("The field 'to' must be earliest, latest, offset or time.")

    async def _delete_offsets(self, form: Form) -> Plan:
        topic = _field(form, "topic")
        group_id, kind, rows = await self._group({"group": form.get("group", ""), "topic": topic})
        if not rows:
            raise NotThere(f"The group has no offsets in topic {topic!r}.")
        numbers = [row.partition or 0 for row in rows]

        async def execute() -> str:
            answers: Mapping[Any, ClientError | None]
            if kind == "share":
                answers = await delete_share_offsets(self._cluster, group_id, [topic])
            else:
                partitions = [(topic, number) for number in numbers]
                answers = await delete_offsets(self._cluster, group_id, partitions)
            _raise_first(answers.values())
            return f"the offsets of {count_of(len(numbers), 'partition')} are deleted"

        changes = [
            Change(
                f"{topic}-{row.partition}",
                whole(row.start_offset if kind == "share" else row.committed_offset),
                "none",
            )
            for row in rows
        ]
        return Plan(
            "delete-offsets",
            f"Delete the offsets of group {group_id!r} in topic {topic!r}",
            changes,
            execute,
            ["The group will begin there as a new one does."],
        )

    # Settings -------------------------------------------------------------------------------------

    async def _set_config(self, form: Form) -> Plan:
        group_id, name = _field(form, "group"), _field(form, "name").strip()
        value = form.get("value", "").strip()
        changes = {name: value or None}
        cluster = self._cluster
        described = await describe_config(cluster, ConfigType.GROUP, group_id, [name])
        before = described.get(name)
        await alter_configs(cluster, ConfigType.GROUP, group_id, changes, validate_only=True)

        async def execute() -> str:
            await alter_configs(cluster, ConfigType.GROUP, group_id, changes)
            return f"{name} is {value or 'at its default'}"

        return Plan(
            "set-config",
            f"Set {name} of group {group_id!r}",
            [Change(name, before or "empty", value or "its default")],
            execute,
        )

    # Records --------------------------------------------------------------------------------------

    async def _release(self, form: Form) -> Plan:
        group_id, topic = _field(form, "group"), _field(form, "topic")
        key = (topic, _whole(form, "partition"))
        if key[1] > _MAX_PARTITION:
            raise BadRequest(f"There is no partition {key[1]}.")
        first = _whole(form, "first")
        last = _whole(form, "last") if form.get("last") else first
        state = (await share_states(self._cluster, group_id, [key], MAX_SPANS_OF_RECORD)).get(key)
        if state is None or state.spans is None:
            raise BadRequest("This broker cannot release records that members hold.")
        held = [
            one
            for one in state.spans
            if one.state is SpanState.LOCKED
            and one.last_offset >= first
            and one.first_offset <= last
        ]
        if not held:
            raise BadRequest("No member holds a record of this range.")
        changes = [
            Change(
                f"{topic}-{key[1]} {max(first, one.first_offset)} to {min(last, one.last_offset)}",
                f"held by {one.member_id}",
                "available",
            )
            for one in held[:_MAX_CHANGES]
        ]

        async def execute() -> str:
            await release_records(self._cluster, group_id, key, first, last)
            return "released"

        return Plan(
            "release",
            f"Release the records {first} to {last} of {topic}-{key[1]} in group {group_id!r}",
            changes,
            execute,
            [
                "Another member may get them while this one still works on them.",
                "At the delivery limit of the group they are archived instead.",
            ],
        )

    async def _produce(self, form: Form) -> Plan:
        topic = _field(form, "topic")
        numbers = (await self._cluster.topics([topic]))[topic].leaders
        partition = _whole(form, "partition") if form.get("partition") else None
        if partition is not None and partition not in numbers:
            raise BadRequest(f"Topic {topic!r} has no partition {partition}.")
        key = form["key"].encode() if form.get("key") else None
        value = None if form.get("tombstone") else form.get("value", "").encode()
        headers: list[tuple[str, str | bytes | None]] = []
        for line in form.get("headers", "").splitlines():
            if line.strip():
                name, separator, content = line.partition("=")
                if not separator or not name.strip():
                    raise BadRequest("A header is NAME=VALUE, one on a line.")
                if "\0" in name:
                    raise BadRequest("The name of a header has a NUL, which cannot be written.")
                headers.append((name.strip(), content))
        if len(headers) > _MAX_HEADERS:
            raise BadRequest(f"At most {_MAX_HEADERS} headers.")

        async def execute() -> str:
            return await asyncio.to_thread(self._send, topic, partition, key, value, headers)

        changes = [
            Change("topic", "", topic),
            Change("partition", "", "by the key" if partition is None else str(partition)),
            Change("key", "", "null" if key is None else short(key, 200)),
            Change("value", "", "null" if value is None else short(value, 500)),
            *(Change(f"header {name}", "", str(content)) for name, content in headers),
        ]
        return Plan("produce", f"Produce a record to topic {topic!r}", changes, execute)

    async def _redrive(self, form: Form) -> Plan:
        queue = _field(form, "queue")
        await self._cluster.topics([queue])
        options = RedriveOptions(
            max_redrives=_whole(form, "max_redrives") if form.get("max_redrives") else 3,
            records_per_s=_whole(form, "rate") or None if form.get("rate") else None,
            max_records=_whole(form, "max") or None if form.get("max") else None,
        )
        wanted = LetterFilter(
            sources=(form["source"],) if form.get("source") else (),
            groups=(form["group"],) if form.get("group") else (),
            key=form["key"].encode() if form.get("key") else None,
        )
        redrive = self.redrives.redrive(queue, wanted, options)
        counts = await self.redrives.plan(redrive)
        at_least = "at least " if counts.stopped else ""
        changes = [
            Change(source, "", f"{at_least}{count_of(count, 'record')} redriven")
            for source, count in sorted(counts.redriven.items())
        ]
        changes += [
            Change(source, "", f"{count:,} of them {Evidence.UNCOMPARED}")
            for source, count in sorted(counts.uncompared.items())
        ]
        changes += [Change(source, "", text) for text, source in skipped(counts)]
        changes += [
            Change(
                f"{sample.source}-{sample.source_partition}@{sample.source_offset}",
                "",
                f"key {_sample_text(sample.key)}, value {_sample_text(sample.value)} "
                f"({sample.evidence})",
            )
            for sample in counts.samples
        ]
        if not changes:
            raise BadRequest("No such dead letters are pending in this queue.")

        async def execute() -> str:
            return await self.redrives.run(redrive)

        return Plan(
            "redrive",
            f"Redrive the dead letters of queue {queue!r} to their sources",
            changes,
            execute,
            [
                f"Records that were redriven {options.max_redrives} times before are skipped.",
                f"The progress is kept as the offsets of group {redrive.group_id!r}, so that "
                "the next redrive continues where an interrupted one ended.",
            ],
        )

    def _send(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, str | bytes | None]],
    ) -> str:
        """Produce a record, and wait until it is written. This runs in a thread."""
        told: list[str] = []
        errors: list[Any] = []

        def written(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                told.append(
                    f"written to {topic}-{message.partition()} at offset {message.offset()}"
                )

        config = {**self._producer_config, "acks": "all", "message.timeout.ms": "10000"}
        producer = Producer(config)
        where = _ANY_PARTITION if partition is None else partition
        producer.produce(topic, value, key, where, written, headers=headers)
        producer.flush(_PRODUCE_S + 1)
        if errors:
            raise KafkaException(errors[0])
        if not told:
            raise ClientError("the record was not written in time")
        return told[0]


def _raise_first(answers: Any) -> None:
    """Raise the first error among answers, if there is one.

    :raises ClientError: an answer is an error
    """
    for answer in answers:
        if isinstance(answer, ClientError):
            raise answer


def _sample_text(data: bytes | None) -> str:
    return "null" if data is None else repr(short(data, 100))


def _field(form: Form, name: str) -> str:
    value = form.get(name, "")
    if not value:
        raise BadRequest(f"The field {name} is missing.")
    return value


def _whole(form: Form, name: str) -> int:
    text = _field(form, name).strip().replace(",", "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"The field {name} is not a number.")
    return int(text)
