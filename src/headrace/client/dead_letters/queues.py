"""The dead-letter queues of a cluster, with counts of their letters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.config import read_config
from headrace.client.configs import ConfigType, config_values
from headrace.client.errors import RequestRefused
from headrace.client.groups import GroupList

from .letters import DeadLetter
from .positions import QueuePosition, position_group
from .reading import Bounds, QueueReader
from .sources import queues_of_groups

DEFAULT_PREFIX = "dlq."
"""The default of ``errors.deadletterqueue.topic.name.prefix``."""
SCANNED_RECORDS = 10_000
"""The default number of records of a queue that are read to count letters."""
_MAX_TEXT_CHARS = 1000
"""Whoever writes letters may write texts of any size into them."""

GROUP_ENABLE = "errors.deadletterqueue.group.enable"
"""The config of a topic that allows groups to use it as their dead-letter queue."""


@dataclass(slots=True)
class LetterCount:
    """Letters of one share group, source topic and reason.

    :ivar pending: letters that were not redriven; None if the user may not read the progress
    :ivar oldest_ms: the time of the oldest letter read; ``newest_ms`` that of the newest
    """

    letters: int = 0
    pending: int | None = 0
    oldest_ms: int = 0
    newest_ms: int = 0


@dataclass(slots=True)
class QueueSummary:
    """A dead-letter queue.

    :ivar groups: the share groups that are configured to use it; empty if the cluster does not
        report configs of groups
    :ivar records: number of offsets from its start to its end
    :ivar read: number of offsets that were read to count letters, the newest ones of each partition
    :ivar counts: (share group, source topic, reason) → letters; None for a missing header. The
        reason of a worker's letter is the type of the exception: their texts may all differ
    :ivar not_letters: number of records read that are no dead letters
    """

    queue: str
    partitions: int
    groups: tuple[str, ...]
    records: int = 0
    read: int = 0
    counts: dict[tuple[str | None, str, str | None], LetterCount] = field(default_factory=dict)
    not_letters: int = 0

    def add(self, letter: DeadLetter, positions: Mapping[int, QueuePosition] | None) -> None:
        """Count a letter.

        :param positions: what was redriven; None if the user may not read it
        """
        group_id, topic, message = (
            None if text is None else text[:_MAX_TEXT_CHARS]
            for text in (letter.group_id, letter.source[0], letter.exception or letter.message)
        )
        key = group_id, topic or "", message
        at_ms = letter.timestamp_ms
        count = self.counts.setdefault(key, LetterCount(oldest_ms=at_ms, newest_ms=at_ms))
        count.letters += 1
        count.oldest_ms = min(count.oldest_ms, at_ms)
        count.newest_ms = max(count.newest_ms, at_ms)
        if positions is None:
            count.pending = None
        elif count.pending is not None:
            count.pending += not positions[letter.partition].is_done(letter.offset)


def find_queues(
    config: Mapping[str, Any], names: Sequence[str] = ()
) -> tuple[dict[str, tuple[str, ...]], GroupList]:
    """Find the dead-letter queues of a cluster.

    They are the topics whose name has the default prefix, those that groups may use, and those that
    groups are configured to use, as far as the cluster reports these configs.

    :param config: librdkafka's configuration properties
    :param names: return only these topics; empty for all
    :returns: queue → the share groups that are configured to use it; and the list of share groups,
        which tells whether some are missing
    :raises ClientError: no broker answers
    """
    queues, listed = asyncio.run(_find(read_config(config).cluster()))
    return {name: queues.get(name, ()) for name in names} if names else queues, listed


async def _find(cluster: Cluster) -> tuple[dict[str, tuple[str, ...]], GroupList]:
    async with cluster:
        topics = [
            name for name, topic in (await cluster.all_topics()).items() if not topic.is_internal
        ]
        users: dict[str, list[str]] = {}
        queues, listed = await queues_of_groups(cluster)
        for group_id, name in sorted(queues.items()):
            users.setdefault(name, []).append(group_id)
        enabled = await config_values(cluster, ConfigType.TOPIC, topics, GROUP_ENABLE)
        return {
            name: tuple(users.get(name, ()))
            for name in topics
            if name in users or name.startswith(DEFAULT_PREFIX) or enabled.get(name) == "true"
        }, listed


def count_letters(
    config: Mapping[str, Any],
    queue: str,
    groups: tuple[str, ...],
    stop: threading.Event,
    max_records: int = SCANNED_RECORDS,
) -> QueueSummary:
    """Read the newest records of a queue, and count its letters.

    :param config: librdkafka's configuration properties
    :param groups: the share groups that use it
    :param stop: set it to end early
    :param max_records: the number of records to read, shared by the partitions
    :raises ClientError: the queue cannot be read
    """
    with QueueReader(config, queue) as reader:
        bounds = reader.bounds()
        positions = None
        with suppress(RequestRefused):
            positions = reader.positions(position_group(queue), bounds)
        summary = QueueSummary(queue, len(bounds), groups)
        summary.records = sum(end - first for first, end in bounds.values())
        share = max_records
        if summary.records > max_records:
            share = max(1, max_records // len(bounds))
        ranges = {n: Bounds(max(first, end - share), end) for n, (first, end) in bounds.items()}
        summary.read = sum(end - first for first, end in ranges.values())
        for chunk in reader.chunks(ranges, stop):
            for record in chunk:
                if record.letter is None:
                    summary.not_letters += 1
                else:
                    summary.add(record.letter, positions)
        return summary
