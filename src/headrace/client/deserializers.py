"""What turns the bytes of keys and values into objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any, get_origin, is_typeddict

from msgspec.json import Decoder

from .errors import ClientError

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
