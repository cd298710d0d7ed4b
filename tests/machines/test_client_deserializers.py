"""The forms in which keys and values are read."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from headrace.client.arguments import deserializer
from headrace.client.errors import ClientError


@dataclass
class Order:
    item: str
    count: int = 1


class OrderDict(TypedDict):
    item: str


class OrderStruct(msgspec.Struct):
    item: str


class OrderModel(pydantic.BaseModel):
    item: str


CHAIR = b'{"item": "chair"}'


@pytest.mark.parametrize(
    ("form", "data", "result"),
    [
        (json, "é".encode().join((b'"', b'"')), "é"),
        (json.loads, b"[1, 2]", [1, 2]),
        (msgspec.json.decode, CHAIR, {"item": "chair"}),
        (pickle, pickle.dumps(3), 3),
        (str, "é".encode(), "é"),
        (bytes, CHAIR, CHAIR),
        (int, b"12", 12),
        (len, b"12", 2),
        (dict, CHAIR, {"item": "chair"}),
        (list[int], b"[1, 2]", [1, 2]),
        (Order, CHAIR, Order("chair")),
        (OrderDict, CHAIR, {"item": "chair"}),
        (OrderStruct, CHAIR, OrderStruct("chair")),
        (OrderModel, CHAIR, OrderModel(item="chair")),
    ],
)
def test_forms(form: Any, data: bytes, result: object) -> None:
    assert deserializer(form)(data) == result


@pytest.mark.parametrize("form", [json, str, Order, OrderDict, OrderStruct, OrderModel, list[int]])
@pytest.mark.parametrize("data", [b"\xff", b'{"item": 7', b"[" * 100_000])
def test_bytes_in_another_form_are_an_error(form: Any, data: bytes) -> None:
    if form is str and data != b"\xff":
        return
    with pytest.raises((ValueError, RecursionError)):
        deserializer(form)(data)


@pytest.mark.parametrize("form", [3, None, sys, b"x"])
def test_what_reads_no_bytes(form: Any) -> None:
    with pytest.raises(ClientError, match="reads no bytes"):
        deserializer(form)
