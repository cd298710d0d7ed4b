"""The errors of client calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar, cast

from headrace.log_lines import printable
from headrace.protocol.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

_MAX_TEXT_CHARS = 4000

_ADVICE: dict[int, str] = {
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on the brokers",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.GROUP_ID_NOT_FOUND: "correct the group's id or type",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member subscribes to the topic: stop it first",
}
"""What to change."""


class ClientError(Exception):
    """The base of all errors of :mod:`headrace.client`.

    The text is one line: the failure and, if known, its reason. Control characters of brokers'
    texts are escaped.
    """

    def __init__(self, text: object = "") -> None:
        super().__init__(printable(str(text), _MAX_TEXT_CHARS))


class ConnectionFailed(ClientError):
    """A broker could not be reached, closed the connection, or did not answer in time."""


class InvalidResponse(ConnectionFailed):
    """A broker sent a response that does not answer its request."""


class ApiMissing(ClientError):
    """The broker does not offer an API, or only in versions that this client does not support."""


class StringTooLong(ClientError):
    """A name or value is longer than the protocol allows. The request was not sent."""


class AuthenticationFailed(ClientError):
    """The broker's certificate is invalid, or the broker refuses the credentials."""


class UnsupportedSetting(ClientError, ValueError):
    """A client setting is wrong, or our own connections do not support it."""


class RequestRefused(ClientError):
    """A broker answered with an error code.

    :param what: the request, for the error text, such as ``"joining share group g1"``
    :param code: Kafka's error code
    :param message: the broker's error message, or None
    :param needs: the permission that the request needs, such as ``"READ on group 'g1'"``; the text
        names it if the broker refuses for lack of a permission

    :ivar advice: what to change, or None
    """

    def __init__(
        self, what: str, code: int, message: str | None = None, needs: str | None = None
    ) -> None:
        self.code = code
        permission = missing_permission(code, needs)
        # For lack of rights, Apache Kafka's controller sends its own request as text.
        self.message = None if permission else message
        self.advice = permission or _ADVICE.get(code)
        text = f"{what}: {error_name(code)}" + (f" ({self.message})" if self.message else "")
        super().__init__(f"{text}: {self.advice}" if self.advice else text)


def refused(what: str, answer: Any, needs: str | None = None) -> RequestRefused | None:
    """Return the refusal in a response or a part of it, or None.

    :param what: the request, for the error text
    :param answer: has ``error_code``, and maybe ``error_message``
    :param needs: the permission that the request needs, such as ``"READ on group 'g1'"``
    """
    if not answer.error_code:
        return None
    message = getattr(answer, "error_message", None)
    return RequestRefused(what, int(answer.error_code), message, needs)


def check_answer(what: str, answer: Any, needs: str | None = None) -> None:
    """Check that a response or a part of it is no refusal; the parameters are :func:`refused`'s.

    :raises RequestRefused: it is one
    """
    if refusal := refused(what, answer, needs):
        raise refusal


class UnknownTopic(ClientError):
    """A topic does not exist.

    :ivar topic: its name
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic '{topic}' does not exist: create it first, or correct its name")


class UnknownGroup(ClientError):
    """A group does not exist."""

    def __init__(self, group_id: str, advice: str = "correct its id or type") -> None:
        super().__init__(f"group '{group_id}' does not exist: {advice}")


def missing_permission(code: int, needs: str | None) -> str | None:
    """Return the advice for a refusal: which permission to give. None for other error codes.

    :param needs: the permission, such as ``"READ on group 'g1'"``; None if it is unknown
    """
    if needs is None or not error_name(code).endswith("_AUTHORIZATION_FAILED"):
        return None
    return f"the user needs the permission {needs}"


def error_name(code: int) -> str:
    """Return the name of an error code: ``"NOT_COORDINATOR"``, or ``"error 999"`` if unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def has_code(answer: object, *codes: int) -> TypeGuard[RequestRefused]:
    """Return whether an answer, or an error, is a refusal with one of these error codes."""
    return isinstance(answer, RequestRefused) and answer.code in codes


def is_missing_group(answer: object) -> bool:
    """Return whether an answer, or an error, says that a group does not exist."""
    return has_code(answer, ErrorCode.GROUP_ID_NOT_FOUND)


Answers = dict[K, V | ClientError]
"""Key → answer, or the error that stands in its place."""
Outcomes = dict[K, ClientError | None]
"""Key → the error, or None if what was asked for was done."""


def raised(answers: Mapping[K, V | ClientError]) -> dict[K, V]:
    """Return the answers about several keys if there is one about each.

    :raises ClientError: the first error among them
    """
    for answer in answers.values():
        if isinstance(answer, ClientError):
            raise answer
    return cast("dict[K, V]", dict(answers))


def error_line(error: object) -> str:
    """Return the text of an error on one line, as people see it: what failed, and what to change.

    Control characters are escaped. Takes any error, also a ``KafkaException`` or ``KafkaError`` of
    confluent-kafka, without its prefixes, and an ``OSError``, without its number.
    """
    if isinstance(error, ClientError):
        return str(error)
    text = str(error)
    (reason, *_) = getattr(error, "args", ()) or (error,)
    if isinstance(error, OSError) and error.errno is not None:
        # The numbers of failed look-ups of names are negative: the system has no text for them.
        text = str(error.strerror) if error.errno < 0 else os.strerror(error.errno)
        if error.filename is not None:
            text += f": {error.filename}"
    elif hasattr(reason, "code") and hasattr(reason, "str"):  # a KafkaError
        text = str(reason.str()).removeprefix("Broker: ").removeprefix("Local: ")
        advice = _ADVICE.get(int(reason.code()))
        if advice is not None and advice not in text:
            text = f"{text.rstrip('.')}: {advice}"
    return printable(" ".join(text.split()), _MAX_TEXT_CHARS)
