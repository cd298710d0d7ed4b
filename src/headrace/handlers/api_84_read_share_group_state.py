"""ReadShareGroupState (84), version 0: load the state of share-partitions (KIP-932).

A higher leader epoch is stored and fences earlier leaders.
"""

from __future__ import annotations

from typing import Any

from kio.schema.read_share_group_state.v0.request import PartitionData, ReadShareGroupStateRequest
from kio.schema.read_share_group_state.v0.response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.share.records import SharePartitionKey
from headrace.share.share_state import ReadState

from .context import RequestContext
from .share_state import serve_each


def handle(broker: Broker, request: ReadShareGroupStateRequest, context: RequestContext) -> Any:
    """Return the state of each share-partition of a request."""

    def read(
        key: SharePartitionKey, asked: PartitionData, partitions: int | None
    ) -> PartitionResult:
        outcome = broker.share_state.read(
            key, asked.leader_epoch, broker.clock.wall_ms(), partitions
        )
        return _result(key, broker.share_state_runtime.write_now(str(key), outcome))

    return serve_each(broker, request, read, ReadShareGroupStateResponse, ReadStateResult)


def _result(key: SharePartitionKey, reply: ReadState | Refusal) -> PartitionResult:
    if isinstance(reply, Refusal):
        return PartitionResult(
            partition=key.partition,
            error_code=reply.code,
            error_message=reply.message,
            state_epoch=0,
            start_offset=0,
            state_batches=(),
        )
    return PartitionResult(
        partition=key.partition,
        error_code=ErrorCode.NONE,
        state_epoch=reply.state_epoch,
        start_offset=reply.start_offset,
        state_batches=tuple(
            StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in reply.state_batches
        ),
    )
