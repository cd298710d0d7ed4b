# Written by scripts/schemas.py --stub.
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from .schema import Message

class ProduceRequest(Message):
    class TopicProduceData(Message):
        name: str
        topic_id: UUID | None
        partition_data: Sequence[ProduceRequest.PartitionProduceData]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partition_data: Sequence[ProduceRequest.PartitionProduceData] = ...,
        ) -> None: ...

    class PartitionProduceData(Message):
        index: int
        records: Any
        def __init__(self, index: int = ..., records: Any = ...) -> None: ...

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: Sequence[ProduceRequest.TopicProduceData]
    def __init__(
        self,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: Sequence[ProduceRequest.TopicProduceData] = ...,
    ) -> None: ...

class FetchRequest(Message):
    class ReplicaState(Message):
        replica_id: int
        replica_epoch: int
        def __init__(self, replica_id: int = ..., replica_epoch: int = ...) -> None: ...

    class FetchTopic(Message):
        topic: str
        topic_id: UUID | None
        partitions: Sequence[FetchRequest.FetchPartition]
        def __init__(
            self,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[FetchRequest.FetchPartition] = ...,
        ) -> None: ...

    class FetchPartition(Message):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: UUID | None
        high_watermark: int
        def __init__(
            self,
            partition: int = ...,
            current_leader_epoch: int = ...,
            fetch_offset: int = ...,
            last_fetched_epoch: int = ...,
            log_start_offset: int = ...,
            partition_max_bytes: int = ...,
            replica_directory_id: UUID | None = ...,
            high_watermark: int = ...,
        ) -> None: ...

    class ForgottenTopic(Message):
        topic: str
        topic_id: UUID | None
        partitions: Sequence[int]
        def __init__(
            self, topic: str = ..., topic_id: UUID | None = ..., partitions: Sequence[int] = ...
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchRequest.FetchTopic]
    forgotten_topics_data: Sequence[FetchRequest.ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: FetchRequest.ReplicaState = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: Sequence[FetchRequest.FetchTopic] = ...,
        forgotten_topics_data: Sequence[FetchRequest.ForgottenTopic] = ...,
        rack_id: str = ...,
    ) -> None: ...

class FindCoordinatorRequest(Message):
    key: str
    key_type: int
    coordinator_keys: Sequence[str]
    def __init__(
        self, key: str = ..., key_type: int = ..., coordinator_keys: Sequence[str] = ...
    ) -> None: ...

class JoinGroupRequest(Message):
    class JoinGroupRequestProtocol(Message):
        name: str
        metadata: bytes | memoryview
        def __init__(self, name: str = ..., metadata: bytes | memoryview = ...) -> None: ...

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: Sequence[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    def __init__(
        self,
        group_id: str = ...,
        session_timeout_ms: int = ...,
        rebalance_timeout_ms: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str = ...,
        protocols: Sequence[JoinGroupRequest.JoinGroupRequestProtocol] = ...,
        reason: str | None = ...,
    ) -> None: ...

class HeartbeatRequest(Message):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(
        self,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
    ) -> None: ...

class LeaveGroupRequest(Message):
    class MemberIdentity(Message):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    members: Sequence[LeaveGroupRequest.MemberIdentity]
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        members: Sequence[LeaveGroupRequest.MemberIdentity] = ...,
    ) -> None: ...

class SyncGroupRequest(Message):
    class SyncGroupRequestAssignment(Message):
        member_id: str
        assignment: bytes | memoryview
        def __init__(self, member_id: str = ..., assignment: bytes | memoryview = ...) -> None: ...

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Sequence[SyncGroupRequest.SyncGroupRequestAssignment]
    def __init__(
        self,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignments: Sequence[SyncGroupRequest.SyncGroupRequestAssignment] = ...,
    ) -> None: ...

class DescribeGroupsRequest(Message):
    groups: Sequence[str]
    include_authorized_operations: bool
    def __init__(
        self, groups: Sequence[str] = ..., include_authorized_operations: bool = ...
    ) -> None: ...

class ListGroupsRequest(Message):
    states_filter: Sequence[str]
    types_filter: Sequence[str]
    def __init__(
        self, states_filter: Sequence[str] = ..., types_filter: Sequence[str] = ...
    ) -> None: ...

class SaslHandshakeRequest(Message):
    mechanism: str
    def __init__(self, mechanism: str = ...) -> None: ...

class ApiVersionsRequest(Message):
    client_software_name: str
    client_software_version: str
    cluster_id: str | None
    node_id: int
    def __init__(
        self,
        client_software_name: str = ...,
        client_software_version: str = ...,
        cluster_id: str | None = ...,
        node_id: int = ...,
    ) -> None: ...

class CreateTopicsRequest(Message):
    class CreatableTopic(Message):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: Sequence[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: Sequence[CreateTopicsRequest.CreatableTopicConfig]
        def __init__(
            self,
            name: str = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            assignments: Sequence[CreateTopicsRequest.CreatableReplicaAssignment] = ...,
            configs: Sequence[CreateTopicsRequest.CreatableTopicConfig] = ...,
        ) -> None: ...

    class CreatableReplicaAssignment(Message):
        partition_index: int
        broker_ids: Sequence[int]
        def __init__(self, partition_index: int = ..., broker_ids: Sequence[int] = ...) -> None: ...

    class CreatableTopicConfig(Message):
        name: str
        value: str | None
        def __init__(self, name: str = ..., value: str | None = ...) -> None: ...

    topics: Sequence[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        topics: Sequence[CreateTopicsRequest.CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class ListOffsetsRequest(Message):
    class ListOffsetsTopic(Message):
        name: str
        partitions: Sequence[ListOffsetsRequest.ListOffsetsPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[ListOffsetsRequest.ListOffsetsPartition] = ...,
        ) -> None: ...

    class ListOffsetsPartition(Message):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        def __init__(
            self, partition_index: int = ..., current_leader_epoch: int = ..., timestamp: int = ...
        ) -> None: ...

    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: Sequence[ListOffsetsRequest.ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteTopicsRequest(Message):
    class DeleteTopicState(Message):
        name: str | None
        topic_id: UUID | None
        def __init__(self, name: str | None = ..., topic_id: UUID | None = ...) -> None: ...

    topics: Sequence[DeleteTopicsRequest.DeleteTopicState]
    topic_names: Sequence[str]
    timeout_ms: int
    def __init__(
        self,
        topics: Sequence[DeleteTopicsRequest.DeleteTopicState] = ...,
        topic_names: Sequence[str] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteRecordsRequest(Message):
    class DeleteRecordsTopic(Message):
        name: str
        partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[DeleteRecordsRequest.DeleteRecordsPartition] = ...,
        ) -> None: ...

    class DeleteRecordsPartition(Message):
        partition_index: int
        offset: int
        def __init__(self, partition_index: int = ..., offset: int = ...) -> None: ...

    topics: Sequence[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self, topics: Sequence[DeleteRecordsRequest.DeleteRecordsTopic] = ..., timeout_ms: int = ...
    ) -> None: ...

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    def __init__(
        self,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        enable2_pc: bool = ...,
        keep_prepared_txn: bool = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    class OffsetForLeaderTopic(Message):
        topic: str
        partitions: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        def __init__(
            self,
            topic: str = ...,
            partitions: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...,
        ) -> None: ...

    class OffsetForLeaderPartition(Message):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        def __init__(
            self, partition: int = ..., current_leader_epoch: int = ..., leader_epoch: int = ...
        ) -> None: ...

    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    def __init__(
        self,
        replica_id: int = ...,
        topics: Sequence[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(Message):
    class AddPartitionsToTxnTopic(Message):
        name: str
        partitions: Sequence[int]
        def __init__(self, name: str = ..., partitions: Sequence[int] = ...) -> None: ...

    class AddPartitionsToTxnTransaction(Message):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        def __init__(
            self,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            verify_only: bool = ...,
            topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
        ) -> None: ...

    transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    def __init__(
        self,
        transactions: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(
        self,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        group_id: str = ...,
    ) -> None: ...

class EndTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(
        self,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        committed: bool = ...,
    ) -> None: ...

class WriteTxnMarkersRequest(Message):
    class WritableTxnMarker(Message):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: Sequence[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(
            self,
            producer_id: int = ...,
            producer_epoch: int = ...,
            transaction_result: bool = ...,
            topics: Sequence[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = ...,
            transaction_version: int = ...,
        ) -> None: ...

    class WritableTxnMarkerTopic(Message):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...

    markers: Sequence[WriteTxnMarkersRequest.WritableTxnMarker]
    def __init__(
        self, markers: Sequence[WriteTxnMarkersRequest.WritableTxnMarker] = ...
    ) -> None: ...

class TxnOffsetCommitRequest(Message):
    class TxnOffsetCommitRequestTopic(Message):
        name: str
        topic_id: UUID | None
        partitions: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...,
        ) -> None: ...

    class TxnOffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            committed_metadata: str | None = ...,
        ) -> None: ...

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: Sequence[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...,
    ) -> None: ...

class DescribeAclsRequest(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class MetadataRequest(Message):
    class MetadataRequestTopic(Message):
        topic_id: UUID | None
        name: str | None
        def __init__(self, topic_id: UUID | None = ..., name: str | None = ...) -> None: ...

    topics: Sequence[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(
        self,
        topics: Sequence[MetadataRequest.MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = ...,
        include_cluster_authorized_operations: bool = ...,
        include_topic_authorized_operations: bool = ...,
    ) -> None: ...

class CreateAclsRequest(Message):
    class AclCreation(Message):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            resource_pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    creations: Sequence[CreateAclsRequest.AclCreation]
    def __init__(self, creations: Sequence[CreateAclsRequest.AclCreation] = ...) -> None: ...

class DeleteAclsRequest(Message):
    class DeleteAclsFilter(Message):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(
            self,
            resource_type_filter: int = ...,
            resource_name_filter: str | None = ...,
            pattern_type_filter: int = ...,
            principal_filter: str | None = ...,
            host_filter: str | None = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    filters: Sequence[DeleteAclsRequest.DeleteAclsFilter]
    def __init__(self, filters: Sequence[DeleteAclsRequest.DeleteAclsFilter] = ...) -> None: ...

class DescribeConfigsRequest(Message):
    class DescribeConfigsResource(Message):
        resource_type: int
        resource_name: str
        configuration_keys: Sequence[str] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configuration_keys: Sequence[str] | None = ...,
        ) -> None: ...

    resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
    ) -> None: ...

class AlterConfigsRequest(Message):
    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: Sequence[AlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[AlterConfigsRequest.AlterableConfig] = ...,
        ) -> None: ...

    class AlterableConfig(Message):
        name: str
        value: str | None
        def __init__(self, name: str = ..., value: str | None = ...) -> None: ...

    resources: Sequence[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        resources: Sequence[AlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterReplicaLogDirsRequest(Message):
    class AlterReplicaLogDir(Message):
        path: str
        topics: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]
        def __init__(
            self,
            path: str = ...,
            topics: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...,
        ) -> None: ...

    class AlterReplicaLogDirTopic(Message):
        name: str
        partitions: Sequence[int]
        def __init__(self, name: str = ..., partitions: Sequence[int] = ...) -> None: ...

    dirs: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    def __init__(
        self, dirs: Sequence[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...
    ) -> None: ...

class DescribeLogDirsRequest(Message):
    class DescribableLogDirTopic(Message):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...

    topics: Sequence[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    def __init__(
        self, topics: Sequence[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...
    ) -> None: ...

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes | memoryview
    def __init__(self, auth_bytes: bytes | memoryview = ...) -> None: ...

class CreatePartitionsRequest(Message):
    class CreatePartitionsTopic(Message):
        name: str
        count: int
        assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        def __init__(
            self,
            name: str = ...,
            count: int = ...,
            assignments: Sequence[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...,
        ) -> None: ...

    class CreatePartitionsAssignment(Message):
        broker_ids: Sequence[int]
        def __init__(self, broker_ids: Sequence[int] = ...) -> None: ...

    topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreateDelegationTokenRequest(Message):
    class CreatableRenewers(Message):
        principal_type: str
        principal_name: str
        def __init__(self, principal_type: str = ..., principal_name: str = ...) -> None: ...

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: Sequence[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime_ms: int
    def __init__(
        self,
        owner_principal_type: str | None = ...,
        owner_principal_name: str | None = ...,
        renewers: Sequence[CreateDelegationTokenRequest.CreatableRenewers] = ...,
        max_lifetime_ms: int = ...,
    ) -> None: ...

class RenewDelegationTokenRequest(Message):
    hmac: bytes | memoryview
    renew_period_ms: int
    def __init__(self, hmac: bytes | memoryview = ..., renew_period_ms: int = ...) -> None: ...

class ExpireDelegationTokenRequest(Message):
    hmac: bytes | memoryview
    expiry_time_period_ms: int
    def __init__(
        self, hmac: bytes | memoryview = ..., expiry_time_period_ms: int = ...
    ) -> None: ...

class DescribeDelegationTokenRequest(Message):
    class DescribeDelegationTokenOwner(Message):
        principal_type: str
        principal_name: str
        def __init__(self, principal_type: str = ..., principal_name: str = ...) -> None: ...

    owners: Sequence[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
    def __init__(
        self,
        owners: Sequence[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...,
    ) -> None: ...

class DeleteGroupsRequest(Message):
    groups_names: Sequence[str]
    def __init__(self, groups_names: Sequence[str] = ...) -> None: ...

class ElectLeadersRequest(Message):
    class TopicPartitions(Message):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...

    election_type: int
    topic_partitions: Sequence[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    def __init__(
        self,
        election_type: int = ...,
        topic_partitions: Sequence[ElectLeadersRequest.TopicPartitions] | None = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Sequence[IncrementalAlterConfigsRequest.AlterableConfig] = ...,
        ) -> None: ...

    class AlterableConfig(Message):
        name: str
        config_operation: int
        value: str | None
        def __init__(
            self, name: str = ..., config_operation: int = ..., value: str | None = ...
        ) -> None: ...

    resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        resources: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterPartitionReassignmentsRequest(Message):
    class ReassignableTopic(Message):
        name: str
        partitions: Sequence[AlterPartitionReassignmentsRequest.ReassignablePartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...,
        ) -> None: ...

    class ReassignablePartition(Message):
        partition_index: int
        replicas: Sequence[int] | None
        def __init__(
            self, partition_index: int = ..., replicas: Sequence[int] | None = ...
        ) -> None: ...

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequest.ReassignableTopic]
    def __init__(
        self,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: Sequence[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...,
    ) -> None: ...

class ListPartitionReassignmentsRequest(Message):
    class ListPartitionReassignmentsTopics(Message):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...

    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    def __init__(
        self,
        timeout_ms: int = ...,
        topics: Sequence[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics]
        | None = ...,
    ) -> None: ...

class OffsetDeleteRequest(Message):
    class OffsetDeleteRequestTopic(Message):
        name: str
        partitions: Sequence[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Sequence[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...,
        ) -> None: ...

    class OffsetDeleteRequestPartition(Message):
        partition_index: int
        def __init__(self, partition_index: int = ...) -> None: ...

    group_id: str
    topics: Sequence[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...,
    ) -> None: ...

class DescribeClientQuotasRequest(Message):
    class ComponentData(Message):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(
            self, entity_type: str = ..., match_type: int = ..., match: str | None = ...
        ) -> None: ...

    components: Sequence[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    def __init__(
        self,
        components: Sequence[DescribeClientQuotasRequest.ComponentData] = ...,
        strict: bool = ...,
    ) -> None: ...

class AlterClientQuotasRequest(Message):
    class EntryData(Message):
        entity: Sequence[AlterClientQuotasRequest.EntityData]
        ops: Sequence[AlterClientQuotasRequest.OpData]
        def __init__(
            self,
            entity: Sequence[AlterClientQuotasRequest.EntityData] = ...,
            ops: Sequence[AlterClientQuotasRequest.OpData] = ...,
        ) -> None: ...

    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(self, entity_type: str = ..., entity_name: str | None = ...) -> None: ...

    class OpData(Message):
        key: str
        value: float
        remove: bool
        def __init__(self, key: str = ..., value: float = ..., remove: bool = ...) -> None: ...

    entries: Sequence[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    def __init__(
        self, entries: Sequence[AlterClientQuotasRequest.EntryData] = ..., validate_only: bool = ...
    ) -> None: ...

class DescribeUserScramCredentialsRequest(Message):
    class UserName(Message):
        name: str
        def __init__(self, name: str = ...) -> None: ...

    users: Sequence[DescribeUserScramCredentialsRequest.UserName] | None
    def __init__(
        self, users: Sequence[DescribeUserScramCredentialsRequest.UserName] | None = ...
    ) -> None: ...

class AlterUserScramCredentialsRequest(Message):
    class ScramCredentialDeletion(Message):
        name: str
        mechanism: int
        def __init__(self, name: str = ..., mechanism: int = ...) -> None: ...

    class ScramCredentialUpsertion(Message):
        name: str
        mechanism: int
        iterations: int
        salt: bytes | memoryview
        salted_password: bytes | memoryview
        def __init__(
            self,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes | memoryview = ...,
            salted_password: bytes | memoryview = ...,
        ) -> None: ...

    deletions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    def __init__(
        self,
        deletions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...,
        upsertions: Sequence[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...,
    ) -> None: ...

class DescribeQuorumRequest(Message):
    class TopicData(Message):
        topic_name: str
        partitions: Sequence[DescribeQuorumRequest.PartitionData]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Sequence[DescribeQuorumRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition_index: int
        def __init__(self, partition_index: int = ...) -> None: ...

    topics: Sequence[DescribeQuorumRequest.TopicData]
    def __init__(self, topics: Sequence[DescribeQuorumRequest.TopicData] = ...) -> None: ...

class UpdateFeaturesRequest(Message):
    class FeatureUpdateKey(Message):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        def __init__(
            self,
            feature: str = ...,
            max_version_level: int = ...,
            allow_downgrade: bool = ...,
            upgrade_type: int = ...,
        ) -> None: ...

    timeout_ms: int
    feature_updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    def __init__(
        self,
        timeout_ms: int = ...,
        feature_updates: Sequence[UpdateFeaturesRequest.FeatureUpdateKey] = ...,
        validate_only: bool = ...,
    ) -> None: ...

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(
        self,
        include_cluster_authorized_operations: bool = ...,
        endpoint_type: int = ...,
        include_fenced_brokers: bool = ...,
    ) -> None: ...

class DescribeProducersRequest(Message):
    class TopicRequest(Message):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...

    topics: Sequence[DescribeProducersRequest.TopicRequest]
    def __init__(self, topics: Sequence[DescribeProducersRequest.TopicRequest] = ...) -> None: ...

class UnregisterBrokerRequest(Message):
    broker_id: int
    def __init__(self, broker_id: int = ...) -> None: ...

class DescribeTransactionsRequest(Message):
    transactional_ids: Sequence[str]
    def __init__(self, transactional_ids: Sequence[str] = ...) -> None: ...

class ListTransactionsRequest(Message):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(
        self,
        state_filters: Sequence[str] = ...,
        producer_id_filters: Sequence[int] = ...,
        duration_filter: int = ...,
        transactional_id_pattern: str | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        partitions: Sequence[int]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: Sequence[int] = ...
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: Sequence[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeRequest(Message):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    def __init__(
        self, group_ids: Sequence[str] = ..., include_authorized_operations: bool = ...
    ) -> None: ...

class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: UUID | None
    def __init__(self, client_instance_id: UUID | None = ...) -> None: ...

class PushTelemetryRequest(Message):
    client_instance_id: UUID | None
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes | memoryview
    def __init__(
        self,
        client_instance_id: UUID | None = ...,
        subscription_id: int = ...,
        terminating: bool = ...,
        compression_type: int = ...,
        metrics: bytes | memoryview = ...,
    ) -> None: ...

class ListConfigResourcesRequest(Message):
    resource_types: Sequence[int]
    def __init__(self, resource_types: Sequence[int] = ...) -> None: ...

class DescribeTopicPartitionsRequest(Message):
    class TopicRequest(Message):
        name: str
        def __init__(self, name: str = ...) -> None: ...

    class Cursor(Message):
        topic_name: str
        partition_index: int
        def __init__(self, topic_name: str = ..., partition_index: int = ...) -> None: ...

    topics: Sequence[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    def __init__(
        self,
        topics: Sequence[DescribeTopicPartitionsRequest.TopicRequest] = ...,
        response_partition_limit: int = ...,
        cursor: DescribeTopicPartitionsRequest.Cursor | None = ...,
    ) -> None: ...

class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: Sequence[str] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        rack_id: str | None = ...,
        subscribed_topic_names: Sequence[str] | None = ...,
    ) -> None: ...

class ShareGroupDescribeRequest(Message):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    def __init__(
        self, group_ids: Sequence[str] = ..., include_authorized_operations: bool = ...
    ) -> None: ...

class ShareFetchRequest(Message):
    class FetchTopic(Message):
        topic_id: UUID | None
        partitions: Sequence[ShareFetchRequest.FetchPartition]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[ShareFetchRequest.FetchPartition] = ...,
        ) -> None: ...

    class FetchPartition(Message):
        partition_index: int
        partition_max_bytes: int
        acknowledgement_batches: Sequence[ShareFetchRequest.AcknowledgementBatch]
        def __init__(
            self,
            partition_index: int = ...,
            partition_max_bytes: int = ...,
            acknowledgement_batches: Sequence[ShareFetchRequest.AcknowledgementBatch] = ...,
        ) -> None: ...

    class AcknowledgementBatch(Message):
        first_offset: int
        last_offset: int
        acknowledge_types: Sequence[int]
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            acknowledge_types: Sequence[int] = ...,
        ) -> None: ...

    class ForgottenTopic(Message):
        topic_id: UUID | None
        partitions: Sequence[int]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: Sequence[int] = ...
        ) -> None: ...

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: Sequence[ShareFetchRequest.FetchTopic]
    forgotten_topics_data: Sequence[ShareFetchRequest.ForgottenTopic]
    offsets_only: bool
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        max_records: int = ...,
        batch_size: int = ...,
        share_acquire_mode: int = ...,
        is_renew_ack: bool = ...,
        topics: Sequence[ShareFetchRequest.FetchTopic] = ...,
        forgotten_topics_data: Sequence[ShareFetchRequest.ForgottenTopic] = ...,
        offsets_only: bool = ...,
    ) -> None: ...

class ShareAcknowledgeRequest(Message):
    class AcknowledgeTopic(Message):
        topic_id: UUID | None
        partitions: Sequence[ShareAcknowledgeRequest.AcknowledgePartition]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[ShareAcknowledgeRequest.AcknowledgePartition] = ...,
        ) -> None: ...

    class AcknowledgePartition(Message):
        partition_index: int
        acknowledgement_batches: Sequence[ShareAcknowledgeRequest.AcknowledgementBatch]
        def __init__(
            self,
            partition_index: int = ...,
            acknowledgement_batches: Sequence[ShareAcknowledgeRequest.AcknowledgementBatch] = ...,
        ) -> None: ...

    class AcknowledgementBatch(Message):
        first_offset: int
        last_offset: int
        acknowledge_types: Sequence[int]
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            acknowledge_types: Sequence[int] = ...,
        ) -> None: ...

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: Sequence[ShareAcknowledgeRequest.AcknowledgeTopic]
    uncounted_release: bool
    release_delay_ms: int
    reject_reason: str | None
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        is_renew_ack: bool = ...,
        topics: Sequence[ShareAcknowledgeRequest.AcknowledgeTopic] = ...,
        uncounted_release: bool = ...,
        release_delay_ms: int = ...,
        reject_reason: str | None = ...,
    ) -> None: ...

class OffsetCommitRequest(Message):
    class OffsetCommitRequestTopic(Message):
        name: str
        topic_id: UUID | None
        partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Sequence[OffsetCommitRequest.OffsetCommitRequestPartition] = ...,
        ) -> None: ...

    class OffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            committed_metadata: str | None = ...,
        ) -> None: ...

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic] = ...,
    ) -> None: ...

class AddRaftVoterRequest(Message):
    class Listener(Message):
        name: str
        host: str
        port: int
        def __init__(self, name: str = ..., host: str = ..., port: int = ...) -> None: ...

    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: UUID | None
    listeners: Sequence[AddRaftVoterRequest.Listener]
    ack_when_committed: bool
    def __init__(
        self,
        cluster_id: str | None = ...,
        timeout_ms: int = ...,
        voter_id: int = ...,
        voter_directory_id: UUID | None = ...,
        listeners: Sequence[AddRaftVoterRequest.Listener] = ...,
        ack_when_committed: bool = ...,
    ) -> None: ...

class RemoveRaftVoterRequest(Message):
    cluster_id: str | None
    voter_id: int
    voter_directory_id: UUID | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        voter_id: int = ...,
        voter_directory_id: UUID | None = ...,
    ) -> None: ...

class InitializeShareGroupStateRequest(Message):
    class InitializeStateData(Message):
        topic_id: UUID | None
        partitions: Sequence[InitializeShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[InitializeShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition: int
        state_epoch: int
        start_offset: int
        def __init__(
            self, partition: int = ..., state_epoch: int = ..., start_offset: int = ...
        ) -> None: ...

    group_id: str
    topics: Sequence[InitializeShareGroupStateRequest.InitializeStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[InitializeShareGroupStateRequest.InitializeStateData] = ...,
    ) -> None: ...

class ReadShareGroupStateRequest(Message):
    class ReadStateData(Message):
        topic_id: UUID | None
        partitions: Sequence[ReadShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[ReadShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition: int
        leader_epoch: int
        def __init__(self, partition: int = ..., leader_epoch: int = ...) -> None: ...

    group_id: str
    topics: Sequence[ReadShareGroupStateRequest.ReadStateData]
    def __init__(
        self, group_id: str = ..., topics: Sequence[ReadShareGroupStateRequest.ReadStateData] = ...
    ) -> None: ...

class WriteShareGroupStateRequest(Message):
    class WriteStateData(Message):
        topic_id: UUID | None
        partitions: Sequence[WriteShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[WriteShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition: int
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        state_batches: Sequence[WriteShareGroupStateRequest.StateBatch]
        def __init__(
            self,
            partition: int = ...,
            state_epoch: int = ...,
            leader_epoch: int = ...,
            start_offset: int = ...,
            delivery_complete_count: int = ...,
            state_batches: Sequence[WriteShareGroupStateRequest.StateBatch] = ...,
        ) -> None: ...

    class StateBatch(Message):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[WriteShareGroupStateRequest.WriteStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[WriteShareGroupStateRequest.WriteStateData] = ...,
    ) -> None: ...

class DeleteShareGroupStateRequest(Message):
    class DeleteStateData(Message):
        topic_id: UUID | None
        partitions: Sequence[DeleteShareGroupStateRequest.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[DeleteShareGroupStateRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition: int
        def __init__(self, partition: int = ...) -> None: ...

    group_id: str
    topics: Sequence[DeleteShareGroupStateRequest.DeleteStateData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[DeleteShareGroupStateRequest.DeleteStateData] = ...,
    ) -> None: ...

class ReadShareGroupStateSummaryRequest(Message):
    class ReadStateSummaryData(Message):
        topic_id: UUID | None
        partitions: Sequence[ReadShareGroupStateSummaryRequest.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Sequence[ReadShareGroupStateSummaryRequest.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition: int
        leader_epoch: int
        def __init__(self, partition: int = ..., leader_epoch: int = ...) -> None: ...

    group_id: str
    topics: Sequence[ReadShareGroupStateSummaryRequest.ReadStateSummaryData]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = ...,
    ) -> None: ...

class StreamsGroupHeartbeatRequest(Message):
    class KeyValue(Message):
        key: str
        value: str
        def __init__(self, key: str = ..., value: str = ...) -> None: ...

    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Sequence[StreamsGroupHeartbeatRequest.KeyValue]
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: Sequence[StreamsGroupHeartbeatRequest.KeyValue] = ...,
        ) -> None: ...

    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, host: str = ..., port: int = ...) -> None: ...

    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        def __init__(
            self, subtopology_id: str = ..., partition: int = ..., offset: int = ...
        ) -> None: ...

    class TaskIds(Message):
        subtopology_id: str
        partitions: Sequence[int]
        def __init__(self, subtopology_id: str = ..., partitions: Sequence[int] = ...) -> None: ...

    class Topology(Message):
        epoch: int
        subtopologies: Sequence[StreamsGroupHeartbeatRequest.Subtopology]
        def __init__(
            self,
            epoch: int = ...,
            subtopologies: Sequence[StreamsGroupHeartbeatRequest.Subtopology] = ...,
        ) -> None: ...

    class Subtopology(Message):
        subtopology_id: str
        source_topics: Sequence[str]
        source_topic_regex: Sequence[str]
        state_changelog_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo]
        repartition_sink_topics: Sequence[str]
        repartition_source_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo]
        copartition_groups: Sequence[StreamsGroupHeartbeatRequest.CopartitionGroup]
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: Sequence[str] = ...,
            source_topic_regex: Sequence[str] = ...,
            state_changelog_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            repartition_sink_topics: Sequence[str] = ...,
            repartition_source_topics: Sequence[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            copartition_groups: Sequence[StreamsGroupHeartbeatRequest.CopartitionGroup] = ...,
        ) -> None: ...

    class CopartitionGroup(Message):
        source_topics: Sequence[int]
        source_topic_regex: Sequence[int]
        repartition_source_topics: Sequence[int]
        def __init__(
            self,
            source_topics: Sequence[int] = ...,
            source_topic_regex: Sequence[int] = ...,
            repartition_source_topics: Sequence[int] = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsGroupHeartbeatRequest.Topology | None
    active_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None
    standby_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None
    warmup_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None
    process_id: str | None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None
    client_tags: Sequence[StreamsGroupHeartbeatRequest.KeyValue] | None
    task_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None
    task_end_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None
    shutdown_application: bool
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        endpoint_information_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        topology: StreamsGroupHeartbeatRequest.Topology | None = ...,
        active_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        standby_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        warmup_tasks: Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        process_id: str | None = ...,
        user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None = ...,
        client_tags: Sequence[StreamsGroupHeartbeatRequest.KeyValue] | None = ...,
        task_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None = ...,
        task_end_offsets: Sequence[StreamsGroupHeartbeatRequest.TaskOffset] | None = ...,
        shutdown_application: bool = ...,
    ) -> None: ...

class StreamsGroupDescribeRequest(Message):
    group_ids: Sequence[str]
    include_authorized_operations: bool
    include_topology_description: bool
    def __init__(
        self,
        group_ids: Sequence[str] = ...,
        include_authorized_operations: bool = ...,
        include_topology_description: bool = ...,
    ) -> None: ...

class OffsetFetchRequest(Message):
    class OffsetFetchRequestTopic(Message):
        name: str
        partition_indexes: Sequence[int]
        def __init__(self, name: str = ..., partition_indexes: Sequence[int] = ...) -> None: ...

    class OffsetFetchRequestGroup(Message):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        def __init__(
            self,
            group_id: str = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...,
        ) -> None: ...

    class OffsetFetchRequestTopics(Message):
        name: str
        topic_id: UUID | None
        partition_indexes: Sequence[int]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partition_indexes: Sequence[int] = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...,
        groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(Message):
    class DescribeShareGroupOffsetsRequestGroup(Message):
        group_id: str
        topics: (
            Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        )
        def __init__(
            self,
            group_id: str = ...,
            topics: Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic]
            | None = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: Sequence[int]
        def __init__(self, topic_name: str = ..., partitions: Sequence[int] = ...) -> None: ...

    groups: Sequence[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]
    in_flight_limit: int
    def __init__(
        self,
        groups: Sequence[
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        ] = ...,
        in_flight_limit: int = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequest(Message):
    class AlterShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Sequence[
                AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition
            ] = ...,
        ) -> None: ...

    class AlterShareGroupOffsetsRequestPartition(Message):
        partition_index: int
        start_offset: int
        def __init__(self, partition_index: int = ..., start_offset: int = ...) -> None: ...

    class Release(Message):
        topic_name: str
        partition_index: int
        first_offset: int
        last_offset: int
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            first_offset: int = ...,
            last_offset: int = ...,
        ) -> None: ...

    group_id: str
    topics: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic]
    releases: Sequence[AlterShareGroupOffsetsRequest.Release]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...,
        releases: Sequence[AlterShareGroupOffsetsRequest.Release] = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsRequest(Message):
    class DeleteShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        def __init__(self, topic_name: str = ...) -> None: ...

    group_id: str
    topics: Sequence[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: Sequence[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...,
    ) -> None: ...

class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    class TopologyDescription(Message):
        subtopologies: Sequence[
            StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology
        ]
        global_stores: Sequence[
            StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore
        ]
        def __init__(
            self,
            subtopologies: Sequence[
                StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology
            ] = ...,
            global_stores: Sequence[
                StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore
            ] = ...,
        ) -> None: ...

    class TopologyDescriptionSubtopology(Message):
        subtopology_id: str
        nodes: Sequence[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode]
        def __init__(
            self,
            subtopology_id: str = ...,
            nodes: Sequence[
                StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
            ] = ...,
        ) -> None: ...

    class TopologyDescriptionGlobalStore(Message):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
        def __init__(
            self,
            source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = ...,
            processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = ...,
        ) -> None: ...

    class TopologyDescriptionNode(Message):
        name: str
        node_type: int
        source_topics: Sequence[str]
        sink_topic: str | None
        stores: Sequence[str]
        successors: Sequence[str]
        def __init__(
            self,
            name: str = ...,
            node_type: int = ...,
            source_topics: Sequence[str] = ...,
            sink_topic: str | None = ...,
            stores: Sequence[str] = ...,
            successors: Sequence[str] = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    topology_epoch: int
    topology_description: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        topology_epoch: int = ...,
        topology_description: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription = ...,
    ) -> None: ...

class UnregisterControllerRequest(Message):
    controller_id: int
    def __init__(self, controller_id: int = ...) -> None: ...

class ProduceResponse(Message):
    class TopicProduceResponse(Message):
        name: str
        topic_id: UUID | None
        partition_responses: Collection[ProduceResponse.PartitionProduceResponse]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partition_responses: Collection[ProduceResponse.PartitionProduceResponse] = ...,
        ) -> None: ...

    class PartitionProduceResponse(Message):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: Collection[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch
        def __init__(
            self,
            index: int = ...,
            error_code: int = ...,
            base_offset: int = ...,
            log_append_time_ms: int = ...,
            log_start_offset: int = ...,
            record_errors: Collection[ProduceResponse.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = ...,
            current_leader: ProduceResponse.LeaderIdAndEpoch = ...,
        ) -> None: ...

    class BatchIndexAndErrorMessage(Message):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(
            self, batch_index: int = ..., batch_index_error_message: str | None = ...
        ) -> None: ...

    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, leader_id: int = ..., leader_epoch: int = ...) -> None: ...

    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...
        ) -> None: ...

    responses: Collection[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: Collection[ProduceResponse.NodeEndpoint]
    def __init__(
        self,
        responses: Collection[ProduceResponse.TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: Collection[ProduceResponse.NodeEndpoint] = ...,
    ) -> None: ...

class FetchResponse(Message):
    class FetchableTopicResponse(Message):
        topic: str
        topic_id: UUID | None
        partitions: Collection[FetchResponse.PartitionData]
        def __init__(
            self,
            topic: str = ...,
            topic_id: UUID | None = ...,
            partitions: Collection[FetchResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: FetchResponse.EpochEndOffset
        current_leader: FetchResponse.LeaderIdAndEpoch
        snapshot_id: FetchResponse.SnapshotId
        aborted_transactions: Collection[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        records: Any
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            high_watermark: int = ...,
            last_stable_offset: int = ...,
            log_start_offset: int = ...,
            diverging_epoch: FetchResponse.EpochEndOffset = ...,
            current_leader: FetchResponse.LeaderIdAndEpoch = ...,
            snapshot_id: FetchResponse.SnapshotId = ...,
            aborted_transactions: Collection[FetchResponse.AbortedTransaction] | None = ...,
            preferred_read_replica: int = ...,
            records: Any = ...,
        ) -> None: ...

    class EpochEndOffset(Message):
        epoch: int
        end_offset: int
        def __init__(self, epoch: int = ..., end_offset: int = ...) -> None: ...

    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, leader_id: int = ..., leader_epoch: int = ...) -> None: ...

    class SnapshotId(Message):
        end_offset: int
        epoch: int
        def __init__(self, end_offset: int = ..., epoch: int = ...) -> None: ...

    class AbortedTransaction(Message):
        producer_id: int
        first_offset: int
        def __init__(self, producer_id: int = ..., first_offset: int = ...) -> None: ...

    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: Collection[FetchResponse.FetchableTopicResponse]
    node_endpoints: Collection[FetchResponse.NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: Collection[FetchResponse.FetchableTopicResponse] = ...,
        node_endpoints: Collection[FetchResponse.NodeEndpoint] = ...,
    ) -> None: ...

class FindCoordinatorResponse(Message):
    class Coordinator(Message):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            key: str = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: Collection[FindCoordinatorResponse.Coordinator]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        coordinators: Collection[FindCoordinatorResponse.Coordinator] = ...,
    ) -> None: ...

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Message):
        member_id: str
        group_instance_id: str | None
        metadata: bytes | memoryview
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            metadata: bytes | memoryview = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Collection[JoinGroupResponse.JoinGroupResponseMember]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        generation_id: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        leader: str = ...,
        skip_assignment: bool = ...,
        member_id: str = ...,
        members: Collection[JoinGroupResponse.JoinGroupResponseMember] = ...,
    ) -> None: ...

class HeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class LeaveGroupResponse(Message):
    class MemberResponse(Message):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(
            self, member_id: str = ..., group_instance_id: str | None = ..., error_code: int = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    members: Collection[LeaveGroupResponse.MemberResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: Collection[LeaveGroupResponse.MemberResponse] = ...,
    ) -> None: ...

class SyncGroupResponse(Message):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes | memoryview
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignment: bytes | memoryview = ...,
    ) -> None: ...

class DescribeGroupsResponse(Message):
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Collection[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            protocol_type: str = ...,
            protocol_data: str = ...,
            members: Collection[DescribeGroupsResponse.DescribedGroupMember] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class DescribedGroupMember(Message):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes | memoryview
        member_assignment: bytes | memoryview
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            member_metadata: bytes | memoryview = ...,
            member_assignment: bytes | memoryview = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Collection[DescribeGroupsResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Collection[DescribeGroupsResponse.DescribedGroup] = ...,
    ) -> None: ...

class ListGroupsResponse(Message):
    class ListedGroup(Message):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(
            self,
            group_id: str = ...,
            protocol_type: str = ...,
            group_state: str = ...,
            group_type: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    groups: Collection[ListGroupsResponse.ListedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: Collection[ListGroupsResponse.ListedGroup] = ...,
    ) -> None: ...

class SaslHandshakeResponse(Message):
    error_code: int
    mechanisms: Collection[str]
    def __init__(self, error_code: int = ..., mechanisms: Collection[str] = ...) -> None: ...

class ApiVersionsResponse(Message):
    class ApiVersion(Message):
        api_key: int
        min_version: int
        max_version: int
        def __init__(
            self, api_key: int = ..., min_version: int = ..., max_version: int = ...
        ) -> None: ...

    class SupportedFeatureKey(Message):
        name: str
        min_version: int
        max_version: int
        def __init__(
            self, name: str = ..., min_version: int = ..., max_version: int = ...
        ) -> None: ...

    class FinalizedFeatureKey(Message):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(
            self, name: str = ..., max_version_level: int = ..., min_version_level: int = ...
        ) -> None: ...

    error_code: int
    api_keys: Collection[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: Collection[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: Collection[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        error_code: int = ...,
        api_keys: Collection[ApiVersionsResponse.ApiVersion] = ...,
        throttle_time_ms: int = ...,
        supported_features: Collection[ApiVersionsResponse.SupportedFeatureKey] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: Collection[ApiVersionsResponse.FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = ...,
    ) -> None: ...

class CreateTopicsResponse(Message):
    class CreatableTopicResult(Message):
        name: str
        topic_id: UUID | None
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: Collection[CreateTopicsResponse.CreatableTopicConfigs] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_config_error_code: int = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            configs: Collection[CreateTopicsResponse.CreatableTopicConfigs] | None = ...,
        ) -> None: ...

    class CreatableTopicConfigs(Message):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Collection[CreateTopicsResponse.CreatableTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[CreateTopicsResponse.CreatableTopicResult] = ...,
    ) -> None: ...

class ListOffsetsResponse(Message):
    class ListOffsetsTopicResponse(Message):
        name: str
        partitions: Collection[ListOffsetsResponse.ListOffsetsPartitionResponse]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...,
        ) -> None: ...

    class ListOffsetsPartitionResponse(Message):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            timestamp: int = ...,
            offset: int = ...,
            leader_epoch: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Collection[ListOffsetsResponse.ListOffsetsTopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[ListOffsetsResponse.ListOffsetsTopicResponse] = ...,
    ) -> None: ...

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Message):
        name: str | None
        topic_id: UUID | None
        error_code: int
        error_message: str | None
        def __init__(
            self,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: Collection[DeleteTopicsResponse.DeletableTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: Collection[DeleteTopicsResponse.DeletableTopicResult] = ...,
    ) -> None: ...

class DeleteRecordsResponse(Message):
    class DeleteRecordsTopicResult(Message):
        name: str
        partitions: Collection[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...,
        ) -> None: ...

    class DeleteRecordsPartitionResult(Message):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(
            self, partition_index: int = ..., low_watermark: int = ..., error_code: int = ...
        ) -> None: ...

    throttle_time_ms: int
    topics: Collection[DeleteRecordsResponse.DeleteRecordsTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...,
    ) -> None: ...

class InitProducerIdResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        ongoing_txn_producer_id: int = ...,
        ongoing_txn_producer_epoch: int = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    class OffsetForLeaderTopicResult(Message):
        topic: str
        partitions: Collection[OffsetForLeaderEpochResponse.EpochEndOffset]
        def __init__(
            self,
            topic: str = ...,
            partitions: Collection[OffsetForLeaderEpochResponse.EpochEndOffset] = ...,
        ) -> None: ...

    class EpochEndOffset(Message):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        def __init__(
            self,
            error_code: int = ...,
            partition: int = ...,
            leader_epoch: int = ...,
            end_offset: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Collection[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnTopicResult(Message):
        name: str
        results_by_partition: Collection[
            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
        ]
        def __init__(
            self,
            name: str = ...,
            results_by_partition: Collection[
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
            ] = ...,
        ) -> None: ...

    class AddPartitionsToTxnPartitionResult(Message):
        partition_index: int
        partition_error_code: int
        def __init__(self, partition_index: int = ..., partition_error_code: int = ...) -> None: ...

    class AddPartitionsToTxnResult(Message):
        transactional_id: str
        topic_results: Collection[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        def __init__(
            self,
            transactional_id: str = ...,
            topic_results: Collection[
                AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
            ] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results_by_transaction: Collection[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: Collection[
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    ]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: Collection[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult
        ] = ...,
        results_by_topic_v3_and_below: Collection[
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        ] = ...,
    ) -> None: ...

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class EndTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerResult(Message):
        producer_id: int
        topics: Collection[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        def __init__(
            self,
            producer_id: int = ...,
            topics: Collection[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...,
        ) -> None: ...

    class WritableTxnMarkerTopicResult(Message):
        name: str
        partitions: Collection[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...,
        ) -> None: ...

    class WritableTxnMarkerPartitionResult(Message):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...

    markers: Collection[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    def __init__(
        self, markers: Collection[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...
    ) -> None: ...

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponseTopic(Message):
        name: str
        topic_id: UUID | None
        partitions: Collection[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Collection[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...,
        ) -> None: ...

    class TxnOffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...

    throttle_time_ms: int
    topics: Collection[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...,
    ) -> None: ...

class DescribeAclsResponse(Message):
    class DescribeAclsResource(Message):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: Collection[DescribeAclsResponse.AclDescription]
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            acls: Collection[DescribeAclsResponse.AclDescription] = ...,
        ) -> None: ...

    class AclDescription(Message):
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: Collection[DescribeAclsResponse.DescribeAclsResource]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: Collection[DescribeAclsResponse.DescribeAclsResource] = ...,
    ) -> None: ...

class MetadataResponse(Message):
    class MetadataResponseBroker(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...
        ) -> None: ...

    class MetadataResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: UUID | None
        is_internal: bool
        partitions: Collection[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            is_internal: bool = ...,
            partitions: Collection[MetadataResponse.MetadataResponsePartition] = ...,
            topic_authorized_operations: int = ...,
        ) -> None: ...

    class MetadataResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Collection[int]
        isr_nodes: Collection[int]
        offline_replicas: Collection[int]
        def __init__(
            self,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: Collection[int] = ...,
            isr_nodes: Collection[int] = ...,
            offline_replicas: Collection[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    brokers: Collection[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: Collection[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        brokers: Collection[MetadataResponse.MetadataResponseBroker] = ...,
        cluster_id: str | None = ...,
        controller_id: int = ...,
        topics: Collection[MetadataResponse.MetadataResponseTopic] = ...,
        cluster_authorized_operations: int = ...,
        error_code: int = ...,
    ) -> None: ...

class CreateAclsResponse(Message):
    class AclCreationResult(Message):
        error_code: int
        error_message: str | None
        def __init__(self, error_code: int = ..., error_message: str | None = ...) -> None: ...

    throttle_time_ms: int
    results: Collection[CreateAclsResponse.AclCreationResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Collection[CreateAclsResponse.AclCreationResult] = ...,
    ) -> None: ...

class DeleteAclsResponse(Message):
    class DeleteAclsFilterResult(Message):
        error_code: int
        error_message: str | None
        matching_acls: Collection[DeleteAclsResponse.DeleteAclsMatchingAcl]
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            matching_acls: Collection[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...,
        ) -> None: ...

    class DeleteAclsMatchingAcl(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    filter_results: Collection[DeleteAclsResponse.DeleteAclsFilterResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        filter_results: Collection[DeleteAclsResponse.DeleteAclsFilterResult] = ...,
    ) -> None: ...

class DescribeConfigsResponse(Message):
    class DescribeConfigsResult(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Collection[DescribeConfigsResponse.DescribeConfigsResourceResult]
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: Collection[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...,
        ) -> None: ...

    class DescribeConfigsResourceResult(Message):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: Collection[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
            synonyms: Collection[DescribeConfigsResponse.DescribeConfigsSynonym] = ...,
            config_type: int = ...,
            documentation: str | None = ...,
        ) -> None: ...

    class DescribeConfigsSynonym(Message):
        name: str
        value: str | None
        source: int
        def __init__(self, name: str = ..., value: str | None = ..., source: int = ...) -> None: ...

    throttle_time_ms: int
    results: Collection[DescribeConfigsResponse.DescribeConfigsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Collection[DescribeConfigsResponse.DescribeConfigsResult] = ...,
    ) -> None: ...

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: Collection[AlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: Collection[AlterConfigsResponse.AlterConfigsResourceResponse] = ...,
    ) -> None: ...

class AlterReplicaLogDirsResponse(Message):
    class AlterReplicaLogDirTopicResult(Message):
        topic_name: str
        partitions: Collection[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Collection[
                AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult
            ] = ...,
        ) -> None: ...

    class AlterReplicaLogDirPartitionResult(Message):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...

    throttle_time_ms: int
    results: Collection[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Collection[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...,
    ) -> None: ...

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsResult(Message):
        error_code: int
        log_dir: str
        topics: Collection[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(
            self,
            error_code: int = ...,
            log_dir: str = ...,
            topics: Collection[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...,
            total_bytes: int = ...,
            usable_bytes: int = ...,
            is_cordoned: bool = ...,
        ) -> None: ...

    class DescribeLogDirsTopic(Message):
        name: str
        partitions: Collection[DescribeLogDirsResponse.DescribeLogDirsPartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...,
        ) -> None: ...

    class DescribeLogDirsPartition(Message):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        def __init__(
            self,
            partition_index: int = ...,
            partition_size: int = ...,
            offset_lag: int = ...,
            is_future_key: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results: Collection[DescribeLogDirsResponse.DescribeLogDirsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: Collection[DescribeLogDirsResponse.DescribeLogDirsResult] = ...,
    ) -> None: ...

class SaslAuthenticateResponse(Message):
    error_code: int
    error_message: str | None
    auth_bytes: bytes | memoryview
    session_lifetime_ms: int
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes | memoryview = ...,
        session_lifetime_ms: int = ...,
    ) -> None: ...

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Message):
        name: str
        error_code: int
        error_message: str | None
        def __init__(
            self, name: str = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    results: Collection[CreatePartitionsResponse.CreatePartitionsTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Collection[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...,
    ) -> None: ...

class CreateDelegationTokenResponse(Message):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes | memoryview
    throttle_time_ms: int
    def __init__(
        self,
        error_code: int = ...,
        principal_type: str = ...,
        principal_name: str = ...,
        token_requester_principal_type: str = ...,
        token_requester_principal_name: str = ...,
        issue_timestamp_ms: int = ...,
        expiry_timestamp_ms: int = ...,
        max_timestamp_ms: int = ...,
        token_id: str = ...,
        hmac: bytes | memoryview = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...

class RenewDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self, error_code: int = ..., expiry_timestamp_ms: int = ..., throttle_time_ms: int = ...
    ) -> None: ...

class ExpireDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self, error_code: int = ..., expiry_timestamp_ms: int = ..., throttle_time_ms: int = ...
    ) -> None: ...

class DescribeDelegationTokenResponse(Message):
    class DescribedDelegationToken(Message):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes | memoryview
        renewers: Collection[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
            issue_timestamp: int = ...,
            expiry_timestamp: int = ...,
            max_timestamp: int = ...,
            token_id: str = ...,
            hmac: bytes | memoryview = ...,
            renewers: Collection[
                DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
            ] = ...,
        ) -> None: ...

    class DescribedDelegationTokenRenewer(Message):
        principal_type: str
        principal_name: str
        def __init__(self, principal_type: str = ..., principal_name: str = ...) -> None: ...

    error_code: int
    tokens: Collection[DescribeDelegationTokenResponse.DescribedDelegationToken]
    throttle_time_ms: int
    def __init__(
        self,
        error_code: int = ...,
        tokens: Collection[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...,
        throttle_time_ms: int = ...,
    ) -> None: ...

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Message):
        group_id: str
        error_code: int
        error_message: str | None
        def __init__(
            self, group_id: str = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    results: Collection[DeleteGroupsResponse.DeletableGroupResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Collection[DeleteGroupsResponse.DeletableGroupResult] = ...,
    ) -> None: ...

class ElectLeadersResponse(Message):
    class ReplicaElectionResult(Message):
        topic: str
        partition_result: Collection[ElectLeadersResponse.PartitionResult]
        def __init__(
            self,
            topic: str = ...,
            partition_result: Collection[ElectLeadersResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(
            self, partition_id: int = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    replica_election_results: Collection[ElectLeadersResponse.ReplicaElectionResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: Collection[ElectLeadersResponse.ReplicaElectionResult] = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: Collection[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: Collection[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(Message):
    class ReassignableTopicResponse(Message):
        name: str
        partitions: Collection[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[
                AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
            ] = ...,
        ) -> None: ...

    class ReassignablePartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Collection[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Collection[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...,
    ) -> None: ...

class ListPartitionReassignmentsResponse(Message):
    class OngoingTopicReassignment(Message):
        name: str
        partitions: Collection[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[
                ListPartitionReassignmentsResponse.OngoingPartitionReassignment
            ] = ...,
        ) -> None: ...

    class OngoingPartitionReassignment(Message):
        partition_index: int
        replicas: Collection[int]
        adding_replicas: Collection[int]
        removing_replicas: Collection[int]
        def __init__(
            self,
            partition_index: int = ...,
            replicas: Collection[int] = ...,
            adding_replicas: Collection[int] = ...,
            removing_replicas: Collection[int] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Collection[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: Collection[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...,
    ) -> None: ...

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponseTopic(Message):
        name: str
        partitions: Collection[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...,
        ) -> None: ...

    class OffsetDeleteResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...

    error_code: int
    throttle_time_ms: int
    topics: Collection[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    def __init__(
        self,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: Collection[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...,
    ) -> None: ...

class DescribeClientQuotasResponse(Message):
    class EntryData(Message):
        entity: Collection[DescribeClientQuotasResponse.EntityData]
        values: Collection[DescribeClientQuotasResponse.ValueData]
        def __init__(
            self,
            entity: Collection[DescribeClientQuotasResponse.EntityData] = ...,
            values: Collection[DescribeClientQuotasResponse.ValueData] = ...,
        ) -> None: ...

    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(self, entity_type: str = ..., entity_name: str | None = ...) -> None: ...

    class ValueData(Message):
        key: str
        value: float
        def __init__(self, key: str = ..., value: float = ...) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Collection[DescribeClientQuotasResponse.EntryData] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: Collection[DescribeClientQuotasResponse.EntryData] | None = ...,
    ) -> None: ...

class AlterClientQuotasResponse(Message):
    class EntryData(Message):
        error_code: int
        error_message: str | None
        entity: Collection[AlterClientQuotasResponse.EntityData]
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            entity: Collection[AlterClientQuotasResponse.EntityData] = ...,
        ) -> None: ...

    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(self, entity_type: str = ..., entity_name: str | None = ...) -> None: ...

    throttle_time_ms: int
    entries: Collection[AlterClientQuotasResponse.EntryData]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        entries: Collection[AlterClientQuotasResponse.EntryData] = ...,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(Message):
    class DescribeUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Collection[DescribeUserScramCredentialsResponse.CredentialInfo]
        def __init__(
            self,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            credential_infos: Collection[DescribeUserScramCredentialsResponse.CredentialInfo] = ...,
        ) -> None: ...

    class CredentialInfo(Message):
        mechanism: int
        iterations: int
        def __init__(self, mechanism: int = ..., iterations: int = ...) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Collection[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Collection[
            DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
        ] = ...,
    ) -> None: ...

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        def __init__(
            self, user: str = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    results: Collection[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: Collection[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
        ] = ...,
    ) -> None: ...

class DescribeQuorumResponse(Message):
    class ReplicaState(Message):
        replica_id: int
        replica_directory_id: UUID | None
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        def __init__(
            self,
            replica_id: int = ...,
            replica_directory_id: UUID | None = ...,
            log_end_offset: int = ...,
            last_fetch_timestamp: int = ...,
            last_caught_up_timestamp: int = ...,
        ) -> None: ...

    class TopicData(Message):
        topic_name: str
        partitions: Collection[DescribeQuorumResponse.PartitionData]
        def __init__(
            self,
            topic_name: str = ...,
            partitions: Collection[DescribeQuorumResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: Collection[DescribeQuorumResponse.ReplicaState]
        observers: Collection[DescribeQuorumResponse.ReplicaState]
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            high_watermark: int = ...,
            current_voters: Collection[DescribeQuorumResponse.ReplicaState] = ...,
            observers: Collection[DescribeQuorumResponse.ReplicaState] = ...,
        ) -> None: ...

    class Node(Message):
        node_id: int
        listeners: Collection[DescribeQuorumResponse.Listener]
        def __init__(
            self, node_id: int = ..., listeners: Collection[DescribeQuorumResponse.Listener] = ...
        ) -> None: ...

    class Listener(Message):
        name: str
        host: str
        port: int
        def __init__(self, name: str = ..., host: str = ..., port: int = ...) -> None: ...

    error_code: int
    error_message: str | None
    topics: Collection[DescribeQuorumResponse.TopicData]
    nodes: Collection[DescribeQuorumResponse.Node]
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: Collection[DescribeQuorumResponse.TopicData] = ...,
        nodes: Collection[DescribeQuorumResponse.Node] = ...,
    ) -> None: ...

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Message):
        feature: str
        error_code: int
        error_message: str | None
        def __init__(
            self, feature: str = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Collection[UpdateFeaturesResponse.UpdatableFeatureResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: Collection[UpdateFeaturesResponse.UpdatableFeatureResult] = ...,
    ) -> None: ...

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Message):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(
            self,
            broker_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            is_fenced: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: Collection[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: Collection[DescribeClusterResponse.DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = ...,
    ) -> None: ...

class DescribeProducersResponse(Message):
    class TopicResponse(Message):
        name: str
        partitions: Collection[DescribeProducersResponse.PartitionResponse]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[DescribeProducersResponse.PartitionResponse] = ...,
        ) -> None: ...

    class PartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: Collection[DescribeProducersResponse.ProducerState]
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            active_producers: Collection[DescribeProducersResponse.ProducerState] = ...,
        ) -> None: ...

    class ProducerState(Message):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        def __init__(
            self,
            producer_id: int = ...,
            producer_epoch: int = ...,
            last_sequence: int = ...,
            last_timestamp: int = ...,
            coordinator_epoch: int = ...,
            current_txn_start_offset: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Collection[DescribeProducersResponse.TopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[DescribeProducersResponse.TopicResponse] = ...,
    ) -> None: ...

class UnregisterBrokerResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class DescribeTransactionsResponse(Message):
    class TransactionState(Message):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: Collection[DescribeTransactionsResponse.TopicData]
        def __init__(
            self,
            error_code: int = ...,
            transactional_id: str = ...,
            transaction_state: str = ...,
            transaction_timeout_ms: int = ...,
            transaction_start_time_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: Collection[DescribeTransactionsResponse.TopicData] = ...,
        ) -> None: ...

    class TopicData(Message):
        topic: str
        partitions: Collection[int]
        def __init__(self, topic: str = ..., partitions: Collection[int] = ...) -> None: ...

    throttle_time_ms: int
    transaction_states: Collection[DescribeTransactionsResponse.TransactionState]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        transaction_states: Collection[DescribeTransactionsResponse.TransactionState] = ...,
    ) -> None: ...

class ListTransactionsResponse(Message):
    class TransactionState(Message):
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(
            self, transactional_id: str = ..., producer_id: int = ..., transaction_state: str = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Collection[str]
    transaction_states: Collection[ListTransactionsResponse.TransactionState]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: Collection[str] = ...,
        transaction_states: Collection[ListTransactionsResponse.TransactionState] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        partitions: Collection[int]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: Collection[int] = ...
        ) -> None: ...

    class Assignment(Message):
        topic_partitions: Collection[ConsumerGroupHeartbeatResponse.TopicPartitions]
        def __init__(
            self, topic_partitions: Collection[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupHeartbeatResponse.Assignment | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        topic_name: str
        partitions: Collection[int]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            topic_name: str = ...,
            partitions: Collection[int] = ...,
        ) -> None: ...

    class Assignment(Message):
        topic_partitions: Collection[ConsumerGroupDescribeResponse.TopicPartitions]
        def __init__(
            self, topic_partitions: Collection[ConsumerGroupDescribeResponse.TopicPartitions] = ...
        ) -> None: ...

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Collection[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: Collection[ConsumerGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class Member(Message):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Collection[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: int
        def __init__(
            self,
            member_id: str = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: Collection[str] = ...,
            subscribed_topic_regex: str | None = ...,
            assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            target_assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            member_type: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Collection[ConsumerGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Collection[ConsumerGroupDescribeResponse.DescribedGroup] = ...,
    ) -> None: ...

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int
    error_code: int
    client_instance_id: UUID | None
    subscription_id: int
    accepted_compression_types: Collection[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: Collection[str]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        client_instance_id: UUID | None = ...,
        subscription_id: int = ...,
        accepted_compression_types: Collection[int] = ...,
        push_interval_ms: int = ...,
        telemetry_max_bytes: int = ...,
        delta_temporality: bool = ...,
        requested_metrics: Collection[str] = ...,
    ) -> None: ...

class PushTelemetryResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class ListConfigResourcesResponse(Message):
    class ConfigResource(Message):
        resource_name: str
        resource_type: int
        def __init__(self, resource_name: str = ..., resource_type: int = ...) -> None: ...

    throttle_time_ms: int
    error_code: int
    config_resources: Collection[ListConfigResourcesResponse.ConfigResource]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        config_resources: Collection[ListConfigResourcesResponse.ConfigResource] = ...,
    ) -> None: ...

class DescribeTopicPartitionsResponse(Message):
    class DescribeTopicPartitionsResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: UUID | None
        is_internal: bool
        partitions: Collection[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        ]
        topic_authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: UUID | None = ...,
            is_internal: bool = ...,
            partitions: Collection[
                DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
            ] = ...,
            topic_authorized_operations: int = ...,
        ) -> None: ...

    class DescribeTopicPartitionsResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Collection[int]
        isr_nodes: Collection[int]
        eligible_leader_replicas: Collection[int] | None
        last_known_elr: Collection[int] | None
        offline_replicas: Collection[int]
        def __init__(
            self,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: Collection[int] = ...,
            isr_nodes: Collection[int] = ...,
            eligible_leader_replicas: Collection[int] | None = ...,
            last_known_elr: Collection[int] | None = ...,
            offline_replicas: Collection[int] = ...,
        ) -> None: ...

    class Cursor(Message):
        topic_name: str
        partition_index: int
        def __init__(self, topic_name: str = ..., partition_index: int = ...) -> None: ...

    throttle_time_ms: int
    topics: Collection[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
        ] = ...,
        next_cursor: DescribeTopicPartitionsResponse.Cursor | None = ...,
    ) -> None: ...

class ShareGroupHeartbeatResponse(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        partitions: Collection[int]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: Collection[int] = ...
        ) -> None: ...

    class Assignment(Message):
        topic_partitions: Collection[ShareGroupHeartbeatResponse.TopicPartitions]
        def __init__(
            self, topic_partitions: Collection[ShareGroupHeartbeatResponse.TopicPartitions] = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponse.Assignment | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ShareGroupHeartbeatResponse.Assignment | None = ...,
    ) -> None: ...

class ShareGroupDescribeResponse(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        topic_name: str
        partitions: Collection[int]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            topic_name: str = ...,
            partitions: Collection[int] = ...,
        ) -> None: ...

    class Assignment(Message):
        topic_partitions: Collection[ShareGroupDescribeResponse.TopicPartitions]
        def __init__(
            self, topic_partitions: Collection[ShareGroupDescribeResponse.TopicPartitions] = ...
        ) -> None: ...

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Collection[ShareGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: Collection[ShareGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
        ) -> None: ...

    class Member(Message):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Collection[str]
        assignment: ShareGroupDescribeResponse.Assignment
        def __init__(
            self,
            member_id: str = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: Collection[str] = ...,
            assignment: ShareGroupDescribeResponse.Assignment = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Collection[ShareGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Collection[ShareGroupDescribeResponse.DescribedGroup] = ...,
    ) -> None: ...

class ShareFetchResponse(Message):
    class ShareFetchableTopicResponse(Message):
        topic_id: UUID | None
        partitions: Collection[ShareFetchResponse.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[ShareFetchResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch
        records: Any
        acquired_records: Collection[ShareFetchResponse.AcquiredRecords]
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            acknowledge_error_code: int = ...,
            acknowledge_error_message: str | None = ...,
            current_leader: ShareFetchResponse.LeaderIdAndEpoch = ...,
            records: Any = ...,
            acquired_records: Collection[ShareFetchResponse.AcquiredRecords] = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, leader_id: int = ..., leader_epoch: int = ...) -> None: ...

    class AcquiredRecords(Message):
        first_offset: int
        last_offset: int
        delivery_count: int
        def __init__(
            self, first_offset: int = ..., last_offset: int = ..., delivery_count: int = ...
        ) -> None: ...

    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Collection[ShareFetchResponse.ShareFetchableTopicResponse]
    node_endpoints: Collection[ShareFetchResponse.NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: Collection[ShareFetchResponse.ShareFetchableTopicResponse] = ...,
        node_endpoints: Collection[ShareFetchResponse.NodeEndpoint] = ...,
    ) -> None: ...

class ShareAcknowledgeResponse(Message):
    class ShareAcknowledgeTopicResponse(Message):
        topic_id: UUID | None
        partitions: Collection[ShareAcknowledgeResponse.PartitionData]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[ShareAcknowledgeResponse.PartitionData] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, leader_id: int = ..., leader_epoch: int = ...) -> None: ...

    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: Collection[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse]
    node_endpoints: Collection[ShareAcknowledgeResponse.NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: Collection[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...,
        node_endpoints: Collection[ShareAcknowledgeResponse.NodeEndpoint] = ...,
    ) -> None: ...

class OffsetCommitResponse(Message):
    class OffsetCommitResponseTopic(Message):
        name: str
        topic_id: UUID | None
        partitions: Collection[OffsetCommitResponse.OffsetCommitResponsePartition]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Collection[OffsetCommitResponse.OffsetCommitResponsePartition] = ...,
        ) -> None: ...

    class OffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(self, partition_index: int = ..., error_code: int = ...) -> None: ...

    throttle_time_ms: int
    topics: Collection[OffsetCommitResponse.OffsetCommitResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[OffsetCommitResponse.OffsetCommitResponseTopic] = ...,
    ) -> None: ...

class AddRaftVoterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class InitializeShareGroupStateResponse(Message):
    class InitializeStateResult(Message):
        topic_id: UUID | None
        partitions: Collection[InitializeShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[InitializeShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(
            self, partition: int = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    results: Collection[InitializeShareGroupStateResponse.InitializeStateResult]
    def __init__(
        self, results: Collection[InitializeShareGroupStateResponse.InitializeStateResult] = ...
    ) -> None: ...

class ReadShareGroupStateResponse(Message):
    class ReadStateResult(Message):
        topic_id: UUID | None
        partitions: Collection[ReadShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[ReadShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: Collection[ReadShareGroupStateResponse.StateBatch]
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state_epoch: int = ...,
            start_offset: int = ...,
            state_batches: Collection[ReadShareGroupStateResponse.StateBatch] = ...,
        ) -> None: ...

    class StateBatch(Message):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
        ) -> None: ...

    results: Collection[ReadShareGroupStateResponse.ReadStateResult]
    def __init__(
        self, results: Collection[ReadShareGroupStateResponse.ReadStateResult] = ...
    ) -> None: ...

class WriteShareGroupStateResponse(Message):
    class WriteStateResult(Message):
        topic_id: UUID | None
        partitions: Collection[WriteShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[WriteShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(
            self, partition: int = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    results: Collection[WriteShareGroupStateResponse.WriteStateResult]
    def __init__(
        self, results: Collection[WriteShareGroupStateResponse.WriteStateResult] = ...
    ) -> None: ...

class DeleteShareGroupStateResponse(Message):
    class DeleteStateResult(Message):
        topic_id: UUID | None
        partitions: Collection[DeleteShareGroupStateResponse.PartitionResult]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[DeleteShareGroupStateResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(
            self, partition: int = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    results: Collection[DeleteShareGroupStateResponse.DeleteStateResult]
    def __init__(
        self, results: Collection[DeleteShareGroupStateResponse.DeleteStateResult] = ...
    ) -> None: ...

class ReadShareGroupStateSummaryResponse(Message):
    class ReadStateSummaryResult(Message):
        topic_id: UUID | None
        partitions: Collection[ReadShareGroupStateSummaryResponse.PartitionResult]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: Collection[ReadShareGroupStateSummaryResponse.PartitionResult] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state_epoch: int = ...,
            leader_epoch: int = ...,
            start_offset: int = ...,
            delivery_complete_count: int = ...,
        ) -> None: ...

    results: Collection[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult]
    def __init__(
        self, results: Collection[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = ...
    ) -> None: ...

class StreamsGroupHeartbeatResponse(Message):
    class Status(Message):
        status_code: int
        status_detail: str
        def __init__(self, status_code: int = ..., status_detail: str = ...) -> None: ...

    class TopicPartition(Message):
        topic: str
        partitions: Collection[int]
        def __init__(self, topic: str = ..., partitions: Collection[int] = ...) -> None: ...

    class TaskIds(Message):
        subtopology_id: str
        partitions: Collection[int]
        def __init__(
            self, subtopology_id: str = ..., partitions: Collection[int] = ...
        ) -> None: ...

    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, host: str = ..., port: int = ...) -> None: ...

    class EndpointToPartitions(Message):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint
        active_partitions: Collection[StreamsGroupHeartbeatResponse.TopicPartition]
        standby_partitions: Collection[StreamsGroupHeartbeatResponse.TopicPartition]
        def __init__(
            self,
            user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = ...,
            active_partitions: Collection[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
            standby_partitions: Collection[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag_legacy: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    status: Collection[StreamsGroupHeartbeatResponse.Status] | None
    active_tasks: Collection[StreamsGroupHeartbeatResponse.TaskIds] | None
    standby_tasks: Collection[StreamsGroupHeartbeatResponse.TaskIds] | None
    warmup_tasks: Collection[StreamsGroupHeartbeatResponse.TaskIds] | None
    topology_description_required: bool
    endpoint_information_epoch: int
    partitions_by_user_endpoint: (
        Collection[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None
    )
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        acceptable_recovery_lag_legacy: int = ...,
        task_offset_interval_ms: int = ...,
        acceptable_recovery_lag: int = ...,
        status: Collection[StreamsGroupHeartbeatResponse.Status] | None = ...,
        active_tasks: Collection[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        standby_tasks: Collection[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        warmup_tasks: Collection[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        topology_description_required: bool = ...,
        endpoint_information_epoch: int = ...,
        partitions_by_user_endpoint: Collection[StreamsGroupHeartbeatResponse.EndpointToPartitions]
        | None = ...,
    ) -> None: ...

class StreamsGroupDescribeResponse(Message):
    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, host: str = ..., port: int = ...) -> None: ...

    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        def __init__(
            self, subtopology_id: str = ..., partition: int = ..., offset: int = ...
        ) -> None: ...

    class Assignment(Message):
        active_tasks: Collection[StreamsGroupDescribeResponse.TaskIds]
        standby_tasks: Collection[StreamsGroupDescribeResponse.TaskIds]
        warmup_tasks: Collection[StreamsGroupDescribeResponse.TaskIds]
        def __init__(
            self,
            active_tasks: Collection[StreamsGroupDescribeResponse.TaskIds] = ...,
            standby_tasks: Collection[StreamsGroupDescribeResponse.TaskIds] = ...,
            warmup_tasks: Collection[StreamsGroupDescribeResponse.TaskIds] = ...,
        ) -> None: ...

    class TaskIds(Message):
        subtopology_id: str
        partitions: Collection[int]
        def __init__(
            self, subtopology_id: str = ..., partitions: Collection[int] = ...
        ) -> None: ...

    class KeyValue(Message):
        key: str
        value: str
        def __init__(self, key: str = ..., value: str = ...) -> None: ...

    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Collection[StreamsGroupDescribeResponse.KeyValue]
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: Collection[StreamsGroupDescribeResponse.KeyValue] = ...,
        ) -> None: ...

    class TopologyDescription(Message):
        subtopologies: Collection[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology]
        global_stores: Collection[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore]
        def __init__(
            self,
            subtopologies: Collection[
                StreamsGroupDescribeResponse.TopologyDescriptionSubtopology
            ] = ...,
            global_stores: Collection[
                StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore
            ] = ...,
        ) -> None: ...

    class TopologyDescriptionSubtopology(Message):
        subtopology_id: str
        nodes: Collection[StreamsGroupDescribeResponse.TopologyDescriptionNode]
        def __init__(
            self,
            subtopology_id: str = ...,
            nodes: Collection[StreamsGroupDescribeResponse.TopologyDescriptionNode] = ...,
        ) -> None: ...

    class TopologyDescriptionGlobalStore(Message):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode
        def __init__(
            self,
            source: StreamsGroupDescribeResponse.TopologyDescriptionNode = ...,
            processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = ...,
        ) -> None: ...

    class TopologyDescriptionNode(Message):
        name: str
        node_type: int
        source_topics: Collection[str]
        sink_topic: str | None
        stores: Collection[str]
        successors: Collection[str]
        def __init__(
            self,
            name: str = ...,
            node_type: int = ...,
            source_topics: Collection[str] = ...,
            sink_topic: str | None = ...,
            stores: Collection[str] = ...,
            successors: Collection[str] = ...,
        ) -> None: ...

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribeResponse.Topology | None
        members: Collection[StreamsGroupDescribeResponse.Member]
        authorized_operations: int
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None
        topology_description_status: int
        assignor_name: str | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            topology: StreamsGroupDescribeResponse.Topology | None = ...,
            members: Collection[StreamsGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = ...,
            topology_description_status: int = ...,
            assignor_name: str | None = ...,
        ) -> None: ...

    class Topology(Message):
        epoch: int
        subtopologies: Collection[StreamsGroupDescribeResponse.Subtopology] | None
        def __init__(
            self,
            epoch: int = ...,
            subtopologies: Collection[StreamsGroupDescribeResponse.Subtopology] | None = ...,
        ) -> None: ...

    class Subtopology(Message):
        subtopology_id: str
        source_topics: Collection[str]
        repartition_sink_topics: Collection[str]
        state_changelog_topics: Collection[StreamsGroupDescribeResponse.TopicInfo]
        repartition_source_topics: Collection[StreamsGroupDescribeResponse.TopicInfo]
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: Collection[str] = ...,
            repartition_sink_topics: Collection[str] = ...,
            state_changelog_topics: Collection[StreamsGroupDescribeResponse.TopicInfo] = ...,
            repartition_source_topics: Collection[StreamsGroupDescribeResponse.TopicInfo] = ...,
        ) -> None: ...

    class Member(Message):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None
        client_tags: Collection[StreamsGroupDescribeResponse.KeyValue]
        task_offsets: Collection[StreamsGroupDescribeResponse.TaskOffset]
        task_end_offsets: Collection[StreamsGroupDescribeResponse.TaskOffset]
        assignment: StreamsGroupDescribeResponse.Assignment
        target_assignment: StreamsGroupDescribeResponse.Assignment
        is_classic: bool
        def __init__(
            self,
            member_id: str = ...,
            member_epoch: int = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            topology_epoch: int = ...,
            process_id: str = ...,
            user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = ...,
            client_tags: Collection[StreamsGroupDescribeResponse.KeyValue] = ...,
            task_offsets: Collection[StreamsGroupDescribeResponse.TaskOffset] = ...,
            task_end_offsets: Collection[StreamsGroupDescribeResponse.TaskOffset] = ...,
            assignment: StreamsGroupDescribeResponse.Assignment = ...,
            target_assignment: StreamsGroupDescribeResponse.Assignment = ...,
            is_classic: bool = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Collection[StreamsGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Collection[StreamsGroupDescribeResponse.DescribedGroup] = ...,
    ) -> None: ...

class OffsetFetchResponse(Message):
    class OffsetFetchResponseTopic(Message):
        name: str
        partitions: Collection[OffsetFetchResponse.OffsetFetchResponsePartition]
        def __init__(
            self,
            name: str = ...,
            partitions: Collection[OffsetFetchResponse.OffsetFetchResponsePartition] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetFetchResponseGroup(Message):
        group_id: str
        topics: Collection[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        def __init__(
            self,
            group_id: str = ...,
            topics: Collection[OffsetFetchResponse.OffsetFetchResponseTopics] = ...,
            error_code: int = ...,
        ) -> None: ...

    class OffsetFetchResponseTopics(Message):
        name: str
        topic_id: UUID | None
        partitions: Collection[OffsetFetchResponse.OffsetFetchResponsePartitions]
        def __init__(
            self,
            name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Collection[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartitions(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: Collection[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: Collection[OffsetFetchResponse.OffsetFetchResponseGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: Collection[OffsetFetchResponse.OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: Collection[OffsetFetchResponse.OffsetFetchResponseGroup] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(Message):
    class DescribeShareGroupOffsetsResponseGroup(Message):
        group_id: str
        topics: Collection[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None
        def __init__(
            self,
            group_id: str = ...,
            topics: Collection[
                DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
            ] = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: UUID | None
        partitions: Collection[
            DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
        ]
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Collection[
                DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
            ] = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None
        in_flight: Collection[DescribeShareGroupOffsetsResponse.InFlightSpan]
        in_flight_end: int
        released_count: int
        archived_count: int
        late_count: int
        def __init__(
            self,
            partition_index: int = ...,
            start_offset: int = ...,
            leader_epoch: int = ...,
            lag: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            in_flight: Collection[DescribeShareGroupOffsetsResponse.InFlightSpan] = ...,
            in_flight_end: int = ...,
            released_count: int = ...,
            archived_count: int = ...,
            late_count: int = ...,
        ) -> None: ...

    class InFlightSpan(Message):
        first_offset: int
        last_offset: int
        state: int
        delivery_count: int
        member_id: str | None
        remaining_ms: int
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            state: int = ...,
            delivery_count: int = ...,
            member_id: str | None = ...,
            remaining_ms: int = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: Collection[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: Collection[
            DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
        ] = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponse(Message):
    class AlterShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: UUID | None
        partitions: Collection[
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
        ]
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            partitions: Collection[
                AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
            ] = ...,
        ) -> None: ...

    class AlterShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Collection[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Collection[
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
        ] = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponse(Message):
    class DeleteShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: UUID | None
        error_code: int
        error_message: str | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: UUID | None = ...,
            error_code: int = ...,
            error_message: str | None = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: Collection[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: Collection[
            DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
        ] = ...,
    ) -> None: ...

class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class UnregisterControllerResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...
