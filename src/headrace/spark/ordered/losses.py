"""Detection of what a query of ``kafka-ordered`` has lost: deleted topics, and records.

A topic may have been deleted, or deleted and created again. A log may end before the query's
position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.log_lines import get_logger
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SourceError

from .broker_log import BrokerLog
from .inputs import Offsets

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Readable:
    """Topics and partitions that a query can read.

    :param topics: the number of partitions of each topic
    :param position: the query's position, without the partitions that no longer exist and those
        that are read from their start again
    :param ends: how far these can be read; without partitions whose leader does not answer
    """

    topics: Mapping[str, int]
    position: Offsets
    ends: Offsets


class _Loss(NamedTuple):
    """A loss, and what the query does about it with ``failOnDataLoss=false``."""

    problem: str
    remedy: str


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
    ends = _ends_with_open_transactions(log, position, ends)
    is_shorter = any(end < position[partition] for partition, end in ends.items())
    if not is_shorter and not log.replaced and len(ends) == len(position):
        return Readable(topics, dict(position), ends)
    if is_shorter:
        # The topic may have been created again. With fresh metadata its new partitions are read
        # from their start at once, and not a second time later.
        log.expire_metadata()
        topics = log.topics()
    losses: list[_Loss] = []
    kept: Offsets = {}
    for partition, offset in position.items():
        loss = _loss(log, topics, partition, offset, ends.get(partition, offset))
        if loss is None:
            kept[partition] = offset
        else:
            losses.append(loss)
    for problem, remedy in dict.fromkeys(losses):
        if fail_on_data_loss:
            raise SourceError(
                f"{problem}: set failOnDataLoss=false to {remedy}, "
                "or start with a new checkpointLocation"
            )
        _log.warning("%s: failOnDataLoss=false makes the query %s", problem, remedy)
    return Readable(topics, kept, {p: end for p, end in ends.items() if p in kept})


def _ends_with_open_transactions(
    log: BrokerLog, position: Mapping[TopicPartition, int], ends: Offsets
) -> Offsets:
    """Raise ends that lie before the position only because of an open transaction.

    With read_committed, a position that was given by the user or committed by others may lie behind
    the last stable offset.
    """
    beyond = [partition for partition, end in ends.items() if end < position[partition]]
    if not beyond:
        return ends
    high_watermarks = log.high_watermarks(beyond)
    raised = {}
    for partition in beyond:
        offset = position[partition]
        high_watermark = high_watermarks.get(partition, offset)
        raised[partition] = max(ends[partition], min(offset, high_watermark))
    return ends | raised


def _loss(
    log: BrokerLog, topics: Mapping[str, int], partition: TopicPartition, position: int, end: int
) -> _Loss | None:
    topic, number = partition
    if topic not in topics:
        return _Loss(f"topic '{topic}' no longer exists or is not subscribed", _CONTINUE)
    if topic in log.replaced or number >= topics[topic]:
        return _Loss(f"topic '{topic}' was deleted and created again", _RESTART)
    if end < position:
        problem = f"{topic}-{number} ends at {end}, before this query's position {position}"
        return _Loss(problem, _RESTART)
    return None
