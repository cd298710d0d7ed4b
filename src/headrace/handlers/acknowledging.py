"""What ShareFetch (78) and ShareAcknowledge (79) have in common: the member, and the
acknowledgements of its records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

from headrace.coordinators.waiting import run_to_end
from headrace.groups.share.group import MAX_SHARE_MEMBER_ID_LENGTH
from headrace.net.api import READ, TOPIC_DENIED
from headrace.net.call import Call
from headrace.protocol.api import ShareAcknowledgeRequest, ShareFetchRequest
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.share.acknowledgement import (
    MALFORMED,
    REJECT,
    RENEW,
    AcknowledgementBatch,
    AcknowledgeTerms,
    well_formed,
)
from headrace.share.records import NO_TOPIC, SharePartitionKey
from headrace.share.settings import ShareSettings
from headrace.share.share_session import ShareSession

Acknowledged = dict[SharePartitionKey, Refusal | None]
"""The result of each partition in the order of the request; None for success."""

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""The error for which the response has the leader and its address: the state of a share-partition
was changed elsewhere.
"""


def names_member(request: ShareFetchRequest | ShareAcknowledgeRequest) -> bool:
    """Return whether a request names a group, and a member id that a share group accepts."""
    member_id = request.member_id or ""
    return request.group_id is not None and 0 < len(member_id) <= MAX_SHARE_MEMBER_ID_LENGTH


async def acknowledge(
    call: Call,
    session: ShareSession,
    topics: Iterable[ShareFetchRequest.FetchTopic | ShareAcknowledgeRequest.AcknowledgeTopic],
    settings: ShareSettings,
    terms: AcknowledgeTerms,
) -> Acknowledged:
    """Apply the acknowledgements of a request, also if the client does not wait for their dead
    letters; return their results.
    """

    async def apply(
        key: SharePartitionKey, batches: Sequence[AcknowledgementBatch], *, is_allowed: bool
    ) -> Refusal | None:
        """Apply those of a partition, all or none, and count them."""
        if not is_allowed:
            highest = RENEW if terms.renew else REJECT
            refusal: Refusal | None = TOPIC_DENIED if well_formed(batches, highest) else MALFORMED
        else:
            try:
                refusal = await call.share.acknowledge(
                    session.member_id, key, batches, settings, terms
                )
            except StorageError as error:
                refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        call.metrics.share.acknowledge(key.topic_id, batches, refusal)
        return refusal

    applying: dict[SharePartitionKey, Awaitable[Refusal | None]] = {}
    for topic in topics:
        topic_id = topic.topic_id or NO_TOPIC
        is_allowed = call.may_use_topic(READ, topic_id)
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                batches = [
                    AcknowledgementBatch(
                        batch.first_offset, batch.last_offset, batch.acknowledge_types
                    )
                    for batch in partition.acknowledgement_batches
                ]
                key = SharePartitionKey(session.group_id, topic_id, partition.partition_index)
                applying[key] = run_to_end(apply(key, batches, is_allowed=is_allowed))
    if applying:
        call.metrics.share.acknowledges({key.topic_id for key in applying})
    return {key: await applied for key, applied in applying.items()}
