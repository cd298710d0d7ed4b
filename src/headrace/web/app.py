"""The routes of the page: each view as HTML and as JSON, logins, actions; and the answers to what
fails.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.client.errors import ClientError, RequestRefused, UnknownTopic, missing_permission

from . import groups, lists, record_views, topics
from .access import fields_of, host_of, is_part, require_same_origin
from .actions import ACTIONS
from .guard import Guard
from .limits import MAX_API_VALUE_BYTES, SHOWN_VALUE_BYTES
from .openapi import document
from .plans import Plan, log_line
from .reads import Handle, Reads, in_thread
from .schemas import BadRequest, plain
from .site import Site
from .views import Error, Preview
from .visits import NotSeen, NotThere, url

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class View:
    """A view of the page and of the API.

    :param compute: its function; its name is that of the template, and of the path below ``/api/``
    :param fixed: parameters that the page chooses itself
    :param reads: it reads records, so that few are computed and rendered at a time, in threads
    """

    compute: Callable[..., Awaitable[Any]]
    fixed: Mapping[str, str] = field(default_factory=dict)
    reads: bool = False

    @property
    def name(self) -> str:
        return self.compute.__name__


VIEWS = (
    View(lists.overview),
    View(lists.groups),
    View(groups.group),
    View(lists.topics),
    View(topics.topic),
    View(record_views.records, {"max_value_bytes": str(SHOWN_VALUE_BYTES)}, reads=True),
    View(record_views.record, {"max_value_bytes": str(MAX_API_VALUE_BYTES)}, reads=True),
    View(lists.actions),
)


class NotAllowed(Exception):
    """A request has no token or password in its Authorization header."""


class WrongType(Exception):
    """The body of a request has another type than it must have. The page shows the text."""


def create_app(site: Site) -> ASGIApp:
    """Return the application."""
    app = _App(site)
    failures = (BadRequest, NotSeen, NotThere, NotAllowed, WrongType, ClientError, HTTPException)
    starlette = Starlette(
        routes=app.routes(), exception_handlers=dict.fromkeys(failures, app.failed)
    )
    return Guard(starlette, site.access.failed_logins, is_secure=site.access.is_secure)


class _App:
    """The handlers of all routes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reads = Reads()

    def routes(self) -> list[Route]:
        routes = []
        for view in VIEWS:
            page_path = "/" if view.name == "overview" else f"/{view.name}"
            for path, serve in ((page_path, self._page), (f"/api/{view.name}", self._json)):
                handle: Handle = partial(serve, view)
                handle = self._reads(handle) if view.reads else handle
                routes.append(Route(path, self._viewed(handle)))
        return [
            *routes,
            Route("/api", self._viewed(self._api)),
            Route("/api/openapi.json", self._openapi),
            Route("/api/actions/{action}", self._act, methods=["POST"]),
            Route("/action/confirm", self._confirm, methods=["POST"]),
            Route("/action/{action}", self._plan, methods=["POST"]),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/static/{version}/{name}", self._static),
        ]

    # Views ----------------------------------------------------------------------------------------

    def _viewed(self, handle: Handle) -> Handle:
        """Return a handler that serves visitors who may view pages, and asks others to log in."""

        async def viewed(request: Request) -> Response:
            access = self._site.access
            if access.may_view(access.visitor(request)):
                return await handle(request)
            if _is_api(request):
                return _challenged(_refusal("this takes a login", 401))
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(url("/login", back=f"{request.url.path}{query}"), 303)

        return viewed

    async def _page(self, view: View, request: Request) -> Response:
        try:
            shown = await self._site.view(request, view.compute, view.fixed)
        except NotSeen:
            shown = None
        render = partial(self._site.html, request, view.name, {"view": shown, "actions": ACTIONS})
        return await in_thread(render) if view.reads else render()

    async def _json(self, view: View, request: Request) -> Response:
        shown = await self._site.view(request, view.compute, {})

        def render() -> Response:
            return JSONResponse(plain(shown))

        return await in_thread(render) if view.reads else render()

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document([view.compute for view in VIEWS], ACTIONS.values())

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(self._document)

    async def _api(self, request: Request) -> Response:
        return self._site.html(request, "api", {"paths": self._document["paths"]})

    async def _static(self, request: Request) -> Response:
        return self._site.pages.file(**request.path_params)

    # Actions --------------------------------------------------------------------------------------

    async def _planned(self, request: Request, fields: Mapping[str, str]) -> Plan:
        name = request.path_params["action"]
        if name not in ACTIONS:
            raise NotThere(f"There is no action {name!r}.")
        return await ACTIONS[name].plan(self._site.tools, fields)

    async def _executed(self, request: Request, user: str, plan: Plan) -> str:
        outcome = await self._site.plans.execute(user, host_of(request), plan)
        self._site.observer.refresh()
        return outcome

    async def _plan(self, request: Request) -> Response:
        """Return what an action would change, with the button that confirms it."""
        user, fields = await self._site.access.form(request)
        plan = await self._planned(request, fields)
        plan.back = _own_path(fields.get("back", ""))
        values = {"plan": plan, "plan_id": self._site.plans.keep(user, plan)}
        return self._site.html(request, "plan", values)

    async def _confirm(self, request: Request) -> Response:
        """Execute an action that was shown before."""
        user, fields = await self._site.access.form(request)
        plan = self._site.plans.take(user, fields.get("plan", ""))
        if plan is None:
            raise BadRequest("This action was executed already, or was shown too long ago.")
        outcome = await self._executed(request, user, plan)
        values = {"title": plan.title, "text": outcome, "tone": "good", "back": plan.back}
        return self._site.html(request, "message", values)

    async def _act(self, request: Request) -> Response:
        """Return the plan of an action, and execute it if the body has ``"dry_run": false``."""
        # A browser that has a password for this site sends it with the form of another site, too.
        # No form can have this type, and a script of another site may not send it.
        require_same_origin(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise WrongType(f"An action takes a body of the type {_JSON}.")
        visitor = self._site.access.visitor(request)
        if visitor.user is None or visitor.session is not None:
            # A login of a browser is not enough: another site could make the browser send it.
            raise NotAllowed
        fields = await _json_fields(request)
        is_dry = fields.pop("dry_run", True)
        if not isinstance(is_dry, bool):
            raise BadRequest("dry_run is true or false.")
        plan = await self._planned(
            request, {name: _field_text(value) for name, value in fields.items()}
        )
        outcome = None if is_dry else await self._executed(request, visitor.user, plan)
        preview = Preview(plan.title, plan.changes, plan.cautions, not is_dry, outcome)
        return JSONResponse(plain(preview))

    # Logins ---------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        """Return the login form; with POST, check it and begin a login."""
        access = self._site.access
        back = request.query_params.get("back", "")  # the address of any page
        wrong = ""
        if request.method == "POST":
            fields = await fields_of(request)
            back = fields.get("back", "")
            user = access.admitted(request, fields.get("name", ""), fields.get("password", ""))
            if user is not None:
                log_line(user, host_of(request), "has logged in")
                response = RedirectResponse(_own_path(back), 303)
                response.set_cookie(
                    access.cookie,
                    access.sessions.begin(user),
                    httponly=True,
                    samesite="strict",
                    secure=access.is_secure,
                    path="/",
                )
                return response
            wrong = "That is not right."
        values = {"wrong": wrong, "back": back, "has_users": bool(access.credentials.users)}
        return self._site.html(request, "login", values, 401 if wrong else 200)

    async def _logout(self, request: Request) -> Response:
        access = self._site.access
        user, _ = await access.form(request)
        access.sessions.end(request.cookies.get(access.cookie))
        log_line(user, host_of(request), "has logged out")
        response = RedirectResponse("/", 303)
        response.delete_cookie(access.cookie, path="/", secure=access.is_secure, httponly=True)
        return response

    # Failures -------------------------------------------------------------------------------------

    def failed(self, request: Request, error: Exception) -> Response:
        """Answer a request that cannot be served."""
        title, status, text = _explained(error)
        if _is_api(request):
            answer = _refusal(text, status)
            return _challenged(answer) if status == 401 else answer
        if is_part(request):  # the browser keeps the part that it shows
            return Response(status_code=status)
        values = {"title": title, "text": text, "tone": "bad", "back": "/"}
        return self._site.html(request, "message", values, status)


def _is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _refusal(text: str, status: int) -> Response:
    return JSONResponse(plain(Error(text)), status)


def _challenged(response: Response) -> Response:
    """Add the challenges of RFC 9110. Each has a line, as browsers do not know two on one."""
    response.headers.append("www-authenticate", 'Basic realm="headrace", charset="UTF-8"')
    response.headers.append("www-authenticate", "Bearer")
    return response


def _own_path(address: str) -> str:
    """Return an address that is a path on this site, or the overview. ``//host`` is no path."""
    is_own = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_own else "/"


async def _json_fields(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request.

    :raises BadRequest: it has none
    """
    try:
        fields = json.loads(await request.body())
        json.dumps(fields, ensure_ascii=False).encode()  # half a character is no text
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON.") from None
    if not isinstance(fields, dict):
        raise BadRequest("The body is not a JSON object.")
    return fields


def _field_text(value: object) -> str:
    """Return a value of JSON as the field of a form."""
    if value is None or value is False:
        return ""
    return "yes" if value is True else str(value)


def _explained(error: Exception) -> tuple[str, int, str]:
    """Return the title, the status and the text for an error."""
    text = str(error)
    if isinstance(error, NotAllowed):
        text = "this takes a token or a password in the Authorization header"
        return "Not allowed", 401, text
    if isinstance(error, WrongType):
        return "This cannot be asked", 415, text
    if isinstance(error, BadRequest):
        return "This cannot be asked", 400, text
    if isinstance(error, NotThere | UnknownTopic):
        return "Not found", 404, text
    if isinstance(error, NotSeen):
        return "The cluster does not answer", 503, text
    if isinstance(error, RequestRefused):
        is_forbidden = missing_permission(error.code, "") is not None
        return "The cluster refuses", 403 if is_forbidden else 502, text
    if isinstance(error, ClientError):
        return "The cluster does not answer", 502, text
    if isinstance(error, HTTPException):
        texts = {404: "There is no such page.", 405: "This method is not served."}
        return "Not found", error.status_code, texts.get(error.status_code, error.detail)
    raise error
