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
from collections.abc import Awaitable, Generator, Sequence
from dataclasses import replace
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, NewTopic, Topic, fold
from headrace.broker.config.described import describe_topic
from headrace.broker.config.topic_rules import check_new_topic_name, partition_count
from headrace.broker.limits import MAX_PARTITIONS_PER_REQUEST, MAX_TOPICS_PER_TRANSACTION
from headrace.errors import ErrorCode, Refusal
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.acls import ResourceType

from .context import RequestContext
from .slicing import SharedDescriptions, chunks, run_sliced, sliced

_NO_ID = UUID(int=0)
_FIRST_WITH_QUOTA = 6
"""Earlier versions are throttled, but not refused."""


def handle(
    broker: Broker, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse | Sliced | Awaitable[CreateTopicsResponse | Sliced]:
    """Create topics, each on its own. With ``validate_only`` create none."""
    return run_sliced(broker, _create_all(broker, request, context), len(request.topics))


def _create_all(
    broker: Broker, request: CreateTopicsRequest, context: RequestContext
) -> Generator[None, None, CreateTopicsResponse | Sliced]:
    times = Counter(asked.name for asked in request.topics)
    once = [asked for asked in request.topics if times[asked.name] == 1]
    default = broker.config.get_int("num.partitions")
    total = sum(
        len(asked.assignments)
        or (default if asked.num_partitions == -1 else max(asked.num_partitions, 0))
        for asked in once
    )
    results: list[CreatableTopicResult]
    if total > MAX_PARTITIONS_PER_REQUEST:
        excessive = Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
        results = [_refused(asked.name, excessive) for asked in once]
    else:
        results = []
        descriptions = SharedDescriptions()
        for some in chunks(once, MAX_TOPICS_PER_TRANSACTION):
            plans = yield from _plan_all(broker, some, request.validate_only, context)
            if not request.validate_only:
                plans = _create(broker, plans)
            for plan in plans:
                result = _result(broker, plan, descriptions)
                results.append(_visible(result, context))
                yield
    duplicate = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_refused(name, duplicate) for name, count in times.items() if count > 1]
    response = CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))
    return sliced(response, len(results))


Planned = tuple[str, Topic | Refusal]
"""The name of a topic; the topic to create, without an id, or the created one, or its error."""


def _plan_all(
    broker: Broker,
    topics: Sequence[CreatableTopic],
    validate_only: bool,
    context: RequestContext,
) -> Generator[None, None, list[Planned]]:
    taken: dict[str, str] = {}
    plans: list[Planned] = []
    for asked in topics:
        twin = broker.catalog.twin(asked.name) or taken.get(fold(asked.name))
        planned = _plan(broker, asked, twin)
        if (
            isinstance(planned, Topic)
            and context.charge is not None
            and not context.charge.admit_mutations(
                planned.partitions, strict=context.api_version >= _FIRST_WITH_QUOTA
            )
        ):
            planned = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if not validate_only and isinstance(planned, Topic):
            taken[fold(asked.name)] = asked.name
        plans.append((asked.name, planned))
        yield
    return plans


def _create(broker: Broker, plans: Sequence[Planned]) -> list[Planned]:
    """Create the planned topics in one transaction. Another request may have created some of them
    since they were planned.
    """
    new: list[NewTopic] = []
    checked: list[Planned] = []
    for name, planned in plans:
        twin = broker.catalog.twin(name)
        refusal = None if twin is None else check_new_topic_name(name, twin)
        if isinstance(planned, Topic) and refusal is None:
            new.append(NewTopic(name, planned.partitions, planned.configs))
            checked.append((name, planned))
        else:
            checked.append((name, refusal if isinstance(planned, Topic) and refusal else planned))
    created: dict[str, Topic | Refusal] = {}
    if new:
        try:
            created = {topic.name: topic for topic in broker.create_topics(new)}
        except CatalogError as error:
            failed = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            created = {one.name: failed for one in new}
    return [(name, created.get(name, planned)) for name, planned in checked]


def _result(
    broker: Broker, plan: Planned, descriptions: SharedDescriptions
) -> CreatableTopicResult:
    name, topic = plan
    if isinstance(topic, Refusal):
        return _refused(name, topic)
    return CreatableTopicResult(
        name=name,
        topic_id=None if topic.topic_id == _NO_ID else topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=descriptions.get(
            (name if topic.internal else None, tuple(sorted(topic.configs.items()))),
            lambda: _described(broker, topic),
        ),
    )


def _visible(result: CreatableTopicResult, context: RequestContext) -> CreatableTopicResult:
    """Return the result without partitions and configs, if the client may not describe them."""
    access = context.access
    if (
        result.error_code
        or not access.is_limited
        or access.allows(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name, is_audited=False
        )
    ):
        return result
    return replace(
        result,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
    )


def _described(broker: Broker, topic: Topic) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=described.key.name,
            value=described.value,
            read_only=False,
            config_source=described.source,
            is_sensitive=described.sensitive,
        )
        for described in describe_topic(broker.config, topic, all_synonyms=True)
    )


def _plan(broker: Broker, asked: CreatableTopic, twin: str | None) -> Topic | Refusal:
    """Return the topic to create, without an id, or its error.

    :param twin: a topic whose name collides
    """
    refusal = check_new_topic_name(asked.name, twin)
    if refusal is not None:
        return refusal
    without_value = [config.name for config in asked.configs if config.value is None]
    if without_value:
        message = f"Null value not supported for topic configs: {','.join(without_value)}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    if asked.name in INTERNAL_TOPICS:
        default, configs = broker.config.internal_topic(asked.name)
    else:
        default, configs = broker.config.get_int("num.partitions"), {}
    configs |= {config.name: config.value for config in asked.configs}
    refusal = broker.config.check("topic", configs)
    if refusal is not None:
        return refusal
    partitions = partition_count(
        asked.num_partitions,
        asked.replication_factor,
        [(one.partition_index, one.broker_ids) for one in asked.assignments],
        default,
        broker.node_id,
    )
    if isinstance(partitions, Refusal):
        return partitions
    return Topic(asked.name, _NO_ID, partitions, configs)


def _refused(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=refusal.code, error_message=refusal.message, configs=()
    )
