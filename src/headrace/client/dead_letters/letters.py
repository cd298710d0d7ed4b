"""Dead letters, filters for them, and the progress of redrives. Pure."""

from __future__ import annotations

import base64
import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from headrace.client.records import Record
from headrace.client.share.spans import Span, normalize
from headrace.patterns import occurs
from headrace.protocol import dead_letters
from headrace.protocol.dead_letters import REDRIVE_GROUP
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.task_headers import OF_ATTEMPTS

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]

_MAX_OFFSET = 2**63 - 1


class DeadLetter(NamedTuple):
    """A letter of a dead-letter queue.

    :param timestamp_ms: the time at which the letter was written
    :param source: (topic, partition) of the record
    :param source_offset: offset of the record
    :param group_id: the share group that archived it; None if the letter has no such header
    :param delivery_count: None if the letter has no such header
    :param message: the reason; None if the letter has no such header
    :param has_content: whether ``key``, ``value`` and ``headers`` are those of the record; if not,
        the queue has no copy of it
    :param headers: headers of the record, without those of the letter and the count of redrives
    :param redrives: number of earlier redrives of the record
    :param attempt: the number of the last attempt, if a worker has written the letter; so are the
        fields below
    :param worker: the name of the worker
    :param exception: the type of what the function has raised; None if it has decided so
    :param traceback: of several lines, as the worker has written it
    """

    queue: str
    partition: int
    offset: int
    timestamp_ms: int
    source: TopicPartition
    source_offset: int
    group_id: str | None
    delivery_count: int | None
    message: str | None
    has_content: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    redrives: int
    attempt: int | None = None
    worker: str | None = None
    exception: str | None = None
    traceback: str | None = None

    @property
    def place(self) -> str:
        """The place of the record: ``topic-partition@offset``."""
        return f"{self.source[0]}-{self.source[1]}@{self.source_offset}"

    def with_content(self, key: bytes | None, value: bytes | None, headers: Headers) -> DeadLetter:
        """Return the letter with the content of the original record."""
        own, redrives = _without_count(headers)
        return self._replace(has_content=True, key=key, value=value, headers=own, redrives=redrives)

    def redriven_headers(self) -> list[Header]:
        """Return the headers of the record for one more redrive. Its attempts begin anew."""
        count = str(self.redrives + 1).encode()
        own = [header for header in self.headers if header[0] not in OF_ATTEMPTS]
        return [*own, (dead_letters.REDRIVE_COUNT, count)]


def parse_letter(record: Record) -> DeadLetter | None:
    """Return the letter in a record of a queue; None if the record is no dead letter.

    A letter about another letter has each header twice. Only the last of each is removed, so that
    the content is the other letter.
    """
    own = list(record.headers)
    fields: dict[str, str | None] = {}
    for name in (*dead_letters.WORKER_HEADERS, *dead_letters.HEADERS):
        index = next((i for i in reversed(range(len(own))) if own[i][0] == name), None)
        is_workers = index is not None and name in dead_letters.WORKER_HEADERS
        if is_workers and any(other in dead_letters.HEADERS for other, _ in own[index:]):
            index = None  # the letter is a broker's, about a letter of a worker
        fields[name] = None if index is None else _text(own.pop(index)[1])
    topic = fields[dead_letters.TOPIC]
    source_partition, source_offset, deliveries = (
        _number(fields[name])
        for name in (dead_letters.PARTITION, dead_letters.OFFSET, dead_letters.DELIVERY_COUNT)
    )
    if not topic or source_partition is None or source_offset is None:
        return None
    content, redrives = _without_count(own)
    return DeadLetter(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        (topic, source_partition),
        source_offset,
        fields[dead_letters.GROUP],
        deliveries,
        fields[dead_letters.MESSAGE],
        record.key is not None or record.value is not None or bool(own),
        record.key,
        record.value,
        content,
        redrives,
        _number(fields[dead_letters.ATTEMPT]),
        fields[dead_letters.WORKER],
        fields[dead_letters.EXCEPTION],
        fields[dead_letters.TRACEBACK],
    )


def _without_count(headers: Iterable[Header]) -> tuple[Headers, int]:
    own: list[Header] = []
    redrives = 0
    for name, value in headers:
        if name == dead_letters.REDRIVE_COUNT:
            redrives = _number(_text(value)) or 0
        else:
            own.append((name, value))
    return tuple(own), redrives


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _number(text: str | None) -> int | None:
    if text is None or not re.fullmatch("[0-9]{1,19}", text, re.ASCII):
        return None
    number = int(text)
    return number if number <= _MAX_OFFSET else None


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A selection of letters; the default selects all.

    :param sources: topics of the records; empty for all
    :param groups: share groups; empty for all
    :param reason: a regular expression to search in the reason, ignoring case; None for all
    :param key: the key of the record, if its content is known
    :param partitions: partitions of the queue; empty for all
    :param from_offset: the first offset in the queue; ``to_offset`` is exclusive
    :param from_ms: the earliest time of a letter; ``to_ms`` is exclusive
    """

    sources: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    reason: str | None = None
    key: bytes | None = None
    partitions: tuple[int, ...] = ()
    from_offset: int = 0
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def selects(self, letter: DeadLetter) -> bool:
        """Return whether a letter is selected, without regard to its key."""
        reason = self.reason
        return (
            (not self.sources or letter.source[0] in self.sources)
            and (not self.groups or letter.group_id in self.groups)
            and (not self.partitions or letter.partition in self.partitions)
            and (reason is None or occurs(reason, letter.message or ""))
            and self.from_offset <= letter.offset
            and (self.to_offset is None or letter.offset < self.to_offset)
            and (self.from_ms is None or self.from_ms <= letter.timestamp_ms)
            and (self.to_ms is None or letter.timestamp_ms < self.to_ms)
        )

    def selects_key(self, letter: DeadLetter) -> bool:
        """Return whether a letter, with its content, has the selected key."""
        return self.key is None or letter.key == self.key


# Progress -----------------------------------------------------------------------------------------

# The progress in a partition of a queue is a committed offset: that of the first letter that is not
# done. The metadata of the commit has the runs of letters after it that are done: a filtered
# redrive leaves letters for a later one.


MAX_METADATA_CHARS = 4000
"""The largest metadata that is committed; ``offset.metadata.max.bytes`` is 4096 by default."""

_VERSION = "redrive1:"
_MAX_OPENED_BYTES = 1 << 20


def position_group(queue: str) -> str:
    """Return the group that keeps the progress of redrives of a queue, which is the transactional
    id, too: only one redrive of a queue runs at a time.
    """
    return f"{REDRIVE_GROUP}{queue}"


class InvalidMetadata(ValueError):
    """The metadata of a commit was not written by this module."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The letters of a partition that are done.

    :param start: the offset of the first letter that is not done
    :param done: the runs of offsets after it that are done, ascending and disjoint
    """

    start: int
    done: tuple[Span, ...] = ()

    def is_done(self, offset: int) -> bool:
        """Return whether the letter at an offset is done."""
        index = bisect_right(self.done, offset, key=itemgetter(0)) - 1
        return offset < self.start or (index >= 0 and offset <= self.done[index][1])

    def with_done(self, spans: Iterable[Span]) -> QueuePosition:
        """Return the position with more runs of offsets that are done."""
        (_, last), *done = normalize([(-1, self.start - 1), *self.done, *spans])
        return QueuePosition(last + 1, tuple(done))

    def metadata(self) -> str:
        """Return the metadata of the commit; empty without runs."""
        if not self.done:
            return ""
        ends = [self.start, *chain.from_iterable(self.done)]
        gaps = json.dumps([after - before for before, after in pairwise(ends)])
        return _VERSION + base64.b64encode(zlib.compress(gaps.encode(), 9)).decode()

    @classmethod
    def read(cls, offset: int, metadata: str) -> QueuePosition:
        """Return the position in a commit.

        :raises InvalidMetadata: :meth:`metadata` did not return the metadata
        """
        if not metadata:
            return cls(offset)
        packed = metadata.removeprefix(_VERSION)
        try:
            opener = zlib.decompressobj()
            gaps = json.loads(opener.decompress(base64.b64decode(packed), _MAX_OPENED_BYTES))
        except (ValueError, RecursionError, zlib.error):
            gaps = None
        is_ours = packed != metadata and isinstance(gaps, list)
        if not is_ours or not all(type(gap) is int and gap >= 0 for gap in gaps) or len(gaps) % 2:
            raise InvalidMetadata(metadata[:100])
        ends = list(accumulate(gaps, initial=offset))[1:]
        return cls(offset, tuple(zip(ends[::2], ends[1::2], strict=True)))


Positions = dict[int, QueuePosition]
"""Partition of a queue → its letters that are done."""
