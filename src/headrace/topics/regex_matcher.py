"""Regular expressions of clients, matched in threads.

RE2 matches in linear time, which is still 17 ms for the largest expression and one topic name, and
clients choose both. So texts are matched in slices in a thread, in which all expressions take
turns; RE2 lets the event loop run meanwhile.

The expression of a subscription is remembered with the topics that match it: after a change of the
topics only the names of new ones are matched.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import NamedTuple

from headrace.groups.consumer.regex import InvalidRegex, Regex, RegexMatch

from .catalog import Catalog
from .disk_thread import DiskThread
from .recently_used import RecentlyUsed

REGEX_SLICE_S = 0.005
"""The time for which one expression is matched before it is the turn of others."""

REGEX_SLICE_TEXTS = 1_000
"""The most texts that are matched in a slice."""

MAX_REMEMBERED_MATCHES = 500_000
"""The topics that match remembered expressions, of all expressions together: some 30 MB."""

_ENTRY_MATCHES = 32
"""The memory of an expression without topics, in topics that match."""
_PROGRAM_MATCHES = 2000
"""The memory of a compiled expression, which is kept until all topics are matched, likewise."""


class _Slice(NamedTuple):
    """Work that was done in the thread.

    :param texts: the number of texts that were matched
    :param matching: those that match
    """

    regex: Regex
    texts: int
    matching: list[str]


def _match_slice(pattern: str, regex: Regex | None, texts: Sequence[str]) -> _Slice:
    """Match texts with an expression until the time of a slice is over.

    :param regex: the compiled expression; None before the first slice
    :raises InvalidRegex: when it is invalid
    """
    end_s = perf_counter() + REGEX_SLICE_S
    regex = regex or Regex(pattern)
    matching: list[str] = []
    matched = 0
    for text in texts:
        if regex.matches(text):
            matching.append(text)
        matched += 1
        if perf_counter() >= end_s:
            break
    return _Slice(regex, matched, matching)


@dataclass(slots=True, eq=False)
class _Expression:
    """The expression of a subscription, and the topics that match it.

    :ivar regex: compiled; None unless names are left to be matched
    :ivar error: why it is invalid; "" if that is not known
    :ivar end: the topics with smaller numbers are matched
    :ivar work: the slice in the thread
    """

    regex: Regex | None = None
    error: str = ""
    end: int = -1
    matching: set[str] = field(default_factory=set)
    work: asyncio.Task[_Slice] | None = None

    def end_slice(
        self, topics: Sequence[tuple[int, str]], end: int, work: asyncio.Task[_Slice]
    ) -> None:
        """Take over what the thread has done.

        :param topics: the topics that it was given
        :param end: the number after all topics
        """
        self.work = None
        if work.cancelled():
            return
        if (error := work.exception()) is not None:
            if isinstance(error, InvalidRegex):
                self.error = str(error)
            return
        done = work.result()
        self.matching.update(done.matching)
        is_matched = done.texts == len(topics) < REGEX_SLICE_TEXTS
        self.end = end if is_matched else topics[done.texts - 1][0] + 1
        self.regex = None if is_matched else done.regex


class RegexMatcher:
    """The expressions of the clients of one broker. Belongs to its event loop."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._topic_thread = DiskThread("headrace-topic-regexes")
        self._thread = DiskThread("headrace-regexes")
        self._is_closed = False
        self._version = -1
        """The version of the catalog that has the numbered topics."""
        self._topics: list[tuple[int, str]] = []
        """Number and name, ascending. A topic keeps its number while there is one with its name."""
        self._next_number = 0
        self._expressions: RecentlyUsed[str, _Expression] = RecentlyUsed(MAX_REMEMBERED_MATCHES)

    async def match_topics(self, pattern: str, wait_s: float) -> RegexMatch | None:
        """Return the topics whose names match the expression of a subscription. What has been
        matched when the time is over is not lost: the next call continues.

        :param wait_s: the longest wait
        :returns: those of the topics at the call; None if that takes longer
        """
        until_s = perf_counter() + wait_s
        self._number_topics()
        version, end = self._version, self._next_number
        expression = self._expressions.get(pattern) or _Expression()
        self._remember(pattern, expression)
        while expression.end < end and not expression.error:
            rest_s = until_s - perf_counter()
            if rest_s <= 0 or self._is_closed:
                return None
            work = expression.work or self._begin_slice(pattern, expression)
            await asyncio.wait((work,), timeout=rest_s)
            if work.done() and not work.cancelled() and not expression.error:
                work.result()
        topics = tuple(sorted(filter(self._catalog.topics.__contains__, expression.matching)))
        if len(topics) < len(expression.matching):
            expression.matching = set(topics)
        self._remember(pattern, expression)
        return RegexMatch(pattern, version, topics, expression.error)

    async def matching(self, pattern: str, texts: Sequence[str]) -> set[str]:
        """Return the texts that match an expression.

        :raises InvalidRegex: when it is invalid
        """
        matching: set[str] = set()
        regex, position = None, 0
        while True:
            piece = texts[position : position + REGEX_SLICE_TEXTS]
            done = await self._thread.run(partial(_match_slice, pattern, regex, piece))
            matching.update(done.matching)
            regex, position = done.regex, position + done.texts
            if position >= len(texts):
                return matching

    def close(self) -> None:
        """Stop after the slice that is being matched."""
        self._is_closed = True
        self._topic_thread.close()
        self._thread.close()

    def _number_topics(self) -> None:
        """Number the topics that are new since the last call."""
        if self._version == self._catalog.version:
            return
        topics, old = self._catalog.topics, {name for _, name in self._topics}
        self._topics = [topic for topic in self._topics if topic[1] in topics]
        for name in topics:
            if name not in old:
                self._topics.append((self._next_number, name))
                self._next_number += 1
        self._version = self._catalog.version

    def _begin_slice(self, pattern: str, expression: _Expression) -> asyncio.Task[_Slice]:
        """Match some of the names that were not matched yet."""
        start = bisect_left(self._topics, (expression.end, ""))
        topics = self._topics[start : start + REGEX_SLICE_TEXTS]
        names = [name for _, name in topics]
        match_slice = partial(_match_slice, pattern, expression.regex, names)
        work = asyncio.ensure_future(self._topic_thread.run(match_slice))
        work.add_done_callback(partial(expression.end_slice, topics, self._next_number))
        expression.work = work
        return work

    def _remember(self, pattern: str, expression: _Expression) -> None:
        size = _ENTRY_MATCHES + len(pattern) // 8 + len(expression.matching)
        if expression.regex is not None:
            size += _PROGRAM_MATCHES
        self._expressions.put(pattern, expression, size)
