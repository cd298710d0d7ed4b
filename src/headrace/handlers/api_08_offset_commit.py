"""OffsetCommit (8), versions 2-10: commit offsets of a group.

The response has no top-level error: an error of the group is the error of every partition. Topics
without partitions are left out of the response.

Version notes:

* Version 5 removes the retention time (KIP-211); the broker's applies.
* Version 6 adds leader epochs (KIP-320).
* Version 7 adds the group instance id (KIP-345).
* Version 9 adds member epochs, STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848).
* Version 10 replaces topic names by ids (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headrace.coordinators.waiting import Deferred
from headrace.net.api import READ, READ_GROUP, TOPIC, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import OffsetCommitRequest, OffsetCommitResponse
from headrace.protocol.errors import ErrorCode

from .commit_templates import make_template
from .offset_commits import (
    FIRST_WITH_GROUP_ID_NOT_FOUND,
    FIRST_WITH_TOPIC_IDS,
    CommitApi,
    answered_topics,
    decide_commit,
)

RequestedTopic = OffsetCommitRequest.OffsetCommitRequestTopic
Topic = OffsetCommitResponse.OffsetCommitResponseTopic
Partition = OffsetCommitResponse.OffsetCommitResponsePartition
Portion = list[tuple[RequestedTopic, list[Partition]]]
"""Topics of a request and of the response."""

COMMITS_AT_ONCE = 1000
"""The offsets of a request that are decided and written in one turn of the event loop."""


API = Api(
    8,
    READ_GROUP,
    Each(READ, TOPIC, "name", ids_from=FIRST_WITH_TOPIC_IDS),
    is_quick=True,
    of_coordinator=True,
    template=make_template,
)
_COMMIT = CommitApi(
    Partition, FIRST_WITH_TOPIC_IDS, FIRST_WITH_GROUP_ID_NOT_FOUND, transactional=False
)


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets at the end of this turn, together with other commits."""
    allowed, refused = await call.allowed_items(request.topics, Topic)
    pairs: Portion = [(topic, []) for topic in allowed]
    if sum([len(topic.partitions) for topic in allowed]) <= COMMITS_AT_ONCE:
        await _commit(call, request, pairs)
    else:  # some after the others: those of different partitions are independent
        for portion in _portions(pairs):
            await _commit(call, request, portion)
            await call.pause()
    return OffsetCommitResponse(topics=answered_topics(call, pairs, Topic) + refused)


def _portions(pairs: Portion) -> Iterator[Portion]:
    """Yield topics, some of them in parts, with their answers."""
    portion: Portion = []
    room = COMMITS_AT_ONCE
    for topic, answers in pairs:
        for start in range(0, len(topic.partitions), COMMITS_AT_ONCE):
            partitions = topic.partitions[start : start + COMMITS_AT_ONCE]
            room -= len(partitions)
            if room < 0:
                yield portion
                portion, room = [], COMMITS_AT_ONCE - len(partitions)
            portion.append((RequestedTopic(topic.name, topic.topic_id, partitions), answers))
    yield portion


def _commit(call: Call, request: OffsetCommitRequest, portion: Portion) -> Deferred[ErrorCode]:
    decide = partial(decide_commit, call, request, portion, _COMMIT)
    return call.group_runtime.write(request.group_id, decide, commutes=True)
