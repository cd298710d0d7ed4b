"""HTTP/1.1 requests and responses as bytes (RFC 9112).

What could be read in two ways is refused: folded headers, a second length, ``Transfer-Encoding``. A
proxy in front cannot see another request than this server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

Headers = Sequence[tuple[bytes, bytes]]

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH = re.compile(rb"[0-9]{1,15}")
MAX_BODY_BYTES = 1024 * 1024
"""The body of a request."""


class Refused(Exception):
    """A request that is not served. The connection is closed after the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request(NamedTuple):
    """A request.

    :ivar target: path and query, not decoded
    :ivar headers: names in lower case
    :ivar address: of the client
    """

    method: str
    target: bytes
    headers: Headers
    body: bytes
    address: str

    def header(self, name: bytes) -> bytes:
        """Return the value of a header, empty if it is missing; the last one of several."""
        return dict(self.headers).get(name, b"")


class Response(NamedTuple):
    """A response.

    :ivar headers: besides ``Content-Length``, ``Connection`` and ``Date``
    """

    status: int
    body: bytes
    headers: Headers = ()

    @classmethod
    def plain(cls, status: int, text: str, *headers: tuple[bytes, bytes]) -> Response:
        """Return a response with a line of text."""
        kind = (b"content-type", b"text/plain; charset=utf-8")
        return cls(status, f"{text}\n".encode(), (kind, *headers))

    def head(self, *, keeps_open: bool) -> bytes:
        """Return the bytes before the body."""
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode(),
            b"date: " + formatdate(usegmt=True).encode(),
            *(name + b": " + value for name, value in self.headers),
        ]
        names = {name.lower() for name, _ in self.headers}
        if b"content-length" not in names and self.status != HTTPStatus.NO_CONTENT:
            lines.append(b"content-length: %d" % len(self.body))
        lines.append(b"connection: " + (b"keep-alive" if keeps_open else b"close"))
        return b"\r\n".join((*lines, b"", b""))


class Head(NamedTuple):
    """The head of a request.

    :ivar length: of the body
    :ivar keeps_open: whether the client may send another request
    :ivar hosts: the value of the Host header; none in old requests
    """

    method: str
    target: bytes
    headers: Headers
    length: int
    keeps_open: bool
    hosts: list[str]


def parse_head(head: bytes) -> Head:
    """Parse the lines of a request before its body.

    :param head: with the empty line
    :raises Refused: it is not an HTTP/1.1 request that has one meaning
    """
    request_line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(request_line)
    if match is None:
        raise Refused(400, "This is not a request of HTTP/1.1.")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None or _CONTROL.search(value):
            raise Refused(400, "A header of the request is malformed.")
        headers.append((name.lower(), value.strip(b" \t")))
    is_new = match[3] == b"1"
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (is_new and not hosts):
        raise Refused(400, "The request must have one Host header.")
    connection = b",".join(value.lower() for name, value in headers if name == b"connection")
    options = {option.strip() for option in connection.split(b",")}
    return Head(
        match[1].decode(),
        match[2],
        headers,
        _body_length(headers),
        is_new and b"close" not in options,
        hosts,
    )


def _body_length(headers: Headers) -> int:
    if any(name == b"transfer-encoding" for name, _ in headers):
        # Beside a length, whoever forwards the request may go by either.
        raise Refused(411, "The request must have a Content-Length, and no Transfer-Encoding.")
    lengths = [value for name, value in headers if name == b"content-length"]
    if not lengths:
        return 0
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise Refused(400, "The request has no clear length.")
    length = int(lengths[0])
    if length > MAX_BODY_BYTES:
        raise Refused(413, "The request is too large.")
    return length
