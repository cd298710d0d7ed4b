"""ShareAcknowledge (79), versions 1-2: accept, release, reject or renew acquired records (KIP-932).

Either all acknowledgements of a partition are applied, or none. Epoch -1 then closes the share
session and releases the records that the member still holds.

Version notes:

* Version 2 adds renewal of acquisition locks, and their timeout in the response (KIP-1222), and
  headrace's fields, see :mod:`headrace.protocol.share_inspection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.share_acknowledge.v2.request import AcknowledgeTopic, ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.limits import (
    MAX_REJECT_REASON_CHARS,
    MAX_RELEASE_DELAY_MS,
    MAX_SHARE_MEMBER_ID_LENGTH,
)
from headrace.coordinators.dead_letters import LettersPending
from headrace.coordinators.share_partitions import LEADER_EPOCH
from headrace.errors import ErrorCode, Refusal, StorageError
from headrace.log_lines import printable
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.share.acknowledgement import (
    MALFORMED,
    REJECT,
    RENEW,
    AcknowledgementBatch,
    AcknowledgeTerms,
    well_formed,
)
from headrace.share.settings import ShareSettings
from headrace.share.share_session import FINAL_EPOCH, ShareSession

from .context import RequestContext
from .durations import to_timedelta
from .topic_names import allows_topic

Acknowledged = dict[tuple[UUID, int], Refusal | None]
"""The result of each partition in the order of the request; None for success."""

NOT_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors for which the response has the leader and its address."""
_NOT_ALLOWED = "Topic authorization failed."


def handle(broker: Broker, request: ShareAcknowledgeRequest, context: RequestContext) -> Any:
    """Apply acknowledgements, and close the share session if the epoch is -1."""
    if not names_member(request):
        return _response(ErrorCode.INVALID_REQUEST, 0, (), ())
    share = broker.share
    group_id, member_id = request.group_id or "", request.member_id or ""
    session = share.sessions.acknowledge(group_id, member_id, request.share_session_epoch)
    if isinstance(session, Refusal):
        return _response(session.code, 0, (), ())
    settings = share.settings(group_id)
    acknowledged = acknowledge(
        broker,
        session,
        request.topics,
        settings,
        context,
        _terms(request),
    )
    answer = partial(_answer, broker, request, context, session, settings)
    return answer_when_applied(acknowledged, answer)


def _answer(
    broker: Broker,
    request: ShareAcknowledgeRequest,
    context: RequestContext,
    session: ShareSession,
    settings: ShareSettings,
    acknowledged: Acknowledged,
) -> Any:
    """Close the session if the epoch is -1, and return the response when it is durable."""
    if request.share_session_epoch == FINAL_EPOCH:
        broker.share.close_session(session)
    # Partitions without acknowledgements are in the response only if others have acknowledgements.
    responses = (
        tuple(_topic(broker, topic, acknowledged) for topic in request.topics)
        if acknowledged
        else ()
    )
    moved = any(
        refusal is not None and refusal.code in NOT_LEADER for refusal in acknowledged.values()
    )
    endpoints = (_endpoint(broker, context),) if moved else ()
    response = _response(ErrorCode.NONE, settings.lock_duration_ms, responses, endpoints)
    return broker.when_durable(response)


def _terms(request: ShareAcknowledgeRequest) -> AcknowledgeTerms:
    """Return what the request says in fields that version 1 does not have."""
    delay_ms = getattr(request, "release_delay_ms", 0)
    reason = getattr(request, "reject_reason", None) or ""
    return AcknowledgeTerms(
        request.is_renew_ack,
        getattr(request, "uncounted_release", False),
        min(max(delay_ms, 0), MAX_RELEASE_DELAY_MS),
        printable(reason, MAX_REJECT_REASON_CHARS),
    )


def answer_when_applied(
    acknowledged: Acknowledged | Awaitable[Acknowledged], answer: Callable[[Acknowledged], Any]
) -> Any:
    """Return the response to a request, or an awaitable of it: at once, unless its acknowledgements
    wait for dead letters.

    :param answer: returns the response, or an awaitable of it
    """
    if isinstance(acknowledged, Awaitable):
        return _answer_later(acknowledged, answer)
    return answer(acknowledged)


async def _answer_later(
    acknowledged: Awaitable[Acknowledged], answer: Callable[[Acknowledged], Any]
) -> Any:
    response = answer(await acknowledged)
    return await response if isinstance(response, Awaitable) else response


def names_member(request: Any) -> bool:
    """Return whether a ShareFetch or ShareAcknowledge names a group, and a member id that a share
    group accepts.
    """
    member_id = request.member_id or ""
    return request.group_id is not None and len(member_id) <= MAX_SHARE_MEMBER_ID_LENGTH


def _topic(
    broker: Broker, topic: AcknowledgeTopic, acknowledged: Acknowledged
) -> ShareAcknowledgeTopicResponse:
    partitions = []
    for partition in topic.partitions:
        refusal = acknowledged.get((topic.topic_id, partition.partition_index))
        code = ErrorCode.NONE if refusal is None else refusal.code
        partitions.append(
            PartitionData(
                partition_index=partition.partition_index,
                error_code=code,
                error_message=None if refusal is None else refusal.message,
                current_leader=_leader(broker) if code in NOT_LEADER else _NO_LEADER,
            )
        )
    return ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=tuple(partitions))


class _Acknowledgement(NamedTuple):
    """The acknowledgements of one partition."""

    broker: Broker
    session: ShareSession
    topic_id: UUID
    partition: int
    batches: Sequence[AcknowledgementBatch]
    settings: ShareSettings
    terms: AcknowledgeTerms

    def apply(self) -> Refusal | None:
        """Apply them, all or none; return the error, None for success.

        :raises LettersPending: as
            :meth:`~headrace.coordinators.share_partitions.SharePartitions.acknowledge`
        """
        try:
            refusal = self.broker.share.acknowledge(
                self.session,
                self.topic_id,
                self.partition,
                self.batches,
                self.settings,
                self.terms,
            )
        except StorageError as error:
            refusal = _not_available(error)
        return self.counted(refusal)

    def apply_later(self, pending: LettersPending) -> asyncio.Future[Refusal | None]:
        """Apply them when their dead letters are written, even if the client does not wait for it;
        return a future of the error or None.
        """
        applied: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

        def apply(letters: asyncio.Future[None]) -> None:
            if letters.cancelled():
                applied.cancel()
                return
            try:
                letters.result()
                refusal = self.apply()
            except LettersPending as again:
                again.written.add_done_callback(apply)
                return
            except StorageError as error:
                refusal = self.counted(_not_available(error))
            except Exception as error:
                if not applied.done():
                    applied.set_exception(error)
                return
            if not applied.done():
                applied.set_result(refusal)

        pending.written.add_done_callback(apply)
        return applied

    def counted(self, refusal: Refusal | None) -> Refusal | None:
        """Count the acknowledgements in the metrics, and return the error."""
        self.broker.metrics.share.acknowledge(self.topic_id, self.batches, refusal)
        return refusal


def acknowledge(
    broker: Broker,
    session: ShareSession,
    topics: Iterable[Any],
    settings: ShareSettings,
    context: RequestContext,
    terms: AcknowledgeTerms,
) -> Acknowledged | Awaitable[Acknowledged]:
    """Apply the acknowledgements in the ``topics`` of a ShareFetch or ShareAcknowledge request.

    :returns: the results; an awaitable of them if dead letters must be written first
    """
    acknowledged: Acknowledged = {}
    waiting: dict[tuple[UUID, int], Awaitable[Refusal | None]] = {}
    for topic in topics:
        is_allowed = allows_topic(broker, Operation.READ, topic.topic_id, context)
        for partition in topic.partitions:
            if not partition.acknowledgement_batches:
                continue
            batches = [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in partition.acknowledgement_batches
            ]
            index = partition.partition_index
            acknowledgement = _Acknowledgement(
                broker, session, topic.topic_id, index, batches, settings, terms
            )
            refusal: Refusal | None = None
            if is_allowed:
                try:
                    refusal = acknowledgement.apply()
                except LettersPending as pending:
                    waiting[topic.topic_id, index] = acknowledgement.apply_later(pending)
            elif well_formed(batches, RENEW if terms.renew else REJECT):
                refusal = acknowledgement.counted(
                    Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED)
                )
            else:
                refusal = acknowledgement.counted(MALFORMED)
            acknowledged[topic.topic_id, index] = refusal
    if acknowledged:
        broker.metrics.share.acknowledges({topic_id for topic_id, _ in acknowledged})
    return _acknowledge_later(acknowledged, waiting) if waiting else acknowledged


async def _acknowledge_later(
    acknowledged: Acknowledged, waiting: Mapping[tuple[UUID, int], Awaitable[Refusal | None]]
) -> Acknowledged:
    for partition, applied in waiting.items():
        acknowledged[partition] = await applied
    return acknowledged


def _not_available(error: StorageError) -> Refusal:
    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))


_NO_LEADER = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)


def _leader(broker: Broker) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=LEADER_EPOCH)


def _endpoint(broker: Broker, context: RequestContext) -> NodeEndpoint:
    return NodeEndpoint(
        node_id=broker.node_id, host=context.listener_host, port=context.listener_port
    )


def _response(
    code: ErrorCode,
    lock_duration_ms: int,
    responses: tuple[ShareAcknowledgeTopicResponse, ...],
    node_endpoints: tuple[NodeEndpoint, ...],
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        acquisition_lock_timeout=to_timedelta(lock_duration_ms),
        responses=responses,
        node_endpoints=node_endpoints,
    )
