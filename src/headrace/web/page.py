"""The HTML of the page: templates, their filters, and the files beside them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from headrace.amounts import count_of, size
from headrace.http.messages import Response
from headrace.log_lines import printable
from headrace.protocol.dead_letters import OFFSET

from . import texts
from .errors import NotThere
from .lists import MAX_WORKERS_OF_PAGE
from .requests import PageRequest, url
from .schemas import as_json
from .site import Site

_FOLDER = Path(__file__).parent
_TYPES = {
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".txt": b"text/plain; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_MAX_NAME_CHARS = 300
_RETRY_S = 5
"""The time after which a browser asks again for a page that the cluster did not answer for."""


class Pages:
    """The templates, and the files that they refer to."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted((_FOLDER / "static").iterdir())
            if path.suffix in _TYPES
        }
        digest = hashlib.sha256(b"".join(body for body, _ in self._files.values()))
        self._version = digest.hexdigest()[:12]
        """Part of the addresses of the files, which browsers may keep for ever."""
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
        )
        environment.policies["json.dumps_function"] = lambda value, **_: as_json(value).decode()
        environment.filters.update(
            number=texts.number,
            exact=texts.exact,
            duration=texts.duration,
            forecast=texts.forecast,
            moment=texts.moment,
            size=size,
            count_of=count_of,
            short=texts.short,
            rendered=texts.rendered,
            shown=lambda text: printable(str(text), _MAX_NAME_CHARS),
        )
        environment.globals.update(
            url=url,
            version=self._version,
            histories=site.observer,
            letter_offset=OFFSET,
            max_workers=MAX_WORKERS_OF_PAGE,
        )
        self._names = frozenset(environment.list_templates())
        self._environment = environment

    def _render(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)

    def html(
        self, request: PageRequest, template: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Return a page.

        The page has the template ``NAME.html``; its part that changes with time has the template
        ``NAME_live.html``, if there is one. With ``part`` in the query, return only this part; or
        204, if ``part`` is the digest of what the browser shows already.
        """
        access = self._site.access
        observer = self._site.observer if access.may_view(request) else None
        query = {name: text for name, text in request.query.items() if name != "part"}
        values = {
            "user": request.user,
            "may_act": bool(access.users),
            "acting": request.session is not None,
            "csrf": "" if request.session is None else request.session.csrf,
            "seen": observer and observer.observation,
            "problem": observer and observer.problem,
            "stale_ms": observer and observer.stale_ms(time.time_ns() // 1_000_000),
            "cluster_address": observer and self._site.cluster.bootstrap_servers,
            "retry_s": _RETRY_S if status == 502 and request.method == "GET" else None,
            "path": request.path,
            "address": request.target,
            "query": query,
            "live": "",
            "live_url": "",
            **values,
        }
        live_template = f"{template}_live.html"
        if live_template in self._names:
            live = self._render("live_state.html", values)
            live += self._render(
                live_template if values["view"] is not None else "waiting.html", values
            )
            digest = hashlib.sha256(live.encode()).hexdigest()[:16]
            if request.query.get("part") == digest:
                return Response(204, b"")
            values["live"] = Markup(live)
            values["live_url"] = url(request.path, **{**query, "part": digest})
        name = "live.html" if request.is_part else f"{template}.html"
        body = self._render(name, values).encode()
        return Response(status, body, [(b"content-type", b"text/html; charset=utf-8")])

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
        cache = b"public, max-age=31536000, immutable" if is_current else b"no-store"
        return Response(200, body, [(b"content-type", content_type), (b"cache-control", cache)])
