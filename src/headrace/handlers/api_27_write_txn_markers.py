"""WriteTxnMarkers (27), versions 1-2: end transactions in single partitions (KIP-98).

Brokers of a cluster send this to each other. Clients send it to abort a hanging transaction, which
its coordinator no longer knows (KIP-664): the coordinator is not asked.

Version notes:

* Version 2 adds the transaction version: from 2 on, each transaction has a new epoch (KIP-1228).
"""

from __future__ import annotations

from collections import defaultdict

from headrace.log_lines import LimitedLog
from headrace.net.api import ALTER, CLUSTER_ACTION, Api, on_cluster
from headrace.net.call import Call
from headrace.protocol.api import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from headrace.protocol.errors import ErrorCode, failure_of
from headrace.protocol.record_batch import NO_PRODUCER_ID, Marker
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, Producer

Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

API = Api(27, on_cluster(ALTER, CLUSTER_ACTION))

log = LimitedLog("headrace.transactions")


async def handle(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Append the markers of a request, and respond when they are durable."""
    results: dict[int, dict[str, dict[int, PartitionResult]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for marker in request.markers:
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                code = _write(call, marker, topic.name, partition)
                result = PartitionResult(partition, code)
                results[marker.producer_id][topic.name][partition] = result
                await call.pause()
    await call.durable()
    return WriteTxnMarkersResponse(
        markers=[
            Result(
                producer_id,
                [TopicResult(name, partitions.values()) for name, partitions in topics.items()],
            )
            for producer_id, topics in results.items()
        ]
    )


def _write(
    call: Call, marker: WriteTxnMarkersRequest.WritableTxnMarker, topic: str, partition: int
) -> ErrorCode:
    partition_log = call.topic_logs.partition(topic, partition)
    if isinstance(partition_log, ErrorCode):
        return partition_log
    producer = Producer(marker.producer_id, marker.producer_epoch)
    if NO_PRODUCER_ID in producer or marker.transaction_version < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    control = Marker(marker.transaction_result, marker.coordinator_epoch)
    error = partition_log.producers.check_marker(
        *producer, control, new_epoch=marker.transaction_version >= EPOCH_PER_TRANSACTION
    )
    if error:
        return error
    failed = failure_of(call.transactions.write_marker, partition_log, producer, control)
    if failed is None:
        return ErrorCode.NONE
    message = "cannot write a transaction marker to %s-%d: %s"
    log.error(topic, message, topic, partition, failed.message)
    return failed.code
