"""UnregisterController (94), version 0: forget a controller.

This node is the only controller, and active, so that every request is refused.
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.newer_messages import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

from .context import RequestContext


def handle(
    broker: Broker, request: UnregisterControllerRequest, context: RequestContext
) -> UnregisterControllerResponse:
    """Refuse the request."""
    code = ErrorCode.INVALID_REQUEST
    message = "Controller cannot unregister itself while it is active."
    if request.controller_id != broker.node_id:
        code = ErrorCode.CONTROLLER_ID_NOT_REGISTERED
        message = f"Controller ID {request.controller_id} is not currently registered."
    return UnregisterControllerResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=message
    )
