"""ReadShareGroupStateSummary (87), versions 0-1: summarise share-partitions (KIP-932).

An unknown share-partition has the start offset -1 and the delivery-complete count -1. The leader
epoch of the request has no effect, as in Apache Kafka.

Version notes:

* Version 1 adds the delivery-complete count (KIP-1226).
"""

from __future__ import annotations

from typing import Any

from kio.schema.read_share_group_state_summary.v1.request import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
)
from kio.schema.read_share_group_state_summary.v1.response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, Refusal
from headrace.share.records import UNKNOWN, SharePartitionKey
from headrace.share.share_state import StateSummary

from .context import RequestContext
from .share_state import serve_each

_NOTHING = StateSummary(start_offset=0, delivery_complete_count=UNKNOWN)
"""The fields of a result with an error."""


def handle(
    broker: Broker, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> Any:
    """Return a summary of each share-partition of a request."""

    def summarize(
        key: SharePartitionKey, asked: PartitionData, partitions: int | None
    ) -> PartitionResult:
        reply = broker.share_state.summary(key, partitions)
        refusal = reply if isinstance(reply, Refusal) else Refusal(ErrorCode.NONE)
        summary = reply if isinstance(reply, StateSummary) else _NOTHING
        return PartitionResult(
            partition=key.partition,
            error_code=refusal.code,
            error_message=refusal.message,
            state_epoch=summary.state_epoch,
            leader_epoch=summary.leader_epoch,
            start_offset=summary.start_offset,
            delivery_complete_count=summary.delivery_complete_count,
        )

    return serve_each(
        broker, request, summarize, ReadShareGroupStateSummaryResponse, ReadStateSummaryResult
    )
