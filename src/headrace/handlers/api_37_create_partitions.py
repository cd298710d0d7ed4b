"""CreatePartitions (37), versions 0-3: add partitions to topics (KIP-195).

Internal topics are refused: coordinators map keys to their partitions.

Version notes:

* Version 2 is flexible (KIP-482).
* Version 3 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Generator

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError
from headrace.broker.config.topic_rules import check_growth
from headrace.broker.limits import MAX_PARTITIONS_PER_REQUEST, MAX_TOPICS_PER_TRANSACTION
from headrace.errors import ErrorCode, Refusal
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext
from .slicing import chunks, run_sliced, sliced

_FIRST_WITH_QUOTA = 3
"""Earlier versions are throttled, but not refused."""


def handle(
    broker: Broker, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse | Sliced | Awaitable[CreatePartitionsResponse | Sliced]:
    """Add partitions to topics, each on its own."""
    return run_sliced(broker, _grow_all(broker, request, context), len(request.topics))


def _grow_all(
    broker: Broker, request: CreatePartitionsRequest, context: RequestContext
) -> Generator[None, None, CreatePartitionsResponse | Sliced]:
    times = Counter(asked.name for asked in request.topics)
    results = [
        _result(name, Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in times.items()
        if count > 1
    ]
    once = [asked for asked in request.topics if times[asked.name] == 1]
    for some in chunks(once, MAX_TOPICS_PER_TRANSACTION):
        refusals = {asked.name: _check(broker, asked, context) for asked in some}
        totals = {asked.name: asked.count for asked in some if refusals[asked.name] is None}
        if totals and not request.validate_only:
            try:
                broker.grow_topics(totals)
            except CatalogError as error:
                failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                refusals |= dict.fromkeys(totals, failed)
        results += [_result(name, refusal) for name, refusal in refusals.items()]
        yield
    response = CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(results))
    return sliced(response, len(results))


def _check(broker: Broker, asked: CreatePartitionsTopic, context: RequestContext) -> Refusal | None:
    """Return the error for growing a topic, None if it can grow."""
    topic = broker.catalog.topics.get(asked.name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.internal:
        message = f"{topic.name} holds the state of groups: its partitions cannot change."
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    assignments = (
        None if asked.assignments is None else [one.broker_ids for one in asked.assignments]
    )
    refusal = check_growth(topic.name, topic.partitions, asked.count, assignments, broker.node_id)
    if refusal is None and asked.count - topic.partitions > MAX_PARTITIONS_PER_REQUEST:
        refusal = Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    if (
        refusal is None
        and context.charge is not None
        and not context.charge.admit_mutations(
            asked.count - topic.partitions, strict=context.api_version >= _FIRST_WITH_QUOTA
        )
    ):
        return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    return refusal


def _result(name: str, refusal: Refusal | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )
