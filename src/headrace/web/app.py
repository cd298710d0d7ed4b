"""The routes of the page: each view as HTML and as JSON, logins, actions; and what every answer
has: headers against attacks, and a delay after wrong passwords.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

from headrace.client.errors import (
    ClientError,
    RequestRefused,
    UnknownGroup,
    UnknownTopic,
    missing_permission,
)
from headrace.http.hosts import Hosts
from headrace.http.messages import Request, Response
from headrace.http.server import HttpServer
from headrace.log_lines import LimitedLog

from . import groups, lists, record_views
from .access import TOKEN_USER
from .actions import ACTIONS, Action
from .errors import (
    BadRequest,
    NotAllowed,
    NotSeen,
    NotThere,
    PageError,
    TooLong,
    WrongMethod,
    WrongType,
)
from .openapi import document
from .page import Pages
from .plans import Plan, log_line
from .requests import MAX_URL_BYTES, PageRequest, json_response, redirect, url
from .schemas import parameters_of, parsed
from .site import MAX_READS, Site, Visit, in_thread
from .views import Error, Preview

log = LimitedLog("headrace.ui")

Handle = Callable[[PageRequest], Awaitable[Response]]

MAX_CONNECTIONS = 256
"""Connections at a time, and TLS handshakes. One more closes the oldest that has sent no request.
"""
MAX_CONCURRENT_REQUESTS = 64
"""Requests in progress; further ones get 503."""
_JSON = "application/json"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""No code, style, picture or form from elsewhere, and nothing inline."""
_HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"cache-control": b"no-store",
}
_TLS_ONLY = {b"strict-transport-security": b"max-age=31536000"}
_FOLDERS = ("/static/", "/action/", "/api/actions/")


View = Callable[..., Awaitable[Any]]
"""Computes a view; its name is that of the template, and of the path below ``/api/``."""
_OF_RECORDS: tuple[View, ...] = (record_views.letters, record_views.records, record_views.record)
"""Few of these are computed and rendered at a time, in threads."""
VIEWS: tuple[View, ...] = (
    *(lists.overview, lists.groups, groups.group, lists.topics, groups.topic, lists.tasks),
    *_OF_RECORDS,
    lists.search,
)


class App:
    """The page."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._access = site.access
        self._html = Pages(site)
        self._headers = _HEADERS | (_TLS_ONLY if site.access.is_secure else {})
        self._reading = asyncio.Semaphore(MAX_READS)
        self._routes: dict[str, dict[str, Handle]] = {
            "/api": {"GET": self._api},
            "/api/openapi.json": {"GET": self._openapi},
            "/static/": {"GET": self._static},
            "/login": {"GET": self._login, "POST": self._login},
            "/logout": {"POST": self._logout},
            "/action/": {"POST": self._plan},
            "/action/confirm": {"POST": self._confirm},
            "/api/actions/": {"POST": self._act},
        }
        for view in VIEWS:
            name = view.__name__
            for address in ("/" if name == "overview" else f"/{name}", f"/api/{name}"):
                self._routes[address] = {"GET": partial(self._view, view)}

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        response = await self._answered(PageRequest(request))
        own = dict(response.headers)
        added = [(name, value) for name, value in self._headers.items() if name not in own]
        return response._replace(headers=[*response.headers, *added])

    async def _answered(self, request: PageRequest) -> Response:
        try:
            self._access.identify(request)
            try:
                response = await self._handle(request)(request)
            except (PageError, ClientError) as error:
                response = self._failed(request, error)
        except Exception as error:
            log.error("", "cannot serve %s", request.path, exc_info=error)
            response = Response.plain(500, "The page has failed; its log has the reason.")
        if request.is_late:
            await self._access.failed_logins.delay()
        return response

    def _handle(self, request: PageRequest) -> Handle:
        """Return what answers a request."""
        if len(request.target) > MAX_URL_BYTES:
            raise TooLong("The address is too long.")
        folder = next((each for each in _FOLDERS if request.path.startswith(each)), "")
        methods = self._routes.get(request.path) or self._routes.get(folder)
        if methods is None:
            raise NotThere("There is no such page.")
        method = "GET" if request.method == "HEAD" else request.method
        if method not in methods:
            raise WrongMethod(", ".join("GET, HEAD" if each == "GET" else each for each in methods))
        return methods[method]

    # Views ----------------------------------------------------------------------------------------

    async def _view(self, view: View, request: PageRequest) -> Response:
        """Return a view as a page, or as JSON.

        :raises PageError: a parameter cannot be used, or what it names does not exist
        :raises ClientError: the cluster cannot be reached, or refuses
        """
        if not self._access.may_view(request):
            return self._to_login(request)
        names = parameters_of(view).__struct_fields__
        query = {name: request.query[name] for name in names if name in request.query}
        visit = Visit(self._site, request.path, query, request.is_part)
        reads = view in _OF_RECORDS
        async with self._reading if reads else nullcontext():
            try:
                shown = await view(visit, **parsed(view, query))
            except NotSeen:
                if request.is_api:
                    raise
                shown = None
            render = (
                partial(json_response, shown)
                if request.is_api
                else partial(self._html.html, request, view.__name__, {"view": shown})
            )
            return await in_thread(render) if reads else render()

    def _to_login(self, request: PageRequest) -> Response:
        # A page that is open is loaded again as a whole; for a challenge, its browser would ask for
        # a password itself.
        if request.is_part or "x-requested-with" in request.headers:
            return Response(401, b"", [(b"hx-refresh", b"true")])
        if request.is_api:
            raise NotAllowed("this takes a login")
        return redirect(url("/login", back=request.target))

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document(VIEWS)

    async def _openapi(self, _: PageRequest) -> Response:
        return json_response(self._document)

    async def _api(self, request: PageRequest) -> Response:
        if not self._access.may_view(request):
            return self._to_login(request)
        return self._html.html(request, "api", {"paths": self._document["paths"]})

    async def _static(self, request: PageRequest) -> Response:
        return self._html.file(request.path.removeprefix("/static/"))

    # Actions --------------------------------------------------------------------------------------

    def _action(self, request: PageRequest, folder: str) -> Action:
        name = request.path.removeprefix(folder)
        if name not in ACTIONS:
            raise NotThere(f"There is no action {name!r}.")
        return ACTIONS[name]

    async def _executed(self, request: PageRequest, user: str, plan: Plan) -> str:
        outcome = await self._site.plans.execute(user, request.host, plan)
        self._site.observer.refresh()
        return outcome

    async def _plan(self, request: PageRequest) -> Response:
        """Return what an action would change, with the button that confirms it."""
        user, fields = self._access.form(request)
        back = _own_path(fields.pop("back", ""))
        plan = await self._action(request, "/action/").plan(self._site, fields)
        plan.back = back
        values = {"plan": plan, "plan_id": self._site.plans.keep(user, plan)}
        return self._html.html(request, "plan", values)

    async def _confirm(self, request: PageRequest) -> Response:
        """Execute an action that was shown before."""
        user, fields = self._access.form(request)
        plan = self._site.plans.take(user, fields.get("plan", ""))
        if plan is None:
            raise BadRequest("This action was executed already, or was shown too long ago.")
        outcome = await self._executed(request, user, plan)
        values = {"title": plan.title, "text": outcome, "tone": "good", "back": plan.back}
        return self._html.html(request, "message", values)

    async def _act(self, request: PageRequest) -> Response:
        """Return the plan of an action, and execute it if the body has ``"dry_run": false``."""
        # A browser that has a password for this site sends it with the form of another site, too.
        # No form can have this type, and a script of another site may not send it.
        request.require_same_origin()
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise WrongType(f"An action takes a body of the type {_JSON}.")
        if request.user is None or request.session is not None:
            # A login of a browser is not enough: another site could make the browser send it.
            raise NotAllowed("this takes a token or a password in the Authorization header")
        fields = request.json_fields()
        is_dry = fields.pop("dry_run", True)
        if not isinstance(is_dry, bool):
            raise BadRequest("dry_run is true or false.")
        plan = await self._action(request, "/api/actions/").plan(self._site, fields)
        outcome = None if is_dry else await self._executed(request, request.user, plan)
        preview = Preview(plan.title, plan.changes, plan.cautions, not is_dry, outcome)
        return json_response(preview)

    # Logins ---------------------------------------------------------------------------------------

    async def _login(self, request: PageRequest) -> Response:
        """Return the login form; with POST, check it and begin a login."""
        has_users = bool(self._access.users.keys() - {TOKEN_USER})
        back, wrong, user = request.query.get("back", ""), "", None
        if request.method == "POST":
            fields = request.form()
            back, name = fields.get("back", ""), fields.get("name", "")
            wrong = "Wrong name or password." if has_users else "Wrong token."
            user = self._access.admitted(request, name, fields.get("password", ""))
        elif "once" in request.query:
            wrong = "This address was used before, or too late: log in with the token."
            user = self._access.admitted_first(request, request.query["once"])
        if user is not None:
            log_line(user, request.host, "has logged in")
            return redirect(_own_path(back), [self._access.begin(user)])
        values = {"wrong": wrong, "back": back, "has_users": has_users}
        return self._html.html(request, "login", values, 401 if wrong else 200)

    async def _logout(self, request: PageRequest) -> Response:
        user, _ = self._access.form(request)
        log_line(user, request.host, "has logged out")
        return redirect("/", [self._access.end(request)])

    # Failures -------------------------------------------------------------------------------------

    def _failed(self, request: PageRequest, error: PageError | ClientError) -> Response:
        """Answer a request that cannot be served."""
        title, status = _explained(error)
        if request.is_api:
            response = json_response(Error(str(error)), status)
        elif request.is_part:  # the browser keeps the part that it shows
            response = Response(status, b"")
        else:
            values = {"title": title, "text": str(error), "tone": "bad", "back": "/"}
            response = self._html.html(request, "message", values, status)
        headers = error.headers if isinstance(error, PageError) else ()
        return response._replace(headers=[*response.headers, *headers])


def _own_path(address: str) -> str:
    """Return an address that is a path on this site, or the overview. ``//host`` is no path."""
    is_own = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_own else "/"


def _explained(error: PageError | ClientError) -> tuple[str, int]:
    """Return the title and the status for an error."""
    if isinstance(error, PageError):
        return error.title, error.status
    if isinstance(error, UnknownTopic | UnknownGroup):
        return NotThere.title, NotThere.status
    if isinstance(error, RequestRefused):
        is_forbidden = missing_permission(error.code, "") is not None
        return "The cluster refuses", 403 if is_forbidden else 502
    return "The cluster does not answer", 502


_STOP_S = 2


@asynccontextmanager
async def server_of(
    site: Site, hosts: Hosts, tls: ssl.SSLContext | None
) -> AsyncIterator[HttpServer]:
    """Yield a server of the page, which the block starts; close it, and what is behind it.

    :param tls: None for plain HTTP
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = descriptors == resource.RLIM_INFINITY
    server = HttpServer(
        App(site).answer,
        hosts,
        tls,
        # Handshakes take as many again; the rest is for the connections to the cluster.
        max_connections=MAX_CONNECTIONS if is_unlimited else min(MAX_CONNECTIONS, descriptors // 4),
        max_requests=MAX_CONCURRENT_REQUESTS,
    )
    try:
        yield server
    finally:
        await server.close(_STOP_S)
        site.observer.close()
        await site.redrives.close()
        await site.cluster.close()
