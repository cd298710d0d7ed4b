"""ShareAcknowledge (79), versions 1-2: accept, release, reject or renew acquired records (KIP-932).

Either all acknowledgements of a partition are applied, or none. Epoch -1 then closes the share
session and releases the records that the member still holds.

Version notes:

* Version 2 adds renewal of acquisition locks, and their timeout in the response (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
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
from headrace.broker.limits import MAX_SHARE_MEMBER_ID_LENGTH
from headrace.coordinators.share_partitions import LEADER_EPOCH
from headrace.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType
from headrace.share.acknowledgement import (
    MALFORMED,
    REJECT,
    RENEW,
    AcknowledgementBatch,
    well_formed,
)
from headrace.share.settings import ShareSettings
from headrace.share.share_session import FINAL_EPOCH, ShareSession

from .context import RequestContext
from .durations import to_timedelta

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
        broker, session, request.topics, settings, context, renew=request.is_renew_ack
    )
    if request.share_session_epoch == FINAL_EPOCH:
        share.close_session(session)
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


def may_read(broker: Broker, topic_id: UUID, context: RequestContext) -> bool:
    """Return whether a client may read a topic; True for an unknown id."""
    if not context.access.is_limited:
        return True
    topic = broker.catalog.topics_by_id.get(topic_id)
    return topic is None or context.access.allows(Operation.READ, ResourceType.TOPIC, topic.name)


def acknowledge(
    broker: Broker,
    session: ShareSession,
    topics: Iterable[Any],
    settings: ShareSettings,
    context: RequestContext,
    *,
    renew: bool,
) -> Acknowledged:
    """Apply the acknowledgements in the ``topics`` of a ShareFetch or ShareAcknowledge request."""
    acknowledged: Acknowledged = {}
    for topic in topics:
        is_allowed = may_read(broker, topic.topic_id, context)
        for partition in topic.partitions:
            if not partition.acknowledgement_batches:
                continue
            batches = [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in partition.acknowledgement_batches
            ]
            refusal: Refusal | None
            try:
                if is_allowed:
                    refusal = broker.share.acknowledge(
                        session,
                        topic.topic_id,
                        partition.partition_index,
                        batches,
                        settings,
                        renew=renew,
                    )
                elif well_formed(batches, RENEW if renew else REJECT):
                    refusal = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NOT_ALLOWED)
                else:
                    refusal = MALFORMED
            except StorageError as error:
                refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
            acknowledged[topic.topic_id, partition.partition_index] = refusal
            broker.metrics.share.acknowledge(topic.topic_id, batches, refusal)
    if acknowledged:
        broker.metrics.share.acknowledges({topic_id for topic_id, _ in acknowledged})
    return acknowledged


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
