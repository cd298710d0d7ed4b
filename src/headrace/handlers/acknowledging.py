"""What ShareFetch (78) and ShareAcknowledge (79) have in common: the member, and the
acknowledgements of its records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from headrace.coordinators.dead_letters import LettersPending
from headrace.coordinators.share_partitions import SharePartitions
from headrace.coordinators.waiting import run_to_end
from headrace.errors import ErrorCode, Refusal, StorageError
from headrace.groups.share.member import MAX_SHARE_MEMBER_ID_LENGTH
from headrace.net.call import Call
from headrace.net.rules import MESSAGES, READ
from headrace.net.share_metrics import ShareMetrics
from headrace.protocol.api import ShareAcknowledgeRequest, ShareFetchRequest
from headrace.share.acknowledgement import (
    MALFORMED,
    REJECT,
    RENEW,
    AcknowledgementBatch,
    AcknowledgeTerms,
    well_formed,
)
from headrace.share.records import NO_TOPIC
from headrace.share.settings import ShareSettings
from headrace.share.share_session import ShareSession

Acknowledged = dict[tuple[UUID, int], Refusal | None]
"""The result of each partition in the order of the request; None for success."""

NOT_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors for which the response has the leader and its address."""
_NOT_ALLOWED = Refusal(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, MESSAGES[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)


def names_member(request: ShareFetchRequest | ShareAcknowledgeRequest) -> bool:
    """Return whether a request names a group, and a member id that a share group accepts."""
    member_id = request.member_id or ""
    return request.group_id is not None and len(member_id) <= MAX_SHARE_MEMBER_ID_LENGTH


async def acknowledge(
    call: Call,
    session: ShareSession,
    topics: Iterable[ShareFetchRequest.FetchTopic | ShareAcknowledgeRequest.AcknowledgeTopic],
    settings: ShareSettings,
    terms: AcknowledgeTerms,
) -> Acknowledged:
    """Apply the acknowledgements of a request; return their results. Those that dead letters must
    precede are applied when these are written, even if the client does not wait for it.
    """
    acknowledged: Acknowledged = {}
    later: dict[tuple[UUID, int], Awaitable[Refusal | None]] = {}
    metrics = call.broker.metrics.share
    applying = _Applying(call.broker.share, metrics, session, settings, terms)
    for topic in topics:
        topic_id = topic.topic_id or NO_TOPIC
        is_allowed = call.may_use_topic(READ, topic_id)
        for partition in topic.partitions:
            if not partition.acknowledgement_batches:
                continue
            batches = [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in partition.acknowledgement_batches
            ]
            key = topic_id, partition.partition_index
            acknowledged[key] = None
            if is_allowed:
                try:
                    acknowledged[key] = applying.apply(key, batches)
                except LettersPending as pending:
                    later[key] = run_to_end(applying.apply_after(pending, key, batches))
            else:
                highest = RENEW if terms.renew else REJECT
                refusal = _NOT_ALLOWED if well_formed(batches, highest) else MALFORMED
                acknowledged[key] = applying.counted(key, batches, refusal)
    if acknowledged:
        metrics.acknowledges({topic_id for topic_id, _ in acknowledged})
    for key, applied in later.items():
        acknowledged[key] = await applied
    return acknowledged


@dataclass(frozen=True, slots=True)
class _Applying:
    """Applies the acknowledgements of a request, those of each partition all or none."""

    share: SharePartitions
    metrics: ShareMetrics
    session: ShareSession
    settings: ShareSettings
    terms: AcknowledgeTerms

    def apply(
        self, key: tuple[UUID, int], batches: Sequence[AcknowledgementBatch]
    ) -> Refusal | None:
        """Apply those of a partition; return the error, None for success.

        :raises LettersPending: as
            :meth:`~headrace.coordinators.share_partitions.SharePartitions.acknowledge`
        """
        try:
            refusal = self.share.acknowledge(self.session, *key, batches, self.settings, self.terms)
        except StorageError as error:
            refusal = _not_available(error)
        return self.counted(key, batches, refusal)

    async def apply_after(
        self,
        pending: LettersPending,
        key: tuple[UUID, int],
        batches: Sequence[AcknowledgementBatch],
    ) -> Refusal | None:
        """Apply those of a partition when their dead letters are written. The decision then may
        need further ones.
        """
        while True:
            try:
                await pending.written
                return self.apply(key, batches)
            except LettersPending as again:
                pending = again
            except StorageError as error:
                return self.counted(key, batches, _not_available(error))

    def counted(
        self,
        key: tuple[UUID, int],
        batches: Sequence[AcknowledgementBatch],
        refusal: Refusal | None,
    ) -> Refusal | None:
        """Count those of a partition in the metrics; return the error."""
        self.metrics.acknowledge(key[0], batches, refusal)
        return refusal


def _not_available(error: StorageError) -> Refusal:
    return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
