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

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias
from uuid import UUID

from headrace.broker.broker import Broker
from headrace.broker.config.described import MAX_SHARED_DESCRIPTIONS, describe_topic
from headrace.errors import ErrorCode, Refusal
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.net.api import Api
from headrace.net.audit import Change
from headrace.net.call import Call
from headrace.net.rules import CREATE, DESCRIBE_CONFIGS, TOPIC, each, inside
from headrace.protocol.api import CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.schema import Encoded
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, CatalogError, NewTopic, Topic, fold
from headrace.topics.topic_rules import (
    MAX_PARTITIONS_PER_REQUEST,
    check_new_topic_name,
    partition_count,
)

NewTopicRequest = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult
Plans: TypeAlias = dict[str, Topic | Refusal]
"""By name: the topic to create, without an id, or the created one, or its error."""


def changes(request: CreateTopicsRequest, response: CreateTopicsResponse) -> Iterator[Change]:
    """Yield the topics that were created, for the log."""
    if not request.validate_only:
        for result in response.topics:
            if not result.error_code:
                count = result.num_partitions
                yield Change(
                    CREATE, "TOPIC", result.name, f"{count} partitions" if count > 0 else ""
                )


API = Api(
    19,
    each(CREATE, TOPIC, "topics", "name", unless=CREATE, once=True),
    inside(DESCRIBE_CONFIGS, TOPIC, "partitions and configs are left out"),
    changes=changes,
)

_NO_ID = UUID(int=0)
_FIRST_WITH_QUOTA = 6
"""Earlier versions are throttled, but not refused."""
_TOO_MANY = Refusal(
    ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
)


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, each on its own. With ``validate_only`` create none."""
    broker = call.broker
    allowed, refused = call.allowed(request.topics)
    times = Counter(topic.name for topic in allowed)
    once = [topic for topic in allowed if times[topic.name] == 1]
    results: list[Result] = []
    if _total_partitions(broker, once) > MAX_PARTITIONS_PER_REQUEST:
        results = [_refused(topic.name, _TOO_MANY) for topic in once]
    else:
        shared: dict[object, Encoded] = {}
        for some in chunks(once, MAX_TOPICS_PER_TRANSACTION):
            plans = await _plan_all(call, some, validate_only=request.validate_only)
            if not request.validate_only:
                _create(broker, plans)
            for name, topic in plans.items():
                if isinstance(topic, Refusal):
                    results.append(_refused(name, topic))
                else:
                    results.append(_created(call, topic, shared))
                await call.pause()
    duplicate = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_refused(name, duplicate) for name, count in times.items() if count > 1]
    not_allowed = call.refused_items(Result, refused)
    for result in not_allowed:
        result.error_message = "Authorization failed."
    return CreateTopicsResponse(topics=results + not_allowed)


def _total_partitions(broker: Broker, topics: Sequence[NewTopicRequest]) -> int:
    default = broker.config.get_int("num.partitions")
    return sum(
        len(topic.assignments)
        or (default if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in topics
    )


async def _plan_all(call: Call, topics: Sequence[NewTopicRequest], *, validate_only: bool) -> Plans:
    broker, charge = call.broker, call.client.charge
    is_strict = call.version >= _FIRST_WITH_QUOTA
    folded: dict[str, str] = {}
    plans: Plans = {}
    for topic in topics:
        twin = broker.catalog.twin(topic.name) or folded.get(fold(topic.name))
        plan = _plan(broker, topic, twin)
        if isinstance(plan, Topic):
            if charge is not None and not charge.admit_mutations(plan.partitions, strict=is_strict):
                plan = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            elif not validate_only:
                folded[fold(topic.name)] = topic.name
        plans[topic.name] = plan
        await call.pause()
    return plans


def _plan(broker: Broker, topic: NewTopicRequest, twin: str | None) -> Topic | Refusal:
    """Return the topic to create, without an id, or its error.

    :param twin: a topic whose name collides
    """
    refusal = check_new_topic_name(topic.name, twin)
    if refusal is not None:
        return refusal
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        message = f"Null value not supported for topic configs: {','.join(without_value)}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    if topic.name in INTERNAL_TOPICS:
        default, configs = broker.config.internal_topic(topic.name)
    else:
        default, configs = broker.config.get_int("num.partitions"), {}
    configs |= {config.name: config.value for config in topic.configs if config.value is not None}
    refusal = broker.config.check("topic", configs)
    if refusal is not None:
        return refusal
    partitions = partition_count(
        topic.num_partitions,
        topic.replication_factor,
        [(replicas.partition_index, replicas.broker_ids) for replicas in topic.assignments],
        default,
        broker.node_id,
    )
    if isinstance(partitions, Refusal):
        return partitions
    return Topic(topic.name, _NO_ID, partitions, configs)


def _create(broker: Broker, plans: Plans) -> None:
    """Create the planned topics in one transaction, and replace their plans by them. Another
    request may have created some of them since they were planned.
    """
    new: list[NewTopic] = []
    for name, plan in plans.items():
        if isinstance(plan, Topic):
            twin = broker.catalog.twin(name)
            refusal = None if twin is None else check_new_topic_name(name, twin)
            if refusal is None:
                new.append(NewTopic(name, plan.partitions, plan.configs))
            else:
                plans[name] = refusal
    if not new:
        return
    try:
        plans |= {topic.name: topic for topic in broker.create_topics(new)}
    except CatalogError as error:
        failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        plans |= {topic.name: failed for topic in new}


def _created(call: Call, topic: Topic, shared: dict[object, Encoded]) -> Result:
    """Return the result of a topic: without partitions and configs, if the client may not describe
    them.

    :param shared: the configs of other topics: many topics have equal ones
    """
    result = Result(name=topic.name, topic_id=topic.topic_id, error_message=None)
    if not call.may(DESCRIBE_CONFIGS, TOPIC, topic.name, is_audited=False):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    key = topic.name if topic.internal else None, tuple(sorted(topic.configs.items()))
    configs = shared.get(key)
    if configs is None:
        configs = call.encode(_configs(call.broker, topic))
        if len(shared) < MAX_SHARED_DESCRIPTIONS:
            shared[key] = configs
    result.num_partitions, result.replication_factor = topic.partitions, 1
    result.configs = configs
    return result


def _configs(broker: Broker, topic: Topic) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=config.name,
            value=config.value,
            config_source=config.config_source,
            is_sensitive=config.is_sensitive,
        )
        for config in describe_topic(broker.config, topic, all_synonyms=True)
    ]


def _refused(name: str, refusal: Refusal) -> Result:
    return Result(name=name, error_code=refusal.code, error_message=refusal.message)
