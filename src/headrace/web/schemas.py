"""Types as HTTP: the keyword-only parameters of a function are those of its request, and its result
is a frozen dataclass. msgspec converts the former, writes the latter as JSON, and describes both.
"""

from __future__ import annotations

import base64
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from .errors import BadRequest

T = TypeVar("T")

MAX_CHARS = 2000
"""The length of a text that has no bound of its own."""
MAX_WHOLE = 10**18 - 1


class Data(bytes):
    """Bytes of a record: in JSON a text if they are UTF-8, else ``{"base64": …}``."""


def about(description: str) -> Meta:
    """Return the description of a choice, or of true and false."""
    return Meta(description=description)


def text(about: str, max_chars: int = MAX_CHARS) -> Meta:
    """Return the description of a text, and its bound."""
    return Meta(description=about, max_length=max_chars)


def whole(about: str, least: int = 0, most: int = MAX_WHOLE) -> Meta:
    """Return the description of a whole number, and its bounds."""
    return Meta(description=about, ge=least, le=most)


@cache
def parameters_of(function: Callable[..., Any]) -> type[Struct]:
    """Return the class of the requests that a function answers."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = [
        (
            name,
            hints[name],
            NODEFAULT if argument.default is Parameter.empty else argument.default,
        )
        for name, argument in signature(function).parameters.items()
        if argument.kind is Parameter.KEYWORD_ONLY
    ]
    return msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)


def parsed(function: Callable[..., Any], fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of a function that the fields of a request stand for. An empty text
    stands for the default.

    :raises BadRequest: one is missing, is unknown, or cannot be used
    """
    sent = {name: value for name, value in fields.items() if value != ""}
    try:
        request = msgspec.convert(sent, parameters_of(function), strict=False)
    except msgspec.ValidationError as error:
        problem, _, name = str(error).partition(" - at `$.")
        raise BadRequest(f"{name.rstrip('`')}: {problem}." if name else f"{problem}.") from None
    return msgspec.structs.asdict(request)


def parsed_text(parse: Callable[[str], T], text: str) -> T:
    """Return what a function of the command line's grammar makes of a text.

    :raises BadRequest: nothing
    """
    try:
        return parse(text)
    except ArgumentTypeError as error:
        raise BadRequest(str(error)) from None


def as_json(view: object) -> bytes:
    """Return a view as JSON."""
    return msgspec.json.encode(view, enc_hook=_plain)


def _plain(data: Data) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def schemas_of(kinds: list[Any]) -> tuple[dict[Any, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the JSON Schemas of types, by type, and of the types in them, by name."""
    own, parts = msgspec.json.schema_components(
        kinds,
        schema_hook=lambda _: {
            "description": "A text if the bytes are UTF-8, else their base64.",
            "type": ["string", "object"],
        },
        ref_template="#/components/schemas/{name}",
    )
    return dict(zip(kinds, own, strict=True)), parts
