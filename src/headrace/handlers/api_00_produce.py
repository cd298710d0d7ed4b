"""Produce (0), versions 3-13: append batches to partitions.

Batches stay opaque: the broker reads only their header, and sets base offset and leader epoch in
it. It opens those for compacted and internal topics, small ones on the event loop, and large ones
in a thread (:mod:`headrace.broker.batch_opener`). A request for many partitions is served in
slices, as the first record of a partition creates a directory and files. With acks=0 there is no
response, and a failure closes the connection. Checks run in Kafka's order. A corrupt batch is
refused before anything is added to a transaction.

Version notes:

* Version 3 adds record batches of magic 2 and transactional ids (KIP-98).
* Version 7 adds zstd (KIP-110).
* Version 8 adds errors of single records (KIP-467).
* Version 11 adds TRANSACTION_ABORTABLE (KIP-890).
* Version 12 adds the partition to the transaction with its first batch (KIP-890). Earlier versions
  require AddPartitionsToTxn.
* Version 13 replaces topic names by ids (KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.produce.v13.response import BatchIndexAndErrorMessage

from headrace.broker.broker import Broker
from headrace.broker.limits import RECEIVE_BUFFER_BYTES
from headrace.errors import ErrorCode, Refusal
from headrace.log.partition_log import PartitionLog
from headrace.log.validation import (
    MAGIC_POSITION,
    OpenElsewhere,
    RefusedRecords,
    check_client_batch,
    check_records,
    single_batch,
    starts_with_batch,
)
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.checksum import crc32c_steps
from headrace.protocol.limits import LARGE_BATCH_BYTES
from headrace.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.record_batch import (
    ATTRIBUTES_LOW_BYTE,
    CRC_START,
    HEADER_BYTES,
    OPEN_ON_LOOP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Opening,
)
from headrace.protocol.time_slices import SLICE_MS
from headrace.security.acls import ResourceType
from headrace.transactions.producer import NO_PRODUCER_ID, NotYetDurable, Producer

from .context import CloseConnection, RequestContext
from .internal_records import check_coordinator_records, coordinator_records_check
from .topic_names import allows_topic

_SLICE_S = SLICE_MS / 1000
_ACKS = (-1, 0, 1)
_WITHOUT_LOG_START = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors of the log whose response has no log start offset."""
_ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics."""
_FIRST_WITH_TRANSACTION_ABORTABLE = 11
_FIRST_THAT_ADDS_PARTITION = 12

Header = BatchHeader | Refusal | None
"""The header of a partition's batch, or the error of a corrupt one; None for null records."""


class _Batch(NamedTuple):
    topic_id: UUID
    data: PartitionProduceData
    header: Header
    is_allowed: bool = True


def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> Any:
    """Append the batch of each partition, and answer when all are durable."""
    batches = [
        _Batch(topic.topic_id, data, _header_of(data), is_allowed)
        for topic in request.topic_data
        for is_allowed in (allows_topic(broker, Operation.WRITE, topic.topic_id, context),)
        for data in topic.partition_data
    ]
    refusal = _check_producers(broker, request, batches, context)
    if refusal is not None:
        refused = [_refused(one.data.index, refusal) for one in batches]
        return _answer(broker, request, refused)
    answers: list[PartitionProduceResponse] = []
    end_s = perf_counter() + _SLICE_S
    try:
        for one in batches:
            if answers and perf_counter() >= end_s:
                break
            if _must_wait(broker, one):
                break
            answers.append(_append(broker, request, one, context, OPEN_ON_LOOP))
    except (OpenElsewhere, NotYetDurable):
        pass
    if len(answers) < len(batches):
        left = [_kept(one) for one in batches[len(answers) :]]
        return _append_later(broker, request, left, context, answers)
    return _answer(broker, request, answers)


async def _append_later(
    broker: Broker,
    request: ProduceRequest,
    batches: Sequence[_Batch],
    context: RequestContext,
    answers: list[PartitionProduceResponse],
) -> Any:
    """Append batches, some of which must wait: for the next slice, for their partitions to be in
    the transaction durably, or to be opened, because they are too large for the event loop.

    :param answers: those for the partitions before ``batches``
    """
    version = context.api_version
    end_s = perf_counter() + _SLICE_S
    for one in batches:  # all before the first append, as in Kafka, so that they wait once
        end_s = await _next_slice(broker, end_s)
        with suppress(NotYetDurable):
            if one.is_allowed:
                _check_transaction(broker, request, one, version, waited=False)
    await broker.durable()
    for one in batches:
        end_s = await _next_slice(broker, end_s)
        append = partial(_append, broker, request, one, context, waited=True)
        try:
            answer = await _in_turn(broker, one, append, OPEN_ON_LOOP)
        except OpenElsewhere:
            refusal = await broker.opener.run(partial(_check_of, broker, one))
            log = broker.partition(one.topic_id, one.data.index)
            if refusal is None or isinstance(log, ErrorCode):
                answer = await _in_turn(broker, one, append, None)
            else:
                broker.topic_logs.refused(log, refusal)
                answer = _refused_by(log, one.data.index, refusal)
        answers.append(answer)
    response = _answer(broker, request, answers)
    return await response if isawaitable(response) else response


def _must_wait(broker: Broker, batch: _Batch) -> bool:
    """Return whether a batch is written in pieces, or waits for one that is."""
    if batch.data.records is None:
        return False
    if len(batch.data.records) > LARGE_BATCH_BYTES:
        return True
    log = broker.partition(batch.topic_id, batch.data.index)
    return not isinstance(log, ErrorCode) and log.is_staging


async def _in_turn(
    broker: Broker,
    batch: _Batch,
    append: Callable[[Opening | None], PartitionProduceResponse],
    opening: Opening | None,
) -> PartitionProduceResponse:
    """Append a batch. A large one is checked and written in pieces before; one at a time, and
    others for the same partition wait for it.

    :param opening: the limits on opening the batch; None if its records have been checked
    :raises OpenElsewhere: a batch exceeds these limits. Nothing of a large one was written
    """
    header, records = batch.header, batch.data.records
    if records is None or len(records) <= LARGE_BATCH_BYTES:
        while _must_wait(broker, batch):
            await broker.slices.next()
        return append(opening)
    async with broker.staging:
        log = broker.partition(batch.topic_id, batch.data.index)
        if (
            isinstance(log, ErrorCode)
            or not isinstance(header, BatchHeader)
            or not batch.is_allowed
            or header.size_bytes > log.config.max_message_bytes
        ):
            return append(opening)
        slices = broker.slices
        checksum = await slices.run(crc32c_steps(records[CRC_START : header.size_bytes]))
        if opening is not None and checksum == header.crc:
            check_records(records, header, log.config, broker.clock.wall_ms(), opening)
        try:
            steps = log.stage(records, broker.clock.wall_ms(), header, checksum)
            refusal = await slices.run(steps)
            if refusal is None:
                return append(opening)
        finally:
            log.unstage()
        broker.topic_logs.refused(log, refusal)
        return _refused_by(log, batch.data.index, refusal)


async def _next_slice(broker: Broker, end_s: float) -> float:
    """Wait for the next slice if the running one is over; return the end of the slice."""
    if perf_counter() < end_s:
        return end_s
    await broker.slices.next()
    return perf_counter() + _SLICE_S


def _kept(batch: _Batch) -> _Batch:
    """Return a batch whose records stay while the request waits: small frames share a buffer."""
    records = batch.data.records
    if records is None or _frame_bytes(records) > RECEIVE_BUFFER_BYTES:
        return batch
    return batch._replace(data=replace(batch.data, records=memoryview(bytes(records))))


def _frame_bytes(records: memoryview | bytes) -> int:
    """Return the size of the memory that records are in."""
    return memoryview(memoryview(records).obj).nbytes


def _check_of(broker: Broker, batch: _Batch) -> Callable[[Opening], Refusal | None] | None:
    """Return the check of a batch's records for the thread; None if its log is gone."""
    log = broker.partition(batch.topic_id, batch.data.index)
    header, records = batch.header, batch.data.records
    if isinstance(log, ErrorCode) or not isinstance(header, BatchHeader) or records is None:
        return None
    config, now_ms = log.config, broker.clock.wall_ms()
    check_readable = coordinator_records_check(broker, log)

    def check(opening: Opening) -> Refusal | None:
        refusal = check_records(records, header, config, now_ms, opening)
        return refusal or check_readable(records, opening)

    return check


def _answer(
    broker: Broker, request: ProduceRequest, answers: Sequence[PartitionProduceResponse]
) -> Any:
    """Return the response with the answers for all partitions, in the order of the request."""
    left = iter(answers)
    topics = [
        TopicProduceResponse(topic.topic_id, tuple(islice(left, len(topic.partition_data))))
        for topic in request.topic_data
        if topic.partition_data
    ]
    response = ProduceResponse(tuple(topics))
    if request.acks == 0:
        return _unacknowledged(response)
    return broker.when_durable(response)


def _header_of(data: PartitionProduceData) -> Header:
    return None if data.records is None else single_batch(data.records)


def _check_producers(
    broker: Broker, request: ProduceRequest, batches: list[_Batch], context: RequestContext
) -> Refusal | None:
    """Reject a request whose transactional batches come from more than one producer, or whose
    transactional id is not allowed.

    Also reject it when a batch before the first transactional one has an invalid length or magic.
    """
    for _, data, header, _ in batches:
        if header is None or data.records is None:
            continue
        if isinstance(header, BatchHeader):
            if header.attributes & TRANSACTIONAL_BIT:
                break
            continue
        is_batch = starts_with_batch(data.records)
        if isinstance(is_batch, Refusal):
            return is_batch
        if is_batch and _is_transactional(data.records):
            break
    else:
        return None
    transactional_id = request.transactional_id
    if transactional_id is None or not context.access.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers = {
        (header.producer_id, header.producer_epoch)
        for topic_id, data, header, is_allowed in batches
        if isinstance(header, BatchHeader)
        and header.is_transactional
        and header.producer_id != NO_PRODUCER_ID
        and not isinstance(broker.partition(topic_id, data.index), ErrorCode)
        and is_allowed
    }
    if len(producers) > 1:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "There are transactional batches of several producers",
        )
    return None


def _is_transactional(records: memoryview) -> bool:
    """Return whether the first batch is transactional and has magic 2."""
    if len(records) < HEADER_BYTES or records[MAGIC_POSITION] != 2:
        return False
    return bool(records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)


def _unacknowledged(response: ProduceResponse) -> None:
    """Send no response.

    :raises CloseConnection: when a batch was refused
    """
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = partition.error_code.name
                raise CloseConnection(f"partition {partition.index} with acks=0: {code}")


def _append(
    broker: Broker,
    request: ProduceRequest,
    batch: _Batch,
    context: RequestContext,
    opening: Opening | None,
    *,
    waited: bool = False,
) -> PartitionProduceResponse:
    """Check and append a batch.

    :param opening: the limits on opening it; None if its records were checked
    :param waited: see :meth:`~headrace.coordinators.transactions.Transactions.may_write`
    :raises NotYetDurable: when the partition may not be in the transaction durably
    :raises OpenElsewhere: when it must be opened and exceeds these limits
    """
    topic_id, data, header, is_allowed = batch
    index, records = data.index, data.records
    if not is_allowed:
        return _refused(index, Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    log = broker.partition(topic_id, index)
    if isinstance(log, ErrorCode):
        return _refused(index, Refusal(log))
    if not records or header is None:
        return _refused(index, Refusal(ErrorCode.INVALID_RECORD))
    if isinstance(header, Refusal):
        return _refused(index, header)
    version, is_transactional = context.api_version, header.attributes & TRANSACTIONAL_BIT
    if is_transactional:
        refusal = _check_transaction(broker, request, batch, version, waited=waited)
        if refusal is not None:
            return _refused(index, refusal)
    if request.acks not in _ACKS:
        return _refused(index, Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
    if log.config.internal and context.client_id != _ADMIN_CLIENT_ID:
        message = f"Cannot append to internal topic {log.topic}"
        return _refused(index, Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message))
    refusal = None
    if is_transactional and version >= _FIRST_THAT_ADDS_PARTITION:
        refusal = _check_first_sequence(broker, log, records, header, opening)
    appended = (
        refusal
        or check_coordinator_records(broker, log, records, opening)
        or broker.append(log, records, header, opening)
    )
    if isinstance(appended, Refusal):
        return _refused_by(log, index, appended)
    return PartitionProduceResponse(
        index,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _refused_by(log: PartitionLog, index: int, refusal: Refusal) -> PartitionProduceResponse:
    has_start = refusal.code not in _WITHOUT_LOG_START
    return _refused(index, refusal, log.log_start_offset if has_start else -1)


def _check_transaction(
    broker: Broker, request: ProduceRequest, batch: _Batch, version: int, *, waited: bool
) -> Refusal | None:
    """Return the error for a transactional batch in this request version, or None.

    :param waited: see :meth:`~headrace.coordinators.transactions.Transactions.may_write`
    :raises NotYetDurable: when the partition may not be in the transaction durably
    """
    topic_id, data, header, _ = batch
    log = broker.partition(topic_id, data.index)
    if (
        isinstance(log, ErrorCode)
        or not isinstance(header, BatchHeader)
        or not header.is_transactional
        or header.producer_id == NO_PRODUCER_ID
    ):
        return None
    refusal = broker.transactions.may_write(
        request.transactional_id or "",
        Producer(header.producer_id, header.producer_epoch),
        log,
        adds_partition=version >= _FIRST_THAT_ADDS_PARTITION,
        waited=waited,
    )
    if refusal is None:
        return None
    if refusal.code == ErrorCode.PRODUCER_FENCED:
        return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_WITH_TRANSACTION_ABORTABLE:
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE)
    if refusal.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_ADDS_PARTITION:
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)  # retriable for these clients
    return refusal


def _check_first_sequence(
    broker: Broker,
    log: PartitionLog,
    records: memoryview,
    header: BatchHeader,
    opening: Opening | None,
) -> Refusal | None:
    """Return the error for a producer's first batch, or None if it may be appended.

    From version 12 on it must have sequence 0, so that no earlier batch was lost.
    """
    if (
        header.base_sequence <= 0
        or header.producer_id == NO_PRODUCER_ID
        or header.producer_id in log.producers
    ):
        return None
    checked = check_client_batch(records, log.config, broker.clock.wall_ms(), header, opening)
    if isinstance(checked, Refusal):
        return checked
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "The first batch of a producer has the sequence 0"
    )


def _refused(index: int, refusal: Refusal, log_start_offset: int = -1) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index, refusal.code, -1, -1, log_start_offset, refusal.message
    )
    if isinstance(refusal, RefusedRecords):
        response.record_errors = tuple(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refusal.records
        )
    return response
