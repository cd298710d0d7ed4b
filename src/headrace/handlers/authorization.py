"""The step *authorize*, between versions and handler: carry out the rules of an API.

Without an authorizer there is no such step. With one, a request is refused as a whole, or passed to
the handler without the items that are refused; these are added to the handler's answer. Errors have
the place that the response has for them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.config.group_protocols import REBALANCE_PROTOCOLS
from headrace.coordinators.runtime import Deferred
from headrace.errors import ErrorCode
from headrace.net.rules import ERROR_OF, Each, Whole
from headrace.protocol.large_responses import LazyArray, Sliced
from headrace.protocol.messages import codec
from headrace.protocol.refusals import refuse_all
from headrace.protocol.writer import nested_type
from headrace.security.access import Access
from headrace.security.acls import ResourceType

from . import Api, Handle, handler
from .context import RequestContext
from .topic_names import topic_name


def step(api: Api) -> Handle:
    """Return the function that checks a request by the rules of an API, and serves it."""
    wholes = tuple(rule for rule in api.rules if isinstance(rule, Whole))
    eaches = tuple(rule for rule in api.rules if isinstance(rule, Each))
    assert len(eaches) <= 1, api
    one_each = eaches[0] if eaches else None
    handle = handler(api.key)

    def authorize(broker: Broker, request: Any, context: RequestContext) -> Any:
        access = context.access
        assert isinstance(access, Access)
        access.request = api.name
        if api.protocol is not None and api.protocol not in broker.config.get_list(
            REBALANCE_PROTOCOLS
        ):
            return handle(broker, request, context)
        for rule in wholes:
            code = _check_whole(rule, access, request)
            if code:
                return refuse(api, request, code)
        if one_each is None:
            return handle(broker, request, context)
        codes = _check_each(one_each, broker, request, context, access)
        if not any(codes):
            return handle(broker, request, context)
        refused = _refused_items(api, one_each, request, codes)
        answer = handle(broker, _without(one_each, request, codes), context)
        return _merged(answer, refused)

    return authorize


def _check_whole(rule: Whole, access: Access, request: Any) -> ErrorCode:
    """Return the error of a request that is refused as a whole, else NONE."""
    names = [name for name in rule.names(request) if name is not None]
    last = rule.alternatives[-1]
    for need in rule.alternatives:
        refused = [
            name for name in names if not access.allows(*need, name, is_audited=need == last)
        ]
        if not refused:
            return ErrorCode.NONE
    return ERROR_OF[last[1]]


def _check_each(
    rule: Each, broker: Broker, request: Any, context: RequestContext, access: Access
) -> list[ErrorCode]:
    """Return the error of each item of the array, or NONE."""
    items = getattr(request, rule.array) or ()
    if rule.unless is not None and access.allows_cluster(rule.unless, is_audited=False):
        return [ErrorCode.NONE] * len(items)
    owners = [_owner(rule, broker, item, context) for item in items]
    times = Counter(_identity(rule, item) for item in items) if rule.once else Counter()
    operation = rule.needs[0][0]
    codes = []
    for item, owner in zip(items, owners, strict=True):
        is_left = owner is None or (rule.once and times[_identity(rule, item)] > 1)
        if owner is None or is_left or access.allows(operation, *owner):
            codes.append(ErrorCode.NONE)
        else:
            codes.append(ERROR_OF[owner[0]])
    return codes


def _identity(rule: Each, item: Any) -> Any:
    return getattr(item, rule.field) if rule.field else item


def _owner(
    rule: Each, broker: Broker, item: Any, context: RequestContext
) -> tuple[ResourceType, str] | None:
    """Return the resource of an item; None if the handler refuses the item."""
    resource_type = rule.needs[0][1]
    if rule.field == "topic_id":
        name = getattr(item, "name", None)
        if name is None:
            name = topic_name(broker, item.topic_id, context)
        return None if name is None else (resource_type, name)
    name = getattr(item, rule.field) if rule.field else item
    return resource_type, name


def refuse(api: Api, request: Any, code: ErrorCode) -> Any:
    """Return the response to a request that is refused as a whole."""
    response = refuse_all(request, codec(api.key, api.highest).refusal_type, code)
    fix = _WHOLE.get(api.key)
    return response if fix is None else fix(response, request, code)


def _without(rule: Each, request: Any, codes: list[ErrorCode]) -> Any:
    items = getattr(request, rule.array)
    kept = tuple(item for item, code in zip(items, codes, strict=True) if not code)
    return dataclasses.replace(request, **{rule.array: kept})


def _refused_items(
    api: Api, rule: Each, request: Any, codes: list[ErrorCode]
) -> dict[str, tuple[Any, ...]]:
    """Return the refused items of a response, by the name of its array."""
    response_type = codec(api.key, api.highest).refusal_type
    items = getattr(request, rule.array)
    arrays: dict[str, list[Any]] = {}
    for code in dict.fromkeys(code for code in codes if code):
        of_code = tuple(item for item, one in zip(items, codes, strict=True) if one == code)
        response = refuse_all(
            dataclasses.replace(request, **{rule.array: of_code}), response_type, code
        )
        for name in array_names(response_type):
            arrays.setdefault(name, []).extend(getattr(response, name))
    return {name: tuple(values) for name, values in arrays.items()}


def array_names(response_type: Any) -> Iterator[str]:
    """Yield the names of the arrays of a response that have errors."""
    hints = typing.get_type_hints(response_type)
    for field in dataclasses.fields(response_type):
        nested, many = nested_type(hints[field.name])
        if nested is not None and many:
            yield field.name


def _merged(answer: Any, refused: dict[str, tuple[Any, ...]]) -> Any:
    """Return the answer of a handler with the refused items at the end of its arrays."""
    if isinstance(answer, Deferred):
        return _merge_later(answer.future(), refused)
    if isinstance(answer, Awaitable):
        return _merge_later(answer, refused)
    if isinstance(answer, Sliced):
        return Sliced(_merged(answer.response, refused))
    if getattr(answer, "error_code", ErrorCode.NONE):
        return answer
    added = {name: _extended(getattr(answer, name), items) for name, items in refused.items()}
    return dataclasses.replace(answer, **added)


async def _merge_later(answer: Awaitable[Any], refused: dict[str, tuple[Any, ...]]) -> Any:
    return _merged(await answer, refused)


def _extended(array: Any, items: tuple[Any, ...]) -> Any:
    if isinstance(array, tuple):
        return array + items
    return LazyArray(len(array) + len(items), chain(array, items))


# Responses that are not as refuse_all makes them -------------------------------------------------

Fix = Callable[[Any, Any, ErrorCode], Any]
"""Takes a response, the request and the error; returns the response as Kafka gives it."""


def _with(**fields: Any) -> Fix:
    """Return a function that sets fields of a response."""
    return lambda response, request, code: dataclasses.replace(response, **fields)


_WHOLE: Mapping[int, Fix] = {}
"""Responses to requests that are refused as a whole, by API key."""
