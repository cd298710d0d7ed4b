"""Types as HTTP: parameters are parsed by the annotations of a function, its result becomes JSON,
and OpenAPI describes both.

A keyword-only parameter of a function is a parameter of its request; ``Annotated[…, About(…)]``
adds a description and bounds. A result is a frozen dataclass, whose fields the ``:param name:``
lines of its docstring describe.
"""

from __future__ import annotations

import base64
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from collections.abc import Sequence as AbcSequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import Parameter as Argument
from inspect import cleandoc, signature
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import BadRequest

T = TypeVar("T")

MAX_CHARS = 2000
"""The length of a parameter that has no bound of its own."""
MAX_DIGITS = 18

_FIELD = re.compile(r":param (\w+): (.*?)(?=\n:|\Z)", re.S)
_SIMPLE = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_BYTES = {
    "description": "A text if the bytes are UTF-8, else their base64; null if there are none.",
    "type": ["string", "object"],
}


@dataclass(frozen=True, slots=True)
class About:
    """A description of a parameter, and its bounds.

    :param hint: shown in the empty field of a form
    :param least: of a number
    :param most: of a number
    :param max_chars: of a text
    :param is_long: a form has several lines for it
    """

    text: str
    hint: str = ""
    least: int = 0
    most: int = 10**MAX_DIGITS - 1
    max_chars: int = MAX_CHARS
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request, or a field of a form.

    :param choices: the texts that it may be; empty for any
    """

    name: str
    kind: Any
    about: About
    default: Any

    @property
    def is_required(self) -> bool:
        """True if it has no default."""
        return self.default is Argument.empty

    @property
    def is_flag(self) -> bool:
        """True if it is ``yes`` or nothing."""
        return self.kind is bool

    @property
    def is_number(self) -> bool:
        """True if it is a number."""
        return self.kind is int or int in get_args(self.kind)

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it may be; empty for any."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    def parse(self, text: str) -> Any:
        """Return the value of a text; the default of an empty one.

        :raises BadRequest: it is missing, or cannot be used
        """
        if not text:
            if self.is_required:
                raise BadRequest(f"{self.name} is missing.")
            return self.default
        if self.is_flag:
            return text == "yes"
        if self.is_number:
            digits = text.strip().replace(",", "")
            if not digits.isascii() or not digits.isdigit() or len(digits) > MAX_DIGITS:
                raise BadRequest(f"{self.name} is not a number.")
            if not self.about.least <= int(digits) <= self.about.most:
                bounds = f"{self.about.least:,} to {self.about.most:,}"
                raise BadRequest(f"{self.name} is not in the range {bounds}.")
            return int(digits)
        if self.choices and text not in self.choices:
            raise BadRequest(f"{self.name} is none of {', '.join(filter(None, self.choices))}.")
        if len(text) > self.about.max_chars:
            raise BadRequest(f"{self.name} is too long: at most {self.about.max_chars} characters.")
        return text

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        schema = schema_of(self.kind, {})
        if self.is_number:
            schema |= {"minimum": self.about.least, "maximum": self.about.most}
        if not self.is_required and self.default is not None:
            schema["default"] = self.default
        return schema | {"description": self.about.text}


@cache
def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of the requests that a function answers."""
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for name, argument in signature(function).parameters.items():
        if argument.kind is Argument.KEYWORD_ONLY:
            kind, about = get_args(hints[name])
            parameters.append(Parameter(name, kind, about, argument.default))
    return tuple(parameters)


def parsed(parameters: AbcSequence[Parameter], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that texts stand for.

    :raises BadRequest: one is missing, or cannot be used
    """
    return {each.name: each.parse(texts.get(each.name, "")) for each in parameters}


def parsed_text(parse: Callable[[str], T], text: str) -> T:
    """Return what a function of the command line's grammar makes of a text.

    :raises BadRequest: nothing
    """
    try:
        return parse(text)
    except ArgumentTypeError as error:
        raise BadRequest(str(error)) from None


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; none of another class."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def plain(value: Any) -> Any:
    """Return a value as what JSON has. Bytes become a text if they are UTF-8, else
    ``{"base64": …}``.
    """
    kind: Any = type(value)
    if kind in _SIMPLE:
        return value
    names = _field_names(kind)
    if names:
        members = {}
        for name in names:
            member = getattr(value, name)
            # Most are simple: a call for each would take most of the time of a long answer.
            members[name] = member if type(member) in _SIMPLE else plain(member)
        return members
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value]


def schema_of(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a type.

    :param named: gets the schemas of the classes in it, by name
    """
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if kind is bytes:
        return dict(_BYTES)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return schema_of(arguments[0], named)
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], named)}
    if origin is tuple and Ellipsis not in arguments:
        return {"type": "array", "prefixItems": [schema_of(each, named) for each in arguments]}
    if isinstance(origin, type) and issubclass(origin, AbcSequence):
        return {"type": "array", "items": schema_of(arguments[0], named)}
    if origin is not None:
        return {"anyOf": [schema_of(each, named) for each in arguments]}
    if issubclass(kind, Enum):
        return {"enum": [member.name.lower() for member in kind]}
    if kind.__name__ not in named:
        named[kind.__name__] = {}  # a class may have fields of itself
        named[kind.__name__] = _schema_of_class(kind, named)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _schema_of_class(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    hints, names = get_type_hints(kind), _field_names(kind)
    texts = {
        name: " ".join(text.split()) for name, text in _FIELD.findall(cleandoc(kind.__doc__ or ""))
    }
    properties = {}
    for name in names:
        schema = schema_of(hints[name], named)
        properties[name] = schema | {"description": texts[name]} if name in texts else schema
    return {"type": "object", "properties": properties, "required": list(names)}
