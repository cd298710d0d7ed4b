"""The parameters and forms of requests, and the errors in them."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request

from headrace.epoch import since_epoch_ms

from .access import Session
from .limits import MAX_FILTERS_BYTES, MAX_RECORDS_OF_PAGE, RECORDS_OF_PAGE
from .page import url
from .records import Filter, FoundRecords, Query

_STARTS = ("latest", "earliest", "offset", "time", "positions")
_MAX_CHARS = 2000
_MAX_POSITIONS = 200
"""Positions of partitions in the address of a next page, which has a limit."""


class BadRequest(Exception):
    """A request has a parameter that cannot be used. The page shows the text."""


class NotThere(Exception):
    """A group, topic or record does not exist. The page shows the text."""


class WrongType(Exception):
    """The body of a request has another type than it must have. The page shows the text."""


def records_query(request: Request) -> Query:
    """Return the query for records that a request has.

    :raises BadRequest: a parameter cannot be used
    """
    start = word_of(request, "start", _STARTS, "latest")
    try:
        # Longer than other parameters: a page may end in many partitions.
        text = request.query_params.get("positions", "")
        pairs = (one.split(":") for one in text.split(",") if one)
        positions = {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise BadRequest("The positions are not PARTITION:OFFSET,…") from None
    partition = text_of(request, "partition")
    filters = {name: text_of(request, name) for name in ("key", "value", "header")}
    if len(urlencode(filters)) > MAX_FILTERS_BYTES:
        raise BadRequest(
            f"The filters are too long: at most {MAX_FILTERS_BYTES} bytes as part of an address."
        )
    return Query(
        topic=needed(request, "topic"),
        partition=number(request, "partition", 0) if partition else None,
        start=start,
        offset=number(request, "offset", 0),
        time_ms=time_of(text_of(request, "time")) if start == "time" else 0,
        limit=min(max(1, number(request, "limit", RECORDS_OF_PAGE)), MAX_RECORDS_OF_PAGE),
        filter=Filter(**filters),
        positions=positions,
        rest=number(request, "rest", 0),
        read_committed=text_of(request, "committed") == "yes",
    )


def more_url(
    query: Query, form: str, found: FoundRecords, path: str = "/records", max_value_bytes: str = ""
) -> str:
    """Return the address of the next page of records; empty if there is none.

    It has a position for each partition that is being read, and begins the others as ``query``: its
    length does not grow with the number of partitions.

    :param max_value_bytes: of the API
    """
    # The newest records end early only if the budget does. All partitions are being read then.
    if found.complete or (query.start == "latest" and len(found.positions) > _MAX_POSITIONS):
        return ""
    start = "positions" if found.rest is None else query.start
    return url(
        path,
        topic=query.topic,
        partition="" if query.partition is None else query.partition,
        start=start,
        offset=query.offset if start == "offset" else "",
        time=query.time_ms if start == "time" else "",
        rest=found.rest,
        positions=",".join(f"{number}:{at}" for number, at in sorted(found.positions.items())),
        key=query.filter.key,
        value=query.filter.value,
        header=query.filter.header,
        limit=query.limit,
        committed="yes" if query.read_committed else "",
        format="" if form == "auto" else form,
        max_value_bytes=max_value_bytes,
    )


def time_of(text: str) -> int:
    """Parse a time: milliseconds since the epoch, or ISO 8601, in UTC unless it names a zone.

    :raises BadRequest: it is neither
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text!r} is not a time such as 2026-11-22T08:00:00Z") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return max(0, since_epoch_ms(found))


def text_of(request: Request, name: str) -> str:
    """Return a parameter of a request; empty if it is missing.

    :raises BadRequest: it is too long
    """
    text = request.query_params.get(name, "")
    if len(text) > _MAX_CHARS:
        raise BadRequest(f"The parameter {name} is too long: at most {_MAX_CHARS} characters.")
    return text


def needed(request: Request, name: str) -> str:
    """Return a parameter of a request.

    :raises BadRequest: it is missing or too long
    """
    if name not in request.query_params:
        raise BadRequest(f"The parameter {name} is missing.")
    return text_of(request, name)


def number(request: Request, name: str, default: int) -> int:
    """Return a parameter that is a number.

    :raises BadRequest: it is not a number
    """
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(f"The parameter {name} is not a number.")
    return int(text)


def word_of(request: Request, name: str, words: Collection[str], default: str) -> str:
    """Return a parameter that is one of some words.

    :raises BadRequest: it is none of them
    """
    text = request.query_params.get(name, "") or default
    if text not in words:
        raise BadRequest(f"The parameter {name} is none of {', '.join(filter(None, words))}.")
    return text


def is_part(request: Request) -> bool:
    """Return whether a request wants only the part of a page that changes with time."""
    return "part" in request.query_params


def host_of(request: Request) -> str:
    """Return the address of the visitor who sent a request."""
    return "" if request.client is None else request.client.host


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; the last one of a name.

    :raises BadRequest: it cannot be decoded
    """
    body = await request.body()
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise BadRequest("The form cannot be read.") from None
    return {name: values[-1] for name, values in found.items()}


def require_same_origin(request: Request) -> None:
    """Refuse a request that another site has made a browser send.

    :raises BadRequest: another site has sent it
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        raise BadRequest("The request came from another site.")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise BadRequest("The request came from another site.")


def check_form(request: Request, session: Session | None, form: Mapping[str, str]) -> None:
    """Refuse a form that lacks the token of its sender's login.

    :raises BadRequest: it lacks the token, or another site has sent it
    """
    require_same_origin(request)
    given = form.get("csrf", "").encode()
    if session is None or not hmac.compare_digest(given, session.csrf.encode()):
        raise BadRequest("The form is no longer valid: go back, load the page again, and repeat.")
