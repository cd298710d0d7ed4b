"""The handler of APIs whose feature is at level 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.messages import codec
from headrace.protocol.refusals import refuse_all

from . import APIS
from .context import RequestContext

_WITH_MESSAGE: frozenset[int] = frozenset()
"""The requests whose responses have a message here."""


def handle(broker: Broker, request: Any, context: RequestContext) -> Any:
    """Return UNSUPPORTED_VERSION for everything in a request."""
    api = APIS[type(request).__api_key__]
    response_type = codec(api.key, api.highest).refusal_type
    response = refuse_all(request, response_type, ErrorCode.UNSUPPORTED_VERSION)
    fields: dict[str, Any] = {"responses": ()} if hasattr(response, "responses") else {}
    if api.key in _WITH_MESSAGE:
        fields["error_message"] = "The version of API is not supported."
    return replace(response, **fields)
