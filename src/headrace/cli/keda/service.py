"""KEDA's external scaler, as a gRPC service."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
import grpc.aio

from headrace.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    RequestRefused,
    UnknownTopic,
)

from . import messages
from .backlog import Backlog
from .clusters import Clusters
from .collector import BacklogCollector
from .scaled_object import InvalidMetadata, ScaledObject, parse

HEALTH_SERVICE = "grpc.health.v1.Health"
"""The service that Kubernetes' gRPC probes ask."""
_SERVING = b"\x08\x01"
"""A HealthCheckResponse with the status SERVING."""

_Context = Any
"""A ``grpc.aio.ServicerContext``."""


class ExternalScaler:
    """The answers to KEDA.

    An unknown backlog is an error, unless the last known one is recent enough. After an error, KEDA
    leaves the replicas as they are, or applies the fallback of the ScaledObject.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the methods, and the health check."""
        unary = grpc.unary_unary_rpc_method_handler
        ref, active = messages.ScaledObjectRef, messages.IsActiveResponse
        methods = {
            "IsActive": unary(self.is_active, ref.FromString, active.SerializeToString),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                self.stream_is_active, ref.FromString, active.SerializeToString
            ),
            "GetMetricSpec": unary(
                self.metric_spec,
                ref.FromString,
                messages.GetMetricSpecResponse.SerializeToString,
            ),
            "GetMetrics": unary(
                self.metrics,
                messages.GetMetricsRequest.FromString,
                messages.GetMetricsResponse.SerializeToString,
            ),
        }
        health = {"Check": unary(_check)}
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(messages.SERVICE, methods),
                grpc.method_handlers_generic_handler(HEALTH_SERVICE, health),
            )
        )

    async def is_active(self, ref: Any, context: _Context) -> Any:
        """Return whether there is work, or a member may hold records."""
        wanted, collector = await self._open(ref, context)
        try:
            backlog = await collector.backlog(wanted.query)
            active = await _is_active(wanted, backlog, collector)
        except ClientError as error:
            await _abort(context, error)
        return messages.IsActiveResponse(result=active)

    async def stream_is_active(self, ref: Any, context: _Context) -> AsyncIterator[Any]:
        """Yield whether there is work, first at once, and then whenever it changes."""
        wanted, collector = await self._open(ref, context)
        told: bool | None = None
        try:
            async with aclosing(collector.watch(wanted.query)) as backlogs:
                async for backlog in backlogs:
                    active = await _is_active(wanted, backlog, collector)
                    if active != told:
                        told = active
                        yield messages.IsActiveResponse(result=active)
        except ClientError as error:
            await _abort(context, error)

    async def metric_spec(self, ref: Any, context: _Context) -> Any:
        """Return the metric and its target for one replica."""
        wanted = await _parsed(ref, context)
        spec = messages.MetricSpec(
            metricName=wanted.metric_name,
            targetSize=math.ceil(wanted.lag_threshold),
            targetSizeFloat=wanted.lag_threshold,
        )
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def metrics(self, request: Any, context: _Context) -> Any:
        """Return the records that the group still has to finish."""
        wanted, collector = await self._open(request.scaledObjectRef, context)
        try:
            value = wanted.metric(await collector.backlog(wanted.query))
        except ClientError as error:
            await _abort(context, error)
        metric = messages.MetricValue(
            metricName=request.metricName or wanted.metric_name,
            metricValue=math.ceil(value),
            metricValueFloat=value,
        )
        return messages.GetMetricsResponse(metricValues=[metric])

    async def _open(self, ref: Any, context: _Context) -> tuple[ScaledObject, BacklogCollector]:
        wanted = await _parsed(ref, context)
        try:
            return wanted, await self._clusters.collector(wanted)
        except InvalidMetadata as error:
            await _refuse(context, error)


async def _parsed(ref: Any, context: _Context) -> ScaledObject:
    try:
        return parse(dict(ref.scalerMetadata))
    except InvalidMetadata as error:
        await _refuse(context, error)


async def _is_active(wanted: ScaledObject, backlog: Backlog, collector: BacklogCollector) -> bool:
    """Return whether the workload must run.

    The activation threshold applies to a group without members. Members may hold some of the
    records that are left.
    """
    if not backlog.records or backlog.records > wanted.activation:
        return backlog.records > 0
    return await collector.has_members(wanted.query)


async def _refuse(context: _Context, error: InvalidMetadata) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    raise AssertionError


async def _abort(context: _Context, error: ClientError) -> NoReturn:
    code, text = grpc.StatusCode.UNAVAILABLE, str(error)
    if isinstance(error, ConnectionFailed | AuthenticationFailed):
        # The reason tells what listens where, and who logs in. The collector has logged it.
        text = "the cluster cannot be reached: the scaler's log has the reason"
    elif isinstance(error, UnknownTopic):
        code = grpc.StatusCode.NOT_FOUND
    elif isinstance(error, RequestRefused) and error.advice is not None:
        code = grpc.StatusCode.PERMISSION_DENIED
    await context.abort(code, text)
    raise AssertionError


async def _check(request: bytes, context: _Context) -> bytes:
    return _SERVING
