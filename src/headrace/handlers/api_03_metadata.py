"""Metadata (3), versions 0-13: describe the broker and topics.

A requested topic that does not exist is created if the client and ``auto.create.topics.enable``
allow it, and described at once. Apache Kafka first returns UNKNOWN_TOPIC_OR_PARTITION, and the
client retries.

Version notes:

* Version 1 adds the controller id, racks and the internal flag. Null topics request all topics;
  in version 0 an empty array does.
* Version 2 adds the cluster id (KIP-78).
* Version 4 adds ``allow_auto_topic_creation``.
* Version 5 adds offline replicas (KIP-112).
* Version 7 adds leader epochs (KIP-320).

* Version 8 adds authorized operations (KIP-430), which are not computed here.
* Version 9 is flexible (KIP-482).
* Version 10 adds topic ids (KIP-516).
* Version 11 removes the authorized operations of the cluster (KIP-700).
* Version 12 adds requests by topic id (KIP-516). Versions 10 and 11 refuse them with
  INVALID_REQUEST.

* Version 13 adds an error for the whole response (KIP-1102).
"""

from __future__ import annotations

from functools import lru_cache

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from headrace.broker.broker import Broker
from headrace.broker.catalog import CatalogError, Topic
from headrace.broker.config.broker_config import NODE_ID
from headrace.broker.config.topic_rules import check_new_topic_name, check_topic_name
from headrace.errors import ErrorCode
from headrace.internal_topics import INTERNAL_TOPICS
from headrace.log_lines import LimitedLog, get_logger
from headrace.protocol.messages import NO_THROTTLE

from .context import RequestContext

log = LimitedLog(get_logger("headrace.metadata"))

_FIRST_WITH_TOPIC_IDS = 12
"""Versions 10 and 11 have a field for topic ids, which Apache Kafka refuses."""

LEADER_EPOCH = 0
"""The leader epoch of every partition: its leader never changes."""


def handle(broker: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe this broker and the topics of a request."""
    if context.api_version < _FIRST_WITH_TOPIC_IDS and any(
        asked.name is None or asked.topic_id is not None for asked in request.topics or ()
    ):
        return _refused(request)
    if request.topics is None:
        topics = tuple(map(_described, broker.catalog.topics.values()))
    else:
        create = request.allow_auto_topic_creation and broker.config.get_bool(
            "auto.create.topics.enable"
        )
        topics = tuple(_asked(broker, asked, create) for asked in request.topics)
    me = MetadataResponseBroker(
        node_id=NODE_ID,
        host=context.listener_host,
        port=context.listener_port,
        rack=broker.config.get_str("broker.rack"),
    )
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(me,),
        cluster_id=broker.catalog.cluster_id,
        controller_id=NODE_ID,
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


def _asked(broker: Broker, asked: MetadataRequestTopic, create: bool) -> MetadataResponseTopic:
    if asked.topic_id is not None:
        topic = broker.catalog.topics_by_id.get(asked.topic_id)
        return _unknown(asked, ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else _described(topic)
    if asked.name is None:
        return _unknown(asked, ErrorCode.INVALID_REQUEST)
    topic = broker.catalog.topics.get(asked.name)
    if topic is None and check_topic_name(asked.name) is not None:
        return _unknown(asked, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if topic is None:
        found = _create(broker, asked.name) if create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(found, ErrorCode):
            return _unknown(asked, found)
        topic = found
    return _described(topic)


def _create(broker: Broker, name: str) -> Topic | ErrorCode:
    refusal = check_new_topic_name(name, broker.catalog.twin(name))
    if refusal is not None:
        return refusal.code
    try:
        if name in INTERNAL_TOPICS:
            return broker.topic_logs.internal_topic(name)
        return broker.create_topic(name, broker.config.get_int("num.partitions"))
    except CatalogError as error:
        log.error("clients", "cannot create the topic %s: %s", name, error)
        return ErrorCode.KAFKA_STORAGE_ERROR


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


def _described(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=_partitions(topic.partitions),
    )


@lru_cache(maxsize=256)
def _partitions(count: int) -> tuple[MetadataResponsePartition, ...]:
    """Describe partitions. Cached: the description depends on their number alone."""
    return tuple(
        MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=NODE_ID,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=(NODE_ID,),
            isr_nodes=(NODE_ID,),
        )
        for index in range(count)
    )
