"""UnregisterController (94), version 0: forget a controller.

This node is the only controller, and active, so that every request is refused.
"""

from __future__ import annotations

from headrace.net.api import ALTER, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import UnregisterControllerRequest, UnregisterControllerResponse
from headrace.protocol.errors import ErrorCode

API = Api(
    94,
    on_cluster(ALTER),
    refuse=lambda request, code: UnregisterControllerResponse(error_code=code, error_message=None),
)


async def handle(call: Call, request: UnregisterControllerRequest) -> UnregisterControllerResponse:
    """Refuse the request."""
    code = ErrorCode.INVALID_REQUEST
    message = "Controller cannot unregister itself while it is active."
    if request.controller_id != call.node_id:
        code = ErrorCode.CONTROLLER_ID_NOT_REGISTERED
        message = f"Controller ID {request.controller_id} is not currently registered."
    return UnregisterControllerResponse(error_code=code, error_message=message)
