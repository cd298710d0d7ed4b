"""DescribeProducers (61), version 0: describe producers and their open transactions (KIP-664)."""

from __future__ import annotations

from headrace.errors import ErrorCode
from headrace.log.partition_log import PartitionLog
from headrace.net.api import Api
from headrace.net.call import Call
from headrace.net.rules import MESSAGES, READ, TOPIC, inside
from headrace.protocol.api import DescribeProducersRequest, DescribeProducersResponse
from headrace.protocol.record_batch import NO_SEQUENCE
from headrace.topics.topic_rules import check_topic_name

Topic = DescribeProducersResponse.TopicResponse
Partition = DescribeProducersResponse.PartitionResponse
Producer = DescribeProducersResponse.ProducerState

API = Api(61, inside(READ, TOPIC, "TOPIC_AUTHORIZATION_FAILED for its partitions"))

_NOT_ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe the producers of each partition of a request."""
    topics = []
    for topic in request.topics:
        is_allowed = check_topic_name(topic.name) is not None or call.may(READ, TOPIC, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            partition = Partition(partition_index=index)
            if is_allowed:
                _describe(call, topic.name, partition)
            else:
                partition.error_code = _NOT_ALLOWED
                partition.error_message = MESSAGES[_NOT_ALLOWED]
            partitions.append(partition)
            await call.pause()
        topics.append(Topic(name=topic.name, partitions=partitions))
        await call.pause()
    return DescribeProducersResponse(topics=topics)


def _describe(call: Call, topic: str, partition: Partition) -> None:
    broker = call.broker
    log = broker.partition_by_name(topic, partition.partition_index)
    invalid = check_topic_name(topic)
    if isinstance(log, PartitionLog):
        partition.active_producers = call.encode(_producers(log))
    elif invalid is not None:
        partition.error_code, partition.error_message = invalid.code, invalid.message
    else:
        partition.error_code = log
        if topic not in broker.catalog.topics:
            partition.error_message = "This server does not host this topic-partition."


def _producers(log: PartitionLog) -> list[Producer]:
    producers = []
    for producer_id, entry in log.producers:
        begin = log.producers.open_transaction(producer_id)
        producers.append(
            Producer(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
                last_timestamp=entry.timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1 if begin is None else begin,
            )
        )
    return producers
