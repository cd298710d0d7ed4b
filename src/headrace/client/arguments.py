"""What programs pass: numbers and times, and what turns bytes of keys and values into objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any, get_origin, is_typeddict

from msgspec.json import Decoder

from .errors import ClientError

Seconds = float | timedelta
YEAR_S = 365 * 86_400.0


def seconds(value: object, name: str, longest_s: float = YEAR_S) -> float:
    """Return a time in seconds.

    :raises ClientError: it is something else, negative, or longer than ``longest_s``
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ClientError(f"{name} is {value!r}, not seconds or a timedelta")
    if not 0 <= number <= longest_s:
        raise ClientError(f"{name} is {value!r}, not from 0 to {longest_s:.0f} seconds")
    return float(number)


def whole_number(value: int, name: str, least: int = 1) -> int:
    """:raises ClientError: it is something else, or less than ``least``"""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ClientError(f"{name} is {value!r}, not a whole number from {least}")
    return value


# Deserializers ------------------------------------------------------------------------------------


Deserializer = Callable[[bytes], Any]


def deserializer(form: Deserializer | type | ModuleType) -> Deserializer:
    """Return the function that reads bytes in some form.

    :param form: the module ``json``, or another with a function ``loads``; ``str`` for UTF-8; the
        type of what JSON describes: a dataclass, a ``TypedDict``, ``list[…]``, a ``msgspec.Struct``
        or a model of pydantic; or a function of bytes
    :raises ClientError: it is none of these
    """
    if isinstance(form, ModuleType) and hasattr(form, "loads"):
        read = form.loads
        if form is json:
            return lambda data: read(data.decode())  # else json guesses the encoding, slowly
        return read
    if form is str:
        return bytes.decode
    if hasattr(form, "model_validate_json"):  # pydantic's
        return form.model_validate_json
    if (
        form in (dict, list)
        or get_origin(form) is not None
        or is_dataclass(form)
        or is_typeddict(form)
        or hasattr(form, "__struct_fields__")  # msgspec's
    ):
        return Decoder(form).decode
    if not callable(form):
        raise ClientError(
            f"{form!r} reads no bytes: give json, str, a dataclass or a function of bytes"
        )
    return form
