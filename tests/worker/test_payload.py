"""Calls as records: what is written comes back, and nothing else gets through."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Delivery, Record
from headrace.client.errors import ClientError
from headrace.worker.outcomes import Undecodable
from headrace.worker.payload import Envelope, Signature, Value

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@dataclass
class Order:
    item: str
    count: int = 1
    at: datetime | None = None


class Box(msgspec.Struct):
    order: Order
    number: UUID


class Label(pydantic.BaseModel):
    text: str
    copies: int = pydantic.Field(gt=0)


def envelope(function: Any) -> Envelope:
    return Envelope(Signature(function), "pack")


def record(value: bytes | None, headers: Any = None) -> Record:
    own = (("headrace-task", b"pack"), ("headrace-envelope", b"1"))
    return Record("pack", 0, 0, None, value, own if headers is None else headers, 0, 0, 1, None)


def there_and_back(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    form = envelope(function)
    return form.decode(record(form.encode(args, kwargs), tuple(form.headers)))


def anything(value: Any, *, more: Any = 7) -> None: ...


def orders(order: Order, boxes: list[Box], label: Label) -> None: ...


def of_position(number: int, /, delivery: Delivery, text: str = "x") -> None: ...


@given(JSON, JSON)
def test_json_comes_back(value: Any, more: Any) -> None:
    assert there_and_back(anything, value, more=more) == {"value": value, "more": more}


def test_objects_come_back_and_defaults_stay_with_the_function() -> None:
    order = Order("chair", at=datetime(2030, 1, 1))
    arguments = {
        "order": order,
        "boxes": [Box(order, UUID(int=1))],
        "label": Label(text="fragile", copies=2),
    }
    assert there_and_back(orders, **arguments) == arguments
    assert there_and_back(anything, 1) == {"value": 1}


def test_a_delivery_is_passed_and_not_sent() -> None:
    form, signature = envelope(of_position), Signature(of_position)
    assert json.loads(form.encode((3,), {"text": "y"})) == {"number": 3, "text": "y"}
    delivery: Any = object()
    args, kwargs = signature.call({"number": 3}, delivery)
    assert (*args, *kwargs.values()) == (3, delivery)


@given(st.binary() | st.none(), st.lists(st.tuples(st.text(), st.binary() | st.none())) | st.none())
def test_bytes_decode_or_are_undecodable(value: bytes | None, headers: Any) -> None:
    form = envelope(orders)
    with pytest.raises(Undecodable):
        form.decode(record(value, None if headers is None else tuple(headers)))


@pytest.mark.parametrize("annotation", [bytes, str, int, Order, Label, dict[str, int], Any])
@given(value=st.binary())
def test_values_of_others_decode_or_are_undecodable(annotation: Any, value: bytes) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    try:
        arguments = Value(Signature(function)).decode(record(value, ()))
    except Undecodable:
        return
    assert list(arguments) == ["value"]


def test_a_validator_of_a_model_makes_undecodable_records() -> None:
    with pytest.raises(Undecodable, match="greater than 0"):
        Value(Signature(_label)).decode(record(b'{"text": "x", "copies": 0}', ()))


def _label(label: Label) -> None: ...


def many(*numbers: int) -> None: ...


def named(**numbers: int) -> None: ...


def two(first: int, second: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (many, "many: *numbers cannot come from a record"),
        (named, "named: *numbers cannot come from a record"),
    ],
)
def test_parameters_that_no_record_has_are_refused(function: Any, problem: str) -> None:
    with pytest.raises(ClientError) as caught:
        Signature(function)
    assert str(caught.value) == problem


def test_a_subscriber_takes_one_argument() -> None:
    with pytest.raises(ClientError, match="two takes 2 arguments from a record, not 1: its value"):
        Value(Signature(two))


@pytest.mark.parametrize("args", [(), (1, 2), ("x", 2)])
def test_a_call_that_the_function_does_not_take_is_not_sent(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        envelope(anything).encode(args, {"other": 1})


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Checked(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        raise KeyError("x" * 1_000_000) if text == "long" else Silent


def test_a_record_that_nobody_has_called_a_task_with_says_so() -> None:
    def pack(order: dict[str, str]) -> None: ...

    with pytest.raises(Undecodable, match="it is no call of a task: it has no header"):
        envelope(pack).decode(record(b"no json", headers=()))


@pytest.mark.parametrize("text", ["long", "silent"])
def test_an_odd_exception_of_a_validator_says_that_the_record_does_not_decode(text: str) -> None:
    def pack(label: Checked) -> None: ...

    value = json.dumps({"label": {"text": text}}).encode()
    with pytest.raises(Undecodable) as caught:
        envelope(pack).decode(record(value))
    assert 0 < len(str(caught.value)) < 1000
    with pytest.raises(Undecodable):
        Value(Signature(pack)).decode(record(json.dumps({"text": text}).encode()))


collecting: list[bool] = []


class Looking(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        collecting.append(gc.isenabled())
        if text.endswith("!"):
            raise ValueError("no")
        return text


def test_collections_wait_until_a_large_value_is_decoded() -> None:
    def pack(label: Looking) -> None: ...

    decode = Value(Signature(pack)).decode
    for text in ("short", "x" * 2_000_000):
        decode(record(json.dumps({"text": text}).encode()))
    with pytest.raises(Undecodable):
        decode(record(json.dumps({"text": "x" * 2_000_000 + "!"}).encode()))
    assert collecting == [True, False, False]
    assert gc.isenabled()
