"""TxnOffsetCommit (28), versions 0-6: commit offsets of a group as part of a transaction (KIP-98).

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

from collections.abc import Iterator
from typing import Any

from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponsePartition

from headrace.broker.broker import Broker
from headrace.broker.catalog import Topic
from headrace.errors import ErrorCode
from headrace.groups.classic.member import MemberIdentity
from headrace.groups.records import GroupRecord, OffsetCommit
from headrace.outcome import Outcome
from headrace.protocol.messages import NO_THROTTLE
from headrace.protocol.newer_messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from headrace.transactions.producer import NotYetDurable, Producer

from .context import RequestContext
from .offset_commits import Committer, decide_commit, topic_of

_FIRST_WITH_TRANSACTION_ABORTABLE = 4
_FIRST_THAT_ADDS_GROUP = 5
_FIRST_WITH_GROUP_ID_NOT_FOUND = 6


def handle(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> Any:
    """Write offsets that take effect when the transaction is committed."""
    try:
        return broker.when_durable(_commit(broker, request, context, waited=False))
    except NotYetDurable:
        return _commit_later(broker, request, context)


async def _commit_later(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    await broker.durable()
    response = _commit(broker, request, context, waited=True)
    await broker.durable()
    return response


def _commit(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext, *, waited: bool
) -> TxnOffsetCommitResponse:
    """Write the offsets.

    :param waited: see :meth:`~headrace.coordinators.transactions.Transactions.may_write`
    :raises NotYetDurable: when the group may not be in the transaction durably
    """
    producer = Producer(request.producer_id, request.producer_epoch)

    def commit(commits: list[OffsetCommit]) -> Outcome[GroupRecord, tuple[ErrorCode, ...]]:
        version = context.api_version
        refused = _check_transaction(broker, request, producer, version, waited=waited)
        if refused:
            return Outcome((refused,) * len(commits))
        committer = Committer(
            broker.groups.offsets,
            request.group_id,
            MemberIdentity(request.member_id, request.group_instance_id),
            request.generation_id,
            knows_group_id_not_found=version >= _FIRST_WITH_GROUP_ID_NOT_FOUND,
            transactional=True,
        )
        return committer.commit(commits, broker.clock.now_ms())

    found = [(asked, topic_of(broker.catalog, None, asked.topic_id)) for asked in request.topics]
    topics = [(asked, topic) for asked, topic in found if topic is None or asked.partitions]
    outcome = decide_commit(request.group_id, topics, commit, wall_ms=broker.clock.wall_ms())
    if outcome.records:
        broker.group_runtime.write_now(request.group_id, outcome, producer)
    codes = iter(outcome.reply)
    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(_response_topic(asked, topic, codes) for asked, topic in topics),
    )


def _response_topic(
    asked: TxnOffsetCommitRequestTopic, topic: Topic | None, codes: Iterator[ErrorCode]
) -> TxnOffsetCommitResponseTopic:
    """Return a topic's part of the response, with the next of ``codes``."""
    return TxnOffsetCommitResponseTopic(
        topic_id=asked.topic_id,
        partitions=tuple(
            TxnOffsetCommitResponsePartition(
                partition_index=one.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID if topic is None else code,
            )
            for one, code in zip(asked.partitions, codes, strict=False)
        ),
    )


def _check_transaction(
    broker: Broker,
    request: TxnOffsetCommitRequest,
    producer: Producer,
    version: int,
    *,
    waited: bool,
) -> ErrorCode:
    """Return the error if the group is not part of the producer's transaction, or NONE."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    offsets_log = broker.partition_by_name(*broker.transactions.offsets_partition(request.group_id))
    if isinstance(offsets_log, ErrorCode):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    refusal = broker.transactions.may_write(
        request.transactional_id,
        producer,
        offsets_log,
        adds_partition=version >= _FIRST_THAT_ADDS_GROUP,
        waited=waited,
    )
    if refusal is None:
        return ErrorCode.NONE
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_WITH_TRANSACTION_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if refusal.code == ErrorCode.PRODUCER_FENCED:  # not an error of this API
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
