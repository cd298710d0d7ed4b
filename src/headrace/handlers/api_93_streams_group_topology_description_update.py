"""StreamsGroupTopologyDescriptionUpdate (93), version 0: store how an application describes its
topology (KIP-1331).

A plugin stores it in Apache Kafka (``group.streams.topology.description.plugin.class``). There are
no plugins here, so that the request is refused as by a Kafka without one.
"""

from __future__ import annotations

from headrace.errors import ErrorCode
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.group_protocols import STREAMS
from headrace.net.rules import GROUP, READ, on
from headrace.protocol.api import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

API = Api(93, on(READ, GROUP, "group_id"), protocol=STREAMS)


async def handle(
    call: Call, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuse the request."""
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="The broker has no streams group topology description plugin configured.",
    )
