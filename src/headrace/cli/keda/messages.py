"""The messages of KEDA's external scaler protocol, gRPC service ``externalscaler.ExternalScaler``.

The table below makes the classes at run time. They are in a pool of their own, so that a process
may also have the classes that a tool has generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"

_STRING, _BOOL = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BOOL
_INT64, _DOUBLE = FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_DOUBLE
_ONE, _MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
_MAP = "map<string, string>"

_MESSAGES: Mapping[str, tuple[tuple[str, Any, Any], ...]] = {
    "ScaledObjectRef": (
        ("name", _ONE, _STRING),
        ("namespace", _ONE, _STRING),
        ("scalerMetadata", _MANY, _MAP),
    ),
    "IsActiveResponse": (("result", _ONE, _BOOL),),
    "GetMetricSpecResponse": (("metricSpecs", _MANY, "MetricSpec"),),
    "MetricSpec": (
        ("metricName", _ONE, _STRING),
        ("targetSize", _ONE, _INT64),
        ("targetSizeFloat", _ONE, _DOUBLE),
    ),
    "GetMetricsRequest": (
        ("scaledObjectRef", _ONE, "ScaledObjectRef"),
        ("metricName", _ONE, _STRING),
    ),
    "GetMetricsResponse": (("metricValues", _MANY, "MetricValue"),),
    "MetricValue": (
        ("metricName", _ONE, _STRING),
        ("metricValue", _ONE, _INT64),
        ("metricValueFloat", _ONE, _DOUBLE),
    ),
}
"""Message → its fields (name, label, type), numbered from 1 on."""


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="headrace/externalscaler", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, label, kind) in enumerate(fields, 1):
            made = message.field.add(name=field, number=number, label=label)
            if kind == _MAP:
                made.type = FieldDescriptorProto.TYPE_MESSAGE
                made.type_name = f".{PACKAGE}.{name}.{_add_map(message, field)}"
            elif isinstance(kind, str):
                made.type = FieldDescriptorProto.TYPE_MESSAGE
                made.type_name = f".{PACKAGE}.{kind}"
            else:
                made.type = kind
    return file


def _add_map(message: DescriptorProto, field: str) -> str:
    """Add the type of the entries of a map, as protobuf stores maps; return its name."""
    entry = message.nested_type.add(name=field[0].upper() + field[1:] + "Entry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, label=_ONE, type=_STRING)
    return entry.name


_POOL = DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


ScaledObjectRef = _class("ScaledObjectRef")
IsActiveResponse = _class("IsActiveResponse")
GetMetricSpecResponse = _class("GetMetricSpecResponse")
MetricSpec = _class("MetricSpec")
GetMetricsRequest = _class("GetMetricsRequest")
GetMetricsResponse = _class("GetMetricsResponse")
MetricValue = _class("MetricValue")
