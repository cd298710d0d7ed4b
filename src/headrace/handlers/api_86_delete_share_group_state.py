"""DeleteShareGroupState (86), version 0: delete the state of share-partitions (KIP-932).

Deleting an unknown share-partition succeeds.
"""

from __future__ import annotations

from typing import Any

from kio.schema.delete_share_group_state.v0.request import (
    DeleteShareGroupStateRequest,
    PartitionData,
)
from kio.schema.delete_share_group_state.v0.response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.share.records import SharePartitionKey

from .context import RequestContext
from .share_state import serve_each


def handle(broker: Broker, request: DeleteShareGroupStateRequest, context: RequestContext) -> Any:
    """Delete the state of each share-partition of a request."""

    def delete(
        key: SharePartitionKey, asked: PartitionData, partitions: int | None
    ) -> PartitionResult:
        outcome = broker.share_state.delete(key, partitions)
        refusal = broker.share_state_runtime.write_now(str(key), outcome) or Refusal(ErrorCode.NONE)
        if refusal.code == ErrorCode.NONE:
            broker.share.drop(*key)
        return PartitionResult(
            partition=key.partition, error_code=refusal.code, error_message=refusal.message
        )

    return serve_each(broker, request, delete, DeleteShareGroupStateResponse, DeleteStateResult)
