"""The progress of redrives in one partition of a queue, as a committed offset. Pure.

The committed offset is that of the first letter that is not done. The metadata of the commit has
the runs of letters after it that are done: a filtered redrive leaves letters for a later one.
"""

from __future__ import annotations

import base64
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from operator import itemgetter

from headrace.client.share.types import Span, normalize
from headrace.protocol.dead_letters import REDRIVE_GROUP

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
