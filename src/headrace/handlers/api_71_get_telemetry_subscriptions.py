"""GetTelemetrySubscriptions (71), version 0: tell a client which metrics to push (KIP-714)."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse

from headrace.broker.broker import Broker
from headrace.broker.telemetry.client_instances import ACCEPTED_CODECS
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE

from .client_attributes import client_attributes
from .context import RequestContext


def handle(
    broker: Broker, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription of a client instance; a client without an id gets one."""
    instance = broker.telemetry.ask(
        request.client_instance_id, client_attributes(broker, context), context.connection_id
    )
    if isinstance(instance, ErrorCode):
        return GetTelemetrySubscriptionsResponse(
            throttle_time=NO_THROTTLE,
            error_code=instance,
            client_instance_id=None,
            subscription_id=0,
            accepted_compression_types=(),
            push_interval=timedelta(0),
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=(),
        )
    return GetTelemetrySubscriptionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=ACCEPTED_CODECS,
        push_interval=timedelta(milliseconds=instance.push_interval_ms),
        telemetry_max_bytes=broker.telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=tuple(instance.metrics),
    )
