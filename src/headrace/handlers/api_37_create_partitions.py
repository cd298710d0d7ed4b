"""CreatePartitions (37), versions 0-3: add partitions to topics (KIP-195).

Internal topics are refused: coordinators map keys to their partitions.

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from headrace.net.api import ALTER, TOPIC, Api, Each
from headrace.net.call import Call
from headrace.protocol.api import CreatePartitionsRequest, CreatePartitionsResponse
from headrace.protocol.errors import ErrorCode, Refusal, failure_of, invalid_request
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION
from headrace.topics.topic_rules import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    check_growth,
    unique_topics,
)

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


API = Api(37, Each(ALTER, TOPIC, "name", once=True), is_audited=True)

_FIRST_WITH_QUOTA = 3


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Add partitions to topics, each on its own."""
    allowed, refused = await call.allowed_items(request.topics, Result)
    unique, duplicates = unique_topics(allowed)
    outcomes: dict[str, Refusal | None] = {**duplicates}
    for topics in chunks(unique, MAX_TOPICS_PER_TRANSACTION):
        outcomes |= {topic.name: _check(call, topic) for topic in topics}
        totals = {topic.name: topic.count for topic in topics if outcomes[topic.name] is None}
        if totals and not request.validate_only:
            failed = failure_of(call.catalog.grow_topics, totals)
            outcomes |= dict.fromkeys(totals, failed)
            for name, total in totals.items() if failed is None else ():
                call.changed(ALTER, TOPIC, name, f"{total} partitions")
        await call.pause()
    results = [Result(name).refused(outcome) for name, outcome in outcomes.items()]
    return CreatePartitionsResponse(results=results + refused)


def _check(call: Call, topic: CreatePartitionsRequest.CreatePartitionsTopic) -> Refusal | None:
    """Return the error for growing a topic, None if it can grow."""
    present = call.catalog.topics.get(topic.name)
    if present is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if present.internal:
        return invalid_request(
            f"{topic.name} holds the state of groups: its partitions cannot change."
        )
    if refusal := check_growth(topic, present.partitions, call.node_id):
        return refusal
    added = topic.count - present.partitions
    if added > MAX_PARTITIONS_PER_REQUEST:
        return TOO_MANY_PARTITIONS
    return call.charge_mutations(added, _FIRST_WITH_QUOTA)
