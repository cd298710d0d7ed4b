"""WriteShareGroupState (85), versions 0-1: store changes of share-partitions (KIP-932).

The share-partition leaders of this broker write without this request, and do not notice it.

Version notes:

* Version 1 adds the delivery-complete count, which gives the lag (KIP-1226). After a write of
  version 0 that moves the start offset the lag is unknown.
"""

from __future__ import annotations

from typing import Any

from kio.schema.write_share_group_state.v1.request import PartitionData, WriteShareGroupStateRequest
from kio.schema.write_share_group_state.v1.response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.share.merged_state import combined
from headrace.share.records import SharePartitionKey, StateBatch

from .context import RequestContext
from .share_state import serve_each


def handle(broker: Broker, request: WriteShareGroupStateRequest, context: RequestContext) -> Any:
    """Store the changes of each share-partition of a request."""

    def write(
        key: SharePartitionKey, asked: PartitionData, partitions: int | None
    ) -> PartitionResult:
        refusal = _write(broker, key, asked, partitions) or Refusal(ErrorCode.NONE)
        return PartitionResult(
            partition=key.partition, error_code=refusal.code, error_message=refusal.message
        )

    return serve_each(broker, request, write, WriteShareGroupStateResponse, WriteStateResult)


def _write(
    broker: Broker, key: SharePartitionKey, asked: PartitionData, partitions: int | None
) -> Refusal | None:
    given = [
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in asked.state_batches
    ]
    batches = combined(given, asked.start_offset)
    if isinstance(batches, Refusal):
        return batches
    outcome = broker.share_state.write(
        key,
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.delivery_complete_count,
        batches,
        broker.clock.wall_ms(),
        partitions,
    )
    return broker.share_state_runtime.write_now(str(key), outcome)
