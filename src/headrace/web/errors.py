"""Why a request is not answered as it was sent. The page shows the texts."""

from __future__ import annotations

from headrace.http.messages import Headers


class PageError(Exception):
    """A request that cannot be answered.

    :cvar status: of the response
    :cvar title: of the page that says so
    :ivar headers: of the response
    """

    status = 400
    title = "This does not work"
    headers: Headers = ()


class BadRequest(PageError):
    """A parameter or field cannot be used."""


class NotThere(PageError):
    """A page, group, topic or record does not exist."""

    status, title = 404, "Not found"


class NotSeen(PageError):
    """The cluster was not seen yet."""

    status, title = 503, "The cluster does not answer"


class NotAllowed(PageError):
    """The request has no token or password in its Authorization header."""

    status, title = 401, "Not allowed"
    # Each challenge has a line, as browsers do not know two on one.
    headers = (
        (b"www-authenticate", b'Basic realm="headrace", charset="UTF-8"'),
        (b"www-authenticate", b"Bearer"),
    )


class WrongMethod(PageError):
    """The method is not served.

    :param methods: those that are, as the header Allow has them
    """

    status = 405

    def __init__(self, methods: str) -> None:
        super().__init__("This method is not served.")
        self.headers = [(b"allow", methods.encode())]


class TooLong(PageError):
    """The address is too long."""

    status = 414


class WrongType(PageError):
    """The body has another type than it must have."""

    status = 415
