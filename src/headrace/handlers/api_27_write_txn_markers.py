"""WriteTxnMarkers (27), versions 1-2: end transactions in single partitions (KIP-98).

Brokers of a cluster send this to each other. Clients send it to abort a hanging transaction, which
its coordinator no longer knows (KIP-664): the coordinator is not asked.

Version notes:

* Version 2 adds the transaction version: from 2 on, each transaction has a new epoch (KIP-1228).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import Any

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from headrace.broker.broker import Broker
from headrace.errors import ErrorCode, StorageError
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.record_batch import Marker
from headrace.transactions.producer import EPOCH_PER_TRANSACTION, NO_PRODUCER_ID, Producer

from .context import RequestContext
from .slicing import run_sliced_durably

log = LimitedLog(get_logger("headrace.transactions"))

Results = dict[int, defaultdict[str, dict[int, ErrorCode]]]
"""Errors by producer id, topic and partition."""


def handle(broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext) -> Any:
    """Append the markers of a request, and respond when they are durable."""
    count = sum(len(topic.partition_indexes) for one in request.markers for topic in one.topics)
    return run_sliced_durably(broker, _write_all(broker, request), count)


def _write_all(
    broker: Broker, request: WriteTxnMarkersRequest
) -> Generator[None, None, WriteTxnMarkersResponse]:
    results: Results = {}
    for marker in request.markers:
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                topics = results.setdefault(marker.producer_id, defaultdict(dict))
                topics[topic.name][partition] = _write(broker, marker, topic.name, partition)
                yield
    return _response(results)


def _write(broker: Broker, asked: WritableTxnMarker, topic: str, partition: int) -> ErrorCode:
    partition_log = broker.partition_by_name(topic, partition)
    if isinstance(partition_log, ErrorCode):
        return partition_log
    producer = Producer(asked.producer_id, asked.producer_epoch)
    if NO_PRODUCER_ID in producer or asked.transaction_version < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    marker = Marker(asked.transaction_result, asked.coordinator_epoch)
    error = partition_log.producers.check_marker(
        *producer, marker, new_epoch=asked.transaction_version >= EPOCH_PER_TRANSACTION
    )
    if error:
        return error
    try:
        broker.transactions.write_marker(partition_log, producer, marker)
    except StorageError as storage_error:
        message = "cannot write a transaction marker to %s-%d: %s"
        log.error(topic, message, topic, partition, storage_error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _response(results: Results) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(
                                partition_index=partition, error_code=code
                            )
                            for partition, code in partitions.items()
                        ),
                    )
                    for name, partitions in topics.items()
                ),
            )
            for producer_id, topics in results.items()
        )
    )
