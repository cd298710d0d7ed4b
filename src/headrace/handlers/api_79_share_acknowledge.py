"""ShareAcknowledge (79), versions 1-2: accept, release, reject or renew acquired records (KIP-932).

Either all acknowledgements of a partition are applied, or none. Epoch -1 then closes the share
session and releases the records that the member still holds.

Version notes:

* Version 2 adds renewal of acquisition locks, and their timeout in the response (KIP-1222), and
  headrace's fields, see :mod:`headrace.protocol.own_fields`.
"""

from __future__ import annotations

from headrace.log.partition_log import LEADER_EPOCH
from headrace.log_lines import printable
from headrace.net.api import READ_GROUP, READ_PARTITIONS, Api
from headrace.net.call import Call
from headrace.protocol.api import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from headrace.protocol.errors import ErrorCode, Refusal
from headrace.share.acknowledgement import AcknowledgeTerms
from headrace.share.records import NO_TOPIC, SharePartitionKey
from headrace.share.share_session import FINAL_EPOCH

from .acknowledging import NOT_LEADER, Acknowledged, acknowledge, names_member

MAX_RELEASE_DELAY_MS = 86_400_000
"""A day: the longest time for which a member keeps released records from being delivered."""

MAX_REJECT_REASON_CHARS = 1000
"""The reason of a rejection, which each of its dead letters has."""

Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
Partition = ShareAcknowledgeResponse.PartitionData

API = Api(
    79,
    READ_GROUP,
    READ_PARTITIONS,
    is_quick=True,
    has_one_error=True,
)


async def handle(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Apply acknowledgements, and close the share session if the epoch is -1."""
    if not names_member(request):
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    share = call.share
    group_id, epoch = request.group_id or "", request.share_session_epoch
    session = share.sessions.acknowledge(group_id, request.member_id or "", epoch)
    if isinstance(session, Refusal):
        return ShareAcknowledgeResponse(error_code=session.code)
    settings = share.settings(group_id)
    acknowledged = await acknowledge(call, session, request.topics, settings, _terms(request))
    if epoch == FINAL_EPOCH:
        share.close_session(session)
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=settings.lock_duration_ms)
    if acknowledged:  # then partitions without acknowledgements are in the response, too
        response.responses = await call.each(
            lambda topic: _topic(group_id, topic, acknowledged, call.node_id), request.topics
        )
        if any(refusal and refusal.code == NOT_LEADER for refusal in acknowledged.values()):
            response.node_endpoints = [ShareAcknowledgeResponse.NodeEndpoint(*call.node)]
    await call.durable()
    return response


def _terms(request: ShareAcknowledgeRequest) -> AcknowledgeTerms:
    return AcknowledgeTerms(
        request.is_renew_ack,
        request.uncounted_release,
        min(max(request.release_delay_ms, 0), MAX_RELEASE_DELAY_MS),
        printable(request.reject_reason or "", MAX_REJECT_REASON_CHARS),
    )


def _topic(
    group_id: str,
    topic: ShareAcknowledgeRequest.AcknowledgeTopic,
    acknowledged: Acknowledged,
    node_id: int,
) -> Topic:
    partitions = []
    for acknowledgements in topic.partitions:
        partition = Partition(acknowledgements.partition_index)
        key = SharePartitionKey(group_id, topic.topic_id or NO_TOPIC, partition.partition_index)
        if refusal := acknowledged.get(key):
            partition.refused(refusal)
            if refusal.code == NOT_LEADER:
                partition.current_leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(
                    node_id, LEADER_EPOCH
                )
        partitions.append(partition)
    return Topic(topic.topic_id, partitions)
