"""The arguments of functions: what is in records, by the annotations of the function, and what a
function may know of its record.

A record of a task has the headers ``headrace-task`` (its name) and ``headrace-envelope`` (``1``,
the version of this form), and as value a JSON object with each argument by its name: any language
can write one. See ``docs/how-to/worker.md``.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from logging import LoggerAdapter
from typing import Any, TypeVar, get_type_hints

import msgspec

from headrace.client.errors import ClientError
from headrace.client.records import Record
from headrace.log_lines import shown
from headrace.protocol.task_headers import ENVELOPE, TASK

from .outcomes import Undecodable

T = TypeVar("T")

VERSION = b"1"
_LARGE_BYTES = 1 << 20

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(slots=True, eq=False)
class Delivery:
    """The delivery of a record to a function that has a parameter of this type.

    :ivar record: with key, headers and offset; ``value`` is bytes
    :ivar attempt: the number of this attempt, from 1
    :ivar task: the name of the task or subscriber
    :ivar group: the name of the share group
    :ivar log: a logger whose lines name the record
    """

    record: Record
    attempt: int
    task: str
    group: str
    log: LoggerAdapter[Any] = field(repr=False)
    _renew: Callable[[], Awaitable[None]] = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = self.record, self.attempt, self.task, self.group, self.log
        return Delivery, (*fields, _renew_elsewhere)

    async def renew(self) -> None:
        """Restart the lock of the record now. It is renewed without this, too, as long as the
        function runs.

        :raises ClientError: the lock was lost: another worker has the record
        """
        await self._renew()


class RecordLog(LoggerAdapter):  # type: ignore[type-arg]
    """Puts the place of a record before each line."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        return f"{(self.extra or {})['record']}: {msg}", kwargs


async def _renew_elsewhere() -> None:
    raise ClientError("a process cannot renew: the worker does, as long as the function runs")


class Signature:
    """The parameters of a function: those of its payload, and where it takes a :class:`Delivery`.

    :param function: as it was decorated
    :raises ClientError: a parameter cannot come from a record
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__qualname__", repr(function))
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError as error:  # an annotation of a name that only type checkers import
            raise ClientError(
                f"{self.name}: an annotation is not importable here: {error}"
            ) from None
        self.delivery: str | None = None
        self.parameters: list[inspect.Parameter] = []
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ClientError(f"{self.name}: *{parameter.name} cannot come from a record")
            annotation = hints.get(parameter.name, Any)
            if annotation is Delivery:
                self.delivery = parameter.name
            else:
                self.parameters.append(parameter.replace(annotation=annotation))
        self.names = [parameter.name for parameter in self.parameters]
        has_named = any(p.kind is p.KEYWORD_ONLY for p in self.parameters)
        self._positional = -1 if has_named else len(self.names)
        self._payload = signature.replace(parameters=self.parameters)
        self._positional_only = [
            p for p in signature.parameters.values() if p.kind is p.POSITIONAL_ONLY
        ]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, without the delivery.

        :raises TypeError: the function cannot be called so
        """
        if not kwargs and len(args) == self._positional:  # the usual call, four times as fast
            return dict(zip(self.names, args, strict=True))
        try:
            return self._payload.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None

    def call(self, arguments: Mapping[str, Any], delivery: Delivery | None) -> Arguments:
        """Return the arguments to call the function with."""
        named = dict(arguments)
        if self.delivery is not None:
            named[self.delivery] = delivery
        first = tuple(named.pop(p.name, p.default) for p in self._positional_only)
        return first, named


class Envelope:
    """The records of a task: JSON objects with the arguments by name."""

    def __init__(self, signature: Signature, task: str) -> None:
        self._signature, self._task = signature, task
        fields = []
        for p in signature.parameters:
            default = msgspec.NODEFAULT if p.default is p.empty else msgspec.UNSET
            fields.append((p.name, p.annotation, msgspec.field(default=default)))
        struct = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        self._decode = _json_reader(struct, signature.name)
        self._encoder = msgspec.json.Encoder(enc_hook=_encoded)
        self.headers: list[tuple[str, bytes]] = [(TASK, task.encode()), (ENVELOPE, VERSION)]

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the value of a record.

        :raises TypeError: the function cannot be called so, or JSON has no form for an argument
        """
        return self._encoder.encode(self._signature.bind(args, kwargs))

    def decode(self, record: Record) -> dict[str, Any]:
        """Return the arguments in a record, by name.

        :raises Undecodable: it has none
        """
        headers = record.headers
        if headers[:2] != tuple(self.headers):  # as another sender writes them
            by_name = dict(headers)
            task = by_name.get(TASK)
            if not task:
                raise Undecodable(f"it is no call of a task: it has no header {TASK}")
            if task != self._task.encode():
                name = task.decode(errors="replace")
                raise Undecodable(f"it is of the task '{name}', not of '{self._task}'")
            if by_name.get(ENVELOPE) != VERSION:
                raise Undecodable(f"its {ENVELOPE} is {by_name.get(ENVELOPE)!r}, not {VERSION!r}")
        arguments = _read(self._decode, record.value or b"")
        return {
            name: value
            for name, value in msgspec.structs.asdict(arguments).items()
            if value is not msgspec.UNSET
        }


class Value:
    """The records of a topic that others write: the value is the one argument.

    :raises ClientError: the function takes not exactly one
    """

    def __init__(self, signature: Signature) -> None:
        required = [p for p in signature.parameters if p.default is p.empty]
        if len(required) > 1 or not signature.parameters:
            raise ClientError(
                f"{signature.name} takes {len(required)} arguments from a record, not 1: its value"
            )
        parameter = (required or signature.parameters)[0]
        self._name = parameter.name
        self._decode = _reader(parameter.annotation, signature.name)

    def decode(self, record: Record) -> dict[str, Any]:
        """Return the argument in a record, by name; None for a record without a value.

        :raises Undecodable: its value is something else
        """
        return {self._name: None if record.value is None else _read(self._decode, record.value)}


def _read(decode: Callable[[bytes], T], value: bytes) -> T:
    """:raises Undecodable: it has another form"""
    # Collections in the middle of it would look at all that it becomes, again and again.
    pauses_collections = len(value) > _LARGE_BYTES and gc.isenabled()
    if pauses_collections:
        gc.disable()
    try:
        return decode(value)
    except Exception as error:  # also what a model's validator raises, with a text or without
        raise Undecodable(shown(error)) from None
    finally:
        if pauses_collections:
            gc.enable()


def _reader(annotation: Any, name: str) -> Callable[[bytes], Any]:
    if annotation is bytes:
        return bytes
    if annotation is str:
        return bytes.decode
    return _json_reader(annotation, name)


def _json_reader(annotation: Any, name: str) -> Callable[[bytes], Any]:
    """:raises ClientError: JSON does not describe it"""
    try:
        return msgspec.json.Decoder(annotation, dec_hook=_decoded).decode
    except TypeError as error:
        raise ClientError(f"{name} takes what JSON does not describe: {error}") from None


def _decoded(kind: type, value: Any) -> Any:
    """Return an object of a type that msgspec does not know."""
    if hasattr(kind, "model_validate"):  # pydantic's
        return kind.model_validate(value)
    raise NotImplementedError(f"no way from JSON to {kind!r}")


def _encoded(value: Any) -> Any:
    """Return what JSON describes, for an object that msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"JSON has no form for an argument of type {type(value).__qualname__}")
