"""Tasks of ``kafka-ordered``, the offsets at which their reading starts and ends, and losses.

A topic may have been deleted, or deleted and created again. A log may end before the query's
position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError
from headrace.spark.ordered.broker_log import BrokerLog, Offsets
from headrace.spark.ordered.options import (
    COMMITTED,
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Bound,
    OrderedOptions,
)
from headrace.spark.ordered.plan import Inputs, cut

_log = get_logger(__name__)


def all_partitions(topics: Mapping[str, int]) -> list[TopicPartition]:
    """Return every partition of topics with the given numbers of partitions."""
    return [(topic, number) for topic, count in topics.items() for number in range(count)]


def tasks_of(partitions: Iterable[TopicPartition]) -> dict[int, tuple[TopicPartition, ...]]:
    """Return task → the partitions of that number, in their order."""
    tasks: dict[int, list[TopicPartition]] = {}
    for topic, number in partitions:
        tasks.setdefault(number, []).append((topic, number))
    return {task: tuple(tasks[task]) for task in sorted(tasks)}


def check_equal_counts(topics: Mapping[str, int]) -> None:
    """Check that records of the same key are in the same task, whatever their topic.

    :raises SourceError: the topics have different numbers of partitions
    """
    problem = unequal_counts(topics)
    if problem is not None:
        raise SourceError(f"{problem}: add partitions, or read the topics separately")


def unequal_counts(topics: Mapping[str, int]) -> str | None:
    """Return a text if topics have different numbers of partitions."""
    if len(set(topics.values())) <= 1:
        return None
    counts = ", ".join(f"{name} has {count}" for name, count in topics.items())
    return (
        "the topics must have equally many partitions, because task i merges partition i of "
        f"each, but {counts}"
    )


def require_known(
    partitions: Sequence[TopicPartition], *answers: Mapping[TopicPartition, int]
) -> None:
    """Check that the brokers have answered for all partitions.

    :param answers: each from partitions to offsets
    :raises SourceError: an answer lacks a partition
    """
    for topic, partition in partitions:
        if any((topic, partition) not in answer for answer in answers):
            raise SourceError(
                f"the leader of {topic}-{partition} does not answer: "
                "check its broker, then start again"
            )


def resolve(
    log: BrokerLog, options: OrderedOptions, bound: Bound, partitions: Sequence[TopicPartition]
) -> Offsets:
    """Return the offsets of a bound; without partitions whose leader does not answer.

    With ``failOnDataLoss`` offsets beyond the end of a log are refused. Otherwise a warning is
    logged for each, and reading starts at the start of that log, or ends at its end.

    :param bound: the start or the end of the options, which :func:`check_names` has accepted
    :raises SourceError: an offset is refused
    """
    fail = options.fail_on_data_loss
    if bound.timestamp_ms is not None:
        return _at_timestamps(log, dict.fromkeys(partitions, bound.timestamp_ms))
    if bound.timestamps_ms is not None:
        return _at_timestamps(log, {p: bound.timestamps_ms[p] for p in partitions})
    if bound.offsets is not None:
        offsets = {p: bound.offsets[p] for p in partitions}
        numbers = {p: offset for p, offset in offsets.items() if offset >= 0}
        source, advice = (
            f"option {bound.which}Offsets has",
            "use an offset up to that, or -1 for the end",
        )
        return (
            _within_logs(log, numbers, source, advice, bound, fail)
            | log.ends([p for p, offset in offsets.items() if offset == LATEST_OFFSET])
            | log.starts([p for p, offset in offsets.items() if offset == EARLIEST_OFFSET])
        )
    if bound.at == COMMITTED:
        assert options.group_id is not None
        committed = log.committed(options.group_id, partitions)
        source, advice = f"group '{options.group_id}' has committed", "reset the group's offsets"
        return log.starts(partitions) | _within_logs(log, committed, source, advice, bound, fail)
    return log.starts(partitions) if bound.at == EARLIEST else log.ends(partitions)


def _at_timestamps(log: BrokerLog, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
    partitions = tuple(timestamps_ms)
    starts, ends = log.starts(partitions), log.ends(partitions)
    inputs = Inputs.bounded(partitions, starts, ends)
    cuts, _ = cut(log, inputs, {p: timestamps_ms[p] for p in inputs.partitions})
    return inputs.until(cuts).reached


def check_bounds(options: OrderedOptions, batch: Inputs) -> None:
    """Check that a batch does not end before it begins, where the user gave both.

    :raises SourceError: it does
    """
    for partition in batch.partitions:
        start, end = batch.starts[partition], batch.ends[partition]
        if start > end and options.start.fixes(partition) and options.end.fixes(partition):
            topic, number = partition
            raise SourceError(
                f"the batch begins at offset {start} of {topic}-{number} and ends before it, at "
                f"{end}: correct the starting or the ending offsets or timestamps"
            )


def _within_logs(
    log: BrokerLog,
    offsets: Offsets,
    source: str,
    advice: str,
    bound: Bound,
    fail_on_data_loss: bool,
) -> Offsets:
    """Correct or refuse offsets beyond the ends of their logs.

    :param source: their origin, the beginning of a sentence, as in ``option startingOffsets has``
    :param advice: what the user can change
    """
    ends = log.high_watermarks(tuple(offsets))
    beyond = [p for p, end in ends.items() if end < offsets[p]]
    if bound.which == "starting":
        instead, remedy = log.starts(beyond), "begin at its start"
    else:
        instead, remedy = ends, "end at its end"
    for partition in beyond:
        topic, number = partition
        problem = (
            f"{source} {offsets[partition]} for {topic}-{number}, "
            f"but its log ends at {ends[partition]}"
        )
        if fail_on_data_loss:
            raise SourceError(f"{problem}: {advice}; or set failOnDataLoss=false to {remedy}")
        _log.warning("%s: failOnDataLoss=false makes the query %s", problem, remedy)
    return offsets | {p: instead[p] for p in beyond if p in instead}


def check_names(bound: Bound, partitions: Collection[TopicPartition]) -> None:
    """Check that an option with partitions names all of them, and no others.

    :raises SourceError: it does not
    """
    existing = set(partitions)
    by_option = {"Offsets": bound.offsets, "OffsetsByTimestamp": bound.timestamps_ms}
    for suffix, named in by_option.items():
        if named is None:
            continue
        option = f"{bound.which}{suffix}"
        for topic, partition in partitions:
            if (topic, partition) not in named:
                raise SourceError(
                    f"option {option} lacks {topic}-{partition}: name every partition of every "
                    "topic"
                )
        for topic, partition in named:
            if (topic, partition) not in existing:
                raise SourceError(
                    f"option {option} names {topic}-{partition}, which does not exist or is not "
                    "subscribed: remove or correct it"
                )


class Readable(NamedTuple):
    """Topics and partitions that a query can read.

    :param topics: the number of partitions of each topic
    :param position: the query's position, without the partitions that no longer exist and those
        that are read from their start again
    :param ends: how far these can be read; without partitions whose leader does not answer
    """

    topics: Mapping[str, int]
    position: Offsets
    ends: Offsets


_CONTINUE, _RESTART = "continue without it", "read it from its start"


def detect_losses(
    log: BrokerLog, position: Mapping[TopicPartition, int], *, fail_on_data_loss: bool
) -> Readable:
    """Compare a query's position with the topics and logs that exist now.

    :param fail_on_data_loss: fail on a loss, instead of logging a warning for each topic or
        partition
    :raises SourceError: there is a loss, and ``fail_on_data_loss``
    :raises ClientError: the cluster does not answer
    """
    topics = log.topics()
    ends = log.ends(
        [(topic, number) for topic, number in position if number < topics.get(topic, 0)]
    )
    beyond = [partition for partition, end in ends.items() if end < position[partition]]
    if beyond:
        # With read_committed, a position that was given by the user or committed by others may lie
        # behind the last stable offset, while a transaction is open. That is no loss.
        high = log.high_watermarks(beyond)
        ends |= {p: max(ends[p], min(position[p], high.get(p, position[p]))) for p in beyond}
    is_shorter = any(ends[partition] < position[partition] for partition in beyond)
    if not is_shorter and not log.replaced and len(ends) == len(position):
        return Readable(topics, dict(position), ends)
    if is_shorter:
        # The topic may have been created again. With fresh metadata its new partitions are read
        # from their start at once, and not a second time later.
        log.expire_metadata()
        topics = log.topics()
    losses = {
        partition: _loss(log, topics, partition, offset, ends.get(partition, offset))
        for partition, offset in position.items()
    }
    readable = {
        partition: position[partition] for partition, loss in losses.items() if loss is None
    }
    for problem, remedy in dict.fromkeys(filter(None, losses.values())):
        if fail_on_data_loss:
            raise SourceError(
                f"{problem}: set failOnDataLoss=false to {remedy}, "
                "or start with a new checkpointLocation"
            )
        _log.warning("%s: failOnDataLoss=false makes the query %s", problem, remedy)
    return Readable(topics, readable, {p: end for p, end in ends.items() if p in readable})


def _loss(
    log: BrokerLog, topics: Mapping[str, int], partition: TopicPartition, position: int, end: int
) -> tuple[str, str] | None:
    """Return what of a partition has been lost, and what the query does about it with
    ``failOnDataLoss=false``.
    """
    topic, number = partition
    if topic not in topics:
        return f"topic '{topic}' no longer exists or is not subscribed", _CONTINUE
    if topic in log.replaced or number >= topics[topic]:
        return f"topic '{topic}' was deleted and created again", _RESTART
    if end < position:
        return f"{topic}-{number} ends at {end}, before this query's position {position}", _RESTART
    return None
