"""The state behind all pages, and their rendering."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from headrace.client.config import ClientConfig
from headrace.http.messages import Response

from .access import Access, Credentials
from .actions import Tools
from .observation import Courses
from .observer import Observer
from .page import Pages
from .plans import Plans
from .redriving import Redrives
from .requests import PageRequest, html_response, url
from .schemas import parameters_of, parsed
from .visits import Visit

_RETRY_S = 5
"""The time after which a browser asks again for a page that the cluster did not answer for."""


class Site:
    """The state behind all pages.

    :param config: of the connections to the cluster
    :param credentials: of the users who may act; empty: the page is read-only
    :param producer_config: librdkafka's configuration, for records to produce
    :param login_to_view: require a login to view pages, too
    :param is_secure: the page is served over TLS, so that browsers may require it for the cookie
    """

    def __init__(
        self,
        config: ClientConfig,
        observer: Observer,
        credentials: Credentials,
        *,
        producer_config: Mapping[str, str],
        login_to_view: bool = False,
        is_secure: bool = False,
    ) -> None:
        self.access = Access(credentials, login_to_view=login_to_view, is_secure=is_secure)
        self.observer = observer
        self.cluster = config.cluster()
        self.pages = Pages(observer)
        self.plans = Plans()
        self.redrives = Redrives()
        self.tools = Tools(self.cluster, producer_config, self.redrives)
        self._courses = Courses()

    async def view(
        self, request: PageRequest, function: Callable[..., Any], fixed: Mapping[str, str]
    ) -> Any:
        """Return the view of a request.

        :param function: one of the functions of views
        :param fixed: parameters that the page chooses itself
        :raises BadRequest: a parameter cannot be used
        :raises NotSeen: the cluster was not seen yet
        :raises NotThere: what it names does not exist
        :raises ClientError: the cluster cannot be reached, or refuses
        """
        parameters = parameters_of(function)
        query = {
            each.name: request.query[each.name] for each in parameters if each.name in request.query
        }
        visit = Visit(
            self.cluster,
            self.observer,
            self._courses,
            self.plans,
            self.access.failed_logins.total,
            request.is_part,
            request.path,
            query,
        )
        return await function(visit, **parsed(parameters, {**query, **fixed}))

    def html(
        self, request: PageRequest, template: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        """Return a page.

        The page has the template ``NAME.html``; its part that changes with time has the template
        ``NAME_live.html``, if there is one. With ``part`` in the query, return only this part; or
        204, if ``part`` is the digest of what the browser shows already.
        """
        visitor = self.access.visitor(request)
        observer = self.observer if self.access.may_view(visitor) else None
        query = {name: text for name, text in request.query.items() if name != "part"}
        path = request.path
        values = {
            "visitor": visitor,
            "may_act": bool(self.access.credentials),
            "acting": visitor.user is not None,
            "csrf": visitor.session.csrf if visitor.session is not None else "",
            "seen": observer and observer.observation,
            "problem": observer and observer.problem,
            "stale_ms": observer and observer.stale_ms(time.time_ns() // 1_000_000),
            "retry_s": _RETRY_S if status == 502 and request.method == "GET" else None,
            "path": path,
            "address": request.target,
            "query": query,
            "live": "",
            "live_url": "",
            **values,
        }
        live_template = f"{template}_live.html"
        if live_template in self.pages.names:
            live = self.pages.render("live_state.html", values)
            live += self.pages.render(
                live_template if values["view"] is not None else "waiting.html", values
            )
            digest = hashlib.sha256(live.encode()).hexdigest()[:16]
            if request.query.get("part") == digest:
                return Response(204, b"")
            values["live"] = Markup(live)
            values["live_url"] = url(path, **{**query, "part": digest})
        name = "live.html" if request.is_part else f"{template}.html"
        return html_response(self.pages.render(name, values), status)
