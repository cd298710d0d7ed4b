"""The calls on groups that librdkafka lacks, or makes one by one, over our own connections.

Each call returns an answer for every group, partition or topic asked about, or the
:class:`~headrace.client.ClientError` that stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from headrace.client import ApiMissing, ClientError, Cluster, Connection, RequestRefused
from headrace.client.errors import InvalidResponse, is_missing_group, refused
from headrace.client.group_listing import list_groups
from headrace.client.group_requests import (
    asking_for_commits,
    asking_for_share_offsets,
    describe_classic_groups,
    describe_consumer_groups,
    describe_share_groups,
    describe_streams_groups,
)
from headrace.errors import ErrorCode
from headrace.protocol.consumer_protocol import PROTOCOL_TYPE
from headrace.protocol.message_types import request_type

from . import descriptions
from .arguments import WantedPartitions
from .results import (
    ConsumerGroupDescription,
    GroupListing,
    ListGroupsResult,
    ListShareGroupsResult,
    ShareGroupDescription,
    ShareGroupListing,
    SharePartitionOffsetInfo,
    StreamsGroupDescription,
)
from .translation import kafka_exception

_DELETE_GROUPS = 42

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


async def list_all(
    cluster: Cluster, states: Collection[str], types: Collection[str], timeout_ms: int
) -> ListGroupsResult:
    """List the groups of all brokers.

    :param states: Kafka's names of the states to list; empty for all
    :param types: Kafka's names of the types to list; empty for all
    """
    listed, errors = await list_groups(cluster, states, types, timeout_ms)
    valid = [
        GroupListing(group.group_id, group.type, group.protocol_type, group.state)
        for group in listed
    ]
    return ListGroupsResult(valid, list(map(kafka_exception, errors)))


async def list_share_groups(
    cluster: Cluster, states: Collection[ConsumerGroupState], timeout_ms: int
) -> ListShareGroupsResult:
    """List the share groups of all brokers.

    :param states: the states to list; empty for all
    """
    names = {descriptions.SHARE_STATE_NAMES.get(state, "Unknown") for state in states}
    listed, errors = await list_groups(cluster, names, ("share",), timeout_ms)
    valid = [
        ShareGroupListing(group.group_id, descriptions.group_state(group.state)) for group in listed
    ]
    return ListShareGroupsResult(valid, list(map(kafka_exception, errors)))


async def describe_consumer(
    cluster: Cluster, group_ids: Sequence[str], include_authorized_operations: bool, timeout_ms: int
) -> dict[str, ConsumerGroupDescription | ClientError]:
    """Describe consumer groups: by ConsumerGroupDescribe (KIP-848), and by DescribeGroups those
    that are not of the consumer protocol.
    """
    ask = partial(describe_consumer_groups, authorized_operations=include_authorized_operations)
    answers = await cluster.coordinators.ask(group_ids, ask, timeout_ms)
    found = _converted(answers, partial(descriptions.consumer_group, cluster))

    async def ask_classic(
        connection: Connection, ids: Sequence[str], timeout_ms: int
    ) -> Mapping[str, Any]:
        groups = await describe_classic_groups(
            connection, ids, timeout_ms, authorized_operations=include_authorized_operations
        )
        return _converted(groups, lambda group: _not_a_consumer_group(group) or group)

    others = [group_id for group_id, answer in found.items() if _may_be_classic(answer)]
    classic = await cluster.coordinators.ask(others, ask_classic, timeout_ms)
    for group_id, answer in _converted(
        classic, partial(descriptions.classic_group, cluster)
    ).items():
        if isinstance(answer, ClientError) and is_missing_group(found[group_id]):
            continue
        found[group_id] = answer
    return found


async def describe_share(
    cluster: Cluster, group_ids: Sequence[str], include_authorized_operations: bool, timeout_ms: int
) -> dict[str, ShareGroupDescription | ClientError]:
    """Describe share groups: state, epochs, members, assignments."""
    ask = partial(describe_share_groups, authorized_operations=include_authorized_operations)
    answers = await cluster.coordinators.ask(group_ids, ask, timeout_ms)
    return _converted(answers, partial(descriptions.share_group, cluster))


async def describe_streams(
    cluster: Cluster, group_ids: Sequence[str], include_authorized_operations: bool, timeout_ms: int
) -> dict[str, StreamsGroupDescription | ClientError]:
    """Describe streams groups: state, epochs, topology, members, tasks (KIP-1071)."""
    ask = partial(describe_streams_groups, authorized_operations=include_authorized_operations)
    answers = await cluster.coordinators.ask(group_ids, ask, timeout_ms)
    return _converted(answers, partial(descriptions.streams_group, cluster))


async def list_committed_offsets(
    cluster: Cluster, wanted: WantedPartitions, require_stable: bool, timeout_ms: int
) -> dict[str, ConsumerGroupTopicPartitions | ClientError]:
    """List the committed offsets of groups, in one request to each coordinator (KIP-88, KIP-709).

    :param require_stable: wait, for up to ``timeout_ms``, until no transaction has pending offsets
    """
    ask_all = asking_for_commits(_numbers_of_groups(wanted), require_stable=require_stable)

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        groups = await ask_all(connection, ids, timeout_ms)
        return _converted(groups, descriptions.committed_offsets)

    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT,)
    return await cluster.coordinators.ask(wanted, ask, timeout_ms, retried=unstable)


async def list_share_offsets(
    cluster: Cluster, wanted: WantedPartitions, timeout_ms: int
) -> dict[str, dict[TopicPartition, SharePartitionOffsetInfo] | ClientError]:
    """List the start offsets and lags of share groups (KIP-932, KIP-1226)."""
    ask = asking_for_share_offsets(_numbers_of_groups(wanted))
    answers = await cluster.coordinators.ask(wanted, ask, timeout_ms)
    return _converted(answers, descriptions.share_offsets)


async def delete_committed_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, ClientError | None]:
    """Delete the committed offsets of a group for some partitions (KIP-496)."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("offset_delete")
        topics = tuple(
            messages.OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(
                    messages.OffsetDeleteRequestPartition(partition_index=p.partition)
                    for p in of_topic
                ),
            )
            for name, of_topic in _by_topic(partitions).items()
        )
        return messages.OffsetDeleteRequest(group_id=group_id, topics=topics)

    def outcomes(response: Any) -> dict[TopicPartition, RequestRefused | None]:
        return {
            TopicPartition(topic.name, p.partition_index): refused(
                f"{what} in {topic.name}", p, f"READ on topic '{topic.name}'"
            )
            for topic in response.topics
            for p in topic.partitions
        }

    what = f"deleting offsets of group '{group_id}'"
    return await _change(cluster, group_id, build, outcomes, partitions, what, "DELETE", timeout_ms)


async def alter_share_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, ClientError | None]:
    """Set the start offsets of a share group without members; create the group if it is missing."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("alter_share_group_offsets")
        topics = tuple(
            messages.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=tuple(
                    messages.AlterShareGroupOffsetsRequestPartition(
                        partition_index=p.partition, start_offset=p.offset
                    )
                    for p in of_topic
                ),
            )
            for name, of_topic in _by_topic(partitions).items()
        )
        return messages.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)

    def outcomes(response: Any) -> dict[TopicPartition, RequestRefused | None]:
        return {
            TopicPartition(topic.topic_name, p.partition_index): refused(
                f"{what} in {topic.topic_name}", p, f"READ on topic '{topic.topic_name}'"
            )
            for topic in response.responses
            for p in topic.partitions
        }

    what = f"setting the offsets of share group '{group_id}'"
    return await _change(cluster, group_id, build, outcomes, partitions, what, "READ", timeout_ms)


async def delete_share_offsets(
    cluster: Cluster, group_id: str, topics: Sequence[str], timeout_ms: int
) -> dict[str, ClientError | None]:
    """Delete the state of a share group without members for some topics."""

    def build(connection: Connection) -> Any:
        messages = connection.messages("delete_share_group_offsets")
        asked = tuple(
            messages.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics
        )
        return messages.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=asked)

    def outcomes(response: Any) -> dict[str, RequestRefused | None]:
        return {
            str(topic.topic_name): refused(
                f"{what} in {topic.topic_name}", topic, f"READ on topic '{topic.topic_name}'"
            )
            for topic in response.responses
        }

    what = f"deleting offsets of share group '{group_id}'"
    return await _change(cluster, group_id, build, outcomes, topics, what, "DELETE", timeout_ms)


async def delete_share_groups(
    cluster: Cluster, group_ids: Sequence[str], timeout_ms: int
) -> dict[str, ClientError | None]:
    """Delete share groups without members.

    DeleteGroups deletes groups of any type, so each group is described first, and refused unless
    it is a share group.
    """
    described = await describe_share(cluster, group_ids, False, timeout_ms)
    outcomes: dict[str, ClientError | None] = {
        group_id: answer
        for group_id, answer in described.items()
        if isinstance(answer, ClientError)
    }

    async def ask(connection: Connection, ids: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        version = connection.version("delete_groups")
        request = request_type(_DELETE_GROUPS, version)(groups_names=tuple(ids))
        response = await connection.request(request, timeout_ms=timeout_ms)
        return {
            str(result.group_id): refused(
                f"deleting share group '{result.group_id}'",
                result,
                f"DELETE on group '{result.group_id}'",
            )
            for result in response.results
        }

    share_groups = [group_id for group_id in described if group_id not in outcomes]
    outcomes.update(await cluster.coordinators.ask(share_groups, ask, timeout_ms))
    return outcomes


async def _change(
    cluster: Cluster,
    group_id: str,
    build: Callable[[Connection], Any],
    outcomes: Callable[[Any], Mapping[K, RequestRefused | None]],
    keys: Sequence[K],
    what: str,
    operation: str,
    timeout_ms: int,
) -> dict[K, ClientError | None]:
    """Send one request to a group's coordinator.

    :param build: makes the request
    :param outcomes: takes the outcome of each key from the response
    :param what: the change, for error texts
    :param operation: the permission that it needs on the group
    :returns: for each key None, or the error
    """

    async def ask(connection: Connection, _: Sequence[str], timeout_ms: int) -> Mapping[str, Any]:
        response = await connection.request(build(connection), timeout_ms=timeout_ms)
        needs = f"{operation} on group '{group_id}'"
        return {group_id: refused(what, response, needs) or response}

    response = (await cluster.coordinators.ask([group_id], ask, timeout_ms))[group_id]
    if isinstance(response, ClientError):
        return dict.fromkeys(keys, response)
    found = _read(response, outcomes)
    if isinstance(found, ClientError):
        return dict.fromkeys(keys, found)
    missing = RequestRefused(
        what, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not mention it"
    )
    return {key: found.get(key, missing) for key in keys}


def _converted(
    answers: Mapping[K, Any], convert: Callable[[Any], V | ClientError]
) -> dict[K, V | ClientError]:
    return {
        key: answer if isinstance(answer, ClientError) else _read(answer, convert)
        for key, answer in answers.items()
    }


def _read(answer: Any, convert: Callable[[Any], V | ClientError]) -> V | ClientError:
    """Convert a part of a response; confluent-kafka's classes refuse some names and numbers."""
    try:
        return convert(answer)
    except (OverflowError, ValueError) as error:
        return InvalidResponse(f"the broker's answer cannot be read: {error}")


def _not_a_consumer_group(group: Any) -> RequestRefused | None:
    """Return the refusal for a classic group that is missing, or of another protocol."""
    reason = None
    if group.group_state == "Dead":  # DescribeGroups 5 describes a missing group as dead
        reason = f"Group {group.group_id} not found."
    elif group.protocol_type not in ("", PROTOCOL_TYPE):
        reason = (
            f"Group {group.group_id} is not a consumer group but one of the protocol "
            f"'{group.protocol_type}'."
        )
    if reason is None:
        return None
    what = f"describing group '{group.group_id}'"
    return RequestRefused(what, ErrorCode.GROUP_ID_NOT_FOUND, reason)


def _may_be_classic(answer: object) -> bool:
    if isinstance(answer, ApiMissing):
        return True
    # The consumer protocol rejects the empty group id, which a classic group may have.
    return isinstance(answer, RequestRefused) and answer.code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


def _numbers_of_groups(wanted: WantedPartitions) -> dict[str, dict[str, list[int]] | None]:
    """Return group id → topic → partition numbers, in the order given; None for None."""
    return {
        group_id: None
        if partitions is None
        else {
            topic: [p.partition for p in of_topic]
            for topic, of_topic in _by_topic(partitions).items()
        }
        for group_id, partitions in wanted.items()
    }
