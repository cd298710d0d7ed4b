"""Requests for the page, and responses to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from headrace.http.messages import Headers, Request, Response

from .errors import BadRequest
from .schemas import as_json

_MAX_FIELDS = 100
MAX_URL_BYTES = 8192
"""The path and the query of a request."""
_OF_LOCATION = ":/%#?=@[]!$&'()*+,;"
"""The characters of an address that are not escaped."""


@dataclass(slots=True)
class Session:
    """A login.

    :ivar csrf: the token that its forms carry
    :ivar used_s: when its user did something last
    """

    user: str
    csrf: str
    ends_s: float
    used_s: float


class PageRequest:
    """A request for the page.

    :ivar target: path and query, not decoded
    :ivar path: decoded
    :ivar query: the parameters; of several with one name the last
    :ivar headers: names in lower case
    :ivar host: the address of the visitor
    :ivar user: who sent it; None without a login
    :ivar session: the login of a browser; None for others
    :ivar is_late: its answer is delayed, as it has a wrong password
    """

    def __init__(self, request: Request) -> None:
        self.method, self.body, self.host = request.method, request.body, request.address
        self.target = request.target.decode("ascii")
        path, _, query = self.target.partition("?")
        self.path = unquote(path)
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.headers = {name.decode(): text.decode("latin-1") for name, text in request.headers}
        self.user: str | None = None
        self.session: Session | None = None
        self.is_late = False

    @property
    def is_part(self) -> bool:
        """True if it wants only the part of a page that changes with time."""
        return "part" in self.query

    @property
    def is_api(self) -> bool:
        """True if it wants JSON."""
        return self.path.startswith("/api/")

    def cookie(self, name: str) -> str:
        """Return a cookie; empty if there is none."""
        pairs = (pair.partition("=") for pair in self.headers.get("cookie", "").split(";"))
        return {key.strip(): value.strip() for key, _, value in pairs}.get(name, "")

    def require_same_origin(self) -> None:
        """Refuse a request that another site has made a browser send.

        :raises BadRequest: another site has sent it
        """
        origin, host = self.headers.get("origin"), self.headers.get("host")
        site = self.headers.get("sec-fetch-site")
        is_foreign = origin is not None and origin.partition("://")[2] != host
        if is_foreign or site not in (None, "same-origin", "none"):
            raise BadRequest("The request came from another site.")

    def form(self) -> dict[str, str]:
        """Return the fields of a form; of several with one name the last.

        :raises BadRequest: it cannot be decoded, or another site has sent it
        """
        self.require_same_origin()
        try:
            return dict(
                parse_qsl(
                    self.body.decode().replace("%0D%0A", "%0A"),  # as browsers send line breaks
                    keep_blank_values=True,
                    max_num_fields=_MAX_FIELDS,
                    errors="strict",
                )
            )
        except ValueError:
            raise BadRequest("The form cannot be read.") from None

    def json_fields(self) -> dict[str, Any]:
        """Return the JSON object in the body.

        :raises BadRequest: it has none
        """
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise BadRequest("The body is not a JSON object.") from None


def url(path: str, /, **query: object) -> str:
    """Return an address with a query, without parameters that are empty or None."""
    parameters = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(parameters, safe=':,')}" if parameters else path


def json_response(view: object, status: int = 200) -> Response:
    """Return a view as JSON."""
    return Response(status, as_json(view), [(b"content-type", b"application/json")])


def redirect(address: str, headers: Headers = ()) -> Response:
    """Return the direction to another page of this site."""
    location = quote(address, safe=_OF_LOCATION).encode()
    return Response(303, b"", [(b"location", location), *headers])
