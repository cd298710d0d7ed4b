"""The messages of KEDA's external scaler protocol, gRPC service ``externalscaler.ExternalScaler``.

They are in a pool of their own, so that a process may also have the classes that a tool has
generated.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICE = "externalscaler.ExternalScaler"

_FILE = """
name: "headrace/externalscaler" package: "externalscaler" syntax: "proto3"
message_type {
  name: "ScaledObjectRef"
  field { name: "name" number: 1 type: TYPE_STRING }
  field { name: "namespace" number: 2 type: TYPE_STRING }
  field {
    name: "scalerMetadata" number: 3 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".externalscaler.ScaledObjectRef.ScalerMetadataEntry"
  }
  nested_type {
    name: "ScalerMetadataEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
}
message_type {
  name: "IsActiveResponse"
  field { name: "result" number: 1 type: TYPE_BOOL }
}
message_type {
  name: "GetMetricSpecResponse"
  field {
    name: "metricSpecs" number: 1 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".externalscaler.MetricSpec"
  }
}
message_type {
  name: "MetricSpec"
  field { name: "metricName" number: 1 type: TYPE_STRING }
  field { name: "targetSize" number: 2 type: TYPE_INT64 }
  field { name: "targetSizeFloat" number: 3 type: TYPE_DOUBLE }
}
message_type {
  name: "GetMetricsRequest"
  field {
    name: "scaledObjectRef" number: 1
    type: TYPE_MESSAGE type_name: ".externalscaler.ScaledObjectRef"
  }
  field { name: "metricName" number: 2 type: TYPE_STRING }
}
message_type {
  name: "GetMetricsResponse"
  field {
    name: "metricValues" number: 1 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".externalscaler.MetricValue"
  }
}
message_type {
  name: "MetricValue"
  field { name: "metricName" number: 1 type: TYPE_STRING }
  field { name: "metricValue" number: 2 type: TYPE_INT64 }
  field { name: "metricValueFloat" number: 3 type: TYPE_DOUBLE }
}
"""

_POOL = DescriptorPool()
_POOL.Add(text_format.Parse(_FILE, FileDescriptorProto()))


def _class(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"externalscaler.{name}"))


ScaledObjectRef = _class("ScaledObjectRef")
IsActiveResponse = _class("IsActiveResponse")
GetMetricSpecResponse = _class("GetMetricSpecResponse")
MetricSpec = _class("MetricSpec")
GetMetricsRequest = _class("GetMetricsRequest")
GetMetricsResponse = _class("GetMetricsResponse")
MetricValue = _class("MetricValue")
