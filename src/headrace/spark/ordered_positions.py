"""Which partitions make up which task of ``kafka-ordered``, and at which offsets reading begins and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .option_parsing import SourceError
from .ordered_log import BrokerLog
from .ordered_options import COMMITTED, EARLIEST, IN_JSON, LATEST, Bound
from .ordered_plan import Inputs, Offsets, TopicPartition, cut


def all_partitions(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of topics that have so many of them."""
    return [(topic, partition) for topic, count in topics.items() for partition in range(count)]


def tasks_of(topics: Mapping[str, int]) -> dict[int, tuple[TopicPartition, ...]]:
    """Task → the partition of its number of every topic that has one, in the order of the topics."""
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
            f"the topics must have equally many partitions, as task i merges partition i of each, but {counts}: "
            "add partitions, or read them apart"
        )


def resolve(log: BrokerLog, bound: Bound, partitions: Sequence[TopicPartition], group_id: str | None) -> Offsets:
    """The offsets that a bound means; without partitions whose leader does not answer.

    :param group_id: whose committed offsets ``committed`` means
    :raises SourceError: the bound does not say something about each partition, or says more
    """
    times = bound.timestamps_ms
    if bound.timestamp_ms is not None:
        return _at(log, dict.fromkeys(partitions, bound.timestamp_ms))
    if times is not None:
        return _at(log, _one_each("OffsetsByTimestamp", times, partitions))
    if bound.offsets is not None:
        wanted = _one_each("Offsets", bound.offsets, partitions)
        at_ends = [p for p, n in wanted.items() if IN_JSON.get(n) == LATEST]
        at_starts = [p for p, n in wanted.items() if IN_JSON.get(n) == EARLIEST]
        said = {p: n for p, n in wanted.items() if n not in IN_JSON}
        return said | log.ends(at_ends) | log.starts(at_starts)
    if bound.at == COMMITTED:
        assert group_id is not None
        return log.starts(partitions) | log.committed(group_id, partitions)
    return log.starts(partitions) if bound.at == EARLIEST else log.ends(partitions)


def _at(log: BrokerLog, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
    partitions = tuple(timestamps_ms)
    starts, ends = log.starts(partitions), log.ends(partitions)
    known = tuple(p for p in partitions if p in starts and p in ends)
    return cut(log, Inputs(known, starts, ends), {p: timestamps_ms[p] for p in known}).reached


def _one_each(
    what: str, given: Mapping[str, Mapping[int, int]], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    said = {(topic, partition): n for topic, numbers in given.items() for partition, n in numbers.items()}
    missing = [p for p in partitions if p not in said]
    unknown = [p for p in said if p not in partitions]
    for found, problem in ((missing, "lacks"), (unknown, "names what is not subscribed or not there:")):
        if found:
            topic, partition = found[0]
            raise SourceError(f"the JSON of starting{what} or ending{what} {problem} {topic}-{partition}")
    return said
