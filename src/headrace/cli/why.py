"""``headrace why``: say in one paragraph why a group is slow, or that nothing is wrong."""

from __future__ import annotations

import asyncio
import math
import time
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

from headrace.amounts import count_of, duration
from headrace.protocol.partitions import TopicPartition

from .client_options import call_options, on_cluster
from .clients import (
    Cluster,
    configs,
    errors,
    letters,
    model,
    reading,
    share_state,
    watch,
    work,
    workers,
)
from .errors import fail_with
from .nouns import command
from .options import arg, seconds_option
from .output import Output, output_option
from .tables import one_line

_NAMED = 3
"""The number of partitions, holders or workers of one kind that are named."""
_LINE_CHARS = 100
_BUSY = 0.9
_LETTER_MS, _REASON_CHARS = 300_000, 300
"""The age up to which a dead letter is told, and how much of its reason."""
_LOCK_MS, _DELIVERIES, _LOCKS = _LIMITS = (
    *("share.record.lock.duration.ms", "share.delivery.count.limit"),
    "share.partition.max.record.locks",
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of a group over some seconds.

    :param group: at the end, with its partitions and its trend
    :param at_ms: the end, since the epoch
    :param stuck: the partitions in which nothing was finished meanwhile
    :param states: what is in flight in a share group on headrace; empty for others
    :param late: the records that were acknowledged after their locks meanwhile
    :param limits: config → its number, of a share group on headrace
    :param tasks: what workers tell of their tasks for this group
    :param letter: the newest dead letter of a share group without workers, if it is new
    """

    group: model.GroupLag
    over_s: float
    at_ms: int
    stuck: Collection[TopicPartition]
    states: Mapping[TopicPartition, share_state.SharePartitionState]
    late: int
    limits: Mapping[str, int]
    tasks: Sequence[tuple[workers.SeenWorker, workers.TaskState]]
    letter: letters.DeadLetter | None = None


@command(
    "say why a group is slow: rates, stuck partitions, who holds what, failures",
    arg("group", "GROUP", "id of the group"),
    seconds_option("--over", "time for which the group is watched", 6.0),
    output_option,
    call_options,
    examples="headrace why packers\nheadrace why billing --over 30\n"
    "headrace why packers -o json | jq '.[0].reasons'",
)
def run(options: Namespace) -> None:
    """Execute the command.

    :raises Failure: a part is unknown
    :raises ClientError: the group does not exist, or no broker answers
    """
    on_cluster(options, lambda cluster: _explain(cluster, options))


async def _explain(cluster: Cluster, options: Namespace) -> None:
    seen, problems = await look(cluster, options.group, options.over)
    told, why = summary(seen), list(reasons(seen))
    output = Output(options.output)
    if output.is_json:
        output.rows([{**model.summary(seen.group), "summary": told, "reasons": why}])
    else:
        print(fill(one_line(" ".join([told, *(why or ["Nothing is wrong."])])), _LINE_CHARS))
    fail_with(problems)


async def look(cluster: Cluster, group_id: str, over_s: float) -> tuple[Evidence, list[str]]:
    """Watch a group.

    :returns: what was seen, and what could not be seen
    :raises UnknownGroup: it does not exist
    """
    lags = watch.LagWatch(cluster, model.LagQuery(groups=(group_id,)))

    async def take() -> tuple[model.GroupLag, list[str], dict[TopicPartition, Any]]:
        parts: list[model.GroupLag] = []
        seen = await lags.snapshot(parts.extend)
        if not parts:
            raise errors.ClientError("; ".join(seen.warnings))
        keys = [lag.key for lag in parts[0].partitions if parts[0].type == "share"]
        states = await share_state.share_states(cluster, group_id, keys) if keys else {}
        return replace(seen.groups[0], partitions=parts[0].partitions), list(seen.warnings), states

    before, _, states_before = await take()
    await asyncio.sleep(over_s)
    group, problems, states = await take()
    standstills = work.Standstills()
    for at_s, state in ((0.0, before), (over_s, group)):
        standstills.begin(at_s)
        standstills.add([state])
        stuck = standstills.end(least_s=over_s)
    states = {key: state for key, state in states.items() if state.spans is not None}
    late = [
        (state.late_count or 0) - (states_before[key].late_count or 0)
        for key, state in states.items()
        if key in states_before
    ]
    limits = {
        name: int(text)
        for name in (_LIMITS if states else ())
        if (text := await configs.share_group_config(cluster, group_id, name))
    }
    tasks = [
        (worker, task)
        for worker in await workers.WorkerWatch(cluster).look_or_tell(problems)
        for task in worker.state.tasks
        if task.group_id == group_id
    ]
    letter, at_ms = None, time.time_ns() // 1_000_000
    if group.type == "share" and not tasks:  # workers tell their failures
        try:
            letter = await reading.newest_letter(cluster, group_id, at_ms - _LETTER_MS)
        except errors.ClientError as error:
            problems.append(f"the dead letters are unknown: {error}")
    return Evidence(
        group,
        over_s,
        at_ms,
        stuck.get(group_id, ()),
        states,
        max(0, sum(late)),
        limits,
        tasks,
        letter,
    ), problems


def summary(seen: Evidence) -> str:
    """Return what a group has to do, its rates, and when it catches up. Pure."""
    group, lag = seen.group, seen.group.lag
    members = f"{group.state.lower()}, {count_of(len(group.members), 'member')}"
    records = "records" if lag.records is None else count_of(lag.records, "record")
    told = f"{group.type.capitalize()} group '{group.group_id}' ({members}) has {records} to finish"
    told += f" in {count_of(lag.partitions, 'partition')}"
    if lag.seconds:
        told += f", the oldest {duration(lag.seconds)} old"
    if lag.unknown:
        told += f"; in {lag.unknown:,} of them the lag is unknown"
    if lag.done_per_s is not None and lag.produced_per_s is not None:
        told += f". It finishes {lag.done_per_s:,.1f} records a second, "
        told += f"and {lag.produced_per_s:,.1f} come"
    left_s = lag.seconds_to_zero
    # Where nothing comes, a group that finishes nothing stands still, for a reason below.
    if lag.records and left_s is not None and (lag.produced_per_s or left_s < math.inf):
        forecast = (
            "does not catch up" if left_s == math.inf else f"catches up in {duration(left_s)}"
        )
        told += f": it {forecast}"
    return f"{told}."


def reasons(seen: Evidence) -> Iterator[str]:
    """Yield a sentence about each thing that slows a group down, the strongest first. Pure."""
    group = seen.group
    behind = [lag for lag in group.partitions if lag.records != 0]
    if behind and not group.members:
        yield "It has no members: start a consumer."
        return
    yield from _task_reasons(seen)
    if alone := [_name(lag.key) for lag in behind if not lag.members]:
        yield f"No member has {_listed(alone)}."
    if group.idle:
        idle = f"{len(group.idle)} of {count_of(len(group.members), 'member')}"
        yield f"Without a partition: {idle}; partitions: {len(group.partitions)}."
    if stuck := [lag for lag in behind if lag.members and lag.key in seen.stuck]:
        told = _listed([f"{_name(lag.key)} ({_holders(seen, lag)})" for lag in stuck])
        yield f"Nothing was finished for {duration(seen.over_s)} in {told}."
    elif (
        group.lag.seconds_to_zero == math.inf
        and group.lag.produced_per_s
        and all(task.breaker == "closed" for _, task in seen.tasks)
    ):
        limit = "" if group.type == "share" else ", up to one for each partition"
        yield f"Its members work, but more comes than they finish: add members{limit}."
    yield from _share_reasons(seen)


def _holders(seen: Evidence, lag: model.PartitionLag) -> str:
    """Return who holds records of a partition, and since when."""
    state = seen.states.get(lag.key)
    names = [member.client_id or member.member_id for member in lag.members]
    members = _listed(names)
    if state is None:
        return members
    held = []
    for hold in share_state.holds(state.spans or (), lag.members):
        told = f"{hold.holder} holds {count_of(hold.record_count, 'record')}"
        if _LOCK_MS in seen.limits:
            age_ms = max(0, seen.limits[_LOCK_MS] - hold.remaining_ms)
            told += f", locked {duration(age_ms / 1000)} ago"
        held.append(told)
    if held:
        return _listed(held)
    told = f"nobody holds records; assigned to {members}"
    alive = {
        f"{task.task}@{worker.state.worker}"
        for worker, task in seen.tasks
        if worker.age_ms <= workers.OLD_MS
    }
    return told if alive.issuperset(names) else f"{told}: if killed, until the session ends"


def _share_reasons(seen: Evidence) -> Iterator[str]:
    """Yield a sentence about each thing that headrace's broker tells of a share group."""
    spans = [span for state in seen.states.values() for span in state.spans or ()]
    if waiting := [span for span in spans if span.state == "waiting"]:
        longest_ms = max(span.remaining_ms or 0 for span in waiting)
        yield f"{_count(waiting)} released, due in {duration(longest_ms / 1000)} at most."
    if again := [span for span in spans if span.delivery_count > 1]:
        most = max(span.delivery_count for span in again)
        limit = seen.limits.get(_DELIVERIES, "unknown")
        applies = f"the limit is {limit}"
        if seen.tasks:  # workers write a record again before
            applies = f"the task's attempts are the limit, not the broker's {limit} deliveries"
        yield f"{_count(again)} delivered up to {most} times; {applies}."
    if full := [
        _name(key)
        for key, state in seen.states.items()
        if state.spans
        and (state.end_offset or 0) - state.spans[0].first_offset
        >= seen.limits.get(_LOCKS, math.inf)
    ]:
        limit = f"{seen.limits[_LOCKS]:,} records ({_LOCKS})"
        yield f"As many as may be are in flight in {_listed(full)}, {limit}: new ones wait."
    if seen.late:
        yield (
            f"{count_of(seen.late, 'acknowledgement')} came after the end of the lock, so records "
            f"come again: work takes longer than {_LOCK_MS}."
        )
    if seen.letter is not None and seen.letter.message:
        letter, reason = seen.letter, seen.letter.message[:_REASON_CHARS].rstrip(".")
        ago = duration(max(0, seen.at_ms - letter.timestamp_ms) / 1000)
        place = f"{_name(letter.source)} offset {letter.source_offset}"
        yield f"Last dead-lettered, {ago} ago: {place}: {reason}."


def _task_reasons(seen: Evidence) -> Iterator[str]:
    """Yield a sentence about each thing that its workers tell."""
    for worker, task in seen.tasks[:_NAMED]:
        name = f"Worker {worker.state.worker}"
        if worker.age_ms > workers.OLD_MS:
            yield f"{name} is silent for {duration(worker.age_ms / 1000)}."
            continue
        if task.breaker != "closed":
            yield f"{name} pauses {task.task}, as most fail: {task.breaker_reason}."
        if task.occupancy >= _BUSY:
            yield f"{name} is busy in all {count_of(task.slots, 'slot')}."
        for record in task.records[:1]:
            age_s = (seen.at_ms - record.since_ms) / 1000
            if age_s > seen.over_s and _may_be_held(seen, record):
                yield f"{name} works on {_place(record)} for {duration(age_s)}."
        for failure in task.failures[:1] if task.failed_per_s else ():
            yield f"{name} failed last with {_place(failure)}: {failure.reason} ({failure.fate})."


def _may_be_held(seen: Evidence, record: workers.RunningRecord) -> bool:
    """Return whether a worker may still process a record: one that was killed told so, too."""
    state = seen.states.get((record.topic, record.partition))
    return (
        state is None
        or state.is_cut
        or any(
            span.state == "locked" and span.first_offset <= record.offset <= span.last_offset
            for span in state.spans or ()
        )
    )


def _place(record: workers.RunningRecord | workers.Failure) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset} (attempt {record.attempt})"


def _count(spans: Sequence[share_state.Span]) -> str:
    count = sum(span.record_count for span in spans)
    return f"{count_of(count, 'record')} {'was' if count == 1 else 'were'}"


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
