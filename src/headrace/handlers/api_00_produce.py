"""Produce (0), versions 3-13: append batches to partitions.

Batches stay opaque: the broker reads only their header, and sets base offset and leader epoch in
it. It opens those for compacted and internal topics, small ones on the event loop, and large ones
in a thread (:mod:`headrace.topics.batch_opener`). With acks=0 there is no
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
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from headrace.coordinators.record_checks import coordinator_records_check
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
from headrace.net.api import TOPIC, TRANSACTIONAL_ID, WRITE, Api, Inside
from headrace.net.call import RECEIVE_BUFFER_BYTES, Call, CloseConnection
from headrace.protocol.api import ProduceRequest, ProduceResponse
from headrace.protocol.checksum import crc32c_steps
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.protocol.frames import RequestHeader
from headrace.protocol.limits import LARGE_BATCH_BYTES
from headrace.protocol.record_batch import (
    ATTRIBUTES_LOW_BYTE,
    CRC_START,
    HEADER_BYTES,
    NO_PRODUCER_ID,
    OPEN_ON_LOOP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Opening,
)
from headrace.protocol.request_templates import RequestTemplate
from headrace.transactions.producer import Producer


def _template(frame: memoryview, header: RequestHeader, call: Call) -> RequestTemplate | None:
    """Return a template of a request for one partition that was served; None if it cannot have one.
    What the client may not write has none: so templates need no authorization.
    """
    topics = call.request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        return None
    topic = topics[0]
    key = _topic_key(call, topic)
    log = call.topic_logs.partition(key, topic.partition_data[0].index)
    if isinstance(log, ErrorCode) or not call.may_use_topic(WRITE, key):
        return None
    from .produce_templates import make_template  # most clients produce nothing

    return make_template(frame, header, call, topic, log)


API = Api(
    0,
    Inside(WRITE, TRANSACTIONAL_ID, "with transactional records: refused as a whole"),
    Inside(WRITE, TOPIC, "TOPIC_AUTHORIZATION_FAILED for its partitions"),
    is_quick=True,
    template=_template,
)

Answer = ProduceResponse.PartitionProduceResponse

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
_NOT_ALLOWED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NO_RECORDS, _NO_BATCH = memoryview(b""), Refusal(ErrorCode.INVALID_RECORD)
_ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics."""
_FIRST_WITH_TRANSACTION_ABORTABLE = 11
_FIRST_THAT_ADDS_PARTITION = 12
_FIRST_WITH_TOPIC_IDS = 13


class _Batch(NamedTuple):
    """What a request has for a partition.

    :ivar is_allowed: whether the client may write to the topic
    :ivar records: empty if they are null
    :ivar header: the header of the batch, or the error of a corrupt one or of no records
    """

    call: Call
    request: ProduceRequest
    topic: UUID | str | None
    is_allowed: bool
    partition: int
    records: memoryview
    header: BatchHeader | Refusal

    @property
    def is_large(self) -> bool:
        """True if it is checked and written in pieces."""
        return len(self.records) > LARGE_BATCH_BYTES

    @property
    def producer(self) -> Producer | None:
        """The producer of a transactional batch; None for another batch."""
        header = self.header
        if (
            isinstance(header, Refusal)
            or not header.is_transactional
            or header.producer_id == NO_PRODUCER_ID
        ):
            return None
        return Producer(header.producer_id, header.producer_epoch)

    def log(self) -> PartitionLog | Refusal:
        """Return the partition's log, or the error if the client may not write to it or there is
        none. Others may delete its topic while the request waits.
        """
        if not self.is_allowed:
            return _NOT_ALLOWED
        log = self.call.topic_logs.partition(self.topic, self.partition)
        return Refusal(log) if isinstance(log, ErrorCode) else log

    def kept(self) -> _Batch:
        """Return a batch whose records stay while the request waits: small frames share a
        buffer.
        """
        records = self.records
        if memoryview(records.obj).nbytes > RECEIVE_BUFFER_BYTES:
            return self
        return self._replace(records=memoryview(bytes(records)))

    # What may take time ---------------------------------------------------------------------------

    async def append_in_turn(self) -> Answer:
        """Append a batch that may have to wait: because it is large, because another one is written
        to its partition in pieces, or because its records are checked in a thread.
        """
        try:
            return await self._in_turn(OPEN_ON_LOOP)
        except OpenElsewhere:
            refusal = await self.call.opener.run(self._check_of_records)
        log = self.log()
        if refusal is None or isinstance(log, Refusal):
            return await self._in_turn(None)
        return self._refused_by(log, refusal)

    async def _in_turn(self, opening: Opening | None) -> Answer:
        """Append a batch. A large one is checked and written in pieces before; one at a time, and
        others for the same partition wait for it.

        :param opening: the limits on opening the batch; None if its records have been checked
        :raises OpenElsewhere: a batch exceeds these limits. Nothing of a large one was written
        """
        header, records, call = self.header, self.records, self.call
        if not self.is_large:
            while isinstance(log := self.log(), PartitionLog) and log.is_staging:
                await call.slices.next()
            return self.append(log, opening)
        async with call.staging:
            log = self.log()
            if (
                isinstance(log, Refusal)
                or isinstance(header, Refusal)
                or header.size_bytes > log.config.max_message_bytes
            ):
                return self.append(log, opening)
            slices = call.slices
            checksum = await slices.run(crc32c_steps(records[CRC_START : header.size_bytes]))
            if opening is not None and checksum == header.crc:
                check_records(records, header, log.config, call.clock.wall_ms(), opening)
            try:
                steps = log.stage(records, call.clock.wall_ms(), header, checksum)
                refusal = await slices.run(steps)
                if refusal is None:
                    return self.append(self.log(), opening)
            finally:
                log.unstage()
            return self._refused_by(log, refusal)

    def _check_of_records(self) -> Callable[[Opening], Refusal | None] | None:
        """Return the check of the records for the thread; None if the log is gone."""
        log, header, records = self.log(), self.header, self.records
        if isinstance(log, Refusal) or isinstance(header, Refusal):
            return None
        config, now_ms = log.config, self.call.clock.wall_ms()
        check_readable = coordinator_records_check(self.call.coordinators, log)

        def check(opening: Opening) -> Refusal | None:
            refusal = check_records(records, header, config, now_ms, opening)
            return refusal or check_readable(records, opening)

        return check

    # Now ------------------------------------------------------------------------------------------

    def append(self, log: PartitionLog | Refusal, opening: Opening | None) -> Answer:
        """Check and append the batch.

        :param opening: the limits on opening it; None if its records were checked
        :raises OpenElsewhere: when it must be opened and exceeds these limits
        """
        call, records, header = self.call, self.records, self.header
        if isinstance(log, Refusal):
            return self.refused(log)
        if isinstance(header, Refusal):
            return self.refused(header)
        producer = self.producer if header.attributes & TRANSACTIONAL_BIT else None
        if producer is not None and (refusal := self.check_transaction(producer, log)):
            return self.refused(refusal)
        if self.request.acks not in _ACKS:
            return self.refused(Refusal(ErrorCode.INVALID_REQUIRED_ACKS))
        if log.config.internal and call.client_id != _ADMIN_CLIENT_ID:
            message = f"Cannot append to internal topic {log.topic}"
            return self.refused(Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message))
        lacks_first = (
            producer is not None
            and call.version >= _FIRST_THAT_ADDS_PARTITION
            and header.base_sequence > 0
            and header.producer_id not in log.producers
        )
        refusal = None
        if lacks_first or (log.config.internal and opening is not None):
            refusal = self._check_further(log, header, opening, lacks_first)
        appended = refusal or call.topic_logs.append(log, records, header, opening)
        if isinstance(appended, Refusal):
            return self.refused(appended, log)
        return Answer(
            self.partition,
            ErrorCode.NONE,
            appended.base_offset,
            appended.log_append_time_ms,
            appended.log_start_offset,
        )

    def check_transaction(self, producer: Producer, log: PartitionLog) -> Refusal | None:
        """Return the error for a transactional batch in the version of the request, or None."""
        version = self.call.version
        adds_partition = version >= _FIRST_THAT_ADDS_PARTITION
        refusal = self.call.transactions.may_write(
            self.request.transactional_id or "",
            producer,
            log,
            adds_partition=adds_partition,
            knows_abortable=version >= _FIRST_WITH_TRANSACTION_ABORTABLE,
        )
        if refusal == Refusal(ErrorCode.CONCURRENT_TRANSACTIONS) and not adds_partition:
            return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)  # retriable for these clients
        return refusal

    def _check_further(
        self, log: PartitionLog, header: BatchHeader, opening: Opening | None, lacks_first: bool
    ) -> Refusal | None:
        """Return the error for a batch that the log itself would append, or None.

        :param lacks_first: it is the first batch of its producer here, without the sequence 0 that
            it must have from version 12 on: an earlier batch was lost
        """
        call, records = self.call, self.records
        now_ms = call.clock.wall_ms()
        checked = check_client_batch(records, log.config, now_ms, header, opening)
        if isinstance(checked, Refusal):
            return None  # the log refuses it with the same error
        if lacks_first:
            message = "The first batch of a producer has the sequence 0"
            return Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        assert opening is not None
        return coordinator_records_check(call.coordinators, log)(records, opening)

    def _refused_by(self, log: PartitionLog, refusal: Refusal) -> Answer:
        """Count the batch as one that the log refuses, and return the answer."""
        self.call.topic_logs.refused(log, refusal)
        return self.refused(refusal, log)

    def refused(self, refusal: Refusal, log: PartitionLog | None = None) -> Answer:
        """Return the answer for an error.

        :param log: where the log itself refuses the batch
        """
        answer = Answer(self.partition, refusal.code, -1, error_message=refusal.message)
        if log is not None and refusal.code not in _WITHOUT_LOG_START:
            answer.log_start_offset = log.log_start_offset
        if isinstance(refusal, RefusedRecords):
            answer.record_errors = [
                ProduceResponse.BatchIndexAndErrorMessage(position, message)
                for position, message in refusal.records
            ]
        return answer


def _topic_key(call: Call, topic: ProduceRequest.TopicProduceData) -> UUID | str | None:
    """Return what a request names a topic by: its id, or its name before version 13."""
    return topic.name if call.version < _FIRST_WITH_TOPIC_IDS else topic.topic_id


async def handle(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    """Append the batch of each partition, and answer when all are durable."""
    batches = [
        _Batch(
            call,
            request,
            key,
            is_allowed,
            data.index,
            data.records or _NO_RECORDS,
            single_batch(data.records) if data.records else _NO_BATCH,
        )
        for topic in request.topic_data
        for key in (_topic_key(call, topic),)
        for is_allowed in (call.may_use_topic(WRITE, key),)
        for data in topic.partition_data
    ]
    if refusal := _check_producers(call, request, batches):
        refused = [batch.refused(refusal) for batch in batches]
        return await _answered(call, request, refused)
    if request.transactional_id is not None:
        batches = [batch.kept() for batch in batches]
        await _join_transaction(call, batches)
    answers: list[Answer] = []
    for number, batch in enumerate(batches):
        log = batch.log()
        must_wait = batch.is_large or (isinstance(log, PartitionLog) and log.is_staging)
        if not must_wait and not (number and call.is_over):
            with suppress(OpenElsewhere):
                answers.append(batch.append(log, OPEN_ON_LOOP))
                continue
        batches[number:] = [batch.kept() for batch in batches[number:]]
        await call.pause()
        answers.append(await batches[number].append_in_turn())
    return await _answered(call, request, answers)


async def _answered(
    call: Call, request: ProduceRequest, answers: Sequence[Answer]
) -> ProduceResponse | None:
    """Return the response with the answers for all partitions, in the order of the request, when
    they are durable; None if the client waits for none.

    :raises CloseConnection: when a batch was refused, and there is no response to say so
    """
    if request.acks == 0:
        for answer in answers:
            if answer.error_code:
                code = ErrorCode(answer.error_code).name
                raise CloseConnection(f"partition {answer.index} with acks=0: {code}")
        return None
    next_answers = iter(answers)
    topics = [
        ProduceResponse.TopicProduceResponse(
            topic.name, topic.topic_id, list(islice(next_answers, len(topic.partition_data)))
        )
        for topic in request.topic_data
        if topic.partition_data
    ]
    await call.durable()
    return ProduceResponse(topics)


async def _join_transaction(call: Call, batches: Sequence[_Batch]) -> None:
    """Add the partitions to the transaction durably, all before the first append, as in Kafka, so
    that they wait once.
    """
    is_durable = True
    for batch in batches:
        await call.pause()
        log, producer = batch.log(), batch.producer
        if producer is None or isinstance(log, Refusal) or call.transactions.is_open(producer, log):
            continue
        if batch.check_transaction(producer, log) is None:
            is_durable = False
    if not is_durable:
        await call.durable()


def _check_producers(
    call: Call, request: ProduceRequest, batches: Sequence[_Batch]
) -> Refusal | None:
    """Reject a request whose transactional batches come from more than one producer, or whose
    transactional id is not allowed.

    Also reject it when a batch before the first transactional one has an invalid length or magic.
    """
    for batch in batches:
        header, records = batch.header, batch.records
        if isinstance(header, BatchHeader):
            if header.attributes & TRANSACTIONAL_BIT:
                break
            continue
        is_batch = starts_with_batch(records)
        if isinstance(is_batch, Refusal):
            return is_batch
        if is_batch and _is_transactional(records):
            break
    else:
        return None
    transactional_id = request.transactional_id
    if transactional_id is None or not call.may(WRITE, TRANSACTIONAL_ID, transactional_id):
        return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers = {batch.producer for batch in batches if isinstance(batch.log(), PartitionLog)}
    if len(producers - {None}) > 1:
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
