"""DescribeProducers (61), version 0: describe producers and their open transactions (KIP-664)."""

from __future__ import annotations

from functools import partial

from headrace.log.partition_log import PartitionLog
from headrace.net.api import READ, READ_PARTITIONS, TOPIC, TOPIC_DENIED, Api
from headrace.net.call import Call
from headrace.protocol.api import DescribeProducersRequest, DescribeProducersResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.record_batch import NO_SEQUENCE
from headrace.topics.topic_rules import check_topic_name

Topic = DescribeProducersResponse.TopicResponse
Partition = DescribeProducersResponse.PartitionResponse
Producer = DescribeProducersResponse.ProducerState

API = Api(61, READ_PARTITIONS)

_NOT_HOSTED = "This server does not host this topic-partition."


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe the producers of each partition of a request."""
    topics = []
    for topic in request.topics:
        refusal = check_topic_name(topic.name)
        if refusal is None and not call.may(READ, TOPIC, topic.name):
            refusal = TOPIC_DENIED
        elif refusal is None and topic.name not in call.catalog.topics:
            refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HOSTED)
        describe = partial(_describe, call, topic.name, refusal)
        topics.append(Topic(topic.name, await call.each(describe, topic.partition_indexes)))
        await call.pause()
    return DescribeProducersResponse(topics=topics)


def _describe(call: Call, topic: str, refusal: Refusal | None, index: int) -> Partition:
    if refusal is not None:
        return Partition(index).refused(refusal)
    log = call.topic_logs.partition(topic, index)
    if isinstance(log, ErrorCode):
        return Partition(index, log)
    return Partition(index, active_producers=call.encode(_producers(log)))


def _producers(log: PartitionLog) -> list[Producer]:
    producers = []
    for producer_id, entry in log.producers:
        producers.append(
            Producer(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
                last_timestamp=entry.timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=log.producers.open_transaction(producer_id),
            )
        )
    return producers
