"""The outermost layer of the page: hosts, sizes of requests, headers against attacks."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.log_lines import LimitedLog, get_logger

from .access import Hosts
from .limits import MAX_REQUEST_BODY_BYTES, MAX_URL_BYTES

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
)
_METHODS = ("GET", "HEAD", "POST")


class BodyTooLarge(Exception):
    """The body of a request exceeds the limit."""


class Guard:
    """An ASGI layer that refuses large requests and foreign hosts, and adds headers to answers."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])  # the last one of a name
        names = [name for name, _ in scope["headers"]]
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(one for one in _HEADERS if one[0] not in given),
                    *([] if b"cache-control" in given else [(b"cache-control", b"no-store")]),
                ]
            await send(message)

        host = headers.get(b"host", b"").decode("latin-1")
        if names.count(b"host") != 1 or not self._hosts.admits(host):
            await _refuse(guarded, 421, "This page is not served under this name.")
        elif scope["method"] not in _METHODS:
            await _refuse(guarded, 405, "This method is not served.")
        elif len(scope["raw_path"]) + len(scope["query_string"]) > MAX_URL_BYTES:
            await _refuse(guarded, 414, "The address is too long.")
        elif not _fits(headers.get(b"content-length", b"0")):
            await _refuse(guarded, 413, "The request is too large.")
        else:
            try:
                await self._app(scope, _limited(receive), guarded)
            except BodyTooLarge:
                if begun:
                    raise
                await _refuse(guarded, 413, "The request is too large.")
            except Exception as error:
                log.error("", "cannot serve %s", scope["path"], exc_info=error)
                if begun:
                    raise
                await _refuse(guarded, 500, "The page has failed; its log has the reason.")


def _fits(content_length: bytes) -> bool:
    return content_length.isdigit() and int(content_length) <= MAX_REQUEST_BODY_BYTES


def _limited(receive: Receive) -> Receive:
    """Return a ``receive`` that raises :class:`BodyTooLarge` when a body exceeds the limit."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_REQUEST_BODY_BYTES:
            raise BodyTooLarge
        return message

    return limited


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode() + b"\n"
    headers: Iterable[tuple[bytes, bytes]] = (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    )
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
