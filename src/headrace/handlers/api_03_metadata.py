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

from collections.abc import Mapping, Sequence
from functools import lru_cache

from headrace.log.partition_log import LEADER_EPOCH
from headrace.log_lines import LimitedLog
from headrace.net.api import CLUSTER, CREATE, DESCRIBE, TOPIC, Api, Inside
from headrace.net.audit import log_changes
from headrace.net.call import Call
from headrace.protocol.api import MetadataRequest, MetadataResponse
from headrace.protocol.errors import ErrorCode, Refusal, StorageError
from headrace.protocol.internal_topics import INTERNAL_TOPICS
from headrace.protocol.schema import Encoded
from headrace.protocol.time_slices import chunks
from headrace.topics.catalog import MAX_TOPICS_PER_TRANSACTION, NOT_CREATED
from headrace.topics.catalog import Topic as CatalogTopic
from headrace.topics.topic_rules import Creation, check_topic_name

from .api_60_describe_cluster import cluster_operations

RequestTopic = MetadataRequest.MetadataRequestTopic
Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition

API = Api(
    3,
    Inside(DESCRIBE, TOPIC, "refused if it is named, else left out of the answer"),
    Inside(CREATE, CLUSTER, "CREATE on the topic is needed to create it"),
    Inside(CREATE, TOPIC, "refused if it would be created"),
    Inside(DESCRIBE, CLUSTER, "authorized operations are 0"),
)

log = LimitedLog("headrace.metadata")

_FIRST_WITH_TOPIC_IDS = 12
"""Versions 10 and 11 have a field for topic ids, which Apache Kafka refuses."""
MAX_METADATA_VERSIONS = 3
"""The versions of the response to Metadata for all topics that are kept as bytes, at about 150
bytes for each topic.
"""


async def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describe this broker and the topics of a request."""
    topics = request.topics
    if call.version == 0 and not topics:
        topics = None
    if call.version < _FIRST_WITH_TOPIC_IDS and any(
        topic.name is None or topic.topic_id is not None for topic in topics or ()
    ):
        code = ErrorCode.INVALID_REQUEST
        refused = [_refused(topic, code) for topic in topics or ()]
        return MetadataResponse(topics=refused, error_code=code)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(*call.node, call.config.get_str("broker.rack"))
        ],
        cluster_id=call.catalog.cluster_id,
        controller_id=call.node_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(call)
    if topics is not None:
        response.topics = await _named_topics(call, request, topics)
    elif call.access.is_limited or request.include_topic_authorized_operations:
        response.topics = await _visible_topics(call, request)
    else:
        response.topics = await _all_topics(call)
    return response


async def _all_topics(call: Call) -> Encoded:
    """Describe all topics. The bytes are kept until topics change: every client asks for them."""
    catalog, cache = call.catalog, call.catalog.descriptions
    described = cache.pop(call.version, None)
    if described is None or described[0] != catalog.version:
        version, topics = catalog.version, list(catalog.topics.values())
        pieces = await call.each(lambda topic: call.encode([_described(call, topic)]).data, topics)
        described = version, Encoded(len(topics), b"".join(pieces))
    cache[call.version] = described  # the last one is the one used last
    if len(cache) > MAX_METADATA_VERSIONS:
        del cache[next(iter(cache))]
    return described[1]


async def _visible_topics(call: Call, request: MetadataRequest) -> list[Topic]:
    """Describe all topics that the client may see."""
    sees, descriptions = call.sees_topic(), []
    for topic in list(call.catalog.topics.values()):
        if sees is None or sees(topic.name):
            description = _described(call, topic)
            if request.include_topic_authorized_operations:
                _add_operations(call, description)
            descriptions.append(description)
        await call.pause()
    return descriptions


async def _named_topics(
    call: Call, request: MetadataRequest, topics: Sequence[RequestTopic]
) -> list[Topic]:
    """Describe the topics that a request names, and create those that do not exist."""
    visible, hidden = [], []
    for topic in topics:
        if call.may_use_topic(DESCRIBE, topic.topic_id or topic.name):
            visible.append(topic)
        else:  # it is not told whether it exists
            name = topic.name if topic.topic_id is None else None
            hidden.append(Topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic.topic_id))
        await call.pause()
    refusals: Mapping[str, ErrorCode] = {}
    if request.allow_auto_topic_creation and call.config.get_bool("auto.create.topics.enable"):
        refusals = await _create_unknown(call, visible)

    def describe(topic: RequestTopic) -> Topic:
        description = _describe(call, topic, refusals)
        if (
            request.include_topic_authorized_operations
            and description.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ):
            _add_operations(call, description)
        return description

    return await call.each(describe, visible) + hidden


async def _create_unknown(call: Call, topics: Sequence[RequestTopic]) -> Mapping[str, ErrorCode]:
    """Create the topics that do not exist; return the errors of those that cannot be created."""
    unknown = dict.fromkeys(
        topic.name
        for topic in topics
        if topic.topic_id is None
        and topic.name is not None
        and topic.name not in call.catalog.topics
    )
    refusals: dict[str, ErrorCode] = {}
    if not call.access.allows_cluster(CREATE, is_audited=False):
        for name in list(unknown):
            if not call.may(CREATE, TOPIC, name):
                refusals[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                del unknown[name]
    try:
        for names in chunks(list(unknown), MAX_TOPICS_PER_TRANSACTION):
            refusals |= _create(call, names)
            await call.pause()
    finally:  # also when the client goes
        log_changes(call)
    return refusals


def _create(call: Call, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Create topics in one transaction; return the errors of those that cannot be created. Topics
    beyond the client's quota of mutations are unknown for now.
    """
    refusals: dict[str, ErrorCode] = {}
    creation = Creation(call.catalog)
    for name in names:
        if refusal := creation.check_name(name):
            refusals[name] = refusal.code
        elif name in INTERNAL_TOPICS:
            try:
                call.topic_logs.internal_topic(name)
            except StorageError as error:
                log.error("clients", "cannot create the topic %s: %s", name, error)
                refusals[name] = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            partitions = call.config.get_int("num.partitions")
            if call.admits_auto_creation(partitions):
                creation.plan(CatalogTopic(name, NOT_CREATED, partitions))
    for name, topic in creation.create().items():
        if isinstance(topic, Refusal):
            log.error("clients", "cannot create topics: %s", topic.message)
            refusals[name] = topic.code
        else:
            call.changed(CREATE, TOPIC, name)
    return refusals


def _describe(call: Call, topic: RequestTopic, refusals: Mapping[str, ErrorCode]) -> Topic:
    """Describe a requested topic.

    :param refusals: the errors of topics that could not be created, by name
    """
    name, present = topic.name, call.catalog.find(topic.topic_id, topic.name)
    if present is not None:
        return _described(call, present)
    if topic.topic_id is not None:
        return _refused(topic, ErrorCode.UNKNOWN_TOPIC_ID)
    if name is None:
        return _refused(topic, ErrorCode.INVALID_REQUEST)
    code = refusals.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if code != ErrorCode.TOPIC_AUTHORIZATION_FAILED and check_topic_name(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _refused(topic, code)


def _refused(topic: RequestTopic, code: ErrorCode) -> Topic:
    # A topic in the response has a name or an id.
    name = None if code == ErrorCode.UNKNOWN_TOPIC_ID else topic.name or ""
    return Topic(code, name, topic.topic_id, name in INTERNAL_TOPICS)


def _add_operations(call: Call, description: Topic) -> None:
    """Add the authorized operations to the description of a topic that has a name."""
    if description.name is not None:
        operations = call.access.operations(TOPIC, description.name)
        description.topic_authorized_operations = operations


def _described(call: Call, topic: CatalogTopic) -> Topic:
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=_partitions(call.version, call.node_id, topic.partitions),
    )


@lru_cache(maxsize=256)
def _partitions(version: int, node_id: int, count: int) -> Encoded:
    """Describe partitions. Kept: the description depends on the node and the number alone."""
    return API.response.encode(
        version,
        [
            Partition(
                partition_index=index,
                leader_id=node_id,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=(node_id,),
                isr_nodes=(node_id,),
            )
            for index in range(count)
        ],
    )
