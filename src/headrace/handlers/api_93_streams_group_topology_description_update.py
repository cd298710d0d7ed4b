"""StreamsGroupTopologyDescriptionUpdate (93), version 0: store how an application describes its
topology (KIP-1331).

A plugin stores it in Apache Kafka (``group.streams.topology.description.plugin.class``). There are
no plugins here, so that the request is refused as by a Kafka without one.
"""

from __future__ import annotations

from headrace.net.api import READ_GROUP, STREAMS, stub
from headrace.protocol.errors import ErrorCode, Refusal

API, handle = stub(
    93,
    READ_GROUP,
    error=Refusal(
        ErrorCode.UNSUPPORTED_VERSION,
        "The broker has no streams group topology description plugin configured.",
    ),
    protocol=STREAMS,
)
