"""DescribeProducers (61), version 0: describe producers and their open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.config.topic_rules import check_topic_name
from headrace.errors import ErrorCode
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.record_batch import NO_SEQUENCE
from headrace.security.acls import ResourceType

from .context import RequestContext
from .slicing import lazily, sliced


def handle(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | Sliced:
    """Describe the producers of each partition of a request."""
    topics = lazily(partial(_topic, broker, context), request.topics)
    response = DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=topics)
    return sliced(response, sum(1 + len(topic.partition_indexes) for topic in request.topics))


def _topic(broker: Broker, context: RequestContext, asked: TopicRequest) -> TopicResponse:
    describe: Callable[[int], PartitionResponse] = partial(_partition, broker, asked.name)
    if (
        context.access.is_limited
        and check_topic_name(asked.name) is None
        and not context.access.allows(Operation.READ, ResourceType.TOPIC, asked.name)
    ):
        describe = _not_allowed
    partitions = lazily(describe, asked.partition_indexes)
    return TopicResponse(name=asked.name, partitions=partitions)


def _not_allowed(partition: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="Topic authorization failed.",
        active_producers=(),
    )


def _partition(broker: Broker, topic: str, partition: int) -> PartitionResponse:
    log = broker.partition_by_name(topic, partition)
    if isinstance(log, ErrorCode):
        code, message = log, None
        if topic not in broker.catalog.topics:
            message = "This server does not host this topic-partition."
        invalid = check_topic_name(topic)
        if invalid is not None:
            code, message = invalid.code, invalid.message
        return PartitionResponse(
            partition_index=partition, error_code=code, error_message=message, active_producers=()
        )
    producers = log.producers
    return PartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        error_message=None,
        active_producers=tuple(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
                last_timestamp=entry.timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1
                if (first := producers.open_transaction(producer_id)) is None
                else first,
            )
            for producer_id, entry in producers
        ),
    )
