"""The HTML of the page: templates, their filters, and the files beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from headrace.log_lines import printable

from . import pictures, texts
from .history import Point

_FOLDER = Path(__file__).parent
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MAX_NAME_CHARS = 300


class StaticFile(NamedTuple):
    """A file that the page refers to."""

    body: bytes
    content_type: str


def static_files() -> dict[str, StaticFile]:
    """Return the files by name."""
    return {
        path.name: StaticFile(path.read_bytes(), _TYPES[path.suffix])
        for path in sorted((_FOLDER / "static").iterdir())
        if path.suffix in _TYPES
    }


def url(path: str, **query: object) -> str:
    """Return an address with a query, without parameters that are empty or None."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, safe=':,')}" if given else path


def lag_spark(history: tuple[Point, ...]) -> Markup:
    """Return a sparkline of the lag."""
    return pictures.sparkline([(one.time_ms, one.lag) for one in history], "lag", texts.number)


def rate_spark(history: tuple[Point, ...]) -> Markup:
    """Return a sparkline of the records produced per second."""
    values = [(one.time_ms, one.produced_per_s) for one in history]
    return pictures.sparkline(values, "records a second", texts.number)


class Pages:
    """The templates."""

    def __init__(self) -> None:
        self.files = static_files()
        digest = hashlib.sha256(b"".join(one.body for one in self.files.values()))
        self.version = digest.hexdigest()[:12]
        """Part of the addresses of the files, which browsers may keep for ever."""
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
        )
        self.names = frozenset(self._environment.list_templates())
        """The names of all templates."""
        self._environment.filters.update(
            number=texts.number,
            whole=texts.whole,
            duration=texts.duration,
            forecast=texts.forecast,
            moment=texts.moment,
            size=texts.size,
            shown=lambda text: printable(str(text), _MAX_NAME_CHARS),
            lag_spark=lag_spark,
            rate_spark=rate_spark,
        )
        self._environment.globals.update(url=url, version=self.version)

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return the HTML of a template."""
        return self._environment.get_template(name).render(values)
