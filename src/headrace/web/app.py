"""The routes of the page, and the answers to what fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.client.errors import ClientError, RequestRefused, UnknownTopic, missing_permission

from .api import Api, NotAllowed
from .guard import Guard
from .openapi import document
from .page import url
from .reads import Handle, Reads
from .requests import BadRequest, NotThere, WrongType, is_part
from .site import Site


def create_app(site: Site) -> ASGIApp:
    """Return the application."""
    api = Api(site)
    reads = Reads()

    def page(path: str, handle: Handle, **options: Any) -> Route:
        return Route(path, _viewed(site, handle, is_api=path.startswith("/api/")), **options)

    async def static(request: Request) -> Response:
        return site.static(request)

    async def api_page(request: Request) -> Response:
        return site.html(request, "api", {"paths": _described()})

    app = Starlette(
        routes=[
            page("/", site.overview),
            page("/groups", site.group_list),
            page("/group", site.group),
            page("/topics", site.topic_list),
            page("/topic", site.topic),
            page("/records", reads(site.records)),
            page("/record", reads(site.record)),
            page("/api", api_page),
            page("/api/overview", api.overview),
            page("/api/groups", api.groups),
            page("/api/group", api.group),
            page("/api/topics", api.topics),
            page("/api/topic", api.topic),
            page("/api/records", reads(api.records)),
            page("/api/record", reads(api.record)),
            page("/actions", site.actions),
            page("/api/actions", api.actions),
            Route("/action/confirm", site.confirm, methods=["POST"]),
            Route("/action/{action}", site.plan, methods=["POST"]),
            Route("/api/actions/{action}", api.act, methods=["POST"]),
            Route("/api/openapi.json", api.description),
            Route("/login", site.login, methods=["GET", "POST"]),
            Route("/logout", site.logout, methods=["POST"]),
            Route("/static/{version}/{name}", static),
        ],
        exception_handlers=dict.fromkeys(
            (BadRequest, NotThere, NotAllowed, WrongType, ClientError, HTTPException),
            _failed(site),
        ),
    )
    return Guard(app, site.failed_logins, is_secure=site.is_secure)


def _viewed(site: Site, handle: Handle, *, is_api: bool) -> Handle:
    """Return a handler that serves visitors who may view pages, and asks others to log in."""

    async def viewed(request: Request) -> Response:
        if site.may_view(site.visitor(request)):
            return await handle(request)
        if is_api:
            return _challenged(JSONResponse({"error": "this takes a login"}, 401))
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(url("/login", back=f"{request.url.path}{query}"), 303)

    return viewed


def _challenged(response: Response) -> Response:
    """Add the challenges of RFC 9110. Each has a line, as browsers do not know two on one."""
    response.headers.append("www-authenticate", 'Basic realm="headrace", charset="UTF-8"')
    response.headers.append("www-authenticate", "Bearer")
    return response


def _failed(site: Site) -> Callable[[Request, Exception], Response]:
    """Return the function that answers a request which cannot be served."""

    def failed(request: Request, error: Exception) -> Response:
        title, status, text = _explained(error)
        if request.url.path.startswith("/api/"):
            answer = JSONResponse({"error": text}, status)
            return _challenged(answer) if status == 401 else answer
        if is_part(request):  # the browser keeps the part that it shows
            return Response(status_code=status)
        values = {"title": title, "text": text, "tone": "bad", "back": ""}
        return site.html(request, "message", values, status)

    return failed


def _explained(error: Exception) -> tuple[str, int, str]:
    """Return the title, the status and the text for an error."""
    if isinstance(error, NotAllowed):
        text = "this takes a token or a password in the Authorization header"
        return "Not allowed", 401, text
    if isinstance(error, WrongType):
        return "This cannot be asked", 415, str(error)
    if isinstance(error, BadRequest):
        return "This cannot be asked", 400, str(error)
    if isinstance(error, NotThere | UnknownTopic):
        return "Not found", 404, str(error)
    if isinstance(error, RequestRefused):
        refused = missing_permission(error.code, "") is not None
        return "The cluster refuses", 403 if refused else 502, str(error)
    if isinstance(error, ClientError):
        return "The cluster does not answer", 502, str(error)
    if isinstance(error, HTTPException):
        known = {404: "There is no such page.", 405: "This method is not served."}
        return "Not found", error.status_code, known.get(error.status_code, error.detail)
    raise error


def _described() -> dict[str, Any]:
    """Return the API as its page lists it."""
    return {
        path: {
            method: {
                "summary": one["summary"],
                "names": [parameter["name"] for parameter in one.get("parameters", ())],
                "needed": any(parameter["required"] for parameter in one.get("parameters", ())),
            }
            for method, one in methods.items()
        }
        for path, methods in document()["paths"].items()
    }
