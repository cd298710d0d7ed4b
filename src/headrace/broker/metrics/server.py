"""The metrics port: ``GET /metrics``.

Pages are made one at a time, and requests that wait meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from headrace.http.failed_logins import FailedLogins
from headrace.http.hosts import Hosts
from headrace.http.messages import Request, Response
from headrace.http.server import HttpServer
from headrace.metric_family import CONTENT_TYPE
from headrace.net.open_ports import warn_if_open

MAX_SCRAPE_CONNECTIONS = 32
"""Connections to the metrics port at a time, and TLS handshakes. One more closes the oldest that
has sent no request.
"""

_HINT = "This is the metrics port of headrace. The metrics are at /metrics"
_FAILED_LOGINS = b"""\
# HELP headrace_metrics_failed_logins_total Requests to this port with a wrong name or password.
# TYPE headrace_metrics_failed_logins_total counter
headrace_metrics_failed_logins_total %d
"""
_CHALLENGE = (b"www-authenticate", b'Basic realm="headrace", charset="UTF-8"')


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """The protection of the metrics port.

    :ivar tls: None for plain HTTP
    :ivar users: ``name:password`` of those who may read the metrics (RFC 7617); empty for everybody
    :ivar host_names: under which the port is served, besides its own host, that of the machine and
        IP addresses
    """

    tls: ssl.SSLContext | None = None
    users: Sequence[bytes] = field(default=(), repr=False)
    host_names: Sequence[str] = ()

    def admits(self, credentials: bytes) -> bool:
        """Return whether a name and a password are those of a user."""
        # Compared with all, so that the time does not tell which one was nearly right.
        return sum(hmac.compare_digest(credentials, user) for user in self.users) > 0

    def user(self, credentials: bytes) -> str | None:
        """Return the name if it is that of a user."""
        name = credentials.partition(b":")[0]
        is_known = any(user.partition(b":")[0] == name for user in self.users)
        return name.decode(errors="replace") if is_known else None


def basic_credentials(header: bytes) -> bytes:
    """Return ``name:password`` of an Authorization header; empty if it has another form."""
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        return b""


class MetricsServer:
    """HTTP server of the metrics page.

    :param page: makes the page
    :param access: its protection
    :ivar failed_logins: wrong passwords
    """

    def __init__(
        self,
        page: Callable[[], Awaitable[bytes]],
        access: MetricsAccess | None = None,
    ) -> None:
        self._page = page
        self._access = access or MetricsAccess()
        self.failed_logins = FailedLogins()
        self._one_at_a_time = asyncio.Lock()
        self._next_page: asyncio.Task[bytes] | None = None
        """The page that waits until it can be made."""
        self._pages: set[asyncio.Task[bytes]] = set()
        self.http: HttpServer | None = None

    async def start(self, host: str, port: int) -> int:
        """Start to listen, and return the port.

        :param port: 0 picks a free port
        :raises OSError: when the address is in use or cannot be bound
        """
        self.http = HttpServer(
            self._answer,
            Hosts((host, *self._access.host_names)),
            self._access.tls,
            max_connections=MAX_SCRAPE_CONNECTIONS,
            # Further ones wait, and can be closed for newer ones.
            max_requests=MAX_SCRAPE_CONNECTIONS // 2,
        )
        await self.http.start(host, port)
        has_tls = self._access.tls is not None
        warn_if_open("the metrics port", host, login=bool(self._access.users), tls=has_tls)
        return self.http.port

    async def close(self) -> None:
        """Stop listening, and cancel the requests that are being served."""
        if self.http is not None:
            await self.http.close()
        for page in self._pages:
            page.cancel()
        await asyncio.gather(*self._pages, return_exceptions=True)

    async def _shared_page(self) -> bytes:
        """Return a page that is made from now on, together with the others that wait for it."""
        if self._next_page is None:
            self._next_page = page = asyncio.get_running_loop().create_task(self._make_page())
            self._pages.add(page)
            page.add_done_callback(self._pages.discard)
        return await asyncio.shield(self._next_page)

    async def _make_page(self) -> bytes:
        async with self._one_at_a_time:
            self._next_page = None
            count = _FAILED_LOGINS % self.failed_logins.total if self._access.users else b""
            return count + await self._page()

    async def _answer(self, request: Request) -> Response:
        if self._access.users and not await self._is_admitted(request):
            return Response.plain(401, "The metrics need a name and a password.", _CHALLENGE)
        if request.target.partition(b"?")[0] != b"/metrics":
            return Response.plain(404, _HINT)
        if request.method not in ("GET", "HEAD"):
            return Response.plain(405, _HINT, (b"allow", b"GET, HEAD"))
        body = await self._shared_page()
        return Response(200, body, ((b"content-type", CONTENT_TYPE.encode()),))

    async def _is_admitted(self, request: Request) -> bool:
        header = request.header(b"authorization")
        credentials = basic_credentials(header)
        if self._access.admits(credentials):
            return True
        # A client may ask without a password first, to see whether one is needed.
        if header and self.failed_logins.count(request.address, self._access.user(credentials)):
            await self.failed_logins.delay()
        return False
