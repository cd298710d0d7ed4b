"""Requests to the handlers of a broker without sockets, by the names of their fields."""

from __future__ import annotations

import inspect
from typing import Any

from headrace.broker.broker import Broker
from headrace.handlers import APIS, handler
from headrace.handlers.context import RequestContext
from headrace.protocol.messages import codec
from tests.wire_client import message

HOST, PORT = "broker.test", 9092
"""The listener at which all requests come in."""


def call(
    broker: Broker,
    api_key: int,
    version: int | None = None,
    /,
    *,
    connection_id: int = 1,
    **fields: Any,
) -> Any:
    """Return what a handler returns: a response, an awaitable or a ``Deferred``.

    :param version: that the client is said to have sent; None for the latest
    :param fields: of the latest version, as :func:`tests.wire_client.message` takes them
    """
    latest = APIS[api_key].highest
    context = RequestContext(
        latest if version is None else version, "client", "/127.0.0.1", connection_id, HOST, PORT
    )
    request = message(codec(api_key, latest).request_type, **fields)
    return handler(api_key)(broker, request, context)


async def ask(broker: Broker, api_key: int, version: int | None = None, /, **options: Any) -> Any:
    """Return the response of a handler, whose parameters are those of :func:`call`."""
    response = call(broker, api_key, version, **options)
    return await response if inspect.isawaitable(response) else response
