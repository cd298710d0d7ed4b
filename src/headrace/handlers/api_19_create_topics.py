"""CreateTopics (19), versions 2-7: create topics, or validate their creation.

An internal topic gets its internal configs, except those that the request sets.

Version notes:

* Version 4 adds -1 as the number of partitions and the replication factor, for the broker's
  defaults (KIP-464).
* Version 5 is flexible. It adds partitions, replication factor and configs to the response
  (KIP-525).
* Version 6 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
* Version 7 adds the topic id to the response (KIP-516).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.net.api import CREATE, DESCRIBE_CONFIGS, TOPIC, Api, Each, Inside
from headrace.net.call import Call
from headrace.protocol.api import CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.errors import ErrorCode, Refusal, invalid_config
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, NOT_CREATED, Topic
from headrace.topics.topic_rules import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    Creation,
    partition_count,
    unique_topics,
)

NewTopicRequest = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult


API = Api(
    19,
    Each(CREATE, TOPIC, "name", unless=CREATE, once=True),
    Inside(DESCRIBE_CONFIGS, TOPIC, "partitions and configs are left out"),
    is_audited=True,
)

_FIRST_WITH_QUOTA = 6


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, each on its own. With ``validate_only`` create none."""
    allowed, not_allowed = await call.allowed_items(request.topics, Result)
    unique, duplicates = unique_topics(allowed)
    outcomes: dict[str, Topic | Refusal] = {}
    if _total_partitions(call, unique) > MAX_PARTITIONS_PER_REQUEST:
        outcomes = dict.fromkeys((topic.name for topic in unique), TOO_MANY_PARTITIONS)
    else:
        for topics in chunks(unique, MAX_TOPICS_PER_TRANSACTION):
            outcomes |= await _create(call, topics, validate_only=request.validate_only)
    results: list[Result] = []
    for name, topic in (outcomes | duplicates).items():
        if isinstance(topic, Refusal):
            results.append(Result(name).refused(topic))
        else:
            results.append(_created(call, topic))
            if not request.validate_only:
                call.changed(CREATE, TOPIC, name, f"{topic.partitions} partitions")
        await call.pause()
    for result in not_allowed:
        result.error_message = "Authorization failed."
    return CreateTopicsResponse(topics=results + not_allowed)


def _total_partitions(call: Call, topics: Sequence[NewTopicRequest]) -> int:
    default = call.config.get_int("num.partitions")
    return sum(
        len(topic.assignments)
        or (default if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in topics
    )


async def _create(
    call: Call, topics: Sequence[NewTopicRequest], *, validate_only: bool
) -> dict[str, Topic | Refusal]:
    """Create topics in one transaction; return the result of each by name."""
    creation = Creation(call.catalog)
    outcomes: dict[str, Topic | Refusal] = {}
    for topic in topics:
        planned = creation.check_name(topic.name) or _plan(call, topic)
        outcomes[topic.name] = planned
        if not (validate_only or isinstance(planned, Refusal)):
            creation.plan(planned)
        await call.pause()
    return outcomes | creation.create()


def _plan(call: Call, topic: NewTopicRequest) -> Topic | Refusal:
    """Return the topic to create, or its error."""
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        return invalid_config(
            f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    if topic.name in INTERNAL_TOPICS:
        default, configs = call.config.internal_topic(topic.name)
    else:
        default, configs = call.config.get_int("num.partitions"), {}
    configs |= {config.name: config.value for config in topic.configs if config.value is not None}
    refusal = call.config.check("topic", configs)
    partitions = refusal or partition_count(topic, default, call.node_id)
    if isinstance(partitions, Refusal):
        return partitions
    refusal = call.charge_mutations(partitions, _FIRST_WITH_QUOTA)
    return refusal or Topic(topic.name, NOT_CREATED, partitions, configs)


def _created(call: Call, topic: Topic) -> Result:
    """Return the result of a topic: without partitions and configs, if the client may not describe
    them.
    """
    result = Result(topic.name, topic.topic_id, error_message=None)
    if not call.may(DESCRIBE_CONFIGS, TOPIC, topic.name, is_audited=False):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    key = topic.name if topic.internal else None, tuple(sorted(topic.configs.items()))
    result.num_partitions, result.replication_factor = topic.partitions, 1
    result.configs = call.encode_once(
        key,
        lambda: [
            CreateTopicsResponse.CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                config_source=config.config_source,
                is_sensitive=config.is_sensitive,
            )
            for config in call.configs.describe_topic(topic, all_synonyms=True)
        ],
    )
    return result
