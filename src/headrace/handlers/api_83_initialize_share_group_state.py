"""InitializeShareGroupState (83), version 0: initialise the state of share-partitions at an offset
(KIP-932).

The group coordinator of this broker initialises state without this request. A share-partition in
memory is loaded again, and its acquisition locks are lost.
"""

from __future__ import annotations

from typing import Any

from kio.schema.initialize_share_group_state.v0.request import (
    InitializeShareGroupStateRequest,
    PartitionData,
)
from kio.schema.initialize_share_group_state.v0.response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.share.records import SharePartitionKey

from .context import RequestContext
from .share_state import serve_each


def handle(
    broker: Broker, request: InitializeShareGroupStateRequest, context: RequestContext
) -> Any:
    """Initialise each share-partition of a request."""

    def initialize(
        key: SharePartitionKey, asked: PartitionData, partitions: int | None
    ) -> PartitionResult:
        outcome = broker.share_state.initialize(
            key, asked.state_epoch, asked.start_offset, broker.clock.wall_ms(), partitions
        )
        refusal = broker.share_state_runtime.write_now(str(key), outcome) or Refusal(ErrorCode.NONE)
        if refusal.code == ErrorCode.NONE:
            broker.share.fence(*key)
        return PartitionResult(
            partition=key.partition, error_code=refusal.code, error_message=refusal.message
        )

    return serve_each(
        broker, request, initialize, InitializeShareGroupStateResponse, InitializeStateResult
    )
