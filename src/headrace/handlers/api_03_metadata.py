"""Metadata (3), versions 0-13: describe the broker and topics.

A requested topic that does not exist is created if the client and ``auto.create.topics.enable``
allow it, and described at once. Apache Kafka first returns UNKNOWN_TOPIC_OR_PARTITION, and the
client retries. Both do so while the client's quota of controller mutations is exceeded.

Version notes:

* Version 1 adds the controller id, racks and the internal flag. Null topics request all topics;
  in version 0 an empty array does.
* Version 2 adds the cluster id (KIP-78).
* Version 4 adds ``allow_auto_topic_creation``.
* Version 5 adds offline replicas (KIP-112).
* Version 7 adds leader epochs (KIP-320).
* Version 8 adds authorized operations (KIP-430).
* Version 9 is flexible (KIP-482).
* Version 10 adds topic ids (KIP-516).
* Version 11 removes the authorized operations of the cluster (KIP-700).
* Version 12 adds requests by topic id (KIP-516). Versions 10 and 11 refuse them with
  INVALID_REQUEST.
* Version 13 adds an error for the whole response (KIP-1102).
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, NewTopic, Topic, fold
from headrace.broker.config.topic_rules import check_new_topic_name, check_topic_name
from headrace.broker.limits import MAX_TOPICS_PER_TRANSACTION, SLICED_ABOVE
from headrace.broker.topic_descriptions import TopicDescriptions
from headrace.errors import ErrorCode
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.log_lines import LimitedLog, get_logger
from headrace.net.audit import Change, log_changes
from headrace.protocol.authorized_operations import Operation
from headrace.protocol.large_responses import LazyArray, Sliced
from headrace.protocol.messages import NO_THROTTLE
from headrace.security.access import AnyAccess
from headrace.security.acls import ResourceType

from .context import RequestContext
from .slicing import chunks, run_sliced, sliced

log = LimitedLog(get_logger("headrace.metadata"))

_FIRST_WITH_TOPIC_IDS = 12
"""Versions 10 and 11 have a field for topic ids, which Apache Kafka refuses."""

LEADER_EPOCH = 0
"""The leader epoch of every partition: its leader never changes."""


def handle(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Sliced | Awaitable[MetadataResponse | Sliced]:
    """Describe this broker and the topics of a request."""
    if context.api_version < _FIRST_WITH_TOPIC_IDS and any(
        asked.name is None or asked.topic_id is not None for asked in request.topics or ()
    ):
        return _refused(request)
    access = context.access
    cluster_operations = context.legacy.get("cluster_operations")
    if cluster_operations is not None:
        is_allowed = access.allows_cluster(Operation.DESCRIBE)
        cluster_operations.value = access.operations(ResourceType.CLUSTER) if is_allowed else 0
    if request.topics is None and access.is_limited:
        steps = _describe_allowed(broker, request, context)
        return run_sliced(broker, steps, len(broker.catalog.topics))
    if request.topics is None:
        if request.include_topic_authorized_operations:
            known = list(broker.catalog.topics.values())
            described = LazyArray(
                len(known), (_authorized(_described(broker.node_id, one), access) for one in known)
            )
            return Sliced(_response(broker, described, context))
        if _is_long(broker.catalog.topics.values()):
            return Sliced(_response(broker, _descriptions(broker).all(), context))
        topics = tuple(_described(broker.node_id, one) for one in broker.catalog.topics.values())
        return _response(broker, topics, context)
    return run_sliced(broker, _describe_asked(broker, request, context), len(request.topics))


def _is_long(topics: Collection[Topic]) -> bool:
    """Return whether the description of topics is written in slices."""
    return len(topics) > SLICED_ABOVE or sum(one.partitions for one in topics) > SLICED_ABOVE


def _response(broker: Broker, topics: Any, context: RequestContext) -> MetadataResponse:
    me = MetadataResponseBroker(
        node_id=broker.node_id,
        host=context.listener_host,
        port=context.listener_port,
        rack=broker.config.get_str("broker.rack"),
    )
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(me,),
        cluster_id=broker.catalog.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        error_code=ErrorCode.NONE,
    )


def _refused(request: MetadataRequest) -> MetadataResponse:
    """Refuse topic ids in a version that cannot describe topics without a name."""
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=tuple(_unknown(asked, ErrorCode.INVALID_REQUEST) for asked in request.topics),
        error_code=ErrorCode.INVALID_REQUEST,
    )


def _descriptions(broker: Broker) -> TopicDescriptions:
    """Return the descriptions of all topics, created with the first request for them."""
    if broker.topic_descriptions is None:
        describe = partial(_described, broker.node_id)
        broker.topic_descriptions = TopicDescriptions(broker.catalog, describe)
    return broker.topic_descriptions


def _describe_allowed(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> Generator[None, None, MetadataResponse | Sliced]:
    """Describe all topics that the client may see."""
    access, topics = context.access, []
    for topic in list(broker.catalog.topics.values()):
        if access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, is_audited=False):
            described = _described(broker.node_id, topic)
            if request.include_topic_authorized_operations:
                described = _authorized(described, access)
            topics.append(described)
        yield
    count = sum(1 + len(topic.partitions) for topic in topics)
    return sliced(_response(broker, tuple(topics), context), count)


def _describe_asked(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> Generator[None, None, MetadataResponse | Sliced]:
    access = context.access
    create = request.allow_auto_topic_creation and broker.config.get_bool(
        "auto.create.topics.enable"
    )
    refusals: dict[str, ErrorCode] = {}
    hidden: list[MetadataRequestTopic] = []
    visible: Sequence[MetadataRequestTopic] = request.topics
    if access.is_limited:
        visible, hidden = [], []
        for asked in request.topics:
            (visible if _may_see(broker, asked, access) else hidden).append(asked)
            yield
    if create:
        unknown = [
            asked.name
            for asked in visible
            if asked.topic_id is None
            and asked.name is not None
            and asked.name not in broker.catalog.topics
        ]
        if access.is_limited and not access.allows_cluster(Operation.CREATE, is_audited=False):
            refusals = {
                name: ErrorCode.TOPIC_AUTHORIZATION_FAILED
                for name in unknown
                if not access.allows(Operation.CREATE, ResourceType.TOPIC, name)
            }
            unknown = [name for name in unknown if name not in refusals]
        for names in chunks(list(dict.fromkeys(unknown)), MAX_TOPICS_PER_TRANSACTION):
            refusals |= _create(broker, names, context)
            yield
    topics: list[MetadataResponseTopic] = []
    for asked in visible:
        described = _asked(broker, asked, refusals)
        if (
            request.include_topic_authorized_operations
            and described.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ):
            described = _authorized(described, access)
        topics.append(described)
        yield
    topics += map(_hidden, hidden)
    count = sum(1 + len(topic.partitions) for topic in topics)
    return sliced(_response(broker, tuple(topics), context), count)


def _asked(
    broker: Broker, asked: MetadataRequestTopic, refusals: Mapping[str, ErrorCode]
) -> MetadataResponseTopic:
    """Describe a requested topic.

    :param refusals: the errors of topics that could not be created, by name
    """
    if asked.topic_id is not None:
        topic = broker.catalog.topics_by_id.get(asked.topic_id)
        return (
            _unknown(asked, ErrorCode.UNKNOWN_TOPIC_ID)
            if topic is None
            else _described(broker.node_id, topic)
        )
    if asked.name is None:
        return _unknown(asked, ErrorCode.INVALID_REQUEST)
    topic = broker.catalog.topics.get(asked.name)
    if topic is not None:
        return _described(broker.node_id, topic)
    if refusals.get(asked.name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _unknown(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if check_topic_name(asked.name) is not None:
        return _unknown(asked, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _unknown(asked, refusals.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def _may_see(broker: Broker, asked: MetadataRequestTopic, access: AnyAccess) -> bool:
    """Return whether a client may describe a requested topic; True for an unknown id."""
    name = asked.name
    if asked.topic_id is not None:
        topic = broker.catalog.topics_by_id.get(asked.topic_id)
        name = None if topic is None else topic.name
    return name is None or access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _hidden(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """Refuse a requested topic, and do not tell whether it exists."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=None if asked.topic_id is not None else asked.name,
        topic_id=asked.topic_id,
        is_internal=False,
        partitions=(),
    )


def _create(
    broker: Broker, names: Sequence[str], context: RequestContext
) -> Mapping[str, ErrorCode]:
    """Create topics in one transaction; return the errors of those that cannot be created. Topics
    beyond the client's quota of mutations are unknown for now.
    """
    refusals: dict[str, ErrorCode] = {}
    new: dict[str, NewTopic] = {}
    for name in names:
        same = new.get(fold(name))
        refusal = check_new_topic_name(
            name, broker.catalog.twin(name) or (None if same is None else same.name)
        )
        try:
            if refusal is not None:
                refusals[name] = refusal.code
            elif name in INTERNAL_TOPICS:
                broker.topic_logs.internal_topic(name)
            else:
                partitions = broker.config.get_int("num.partitions")
                charge = context.charge
                if charge is None or charge.admit_auto_creation(partitions):
                    new[fold(name)] = NewTopic(name, partitions)
        except CatalogError as error:
            log.error("clients", "cannot create the topic %s: %s", name, error)
            refusals[name] = ErrorCode.KAFKA_STORAGE_ERROR
    if new:
        try:
            broker.create_topics(list(new.values()))
        except CatalogError as error:
            log.error("clients", "cannot create topics: %s", error)
            refusals |= {one.name: ErrorCode.KAFKA_STORAGE_ERROR for one in new.values()}
        else:
            log_changes(
                "metadata",
                context,
                (Change(Operation.CREATE, "TOPIC", topic.name) for topic in new.values()),
            )
    return refusals


def _unknown(asked: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    name = asked.name
    if code == ErrorCode.UNKNOWN_TOPIC_ID:
        name = None
    elif name is None:
        name = ""  # a topic in the response has a name or an id
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=asked.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
    )


def _authorized(description: MetadataResponseTopic, access: AnyAccess) -> MetadataResponseTopic:
    """Add the authorized operations to the description of a topic that has a name."""
    if description.name is None:
        return description
    operations = access.operations(ResourceType.TOPIC, description.name)
    return replace(description, topic_authorized_operations=operations)


def _described(node_id: int, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=_partitions(node_id, topic.partitions),
    )


@lru_cache(maxsize=256)
def _partitions(node_id: int, count: int) -> tuple[MetadataResponsePartition, ...]:
    """Describe partitions. Cached: the description depends on the node and the number alone."""
    return tuple(
        MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=node_id,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=(node_id,),
            isr_nodes=(node_id,),
        )
        for index in range(count)
    )
