"""The HTML of the page: templates, their filters, and the files beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from headrace.amounts import size
from headrace.http.messages import Response
from headrace.log_lines import printable

from . import pictures, texts
from .errors import NotThere
from .limits import MAX_WORKERS_OF_PAGE
from .observer import Observer
from .requests import url

_FOLDER = Path(__file__).parent
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MAX_NAME_CHARS = 300


class Pages:
    """The templates, and the files that they refer to."""

    def __init__(self, observer: Observer) -> None:
        paths = sorted((_FOLDER / "static").iterdir())
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in paths
            if path.suffix in _TYPES
        }
        digest = hashlib.sha256(b"".join(body for body, _ in self._files.values()))
        self._version = digest.hexdigest()[:12]
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
            exact=texts.exact,
            duration=texts.duration,
            forecast=texts.forecast,
            moment=texts.moment,
            size=size,
            short=texts.short,
            rendered=texts.rendered,
            shown=lambda text: printable(str(text), _MAX_NAME_CHARS),
        )
        self._environment.globals.update(
            url=url,
            version=self._version,
            lag_spark=lambda group_id: pictures.lag_spark(observer.groups.of(group_id)),
            rate_spark=lambda topic: pictures.rate_spark(observer.topics.of(topic)),
            group_charts=pictures.group_charts,
            topic_chart=pictures.topic_chart,
            in_flight=pictures.in_flight,
            max_workers=MAX_WORKERS_OF_PAGE,
        )

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return the HTML of a template."""
        return self._environment.get_template(name).render(values)

    def file(self, address: str) -> Response:
        """Return a file.

        :param address: its version and name
        :raises NotThere: there is no such file
        """
        version, _, name = address.partition("/")
        if name not in self._files:
            raise NotThere("There is no such file.")
        body, content_type = self._files[name]
        is_current = version == self._version
        cache = "public, max-age=31536000, immutable" if is_current else "no-store"
        headers = {"content-type": content_type, "cache-control": cache}
        return Response(200, body, [(key.encode(), text.encode()) for key, text in headers.items()])
