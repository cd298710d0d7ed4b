"""StreamsGroupTopologyDescriptionUpdate (93), version 0: store how an application describes its
topology (KIP-1331).

A plugin stores it in Apache Kafka (``group.streams.topology.description.plugin.class``). There are
no plugins here, so that the request is refused as by a Kafka without one.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.config.group_protocols import REBALANCE_PROTOCOLS, STREAMS
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.newer_messages import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

from .context import RequestContext


def handle(
    broker: Broker, request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuse the request."""
    message = "The broker has no streams group topology description plugin configured."
    if STREAMS not in broker.config.get_list(REBALANCE_PROTOCOLS):
        message = "The version of API is not supported."
    return StreamsGroupTopologyDescriptionUpdateResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=message,
    )
