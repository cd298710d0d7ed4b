"""FindCoordinator (10), versions 0-6: find the coordinator of groups, transactional ids or
share-partitions.

The coordinator is always this node, at the address of the listener that received the request. Its
internal topic is created if it is missing. Apache Kafka returns COORDINATOR_NOT_AVAILABLE until the
topic exists.

Version notes:

* Version 1 adds the key type: group (as in version 0) or transactional id (KIP-98).
* Version 3 is flexible (KIP-482).
* Version 4 adds requests for several keys (KIP-699).
* Version 6 adds the key type for share-partitions (KIP-932). Such a key is
  ``group id:topic id:partition``, and is checked.
"""

from __future__ import annotations

import re
from functools import partial

from headrace.log_lines import LimitedLog
from headrace.net.api import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    ERROR_OF,
    GROUP,
    MESSAGES,
    TRANSACTIONAL_ID,
    Api,
    Inside,
)
from headrace.net.call import Call
from headrace.protocol.api import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.errors import ErrorCode, failure_of
from headrace.protocol.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

Coordinator = FindCoordinatorResponse.Coordinator

API = Api(
    10,
    Inside(DESCRIBE, GROUP, "refused for the key of a group"),
    Inside(DESCRIBE, TRANSACTIONAL_ID, "refused for the key"),
    Inside(CLUSTER_ACTION, CLUSTER, "refused for the key of a share-partition"),
)

log = LimitedLog("headrace.coordinators")

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_TOPICS = {_GROUP: CONSUMER_OFFSETS, _TRANSACTION: TRANSACTION_STATE, _SHARE: SHARE_GROUP_STATE}
_KINDS = {_GROUP: GROUP, _TRANSACTION: TRANSACTIONAL_ID}
_FIRST_WITH_SEVERAL_KEYS = 4
_FIRST_WITH_SHARE = 6
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return the coordinator of each key."""
    find = partial(_coordinator, call, request.key_type)
    if call.version >= _FIRST_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(coordinators=call.lazily(find, request.coordinator_keys))
    coordinator = find(request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _coordinator(call: Call, key_type: int, key: str) -> Coordinator:
    code = _prepare(call, key_type, key)
    if not code:
        return Coordinator(key, *call.node)
    message = ""
    # Apache Kafka has messages for missing permissions on the cluster, and of old versions.
    if call.version < _FIRST_WITH_SEVERAL_KEYS or code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        message = MESSAGES.get(code, "")
    return Coordinator(key, -1, port=-1, error_code=code, error_message=message)


def _prepare(call: Call, key_type: int, key: str) -> ErrorCode:
    """Create the internal topic of a coordinator if it is missing; return the error for the key."""
    topic = _TOPICS.get(key_type)
    if topic is None:
        return ErrorCode.INVALID_REQUEST
    kind = _KINDS.get(key_type)
    if kind is not None and not call.may(DESCRIBE, kind, key):
        return ERROR_OF[kind]
    if key_type == _SHARE:
        if call.version < _FIRST_WITH_SHARE:
            return ErrorCode.INVALID_REQUEST
        if not call.access.allows_cluster(CLUSTER_ACTION):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not _is_share_partition(key):
            return ErrorCode.INVALID_REQUEST
    failed = failure_of(call.topic_logs.internal_topic, topic)
    if failed is None:
        return ErrorCode.NONE
    log.error("clients", "cannot create the topic %s: %s", topic, failed.message)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _is_share_partition(key: str) -> bool:
    """Return True for ``group id:topic id:partition``, with the topic id in URL-safe base64.

    The group id may contain colons. Colons at the end are ignored, as in Apache Kafka.
    """
    head, _, partition = key.rstrip(":").rpartition(":")
    group_id, _, topic_id = head.rpartition(":")
    return (
        bool(group_id.strip())
        and _TOPIC_ID.fullmatch(topic_id) is not None
        and _INTEGER.fullmatch(partition) is not None
        and -(1 << 31) <= int(partition) < 1 << 31
    )
