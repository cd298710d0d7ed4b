"""What a client call can fail with."""

from __future__ import annotations

from headrace.errors import ErrorCode


class ClientError(Exception):
    """Base of all errors of :mod:`headrace.client`. Its text is one line: what failed and, where
    known, why.
    """


class ConnectionFailed(ClientError):
    """A broker could not be reached, hung up, or did not answer in time."""


class ApiMissing(ClientError):
    """The broker does not offer an API, or only in versions that this client does not speak."""


class AuthenticationFailed(ClientError):
    """The broker's certificate does not hold, or the broker does not accept the credentials
    given."""


class RequestRefused(ClientError):
    """A broker answered with an error that retrying does not mend.

    :param what: what was asked, for people: ``"joining share group g1"``
    :param code: the Kafka error code
    :param message: the broker's own text, or None
    """

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))
        self.code = code
        self.message = message


class UnknownTopic(ClientError):
    """A topic does not exist."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic '{topic}' does not exist: create it first, or correct its name")


def error_name(code: int) -> str:
    """``"NOT_COORDINATOR"`` for 16; the bare number for one that this version does not know."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
