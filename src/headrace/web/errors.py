"""Why a request is not answered as it was sent. The page shows the texts."""

from __future__ import annotations


class PageError(Exception):
    """A request that cannot be answered.

    :cvar status: of the response
    :cvar title: of the page that says so
    """

    status = 400
    title = "This does not work"


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


class WrongMethod(PageError):
    """The method is not served.

    :param methods: those that are, as the header Allow has them
    """

    status = 405

    def __init__(self, methods: str) -> None:
        super().__init__("This method is not served.")
        self.methods = methods


class WrongType(PageError):
    """The body has another type than it must have."""

    status = 415
