"""TxnOffsetCommit (28), versions 0-6: commit offsets of a group as part of a transaction (KIP-98).

The group joins the transaction, durably, before the commit is decided.

Version notes:

* Version 2 adds leader epochs (KIP-320).
* Version 3 adds the member and its generation, which fence members that left the group (KIP-447).
* Version 4 adds TRANSACTION_ABORTABLE (KIP-890).
* Version 5 adds the group to the transaction with its first commit (KIP-890). Earlier versions
  require AddOffsetsToTxn.
* Version 6 replaces topic names by ids, and adds GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH
  (KIP-1319).
"""

from __future__ import annotations

from headrace.net.api import READ, READ_GROUP, TOPIC, WRITE_TRANSACTION, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from headrace.protocol.errors import ErrorCode
from headrace.transactions.producer import Producer

from .offset_commits import CommitApi, answered_topics, commit_records, decide_commit

RequestedTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

_FIRST_WITH_TRANSACTION_ABORTABLE = 4
_FIRST_THAT_ADDS_GROUP = 5
_FIRST_WITH_GROUP_ID_NOT_FOUND = _FIRST_WITH_TOPIC_IDS = 6

API = Api(
    28,
    WRITE_TRANSACTION,
    READ_GROUP,
    Each(READ, TOPIC, "name", ids_from=_FIRST_WITH_TOPIC_IDS),
    of_coordinator=True,
)
_COMMIT = CommitApi(
    Partition, _FIRST_WITH_TOPIC_IDS, _FIRST_WITH_GROUP_ID_NOT_FOUND, transactional=True
)


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Write offsets that take effect when the transaction is committed."""
    producer = Producer(request.producer_id, request.producer_epoch)
    allowed, refused = await call.allowed_items(request.topics, Topic)
    not_joined = ErrorCode.NONE
    if any(
        topic is not None and 0 <= partition.partition_index < topic.partitions
        for requested in allowed
        for topic in (call.catalog.find(requested.topic_id, requested.name),)
        for partition in requested.partitions
    ):  # else there is nothing to commit
        not_joined = await _join_transaction(call, request, producer)
    pairs: list[tuple[RequestedTopic, list[Partition]]] = [(topic, []) for topic in allowed]
    now_ms, wall_ms = call.clock.now_ms(), call.clock.wall_ms()
    if not_joined:
        _, answers = commit_records(call, request, pairs, _COMMIT, wall_ms)
        for answer in answers:
            answer.error_code = not_joined
    else:
        outcome = decide_commit(call, request, pairs, _COMMIT, now_ms, wall_ms)
        if outcome.records:
            call.group_runtime.write_now(request.group_id, outcome, producer)
    await call.durable()
    return TxnOffsetCommitResponse(topics=answered_topics(call, pairs, Topic) + refused)


async def _join_transaction(
    call: Call, request: TxnOffsetCommitRequest, producer: Producer
) -> ErrorCode:
    """Wait until the group is part of the producer's transaction durably; return the error if it is
    not, or NONE.
    """
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    is_durable = False
    while True:
        offsets_log = call.topic_logs.partition(
            *call.transactions.offsets_partition(request.group_id)
        )
        if isinstance(offsets_log, ErrorCode):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_durable = is_durable or call.transactions.is_open(producer, offsets_log)
        if refusal := call.transactions.may_write(
            request.transactional_id,
            producer,
            offsets_log,
            adds_partition=call.version >= _FIRST_THAT_ADDS_GROUP,
            knows_abortable=call.version >= _FIRST_WITH_TRANSACTION_ABORTABLE,
        ):
            return refusal.code
        flush = call.topic_logs.pending_flush()
        if is_durable or flush is None:
            return ErrorCode.NONE
        await flush
        is_durable = True
