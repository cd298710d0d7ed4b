"""Messages that kio does not have, beside the bytes of Apache Kafka 4.4's Java classes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.serial import entity_reader

from headrace.protocol.schema import schema_of
from tests.handler_client import message_of
from tests.kio_messages import request_type, response_type
from tests.protocol.kio_bytes import written

TOPIC_ID = uuid.UUID(bytes=bytes(range(16)))
NODE = {
    "name": "n",
    "node_type": 1,
    "source_topics": ["s"],
    "stores": ["st"],
    "successors": ["x"],
}

REQUESTS: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {
    (18, 5): (
        "02630231026b0000000300",
        {
            "client_software_name": "c",
            "client_software_version": "1",
            "cluster_id": "k",
            "node_id": 3,
        },
    ),
    (28, 6): (
        "027402670000000000000005000100000002026d0002000102030405060708090a0b0c0d0e0f"
        "02000000010000000000000009000000040264000000",
        {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": 5,
            "producer_epoch": 1,
            "generation_id_or_member_epoch": 2,
            "member_id": "m",
            "topics": [
                {
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "partition_index": 1,
                            "committed_offset": 9,
                            "committed_leader_epoch": 4,
                            "committed_metadata": "d",
                        }
                    ],
                }
            ],
        },
    ),
    (42, 3): ("02026700", {"groups_names": ["g"]}),
    (88, 1): (
        "0267026d00000001000000000000ffffffffff00000000ff0002023000000001000000000000000700000000",
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 1,
            "rebalance_timeout_ms": -1,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
            "client_tags": None,
            "task_offsets": [{"subtopology_id": "0", "partition": 1, "offset": 7}],
            "task_end_offsets": None,
        },
    ),
    (89, 1): (
        "020267010100",
        {
            "group_ids": ["g"],
            "include_authorized_operations": True,
            "include_topology_description": True,
        },
    ),
    (93, 0): (
        "0267026d0000000202023002026e010202730002037374020278000002026e01020273000203737402027800"
        "026b0301026f010100000000",
        {
            "group_id": "g",
            "member_id": "m",
            "topology_epoch": 2,
            "topology_description": {
                "subtopologies": [{"subtopology_id": "0", "nodes": [NODE]}],
                "global_stores": [
                    {
                        "source": NODE,
                        "processor": {"name": "k", "node_type": 3, "sink_topic": "o"},
                    }
                ],
            },
        },
    ),
    (94, 0): ("0000000300", {"controller_id": 3}),
}
RESPONSES: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {
    (18, 5): (
        "0000020012000000050000000000020008020266000000020001080000000000000007",
        {
            "error_code": 0,
            "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 5}],
            "supported_features": [{"name": "f", "min_version": 0, "max_version": 2}],
            "finalized_features_epoch": 7,
        },
    ),
    (28, 6): (
        "0000000002000102030405060708090a0b0c0d0e0f02000000010064000000",
        {
            "topics": [
                {
                    "topic_id": TOPIC_ID,
                    "partitions": [{"partition_index": 1, "error_code": 100}],
                }
            ]
        },
    ),
    (42, 3): (
        "000000000302670044047768790002680000000000",
        {
            "results": [
                {"group_id": "g", "error_code": 68, "error_message": "why"},
                {"group_id": "h", "error_code": 0},
            ]
        },
    ),
    (88, 1): (
        "00000000000000026d00000001000013880000ea6000000000000027100206027400020230020000000100000001"
        "000000020000",
        {
            "error_code": 0,
            "member_id": "m",
            "member_epoch": 1,
            "heartbeat_interval_ms": 5_000,
            "task_offset_interval_ms": 60_000,
            "acceptable_recovery_lag": 10_000,
            "status": [{"status_code": 6, "status_detail": "t"}],
            "active_tasks": [{"subtopology_id": "0", "partitions": (1,)}],
            "standby_tasks": None,
            "warmup_tasks": None,
            "topology_description_required": True,
            "endpoint_information_epoch": 2,
            "partitions_by_user_endpoint": None,
        },
    ),
    (89, 1): (
        "0000000002000000026706456d7074790000000200000001ff0180000000010101000307737469636b790000",
        {
            "groups": [
                {
                    "error_code": 0,
                    "group_id": "g",
                    "group_state": "Empty",
                    "group_epoch": 2,
                    "assignment_epoch": 1,
                    "topology_description": {"subtopologies": [], "global_stores": []},
                    "topology_description_status": 3,
                    "assignor_name": "sticky",
                }
            ]
        },
    ),
    (93, 0): ("000000000023036e6f00", {"error_code": 35, "error_message": "no"}),
    (94, 0): ("00000000002a036e6f00", {"error_code": 42, "error_message": "no"}),
}


CASES = [
    *(("request", request_type, *case, *REQUESTS[case]) for case in REQUESTS),
    *(("response", response_type, *case, *RESPONSES[case]) for case in RESPONSES),
]


@pytest.mark.parametrize(("kind", "kio_type", "key", "version", "java", "fields"), CASES)
def test_messages_are_those_of_java(
    kind: str, kio_type: Any, key: int, version: int, java: str, fields: dict[str, Any]
) -> None:
    message_type = schema_of(kind, key).message_type
    assert message_of(message_type, **fields).encoded(version).hex() == java
    assert message_type.read(version, bytes.fromhex(java)).encoded(version).hex() == java
    of_kio, _ = entity_reader(kio_type(key, version))(bytes.fromhex(java), 0)
    assert written(of_kio).hex() == java
