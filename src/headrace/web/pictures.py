"""Pictures as SVG, drawn on the server: values over time, and the records in flight. Pure.

Presentation is in attributes and classes, because the page's Content-Security-Policy forbids inline
styles. A picture's label, or a table beside it, has everything that the picture shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from markupsafe import Markup

from headrace.client.share_state import Span
from headrace.protocol.share_inspection import SpanState

from .texts import count_of, duration, moment, number
from .views import Group, Point, Topic

Values = Sequence[tuple[int, float | None]]
"""(time in ms, value), the oldest first; None for an unknown value."""

_SPARK_WIDTH, _SPARK_HEIGHT = 96, 20
_CHART_WIDTH, _CHART_HEIGHT = 320, 120
"""In the units of the text of a chart, which grows with its picture."""
_WIDE_CHART = 440
"""The width of a chart that has half of a page."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 4, 8, 18
_LEAST_TOP = 0.3
"""The least value at the top of an axis: its thirds differ in the first decimal."""
_MINUTES = (1.5, 3, 6, 9, 15, 30, 45, 60, 90, 180, 360, 540, 900, 1440)
"""The longest durations of axes, up to a day."""
_LONGEST_DECIMAL_MS, _DAY_MS = 60_000, 86_400_000
_LINES = 3
"""Lines of the grid of a chart."""
_BAR_WIDTH, _BAR_HEIGHT = 1000, 26
_THINNEST = 2.0
"""The least width of a span in a picture, so that a single record can be seen."""
_THIN = 8.0
"""The width below which a span has no border."""
_MAX_DRAWN = 600
"""Spans of one picture; further ones would be thinner than a pixel."""


def lag_spark(history: Sequence[Point]) -> Markup:
    """Return a sparkline of the lag."""
    return sparkline(_course(history, "lag"), "lag", number)


def rate_spark(history: Sequence[Point]) -> Markup:
    """Return a sparkline of the records produced per second."""
    return sparkline(_course(history, "produced_per_s"), "records a second", number)


def group_charts(group: Group) -> list[Markup]:
    """Return the charts of a group."""
    history = group.history
    rates = [
        Series("finished", "a", _course(history, "done_per_s")),
        Series("produced", "b", _course(history, "produced_per_s")),
    ]
    age = Series("age", "a", _course(history, "time_lag_ms"))
    drawn = [
        chart("Lag in records", [Series("lag", "a", _course(history, "lag"))], number, least=3),
        chart("Age of the oldest record to finish", [age], duration, is_time=True),
        chart("Records a second", rates, number),
    ]
    if group.tells_in_flight:
        outcomes = [
            Series("released", "a", _course(group.outcomes, "released_per_s")),
            Series("archived", "b", _course(group.outcomes, "archived_per_s")),
        ]
        drawn.append(chart("Released or archived a second", outcomes, number))
    return drawn


def topic_chart(topic: Topic) -> Markup:
    """Return the chart of a topic."""
    produced = Series("produced", "a", _course(topic.history, "produced_per_s"))
    return chart("Records produced a second", [produced], number, _WIDE_CHART)


def _course(points: Sequence[Any], name: str) -> Values:
    return [(point.time_ms, getattr(point, name)) for point in points]


def sparkline(values: Values, meaning: str, shown: Callable[[float | None], str]) -> Markup:
    """Return a small picture of values over time, for a cell of a table.

    :param meaning: of the values, such as "lag"
    :param shown: formats a value for the label
    """
    known = [value for _, value in values if value is not None]
    if len(known) < 2:
        return Markup('<span class="none">–</span>')
    label = (
        f"{meaning}: {shown(known[0])} to {shown(known[-1])} in "
        f"{duration(values[-1][0] - values[0][0])}, at most {shown(max(known))}"
    )
    top = max(known)
    first_ms, last_ms = values[0][0], values[-1][0]
    wide, high = _SPARK_WIDTH - 2, _SPARK_HEIGHT - 4

    def place(time_ms: int, value: float) -> tuple[float, float]:
        x = 1 + wide * (time_ms - first_ms) / max(1, last_ms - first_ms)
        return x, 2 + high - (high * value / top if top > 0 else 0)

    paths = _paths(values, place)
    return Markup(
        f'<svg class="spark" role="img" width="{_SPARK_WIDTH}" height="{_SPARK_HEIGHT}" '
        f'viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{paths}</svg>"
    )


def _paths(values: Values, place: Callable[[int, float], tuple[float, float]]) -> str:
    """Return the line through the known values, broken where one is unknown."""
    parts: list[str] = []
    pen = "M"
    for time_ms, value in values:
        if value is None:
            pen = "M"
            continue
        x, y = place(time_ms, value)
        parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return f'<path class="line" d="{"".join(parts)}"/>'


class Series(NamedTuple):
    """A line of a chart.

    :param style: "a" or "b", which set colour and dashes
    """

    name: str
    style: str
    values: Values


def chart(
    title: str,
    series: Sequence[Series],
    shown: Callable[[float | None], str],
    width: int = _CHART_WIDTH,
    least: float = _LEAST_TOP,
    *,
    is_time: bool = False,
) -> Markup:
    """Return a chart of several series over the same time, with a legend.

    :param shown: formats a value of the axis
    :param least: the least value at the top of the axis
    :param is_time: True if the values are durations in ms
    """
    known = [value for line in series for _, value in line.values if value is not None]
    times = [time_ms for line in series for time_ms, _ in line.values]
    if len(known) < 2 or min(times) == max(times):
        return Markup(
            f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
            '<p class="empty">not enough was seen yet</p></figure>'
        )
    first_ms, last_ms, top = min(times), max(times), max(*known, least)
    top = _round_up_time(top) if is_time else _round_up(top)
    wide = width - _LEFT - _RIGHT
    high = _CHART_HEIGHT - _TOP - _BOTTOM

    def place(time_ms: int, value: float) -> tuple[float, float]:
        x = _LEFT + wide * (time_ms - first_ms) / (last_ms - first_ms)
        return x, _TOP + high - high * value / top

    grid = []
    for n in range(_LINES + 1):
        value = top * n / _LINES
        y = place(first_ms, value)[1]
        grid.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{width - _RIGHT}"/>')
        grid.append(
            f'<text class="axis" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(_tick(shown(value)))}</text>"
        )
    ago = duration(last_ms - first_ms)
    grid.append(f'<text class="axis" x="{_LEFT}" y="{_CHART_HEIGHT - 3}">{ago} ago</text>')
    grid.append(
        f'<text class="axis" x="{width - _RIGHT}" y="{_CHART_HEIGHT - 3}" '
        f'text-anchor="end">{moment(last_ms)[11:19]} UTC</text>'
    )
    lines = [f'<g class="series-{line.style}">{_paths(line.values, place)}</g>' for line in series]
    legend = ""
    if len(series) > 1:
        legend = "".join(
            f'<span class="key series-{line.style}">{escape(line.name)}</span>' for line in series
        )
    label = "; ".join(
        f"{line.name}: now {shown(_last(line.values))}, at most "
        f"{shown(max((v for _, v in line.values if v is not None), default=None))}"
        for line in series
    )
    return Markup(
        f'<figure class="chart"><figcaption>{escape(title)} {legend}</figcaption>'
        f'<svg role="img" viewBox="0 0 {width} {_CHART_HEIGHT}" '
        f'aria-label="{escape(f"{title} over {ago}: {label}")}">'
        f"{''.join(grid)}{''.join(lines)}</svg></figure>"
    )


def _last(values: Values) -> float | None:
    return next((value for _, value in reversed(values) if value is not None), None)


def _tick(text: str) -> str:
    """Return the text of a value of the axis, without a second unit that is zero."""
    return text.removesuffix(" 00s").removesuffix(" 00m").removesuffix(" 00h")


def _round_up_time(value_ms: float) -> float:
    """Return the next duration in ms whose thirds are whole seconds, minutes, hours or days."""
    for minutes in _MINUTES:
        if _LONGEST_DECIMAL_MS < value_ms <= minutes * 60_000:
            return minutes * 60_000
    days = value_ms / _DAY_MS
    return _round_up(value_ms) if days < 1 else _round_up(days) * _DAY_MS


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


def in_flight(
    start_offset: int, end_offset: int, spans: Sequence[Span], holders: Mapping[str, str]
) -> Markup:
    """Return the picture of the records in flight of a partition: a bar from start to end offset,
    in which each span has the colour and the pattern of its state.

    :param holders: member id → client id
    """
    total = end_offset - start_offset
    if total <= 0 or not spans:
        return Markup('<p class="empty">nothing is in flight</p>')
    drawn = spans[:_MAX_DRAWN]
    widths = [max(_THINNEST, _BAR_WIDTH * span.record_count / total) for span in drawn]
    factor = _BAR_WIDTH / sum(widths)
    x = 0.0
    parts = []
    for span, width in zip(drawn, widths, strict=True):
        kind = span.state.name.lower()
        title = escape(span_text(span, holders))
        thin = "" if width * factor > _THIN else " thin"
        parts.append(
            f'<rect class="{kind}{thin}" x="{x:.2f}" y="0" '
            f'width="{width * factor:.2f}" height="{_BAR_HEIGHT}"><title>{title}</title></rect>'
        )
        x += width * factor
    counts = dict.fromkeys(SpanState, 0)
    for span in spans:
        counts[span.state] += span.record_count
    label = f"offsets {start_offset:,} to {end_offset - 1:,}: " + ", ".join(
        f"{count:,} {state.name.lower()}" for state, count in counts.items() if count
    )
    return Markup(
        f'<svg class="flight" role="img" viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" '
        f'preserveAspectRatio="none" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


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
    left = duration(span.remaining_ms)
    if span.state is SpanState.LOCKED:
        holder = holders.get(span.member_id or "") or span.member_id
        return f"held by {holder} for {left} more{times}"
    if span.state is SpanState.WAITING:
        return f"waits {left} for its next delivery{times}"
    if span.state is SpanState.FINISHED:
        return "done"
    return f"available{times or ', not delivered yet'}"
