"""CreateTopics (19), versions 2-7: create topics, or validate their creation.

An internal topic gets its internal configs, except those that the request sets.

Version notes:

* Version 4 adds -1 as the number of partitions and the replication factor, for the broker's
  defaults (KIP-464).
* Version 5 is flexible. It adds partitions, replication factor and configs to the response
  (KIP-525).
* Version 7 adds the topic id to the response (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, Topic
from headrace.broker.config.described import describe_topic
from headrace.broker.config.topic_rules import check_new_topic_name, partition_count
from headrace.broker.limits import MAX_PARTITIONS_PER_REQUEST
from headrace.errors import ErrorCode, Refusal
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext

_NO_ID = UUID(int=0)


def handle(
    broker: Broker, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create topics, each on its own. With ``validate_only`` create none."""
    times = Counter(asked.name for asked in request.topics)
    once = [asked for asked in request.topics if times[asked.name] == 1]
    default = broker.config.get_int("num.partitions")
    total = sum(
        len(asked.assignments) or (default if asked.num_partitions == -1 else asked.num_partitions)
        for asked in once
    )
    if total > MAX_PARTITIONS_PER_REQUEST:
        excessive = Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
        results = [_refused(asked.name, excessive) for asked in once]
    else:
        results = [_create(broker, asked, request.validate_only) for asked in once]
    duplicate = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_refused(name, duplicate) for name, count in times.items() if count > 1]
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


def _create(broker: Broker, asked: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    planned = _plan(broker, asked)
    if isinstance(planned, Refusal):
        return _refused(asked.name, planned)
    if not validate_only:
        try:
            planned = broker.create_topic(planned.name, planned.partitions, planned.configs)
        except CatalogError as error:
            return _refused(asked.name, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    return CreatableTopicResult(
        name=planned.name,
        topic_id=None if planned.topic_id == _NO_ID else planned.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=planned.partitions,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfigs(
                name=described.key.name,
                value=described.value,
                read_only=False,
                config_source=described.source,
                is_sensitive=described.sensitive,
            )
            for described in describe_topic(broker.config, planned)
        ),
    )


def _plan(broker: Broker, asked: CreatableTopic) -> Topic | Refusal:
    """Return the topic to create, without an id, or its error."""
    refusal = check_new_topic_name(asked.name, broker.catalog.twin(asked.name))
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
    )
    if isinstance(partitions, Refusal):
        return partitions
    return Topic(asked.name, _NO_ID, partitions, configs)


def _refused(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=refusal.code, error_message=refusal.message, configs=()
    )
