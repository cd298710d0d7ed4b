# Written by scripts/schemas.py --stub.
from collections.abc import Sequence
from uuid import UUID

from .schema import Message

class LegacyOffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    def __init__(self, group: str = ..., topic: str = ..., partition: int = ...) -> None: ...

class ShareSnapshotKey(Message):
    group_id: str
    topic_id: UUID | None
    partition: int
    def __init__(
        self, group_id: str = ..., topic_id: UUID | None = ..., partition: int = ...
    ) -> None: ...

class TransactionLogKey(Message):
    transactional_id: str
    def __init__(self, transactional_id: str = ...) -> None: ...

class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    def __init__(self, group: str = ..., topic: str = ..., partition: int = ...) -> None: ...

class ShareUpdateKey(Message):
    group_id: str
    topic_id: UUID | None
    partition: int
    def __init__(
        self, group_id: str = ..., topic_id: UUID | None = ..., partition: int = ...
    ) -> None: ...

class ShareGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ShareGroupMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str
    def __init__(self, group_id: str = ..., regular_expression: str = ...) -> None: ...

class StreamsGroupMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class StreamsGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class GroupMetadataKey(Message):
    group: str
    def __init__(self, group: str = ...) -> None: ...

class StreamsGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class StreamsGroupTopologyKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    def __init__(self, group_id: str = ...) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    def __init__(self, group_id: str = ..., member_id: str = ...) -> None: ...

class LegacyOffsetCommitValue(Message):
    offset: int
    metadata: str
    commit_timestamp: int
    def __init__(
        self, offset: int = ..., metadata: str = ..., commit_timestamp: int = ...
    ) -> None: ...

class ShareSnapshotValue(Message):
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

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[ShareSnapshotValue.StateBatch, ...]
    def __init__(
        self,
        snapshot_epoch: int = ...,
        state_epoch: int = ...,
        leader_epoch: int = ...,
        start_offset: int = ...,
        delivery_complete_count: int = ...,
        create_timestamp: int = ...,
        write_timestamp: int = ...,
        state_batches: tuple[ShareSnapshotValue.StateBatch, ...] = ...,
    ) -> None: ...

class TransactionLogValue(Message):
    class PartitionsSchema(Message):
        topic: str
        partition_ids: tuple[int, ...]
        def __init__(self, topic: str = ..., partition_ids: tuple[int, ...] = ...) -> None: ...

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: tuple[TransactionLogValue.PartitionsSchema, ...] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    def __init__(
        self,
        producer_id: int = ...,
        previous_producer_id: int = ...,
        next_producer_id: int = ...,
        producer_epoch: int = ...,
        next_producer_epoch: int = ...,
        transaction_timeout_ms: int = ...,
        transaction_status: int = ...,
        transaction_partitions: tuple[TransactionLogValue.PartitionsSchema, ...] | None = ...,
        transaction_last_update_timestamp_ms: int = ...,
        transaction_start_timestamp_ms: int = ...,
        client_transaction_version: int = ...,
    ) -> None: ...

class OffsetCommitValue(Message):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID | None
    def __init__(
        self,
        offset: int = ...,
        leader_epoch: int = ...,
        metadata: str = ...,
        commit_timestamp: int = ...,
        expire_timestamp: int = ...,
        topic_id: UUID | None = ...,
    ) -> None: ...

class ShareUpdateValue(Message):
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

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[ShareUpdateValue.StateBatch, ...]
    def __init__(
        self,
        snapshot_epoch: int = ...,
        leader_epoch: int = ...,
        start_offset: int = ...,
        delivery_complete_count: int = ...,
        state_batches: tuple[ShareUpdateValue.StateBatch, ...] = ...,
    ) -> None: ...

class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    def __init__(
        self,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: tuple[str, ...] = ...,
    ) -> None: ...

class ShareGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    def __init__(self, epoch: int = ..., metadata_hash: int = ...) -> None: ...

class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(self, assignment_epoch: int = ..., assignment_timestamp: int = ...) -> None: ...

class ShareGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Message):
        topic_id: UUID | None
        partitions: tuple[int, ...]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: tuple[int, ...] = ...
        ) -> None: ...

    topic_partitions: tuple[ShareGroupTargetAssignmentMemberValue.TopicPartition, ...]
    def __init__(
        self,
        topic_partitions: tuple[ShareGroupTargetAssignmentMemberValue.TopicPartition, ...] = ...,
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        partitions: tuple[int, ...]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: tuple[int, ...] = ...
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[ShareGroupCurrentMemberAssignmentValue.TopicPartitions, ...]
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: tuple[
            ShareGroupCurrentMemberAssignmentValue.TopicPartitions, ...
        ] = ...,
    ) -> None: ...

class ShareGroupStatePartitionMetadataValue(Message):
    class TopicPartitionsInfo(Message):
        topic_id: UUID | None
        topic_name: str
        partitions: tuple[int, ...]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            topic_name: str = ...,
            partitions: tuple[int, ...] = ...,
        ) -> None: ...

    class TopicInfo(Message):
        topic_id: UUID | None
        topic_name: str
        def __init__(self, topic_id: UUID | None = ..., topic_name: str = ...) -> None: ...

    initializing_topics: tuple[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo, ...]
    initialized_topics: tuple[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo, ...]
    deleting_topics: tuple[ShareGroupStatePartitionMetadataValue.TopicInfo, ...]
    def __init__(
        self,
        initializing_topics: tuple[
            ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo, ...
        ] = ...,
        initialized_topics: tuple[
            ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo, ...
        ] = ...,
        deleting_topics: tuple[ShareGroupStatePartitionMetadataValue.TopicInfo, ...] = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionValue(Message):
    topics: tuple[str, ...]
    version: int
    timestamp: int
    def __init__(
        self, topics: tuple[str, ...] = ..., version: int = ..., timestamp: int = ...
    ) -> None: ...

class StreamsGroupMetadataValue(Message):
    class LastAssignmentConfig(Message):
        key: str
        value: str
        def __init__(self, key: str = ..., value: str = ...) -> None: ...

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    last_assignment_configs: tuple[StreamsGroupMetadataValue.LastAssignmentConfig, ...] | None
    stored_description_topology_epoch: int
    failed_description_topology_epoch: int
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
        validated_topology_epoch: int = ...,
        last_assignment_configs: tuple[StreamsGroupMetadataValue.LastAssignmentConfig, ...]
        | None = ...,
        stored_description_topology_epoch: int = ...,
        failed_description_topology_epoch: int = ...,
    ) -> None: ...

class StreamsGroupMemberMetadataValue(Message):
    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, host: str = ..., port: int = ...) -> None: ...

    class KeyValue(Message):
        key: str
        value: str
        def __init__(self, key: str = ..., value: str = ...) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None
    client_tags: tuple[StreamsGroupMemberMetadataValue.KeyValue, ...]
    def __init__(
        self,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        rebalance_timeout_ms: int = ...,
        topology_epoch: int = ...,
        process_id: str = ...,
        user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None = ...,
        client_tags: tuple[StreamsGroupMemberMetadataValue.KeyValue, ...] = ...,
    ) -> None: ...

class GroupMetadataValue(Message):
    class MemberMetadata(Message):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            rebalance_timeout: int = ...,
            session_timeout: int = ...,
            subscription: bytes = ...,
            assignment: bytes = ...,
        ) -> None: ...

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[GroupMetadataValue.MemberMetadata, ...]
    def __init__(
        self,
        protocol_type: str = ...,
        generation: int = ...,
        protocol: str | None = ...,
        leader: str | None = ...,
        current_state_timestamp: int = ...,
        members: tuple[GroupMetadataValue.MemberMetadata, ...] = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(self, assignment_epoch: int = ..., assignment_timestamp: int = ...) -> None: ...

class StreamsGroupTargetAssignmentMemberValue(Message):
    class TaskIds(Message):
        subtopology_id: str
        partitions: tuple[int, ...]
        def __init__(
            self, subtopology_id: str = ..., partitions: tuple[int, ...] = ...
        ) -> None: ...

    active_tasks: tuple[StreamsGroupTargetAssignmentMemberValue.TaskIds, ...]
    standby_tasks: tuple[StreamsGroupTargetAssignmentMemberValue.TaskIds, ...]
    warmup_tasks: tuple[StreamsGroupTargetAssignmentMemberValue.TaskIds, ...]
    def __init__(
        self,
        active_tasks: tuple[StreamsGroupTargetAssignmentMemberValue.TaskIds, ...] = ...,
        standby_tasks: tuple[StreamsGroupTargetAssignmentMemberValue.TaskIds, ...] = ...,
        warmup_tasks: tuple[StreamsGroupTargetAssignmentMemberValue.TaskIds, ...] = ...,
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentValue(Message):
    class TaskIds(Message):
        subtopology_id: str
        partitions: tuple[int, ...]
        assignment_epochs: tuple[int, ...] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: tuple[int, ...] = ...,
            assignment_epochs: tuple[int, ...] | None = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...]
    standby_tasks: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...]
    warmup_tasks: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...]
    active_tasks_pending_revocation: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...]
    standby_tasks_pending_revocation: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...]
    warmup_tasks_pending_revocation: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...]
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        active_tasks: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...] = ...,
        standby_tasks: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...] = ...,
        warmup_tasks: tuple[StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...] = ...,
        active_tasks_pending_revocation: tuple[
            StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...
        ] = ...,
        standby_tasks_pending_revocation: tuple[
            StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...
        ] = ...,
        warmup_tasks_pending_revocation: tuple[
            StreamsGroupCurrentMemberAssignmentValue.TaskIds, ...
        ] = ...,
    ) -> None: ...

class StreamsGroupTopologyValue(Message):
    class TopicConfig(Message):
        key: str
        value: str
        def __init__(self, key: str = ..., value: str = ...) -> None: ...

    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: tuple[StreamsGroupTopologyValue.TopicConfig, ...]
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: tuple[StreamsGroupTopologyValue.TopicConfig, ...] = ...,
        ) -> None: ...

    class Subtopology(Message):
        subtopology_id: str
        source_topics: tuple[str, ...]
        source_topic_regex: tuple[str, ...]
        state_changelog_topics: tuple[StreamsGroupTopologyValue.TopicInfo, ...]
        repartition_sink_topics: tuple[str, ...]
        repartition_source_topics: tuple[StreamsGroupTopologyValue.TopicInfo, ...]
        copartition_groups: tuple[StreamsGroupTopologyValue.CopartitionGroup, ...]
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: tuple[str, ...] = ...,
            source_topic_regex: tuple[str, ...] = ...,
            state_changelog_topics: tuple[StreamsGroupTopologyValue.TopicInfo, ...] = ...,
            repartition_sink_topics: tuple[str, ...] = ...,
            repartition_source_topics: tuple[StreamsGroupTopologyValue.TopicInfo, ...] = ...,
            copartition_groups: tuple[StreamsGroupTopologyValue.CopartitionGroup, ...] = ...,
        ) -> None: ...

    class CopartitionGroup(Message):
        source_topics: tuple[int, ...]
        source_topic_regex: tuple[int, ...]
        repartition_source_topics: tuple[int, ...]
        def __init__(
            self,
            source_topics: tuple[int, ...] = ...,
            source_topic_regex: tuple[int, ...] = ...,
            repartition_source_topics: tuple[int, ...] = ...,
        ) -> None: ...

    epoch: int
    subtopologies: tuple[StreamsGroupTopologyValue.Subtopology, ...]
    def __init__(
        self,
        epoch: int = ...,
        subtopologies: tuple[StreamsGroupTopologyValue.Subtopology, ...] = ...,
    ) -> None: ...

class ConsumerGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    def __init__(self, epoch: int = ..., metadata_hash: int = ...) -> None: ...

class ConsumerGroupPartitionMetadataValue(Message):
    class TopicMetadata(Message):
        topic_id: UUID | None
        topic_name: str
        num_partitions: int
        partition_metadata: tuple[ConsumerGroupPartitionMetadataValue.PartitionMetadata, ...]
        def __init__(
            self,
            topic_id: UUID | None = ...,
            topic_name: str = ...,
            num_partitions: int = ...,
            partition_metadata: tuple[
                ConsumerGroupPartitionMetadataValue.PartitionMetadata, ...
            ] = ...,
        ) -> None: ...

    class PartitionMetadata(Message):
        partition: int
        racks: tuple[str, ...]
        def __init__(self, partition: int = ..., racks: tuple[str, ...] = ...) -> None: ...

    topics: tuple[ConsumerGroupPartitionMetadataValue.TopicMetadata, ...]
    def __init__(
        self, topics: tuple[ConsumerGroupPartitionMetadataValue.TopicMetadata, ...] = ...
    ) -> None: ...

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicMemberMetadata(Message):
        session_timeout_ms: int
        supported_protocols: tuple[ConsumerGroupMemberMetadataValue.ClassicProtocol, ...]
        def __init__(
            self,
            session_timeout_ms: int = ...,
            supported_protocols: tuple[ConsumerGroupMemberMetadataValue.ClassicProtocol, ...] = ...,
        ) -> None: ...

    class ClassicProtocol(Message):
        name: str
        metadata: bytes
        def __init__(self, name: str = ..., metadata: bytes = ...) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    def __init__(
        self,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: tuple[str, ...] = ...,
        subscribed_topic_regex: str | None = ...,
        rebalance_timeout_ms: int = ...,
        server_assignor: str | None = ...,
        classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
        | None = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(self, assignment_epoch: int = ..., assignment_timestamp: int = ...) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Message):
        topic_id: UUID | None
        partitions: tuple[int, ...]
        def __init__(
            self, topic_id: UUID | None = ..., partitions: tuple[int, ...] = ...
        ) -> None: ...

    topic_partitions: tuple[ConsumerGroupTargetAssignmentMemberValue.TopicPartition, ...]
    def __init__(
        self,
        topic_partitions: tuple[ConsumerGroupTargetAssignmentMemberValue.TopicPartition, ...] = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Message):
        topic_id: UUID | None
        partitions: tuple[int, ...]
        assignment_epochs: tuple[int, ...] | None
        def __init__(
            self,
            topic_id: UUID | None = ...,
            partitions: tuple[int, ...] = ...,
            assignment_epochs: tuple[int, ...] | None = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions, ...]
    partitions_pending_revocation: tuple[
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions, ...
    ]
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: tuple[
            ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions, ...
        ] = ...,
        partitions_pending_revocation: tuple[
            ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions, ...
        ] = ...,
    ) -> None: ...

class AbortedTxn(Message):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    def __init__(
        self,
        producer_id: int = ...,
        first_offset: int = ...,
        last_offset: int = ...,
        last_stable_offset: int = ...,
    ) -> None: ...

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Message):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...

    assigned_partitions: Sequence[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | memoryview | None
    def __init__(
        self,
        assigned_partitions: Sequence[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | memoryview | None = ...,
    ) -> None: ...

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Message):
        topic: str
        partitions: Sequence[int]
        def __init__(self, topic: str = ..., partitions: Sequence[int] = ...) -> None: ...

    topics: Sequence[str]
    user_data: bytes | memoryview | None
    owned_partitions: Sequence[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        topics: Sequence[str] = ...,
        user_data: bytes | memoryview | None = ...,
        owned_partitions: Sequence[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
    ) -> None: ...

class ControlRecordTypeSchema(Message):
    type: int
    def __init__(self, type: int = ...) -> None: ...

class DefaultPrincipalData(Message):
    type: str
    name: str
    token_authenticated: bool
    def __init__(
        self, type: str = ..., name: str = ..., token_authenticated: bool = ...
    ) -> None: ...

class EndTxnMarker(Message):
    coordinator_epoch: int
    def __init__(self, coordinator_epoch: int = ...) -> None: ...

class KRaftVersionRecord(Message):
    version: int
    kraft_version: int
    def __init__(self, version: int = ..., kraft_version: int = ...) -> None: ...

class LeaderChangeMessage(Message):
    class Voter(Message):
        voter_id: int
        voter_directory_id: UUID | None
        def __init__(self, voter_id: int = ..., voter_directory_id: UUID | None = ...) -> None: ...

    version: int
    leader_id: int
    voters: Sequence[LeaderChangeMessage.Voter]
    granting_voters: Sequence[LeaderChangeMessage.Voter]
    def __init__(
        self,
        version: int = ...,
        leader_id: int = ...,
        voters: Sequence[LeaderChangeMessage.Voter] = ...,
        granting_voters: Sequence[LeaderChangeMessage.Voter] = ...,
    ) -> None: ...

class SnapshotFooterRecord(Message):
    version: int
    def __init__(self, version: int = ...) -> None: ...

class SnapshotHeaderRecord(Message):
    version: int
    last_contained_log_timestamp: int
    def __init__(self, version: int = ..., last_contained_log_timestamp: int = ...) -> None: ...

class VotersRecord(Message):
    class Voter(Message):
        voter_id: int
        voter_directory_id: UUID | None
        endpoints: Sequence[VotersRecord.Endpoint]
        kraft_version_feature: VotersRecord.KRaftVersionFeature
        def __init__(
            self,
            voter_id: int = ...,
            voter_directory_id: UUID | None = ...,
            endpoints: Sequence[VotersRecord.Endpoint] = ...,
            kraft_version_feature: VotersRecord.KRaftVersionFeature = ...,
        ) -> None: ...

    class Endpoint(Message):
        name: str
        host: str
        port: int
        def __init__(self, name: str = ..., host: str = ..., port: int = ...) -> None: ...

    class KRaftVersionFeature(Message):
        min_supported_version: int
        max_supported_version: int
        def __init__(
            self, min_supported_version: int = ..., max_supported_version: int = ...
        ) -> None: ...

    version: int
    voters: Sequence[VotersRecord.Voter]
    def __init__(self, version: int = ..., voters: Sequence[VotersRecord.Voter] = ...) -> None: ...
