"""Requests to the handlers of a broker without sockets, by the names of their fields."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.broker.broker import Broker
from headrace.handlers import APIS
from headrace.net.call import Call, Client
from headrace.net.listeners import Listener

HOST, PORT = "broker.test", 9092
"""The listener at which all requests come in."""


def ask(
    broker: Broker,
    api_key: int,
    version: int | None = None,
    /,
    *,
    connection_id: int = 1,
    **fields: Any,
) -> Coroutine[Any, Any, Any]:
    """Return a coroutine of the response of a handler.

    :param version: that the client is said to have sent; None for the latest
    :param fields: of any version; a dict stands for a structure
    """
    api = APIS[api_key]
    client = Client("127.0.0.1", connection_id, Listener(HOST, PORT))
    of_version = api.highest if version is None else version
    request = message_of(api.request.message_type, **fields)
    return _response(Call(broker, api, client, of_version, "client"), request)


async def _response(call: Call, request: Any) -> Any:
    code = call.refusal(request)
    return call.api.refused(request, code) if code else await call.api.handle(call, request)


def message_of(message_type: Any, **fields: Any) -> Any:
    """Return a message; a dict stands for a structure."""
    schema = message_type.SCHEMA

    def value_of(structure: Any, value: Any) -> Any:
        if isinstance(value, dict):
            types = {field.name: schema.structures.get(field.type) for field in structure.fields}
            return structure.type(**{k: value_of(types[k], v) for k, v in value.items()})
        if isinstance(value, (list, tuple)) and structure is not None:
            return [value_of(structure, item) for item in value]
        return value

    return value_of(schema.structures[schema.name], fields)


def answer(broker: Broker, api_key: int, version: int | None = None, /, **options: Any) -> Any:
    """Return the response of a handler as its client reads it. Its parameters are those of
    :func:`ask`.
    """
    response = asyncio.run(ask(broker, api_key, version, **options))
    of_version = APIS[api_key].highest if version is None else version
    return type(response).read(of_version, response.encoded(of_version))
