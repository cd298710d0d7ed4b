"""Sentences about the groups that need attention. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.client.lag.group_lines import GroupLine

from .history import Point
from .texts import count_of, duration, number

STALLED_MS = 30_000
"""The time without progress after which a group with a lag is called stalled."""


class Note(NamedTuple):
    """A sentence about a group.

    :param kind: "stalled", "letters", "idle" or "growing": the worst first
    """

    kind: str
    group: str
    text: str


_ORDER = ("stalled", "letters", "idle", "growing")


def notes(
    lines: Iterable[GroupLine],
    histories: Mapping[str, Sequence[Point]],
    letters: Mapping[str, tuple[str, int, int]],
) -> list[Note]:
    """Return the sentences, the worst first.

    :param histories: group id → its course
    :param letters: group id → its dead-letter queue, the records that came to it, and the time in
        ms in which they came
    """
    found = []
    for line in lines:
        note = _stalled(line, histories.get(line.group, ()))
        if note is not None:
            found.append(note)
        if line.group in letters and letters[line.group][1]:
            queue, count, over_ms = letters[line.group]
            found.append(
                Note(
                    "letters",
                    line.group,
                    f"dead-letters: {count_of(count, 'record')} came to {queue} in the last "
                    f"{duration(over_ms)}",
                )
            )
    found.sort(key=lambda note: (_ORDER.index(note.kind), note.group))
    return found


def _stalled(line: GroupLine, history: Sequence[Point]) -> Note | None:
    """Return the sentence about the progress of a group, or None if it is healthy."""
    if not line.lag:
        return None
    behind = count_of(line.lag, "record") + " behind"
    if line.time_lag_ms:
        behind += f", the oldest {duration(line.time_lag_ms)} old"
    if not line.members:
        return Note("idle", line.group, f"nobody consumes: {behind}")
    if not history:
        return None
    still_ms = _still_ms(history)
    if still_ms >= STALLED_MS:
        members = count_of(line.members, "member")
        return Note(
            "stalled",
            line.group,
            f"stalled: {members}, but nothing was finished for {duration(still_ms)}; {behind}",
        )
    if line.seconds_to_zero == -1 and line.consumed_per_s and line.produced_per_s:
        return Note(
            "growing",
            line.group,
            f"does not keep up: {number(line.consumed_per_s)} of "
            f"{number(line.produced_per_s)} records a second; {behind}",
        )
    return None


def _still_ms(history: Sequence[Point]) -> int:
    """Return the time for which a group with a lag has finished nothing."""
    last = history[-1]
    since_ms = last.time_ms
    for point in reversed(history):
        if point.consumed_per_s is None or point.consumed_per_s > 0 or not point.lag:
            break
        since_ms = point.time_ms
    return last.time_ms - since_ms
