"""The output of commands: rows as a table or JSON, and questions before changes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from headrace.amounts import duration

from .errors import BadUsage, Failure, fail_with
from .options import arg
from .tables import Colored, json_line, one_line, shortened, table, tell

K = TypeVar("K")

FORMS = ("table", "wide", "json", "jsonl")
Row = Mapping[str, object]
"""Field → value. Fields have Kafka's names in lower snake case; None is unknown."""
_LISTED = 20
"""The number of lines that a question names."""


output_option = arg(
    "-o --output",
    choices=FORMS,
    default="table",
    help="table; wide: with more columns; json: an array; jsonl: an object a line",
)


class Output:
    """The output of a command in one of :data:`FORMS`.

    :param dry_run: only print what would be changed
    :param yes: do not ask before a change
    :cvar group_types: the types of the groups that it may print; empty for all
    """

    group_types: Sequence[str] = ()

    def __init__(self, form: str = "table", *, dry_run: bool = False, yes: bool = False) -> None:
        self.form = form
        self.dry_run = dry_run
        self.yes = yes
        self.is_for_people = sys.stdout.isatty()
        self.columns = sys.maxsize
        """The width of a table; without a limit, a terminal wraps it."""

    @property
    def is_json(self) -> bool:
        """Whether it is for programs."""
        return self.form.startswith("json")

    def rows(
        self,
        rows: Iterable[Row],
        *,
        wide: Collection[str] = (),
        nothing: str | None = None,
        problems: Iterable[object] = (),
    ) -> None:
        """Print rows with the same fields, in their order; on a terminal, the largest lag first.

        :param wide: the fields that a table has only with ``-o wide``
        :param nothing: what to say on stderr instead of an empty table
        :param problems: what failed besides
        :raises Failure: there are problems
        """
        rows, failures = list(rows), list(map(str, problems))
        if self.form == "jsonl":
            for row in rows:
                print(json_line(row))
        elif self.form == "json":
            lines = ",\n ".join(map(json_line, rows))
            print(f"[{lines}]")
        elif rows:
            self._print(rows, wide)
        elif nothing is not None and not failures:
            tell(nothing)
        fail_with(failures)

    def _print(self, rows: Sequence[Row], wide: Collection[str]) -> None:
        """Print a table of at least one row."""
        shown = self._by_lag(rows) if self.is_for_people and "lag" in rows[0] else rows
        print(self.table(shown, wide))
        if len(shown) < len(rows):
            tell(f"and {len(rows) - len(shown):,} without a lag: -o wide")

    def _by_lag(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows with the largest lag first; unless wide, without those that have none."""

        def lag(row: Row) -> float:
            records: Any = row["lag"]
            return 0.5 if records is None else -records

        ordered = sorted(rows, key=lambda row: (lag(row) == 0, lag(row)))
        behind = [row for row in ordered if row["lag"] != 0]
        return ordered if self.form == "wide" else behind or ordered

    async def change(
        self,
        rows: Mapping[K, Row],
        execute: Callable[[], Awaitable[Mapping[K, object] | None]],
        question: str | None,
        *,
        problems: Iterable[object] = (),
    ) -> None:
        """Change something after a question, and print a row for each change.

        :param rows: key → row; its last field is ``result``, such as ``deleted``
        :param execute: makes the changes; returns the errors by key, or raises one
        :param question: None for changes that nobody regrets
        :param problems: why something else is not changed
        :raises Failure: the answer is no, or there are problems
        """
        planned = [{**row, "result": f"would be {row['result']}"} for row in rows.values()]
        if self.dry_run or not rows:
            self.rows(planned, nothing="nothing to do", problems=problems)
            return
        if question is not None:
            preview = Output()
            preview.is_for_people = False  # confirm escapes colors
            confirm(question, preview.table(planned).splitlines(), yes=self.yes)
        outcomes = await execute() or {}
        failures = {
            key: outcome for key, outcome in outcomes.items() if isinstance(outcome, Exception)
        }
        done = [row for key, row in rows.items() if key not in failures]
        self.rows(done, problems=[*problems, *failures.values()])

    def table(self, rows: Sequence[Row], wide: Collection[str] = ()) -> str:
        """Return a table of at least one row; the parameters are those of :meth:`rows`."""
        fields = [name for name in rows[0] if self.form == "wide" or name not in wide]
        titles: list[object] = list(map(title, fields))
        cells = [[self._cell(name, row[name]) for name in fields] for row in rows]
        if self.is_for_people and "NO_COLOR" not in os.environ:
            titles = [Colored(title(name), _BOLD) for name in fields]
        return table(titles, cells, self.columns)

    def _cell(self, name: str, value: object) -> object:
        """Return a value as a table shows it; for people with separators and colors."""
        text = plain(name, value)
        if not self.is_for_people:
            return text
        sgr = _COLORS.get(str(value)) if name in _COLORED else None
        if isinstance(value, int) and (name in _COUNTS or name.endswith("_count")):
            text, sgr = f"{value:,}", None if value else _DIM
        elif name == "stuck" and value:
            sgr = _RED
        return text if sgr is None or "NO_COLOR" in os.environ else Colored(str(text), sgr)


_BOLD, _DIM, _RED, _GREEN, _YELLOW = 1, 2, 31, 32, 33
_COUNTS = ("lag", "held", "size_bytes")
"""The fields that have thousands separators, besides those that end with ``_count``. Offsets have
none: people copy them.
"""
_COLORED = ("group_state", "state", "result", "breaker", "seconds_to_zero")
_MOMENTS = ("timestamp_ms", "oldest_ms", "newest_ms", "snapshot_time_ms")
"""Times since the epoch. Other fields in milliseconds are durations."""
_COLORS = {
    **dict.fromkeys(("Stable", "Active"), _GREEN),
    **dict.fromkeys(("Empty", "NotReady", "waiting"), _DIM),
    **dict.fromkeys(("Dead", "-1.0", "refused", "open", "stuck"), _RED),
    **dict.fromkeys(
        ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "probing"),
        _YELLOW,
    ),
}
"""Text of a cell → its color."""


def title(field: str) -> str:
    """Return the title of a field in a table, which has other units."""
    name = "zero_in" if field == "seconds_to_zero" else field.removesuffix("_ms")
    return name.upper().replace("_", "-")


def plain(name: str, value: Any) -> object:
    """Return a value as a table shows it: ``orders:0,1;returns:0``, ``a=1,b=2``, ``yes``."""
    if value is None:
        return None
    if name in _MOMENTS:
        return _moment(value)
    if name.endswith("_ms"):
        return duration(value / 1000)
    if name == "seconds_to_zero":
        return "never" if value < 0 else duration(value)
    if name.endswith("_per_s"):
        return f"{value:,.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = (
            f"{key}:{','.join(map(str, item))}"
            if isinstance(item, (list, tuple))
            else f"{key}={item}"
            for key, item in value.items()
        )
        return ";".join(parts) or None
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or None
    if isinstance(value, float):
        return json.dumps(int(value) if value.is_integer() else value)
    return value


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):  # a producer may write any timestamp
        return str(time_ms)


@contextmanager
def signals_handled(handler: Callable[[int, Any], object], *numbers: int) -> Iterator[None]:
    """Have a function handle signals while the block runs."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def interruptible() -> AbstractContextManager[None]:
    """Let Ctrl-C end a wait for an answer at once, also inside of an event loop."""
    return signals_handled(signal.default_int_handler, signal.SIGINT)


def confirm(question: str, lines: Sequence[str], *, yes: bool) -> None:
    """List what is about to be changed, and ask.

    :param yes: do not ask
    :raises Failure: the answer is no
    :raises BadUsage: there is no terminal to ask on
    """
    if yes or not lines:
        return
    if not sys.stdin.isatty():
        raise BadUsage(f"{question} There is no terminal to ask on: give --yes, or --dry-run")
    for line in shortened(lines, _LISTED):
        tell(f"  {line}")
    print(f"{one_line(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    with interruptible():
        answer = sys.stdin.buffer.readline()
    if answer.strip().lower() not in (b"y", b"yes"):
        raise Failure("nothing was changed")
