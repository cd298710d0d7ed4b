"""KEDA's external scaler, as a gRPC service."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from headrace.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    RequestRefused,
    UnknownTopic,
)
from headrace.protocol.primitives import MAX_STRING_BYTES

from .collector import CONSUMER, SHARE, Backlog, BacklogCollector, BacklogQuery

HEALTH_SERVICE = "grpc.health.v1.Health"
"""The service that Kubernetes' gRPC probes ask."""
_SERVING = b"\x08\x01"
"""A HealthCheckResponse with the status SERVING."""

_Context = Any
"""A ``grpc.aio.ServicerContext``."""


# Messages -----------------------------------------------------------------------------------------
# They are in a pool of their own, so that a process may also have the classes that a tool has
# generated.

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
GetMetricsRequest = _class("GetMetricsRequest")
GetMetricsResponse = _class("GetMetricsResponse")


# Answers ------------------------------------------------------------------------------------------


class ExternalScaler:
    """The answers to KEDA.

    An unknown backlog is an error. After it, KEDA leaves the replicas as they are, or applies the
    fallback of the ScaledObject.
    """

    def __init__(self, collector: BacklogCollector) -> None:
        self._collector = collector

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the methods, and the health check."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        ref, active = ScaledObjectRef, IsActiveResponse
        methods = {
            name: make(method, request.FromString, response.SerializeToString)
            for name, make, method, request, response in (
                ("IsActive", unary, self.is_active, ref, active),
                ("StreamIsActive", stream, self.stream_is_active, ref, active),
                ("GetMetricSpec", unary, self.metric_spec, ref, GetMetricSpecResponse),
                ("GetMetrics", unary, self.metrics, GetMetricsRequest, GetMetricsResponse),
            )
        }
        for service, handlers in (SERVICE, methods), (HEALTH_SERVICE, {"Check": unary(_check)}):
            handler = grpc.method_handlers_generic_handler(service, handlers)
            server.add_generic_rpc_handlers((handler,))

    async def is_active(self, ref: Any, context: _Context) -> Any:
        """Return whether there is work, or a member may hold records."""
        async with _scaled_object(ref, context) as scaled:
            active = await self._is_active(scaled, await self._collector.backlog(scaled.query))
            return IsActiveResponse(result=active)

    async def stream_is_active(self, ref: Any, context: _Context) -> AsyncIterator[Any]:
        """Yield whether there is work, first at once, and then whenever it changes."""
        told: bool | None = None
        async with (
            _scaled_object(ref, context) as scaled,
            aclosing(self._collector.watch(scaled.query)) as backlogs,
        ):
            async for backlog in backlogs:
                active = await self._is_active(scaled, backlog)
                if active != told:
                    told = active
                    yield IsActiveResponse(result=active)

    async def metric_spec(self, ref: Any, context: _Context) -> Any:
        """Return the metric and its target for one replica."""
        async with _scaled_object(ref, context) as scaled:
            spec = {
                "metricName": scaled.metric_name,
                "targetSize": math.ceil(scaled.lag_threshold),
                "targetSizeFloat": scaled.lag_threshold,
            }
            return GetMetricSpecResponse(metricSpecs=[spec])

    async def metrics(self, request: Any, context: _Context) -> Any:
        """Return the records that the group still has to finish."""
        async with _scaled_object(request.scaledObjectRef, context) as scaled:
            value = scaled.metric(await self._collector.backlog(scaled.query))
            metric = {
                "metricName": request.metricName or scaled.metric_name,
                "metricValue": math.ceil(value),
                "metricValueFloat": value,
            }
            return GetMetricsResponse(metricValues=[metric])

    async def _is_active(self, scaled: ScaledObject, backlog: Backlog) -> bool:
        """Return whether the workload must run.

        The activation threshold applies to a group without members. Members may hold some of the
        records that are left.
        """
        if not backlog.records or backlog.records > scaled.activation:
            return backlog.records > 0
        return await self._collector.has_members(scaled.query)


@asynccontextmanager
async def _scaled_object(ref: Any, context: _Context) -> AsyncIterator[ScaledObject]:
    """Yield a scaled object; errors end the call."""
    try:
        yield parse(dict(ref.scalerMetadata))
    except InvalidMetadata as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except ClientError as error:
        await context.abort(*_status(error))


def _status(error: ClientError) -> tuple[grpc.StatusCode, str]:
    """Return what a caller is told."""
    code, text = grpc.StatusCode.UNAVAILABLE, str(error)
    if isinstance(error, ConnectionFailed | AuthenticationFailed):
        # The reason tells what listens where, and who logs in. The collector has logged it.
        text = "the cluster cannot be reached: the scaler's log has the reason"
    elif isinstance(error, UnknownTopic):
        code = grpc.StatusCode.NOT_FOUND
    elif isinstance(error, RequestRefused) and error.advice is not None:
        code = grpc.StatusCode.PERMISSION_DENIED
    return code, text


async def _check(request: bytes, context: _Context) -> bytes:
    return _SERVING


# Metadata -----------------------------------------------------------------------------------------


DEFAULT_LAG_THRESHOLD = 10.0
MAX_TOPICS = 100

_KEYS = (
    *("group", "groupType", "topics", "lagThreshold", "activationLagThreshold"),
    # What KEDA reads itself.
    *("scalerAddress", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey", "unsafeSsl"),
    *("enableTLS", "metricType"),
)


class InvalidMetadata(ValueError):
    """The metadata is wrong. The text is one line."""


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """The metadata of a ScaledObject, checked.

    :param lag_threshold: records for each replica
    :param activation: a group without members is activated by more records than this
    """

    query: BacklogQuery
    lag_threshold: float
    activation: float

    @property
    def metric_name(self) -> str:
        """The name of the metric."""
        group = re.sub("[^a-z0-9]+", "-", self.query.group_id.lower()).strip("-")
        return f"headrace-{self.query.kind}-{group}".rstrip("-")

    def metric(self, backlog: Backlog) -> float:
        """Return the value of the metric.

        For a consumer group it never asks for more replicas than partitions: they would idle.
        """
        if self.query.kind == SHARE:
            return float(backlog.records)
        return min(float(backlog.records), self.lag_threshold * backlog.partitions)


def parse(metadata: Mapping[str, str]) -> ScaledObject:
    """Read the metadata of a trigger.

    :raises InvalidMetadata: it is wrong
    """
    unknown = sorted(metadata.keys() - set(_KEYS))
    if unknown:
        raise InvalidMetadata(f"unknown metadata: {', '.join(unknown)}")
    group_id = metadata.get("group", "")
    if not group_id:
        raise InvalidMetadata("group is missing")
    group_type = metadata.get("groupType", SHARE).lower()
    if group_type not in (SHARE, CONSUMER):
        raise InvalidMetadata(f"groupType is '{group_type}', not share or consumer")
    topics = list(filter(None, map(str.strip, metadata.get("topics", "").split(","))))
    if len(topics) > MAX_TOPICS:
        raise InvalidMetadata(f"topics are {len(topics)}, more than {MAX_TOPICS}")
    # One request has the names of many scaled objects: it must not fail because of one of them.
    if max(len(name.encode()) for name in (group_id, *topics)) > MAX_STRING_BYTES:
        raise InvalidMetadata(f"a name is longer than {MAX_STRING_BYTES} bytes")
    threshold = _number(metadata, "lagThreshold", DEFAULT_LAG_THRESHOLD)
    if not threshold:
        raise InvalidMetadata("lagThreshold is 0")
    return ScaledObject(
        BacklogQuery(group_id, group_type, tuple(topics)),
        threshold,
        _number(metadata, "activationLagThreshold", 0.0),
    )


def _number(metadata: Mapping[str, str], key: str, default: float) -> float:
    text = metadata.get(key) or str(default)
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,6})?", text, re.ASCII):
        raise InvalidMetadata(f"{key} is '{text}', not a number from 0 on")
    return float(text)
