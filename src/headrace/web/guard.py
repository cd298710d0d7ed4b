"""The outermost layer of the page: methods, addresses, headers against attacks, late answers."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.http.failed_logins import FailedLogins
from headrace.http.messages import Response
from headrace.log_lines import LimitedLog, get_logger

from .limits import MAX_URL_BYTES

log = LimitedLog(get_logger("headrace.ui"))

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""No code, style, picture or form from elsewhere, and nothing inline."""
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
)
_TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")
_METHODS = ("GET", "HEAD", "POST")


class Guard:
    """An ASGI layer that refuses odd requests, and adds headers to answers.

    :param failed_logins: delays the answers to wrong passwords
    :param is_secure: the page is served over TLS: browsers are told to come with TLS only
    """

    def __init__(self, app: ASGIApp, failed_logins: FailedLogins, *, is_secure: bool) -> None:
        self._app = app
        self._failed_logins = failed_logins
        self._added = (*_HEADERS, _TLS_ONLY) if is_secure else _HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                names = {name for name, _ in message["headers"]}
                added = (header for header in self._added if header[0] not in names)
                message["headers"] = [*message["headers"], *added]
                if scope.get("state", {}).get("is_late"):
                    await self._failed_logins.delay()
            await send(message)

        if scope["method"] not in _METHODS:
            await _refuse(guarded, 405, "This method is not served.")
        elif len(scope["raw_path"]) + len(scope["query_string"]) > MAX_URL_BYTES:
            await _refuse(guarded, 414, "The address is too long.")
        else:
            try:
                await self._app(scope, receive, guarded)
            except Exception as error:
                log.error("", "cannot serve %s", scope["path"], exc_info=error)
                if not begun:
                    await _refuse(guarded, 500, "The page has failed; its log has the reason.")


async def _refuse(send: Send, status: int, text: str) -> None:
    response = Response.plain(status, text)
    headers = list(response.headers)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
