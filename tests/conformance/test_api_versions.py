"""The versions of each API that Apache Kafka 4.4.0 advertises, and those that it refuses."""

from __future__ import annotations

import struct

import pytest

from tests.conformance.world import OK, World, outcome

DESCRIBE_CLUSTER = 60

ADVERTISED = {
    0: (0, 13),  # Produce; 0-2 are refused
    1: (4, 18),  # Fetch
    2: (1, 11),  # ListOffsets
    3: (0, 13),  # Metadata
    8: (2, 10),  # OffsetCommit
    9: (1, 10),  # OffsetFetch
    10: (0, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    17: (0, 1),  # SaslHandshake
    18: (0, 5),  # ApiVersions
    19: (2, 7),  # CreateTopics
    20: (1, 6),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 5),  # InitProducerId; 6 is unstable
    23: (2, 4),  # OffsetForLeaderEpoch
    24: (0, 5),  # AddPartitionsToTxn
    25: (0, 4),  # AddOffsetsToTxn
    26: (0, 5),  # EndTxn
    27: (1, 2),  # WriteTxnMarkers
    28: (0, 6),  # TxnOffsetCommit
    29: (1, 3),  # DescribeAcls
    30: (1, 3),  # CreateAcls
    31: (1, 3),  # DeleteAcls
    32: (1, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    34: (1, 2),  # AlterReplicaLogDirs
    35: (1, 5),  # DescribeLogDirs
    36: (0, 2),  # SaslAuthenticate
    37: (0, 3),  # CreatePartitions
    38: (1, 3),  # CreateDelegationToken
    39: (1, 2),  # RenewDelegationToken
    40: (1, 2),  # ExpireDelegationToken
    41: (1, 3),  # DescribeDelegationToken
    42: (0, 3),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 1),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    47: (0, 0),  # OffsetDelete
    48: (0, 1),  # DescribeClientQuotas
    49: (0, 1),  # AlterClientQuotas
    50: (0, 0),  # DescribeUserScramCredentials
    51: (0, 0),  # AlterUserScramCredentials
    55: (0, 2),  # DescribeQuorum
    57: (0, 2),  # UpdateFeatures
    60: (0, 2),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    64: (0, 0),  # UnregisterBroker
    65: (0, 0),  # DescribeTransactions
    66: (0, 2),  # ListTransactions
    68: (0, 1),  # ConsumerGroupHeartbeat
    69: (0, 1),  # ConsumerGroupDescribe
    74: (0, 1),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
    76: (1, 1),  # ShareGroupHeartbeat
    77: (1, 1),  # ShareGroupDescribe
    78: (1, 2),  # ShareFetch
    79: (1, 2),  # ShareAcknowledge
    80: (0, 1),  # AddRaftVoter
    81: (0, 0),  # RemoveRaftVoter
    83: (0, 0),  # InitializeShareGroupState
    84: (0, 0),  # ReadShareGroupState
    85: (0, 1),  # WriteShareGroupState
    86: (0, 0),  # DeleteShareGroupState
    87: (0, 1),  # ReadShareGroupStateSummary
    88: (0, 1),  # StreamsGroupHeartbeat
    89: (0, 1),  # StreamsGroupDescribe
    90: (0, 1),  # DescribeShareGroupOffsets
    91: (0, 0),  # AlterShareGroupOffsets
    92: (0, 0),  # DeleteShareGroupOffsets
    93: (0, 0),  # StreamsGroupTopologyDescriptionUpdate
    94: (0, 0),  # UnregisterController
}
"""Lowest and highest version by API key, of a broker with the default configuration."""

NO_PRODUCER = struct.pack(">iqh", 1000, -1, -1)
UNSERVED = {
    **{(0, version): struct.pack(">hii", -1, 1000, 0) for version in (0, 1, 2)},
    (22, 6): b"\0\0" + NO_PRODUCER + b"\0\0\0",
    (1, 3): struct.pack(">iiiii", -1, 0, 0, 1000, 0),
    (6, 0): b"",
    (99, 0): b"",
}
"""Requests in versions that are not served, by API key and version."""


def test_versions_are_those_of_apache_kafka(world: World, target: str) -> None:
    advertised = world.connection.api_versions()
    assert advertised == {api_key: ADVERTISED[api_key] for api_key in advertised}
    if target == "kafka":
        assert advertised == ADVERTISED


def test_a_client_names_the_broker_that_it_means(world: World) -> None:
    cluster = world.connection.ask(DESCRIBE_CLUSTER, 0)
    cluster_id, node_id = cluster.cluster_id, cluster.brokers[0].broker_id
    software = {"client_software_name": "c", "client_software_version": "1"}
    for cluster_named, node_named, expected in (
        (None, -1, OK),
        (cluster_id, node_id, OK),
        (cluster_id, node_id + 1, "REBOOTSTRAP_REQUIRED"),
        ("another", node_id, "REBOOTSTRAP_REQUIRED"),
        ("", node_id, "REBOOTSTRAP_REQUIRED"),
        (None, node_id, "INVALID_REQUEST"),
        (cluster_id, -1, "INVALID_REQUEST"),
    ):
        connection = world.connect()
        answer = connection.ask(18, 5, cluster_id=cluster_named, node_id=node_named, **software)
        assert outcome(answer.error_code) == expected, (cluster_named, node_named)
        assert bool(answer.api_keys) is bool(answer.finalized_features) is (expected == OK)
        assert connection.api_versions()  # it goes on


@pytest.mark.parametrize("version", range(3, 6))
def test_invalid_software_names_get_no_versions(world: World, version: int) -> None:
    answer = world.connect().ask(
        18, version, client_software_name="-", client_software_version="1", node_id=-1
    )
    assert (outcome(answer.error_code), answer.api_keys) == ("INVALID_REQUEST", ())


@pytest.mark.parametrize("asked", UNSERVED)
def test_a_version_that_is_not_served_closes_the_connection(
    world: World, asked: tuple[int, int]
) -> None:
    connection = world.connect()
    connection.send_body(*asked, UNSERVED[asked])
    assert connection.receive() is None
    assert world.connect().api_versions()
