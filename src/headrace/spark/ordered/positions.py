"""Which partitions make up which task of ``kafka-ordered``, and at which offsets reading begins and
ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headrace.protocol.partitions import TopicPartition
from headrace.spark.option_parsing import SourceError

from .log import BrokerLog
from .options import COMMITTED, EARLIEST, IN_JSON, LATEST, Bound
from .plan import Inputs, Offsets, cut

_log = logging.getLogger(__name__)


def all_partitions(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of topics that have so many of them."""
    return [(topic, partition) for topic, count in topics.items() for partition in range(count)]


def tasks_of(topics: Mapping[str, int]) -> dict[int, tuple[TopicPartition, ...]]:
    """Task → the partition of its number of every topic that has one, in the order of the
    topics."""
    tasks: dict[int, list[TopicPartition]] = {}
    for topic, count in topics.items():
        for partition in range(count):
            tasks.setdefault(partition, []).append((topic, partition))
    return {task: tuple(tasks[task]) for task in sorted(tasks)}


def check_equal_counts(topics: Mapping[str, int]) -> None:
    """See that records with the same key are in the same task, whatever their topic.

    :raises SourceError: the topics differ in their number of partitions
    """
    if len(set(topics.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in topics.items())
        raise SourceError(
            f"the topics must have equally many partitions, as task i merges partition i of "
            f"each, but {counts}: "
            "add partitions, or read them apart"
        )


def resolve(
    log: BrokerLog,
    bound: Bound,
    partitions: Sequence[TopicPartition],
    group_id: str | None,
    *,
    fail: bool,
) -> Offsets:
    """The offsets that a bound means; without partitions whose leader does not answer.

    :param group_id: whose committed offsets ``committed`` means
    :param fail: refuse offsets beyond the end of a log; otherwise there is a warning for each, and
        reading begins at the start of that log, or ends at its end
    :raises SourceError: that, or the bound does not say something about each partition, or says
        more
    """
    times = bound.timestamps_ms
    if bound.timestamp_ms is not None:
        return _at(log, dict.fromkeys(partitions, bound.timestamp_ms))
    if times is not None:
        return _at(log, _one_each(f"{bound.which}OffsetsByTimestamp", times, partitions))
    if bound.offsets is not None:
        option = f"{bound.which}Offsets"
        wanted = _one_each(option, bound.offsets, partitions)
        at_ends = [p for p, n in wanted.items() if IN_JSON.get(n) == LATEST]
        at_starts = [p for p, n in wanted.items() if IN_JSON.get(n) == EARLIEST]
        said = {p: n for p, n in wanted.items() if n not in IN_JSON}
        reached = _within(
            log,
            said,
            f"option {option} says",
            "say an offset up to that, or -1 for the end",
            bound,
            fail,
        )
        return reached | log.ends(at_ends) | log.starts(at_starts)
    if bound.at == COMMITTED:
        assert group_id is not None
        committed = log.committed(group_id, partitions)
        by = f"group '{group_id}' has committed"
        return log.starts(partitions) | _within(
            log, committed, by, "reset the group's offsets", bound, fail
        )
    return log.starts(partitions) if bound.at == EARLIEST else log.ends(partitions)


def _at(log: BrokerLog, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
    partitions = tuple(timestamps_ms)
    starts, ends = log.starts(partitions), log.ends(partitions)
    known = tuple(p for p in partitions if p in starts and p in ends)
    return cut(log, Inputs(known, starts, ends), {p: timestamps_ms[p] for p in known}).reached


def _within(
    log: BrokerLog, offsets: Offsets, who: str, remedy: str, bound: Bound, fail: bool
) -> Offsets:
    """Offsets that somebody has said, with those that lie beyond the ends of their logs put right,
    or refused.
    """
    ends = log.whole_ends(tuple(offsets))
    beyond = [p for p, end in ends.items() if end < offsets[p]]
    instead, where = (
        (log.starts(beyond), "begin at its start")
        if bound.which == "starting"
        else (ends, "end there")
    )
    for partition in beyond:
        topic, number = partition
        problem = (
            f"{who} {offsets[partition]} for {topic}-{number}, but its log ends at "
            f"{ends[partition]}"
        )
        if fail:
            raise SourceError(f"{problem}: {remedy}; or set failOnDataLoss=false to {where}")
        _log.warning("%s: failOnDataLoss=false has the query %s", problem, where)
    return offsets | {p: instead[p] for p in beyond if p in instead}


def _one_each(
    option: str, given: Mapping[str, Mapping[int, int]], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    said = {
        (topic, partition): n
        for topic, numbers in given.items()
        for partition, n in numbers.items()
    }
    missing = [p for p in partitions if p not in said]
    unknown = [p for p in said if p not in partitions]
    for found, problem in (
        (missing, "lacks {}: name every partition of every topic"),
        (unknown, "names {}, which is not there or not subscribed: leave it out, or correct it"),
    ):
        if found:
            topic, partition = found[0]
            raise SourceError(f"option {option} {problem.format(f'{topic}-{partition}')}")
    return said
