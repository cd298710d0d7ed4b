"""What a query of `kafka-ordered` finds gone: topics deleted, or made again; logs that end before
its position.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.protocol.partitions import TopicPartition
from headrace.spark.option_parsing import SourceError

from .log import BrokerLog
from .plan import Offsets

_log = logging.getLogger(__name__)

_WITHOUT, _ANEW = "go on without it", "read it from its beginning"
"""What a query does about a loss that it may take."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is there of the partitions that a query reads.

    :param topics: how many partitions each topic has
    :param position: where the query is, without the partitions that are gone, or begin anew
    :param ends: how far these can be read; without those of which nobody tells now
    """

    topics: Mapping[str, int]
    position: Offsets
    ends: Offsets


def look(log: BrokerLog, position: Mapping[TopicPartition, int], *, fail: bool) -> Found:
    """See which of the partitions that a query was reading are still the same.

    :param fail: take no loss; otherwise there is a warning for each topic or partition
    :raises SourceError: something is gone, and that fails
    :raises ClientError: the cluster does not answer
    """
    topics = log.topics()
    ends = log.ends([(topic, p) for topic, p in position if p < topics.get(topic, 0)])
    shorter = False
    beyond = [p for p, end in ends.items() if end < position[p]]
    if beyond:
        # With read_committed a position that was given, or committed by others, may lie behind an
        # open transaction.
        whole = log.whole_ends(beyond)
        ends |= {p: max(ends[p], min(position[p], whole.get(p, position[p]))) for p in beyond}
        shorter = any(ends[p] < position[p] for p in beyond)
    if not shorter and not log.replaced and len(ends) == len(position):
        return Found(topics, dict(position), ends)  # nearly always
    if shorter:
        # a topic that was made again: then it begins anew now, rather than now and once more
        log.look_again()
        topics = log.topics()
    lost: dict[str, str] = {}
    kept = {}
    for partition, offset in position.items():
        loss = _loss(log, topics, partition, offset, ends.get(partition, offset))
        if loss is None:
            kept[partition] = offset
        else:
            lost.update([loss])
    for what, remedy in lost.items():
        if fail:
            raise SourceError(
                f"{what}: set failOnDataLoss=false to {remedy}, or start with a new "
                f"checkpointLocation"
            )
        _log.warning("%s: failOnDataLoss=false has the query %s", what, remedy)
    return Found(topics, kept, {p: end for p, end in ends.items() if p in kept})


def _loss(
    log: BrokerLog, topics: Mapping[str, int], partition: TopicPartition, position: int, end: int
) -> tuple[str, str] | None:
    """What is wrong with a partition, and what the query could do about it; None when nothing
    is."""
    topic, number = partition
    if topic not in topics:
        return f"topic '{topic}' is not there (any more), or not subscribed", _WITHOUT
    if topic in log.replaced or number >= topics[topic]:
        return f"topic '{topic}' was deleted and made again", _ANEW
    if end < position:
        return f"{topic}-{number} ends at {end}, before this query's position {position}", _ANEW
    return None
