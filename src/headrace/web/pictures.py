"""Pictures of values over time, and of the records in flight, as templates draw them. Pure.

A picture's label, or a table beside it, has everything that the picture shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.amounts import count_of
from headrace.client.share_state import Span
from headrace.protocol.share_inspection import SpanState

from .texts import duration, moment, number
from .views import Group, Point, Topic

Values = Sequence[tuple[int, float | None]]
"""(time in ms, value), the oldest first; None for an unknown value."""
Shown = Callable[[float | None], str]
"""Formats a value."""

_LEAST_TOP = 0.3
"""The least value at the top of an axis: its thirds differ in the first decimal."""
_GRID_LINES = 3
_WIDTH, _HEIGHT = 1000, 100
"""Of a picture, which templates stretch."""
_THINNEST = 2.0
"""The least width of a span in a picture, so that a single record can be seen."""
_THIN = 8.0
"""The width below which a span has no border."""
_MAX_DRAWN = 600
"""Spans of one picture; further ones would be thinner than a pixel."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    :param style: "a" or "b", which set colour and dashes
    """

    name: str
    style: str
    values: Values
    path: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of several lines over the same time; without lines not enough was seen yet.

    :param is_wide: it has half of a page
    :param ticks: the texts of the lines of its grid, from the bottom
    :param first: the time at its left
    :param last: the time at its right
    """

    title: str
    is_wide: bool = False
    lines: Sequence[Line] = ()
    label: str = ""
    ticks: Sequence[str] = ()
    first: str = ""
    last: str = ""


def lag_spark(history: Sequence[Point]) -> tuple[str, str] | None:
    """Return :func:`spark` of the lag."""
    return spark(_course(history, "lag"), "lag", number)


def rate_spark(history: Sequence[Point]) -> tuple[str, str] | None:
    """Return :func:`spark` of the records produced per second."""
    return spark(_course(history, "produced_per_s"), "records a second", number)


def spark(values: Values, meaning: str, shown: Shown) -> tuple[str, str] | None:
    """Return the label and the path of a small picture of values over time, for a cell of a table;
    None if not enough is known.

    :param meaning: of the values, such as "lag"
    """
    numbers = _known(values)
    if len(numbers) < 2:
        return None
    first_ms, last_ms = values[0][0], values[-1][0]
    label = (
        f"{meaning}: {shown(numbers[0])} to {shown(numbers[-1])} in "
        f"{duration(last_ms - first_ms)}, at most {shown(max(numbers))}"
    )
    return label, _path(values, first_ms, last_ms, max(numbers))


def group_charts(group: Group) -> list[Chart]:
    """Return the charts of a group."""
    history, outcomes = group.history, group.outcomes
    rates = [
        Line("finished", "a", _course(history, "done_per_s")),
        Line("produced", "b", _course(history, "produced_per_s")),
    ]
    age = Line("age", "a", _course(history, "time_lag_ms"))
    charts = [
        chart("Lag in records", [Line("lag", "a", _course(history, "lag"))], number, least=3),
        chart("Age of the oldest record to finish", [age], duration),
        chart("Records a second", rates, number),
    ]
    if group.tells_in_flight:
        returned = [
            Line("released", "a", _course(outcomes, "released_per_s")),
            Line("archived", "b", _course(outcomes, "archived_per_s")),
        ]
        charts.append(chart("Released or archived a second", returned, number))
    return charts


def topic_chart(topic: Topic) -> Chart:
    """Return the chart of a topic."""
    produced = Line("produced", "a", _course(topic.history, "produced_per_s"))
    return chart("Records produced a second", [produced], number, is_wide=True)


def _course(points: Sequence[Any], name: str) -> Values:
    return [(point.time_ms, getattr(point, name)) for point in points]


def chart(
    title: str,
    lines: Sequence[Line],
    shown: Shown,
    *,
    least: float = _LEAST_TOP,
    is_wide: bool = False,
) -> Chart:
    """Return a chart.

    :param least: the least value at the top of the axis
    """
    times = [time_ms for line in lines for time_ms, _ in line.values]
    numbers = [_known(line.values) for line in lines]
    if sum(map(len, numbers)) < 2 or min(times) == max(times):
        return Chart(title)
    first_ms, last_ms = min(times), max(times)
    most = max(least, *(max(values) for values in numbers if values))
    most = _round_up(most)
    ago = duration(last_ms - first_ms)
    labels = [
        f"{line.name}: now {shown(values[-1] if values else None)}, at most "
        f"{shown(max(values, default=None))}"
        for line, values in zip(lines, numbers, strict=True)
    ]
    return Chart(
        title,
        is_wide,
        [replace(line, path=_path(line.values, first_ms, last_ms, most)) for line in lines],
        f"{title} over {ago}: {'; '.join(labels)}",
        [shown(most * n / _GRID_LINES) for n in range(_GRID_LINES + 1)],
        f"{ago} ago",
        f"{moment(last_ms)[11:19]} UTC",
    )


def _known(values: Values) -> list[float]:
    return [value for _, value in values if value is not None]


def _path(values: Values, first_ms: int, last_ms: int, most: float) -> str:
    """Return the line through the known values, broken where one is unknown, in a picture of
    :data:`_WIDTH` and :data:`_HEIGHT`.

    :param most: the value at the top
    """
    parts = []
    pen = "M"
    for time_ms, value in values:
        if value is None:
            pen = "M"
            continue
        x = _WIDTH * (time_ms - first_ms) / max(1, last_ms - first_ms)
        y = _HEIGHT * (1 - value / (most or 1))
        parts.append(f"{pen}{x:.0f} {y:.1f}")
        pen = "L"
    return "".join(parts)


def _round_up(value: float) -> float:
    """Return the least number that is not below ``value`` among 1.5, 3, 6, 9 times a power of ten.
    The grid has lines at its thirds.

    :param value: above 0
    """
    step = 1.0
    while step * 10 <= value:
        step *= 10
    while step > value:
        step /= 10
    return next(step * factor for factor in (1.5, 3, 6, 9, 15) if step * factor >= value)


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in a picture.

    :param kind: the class of its colour and pattern
    """

    kind: str
    x: float
    width: float
    title: str


def in_flight(
    start_offset: int, end_offset: int, spans: Sequence[Span], holders: Mapping[str, str]
) -> tuple[str, list[Bar]]:
    """Return the label and the bars of the records in flight of a partition, from start to end
    offset; no bars if there are none.

    :param holders: member id → client id
    """
    total = end_offset - start_offset
    if total <= 0 or not spans:
        return "", []
    drawn = spans[:_MAX_DRAWN]
    widths = [max(_THINNEST, _WIDTH * span.record_count / total) for span in drawn]
    factor = _WIDTH / sum(widths)
    x = 0.0
    bars = []
    for span, width in zip(drawn, widths, strict=True):
        kind = span.state.name.lower() + ("" if width * factor > _THIN else " thin")
        bars.append(Bar(kind, x, width * factor, span_text(span, holders)))
        x += width * factor
    counts = dict.fromkeys(SpanState, 0)
    for span in spans:
        counts[span.state] += span.record_count
    states = [f"{count:,} {state.name.lower()}" for state, count in counts.items() if count]
    return f"offsets {start_offset:,} to {end_offset - 1:,}: {', '.join(states)}", bars


def span_text(span: Span, holders: Mapping[str, str]) -> str:
    """Return a sentence about a span.

    :param holders: member id → client id
    """
    offsets = f"{span.first_offset:,}"
    if span.record_count > 1:
        offsets += f" to {span.last_offset:,} ({count_of(span.record_count, 'record')})"
    return f"{offsets}: {state_text(span, holders)}"


def state_text(span: Span, holders: Mapping[str, str]) -> str:
    """Return in words what the state of a span is.

    :param holders: member id → client id
    """
    times = f", delivered {count_of(span.delivery_count, 'time')}" if span.delivery_count else ""
    rest = duration(span.remaining_ms)
    if span.state is SpanState.LOCKED:
        holder = holders.get(span.member_id or "") or span.member_id
        return f"held by {holder} for {rest} more{times}"
    if span.state is SpanState.WAITING:
        return f"waits {rest} for its next delivery{times}"
    if span.state is SpanState.FINISHED:
        return "done"
    return f"available{times or ', not delivered yet'}"
