"""PushTelemetry (72), version 0: take the metrics of a client (KIP-714).

They are shown on the metrics page until the client has not pushed for three intervals.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from headrace.broker.broker import Broker
from headrace.broker.telemetry.client_instances import ClientInstance, Push
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from .client_attributes import client_attributes
from .context import RequestContext
from .slicing import run_sliced

_BYTES_PER_POINT = 64
"""The least size of a data point, approximately."""


def handle(broker: Broker, request: PushTelemetryRequest, context: RequestContext) -> Any:
    """Check a push, then read its metrics."""
    metrics = request.metrics or b""
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        len(metrics),
    )
    instance = broker.telemetry.push(
        push, client_attributes(broker, context), context.connection_id
    )
    if isinstance(instance, ErrorCode) or not metrics:
        return _response(instance if isinstance(instance, ErrorCode) else ErrorCode.NONE)
    steps = _export(broker, instance, request.compression_type, metrics)
    return run_sliced(broker, steps, len(metrics) // _BYTES_PER_POINT)


def _export(
    broker: Broker, instance: ClientInstance, codec: int, metrics: bytes
) -> Generator[None, None, PushTelemetryResponse]:
    code = yield from broker.telemetry.export(instance, codec, memoryview(metrics))
    return _response(code)


def _response(code: ErrorCode) -> PushTelemetryResponse:
    return PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=code)
