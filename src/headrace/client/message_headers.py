"""The headers of a message of confluent-kafka."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]

_CALL = methodcaller("headers")
"""A call of C code, which always checks for an error that confluent-kafka sets but does not return.
The interpreter leaves out this check when it has called the method a few times: the error then
appears in another place, and the result has a null pointer.
"""


class UnreadableHeaders(ValueError):
    """confluent-kafka cannot read the headers of a message."""


def message_headers(message: Any) -> Headers:
    """Return the headers of a message.

    :raises UnreadableHeaders: a key is not UTF-8
    """
    try:
        return tuple(_CALL(message) or ())
    except SystemError:
        raise UnreadableHeaders("the key of a header is not UTF-8") from None
