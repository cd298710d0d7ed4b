"""Offsets: of records by time, committed by groups, and of share groups.

An answer about many partitions has for each its value or its error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from headrace.positions import Position
from headrace.protocol.api import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition, by_topic
from headrace.protocol.schema import Message
from headrace.protocol.time_slices import chunks

from .cluster import Cluster
from .coordinators import (
    KEYS_PER_REQUEST,
    MOVED,
    Coordinators,
    KeyedRequest,
    Leaders,
    ask_brokers,
    partition_answers,
)
from .errors import (
    Answers,
    ClientError,
    InvalidResponse,
    Outcomes,
    RequestRefused,
    has_code,
    raised,
    refused,
)

K = TypeVar("K", str, TopicPartition)
T = TypeVar("T")

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps: the end, the start, the record with the largest timestamp (KIP-734)."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

_UNSTABLE_TEXT = "a transaction that commits offsets there is open: wait for its end, or abort it"

Partitions = Iterable[TopicPartition]
Groups = Iterable[str] | Mapping[str, Partitions | None]
"""Group ids; or group id → partitions, None for all."""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset found by time.

    :param offset: None if the log has no record at or after the timestamp
    :param timestamp_ms: timestamp of the record; None for the start and the end
    :param leader_epoch: leader epoch of the record; None if unknown
    """

    offset: int | None
    timestamp_ms: int | None
    leader_epoch: int | None


class CommittedOffset(NamedTuple):
    """A committed offset. A tuple, as groups have 100,000 of them.

    :param offset: of the next record to read
    :param leader_epoch: of the last record read; None if unknown
    :param metadata: what the client has stored with it
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The progress of a share group in one partition (KIP-932, KIP-1226).

    :param start_offset: share-partition start offset; None if the group has no state there
    :param lag: records not yet accepted, rejected or archived; None while unknown
    :param leader_epoch: the partition's leader epoch, stored with the start offset
    """

    start_offset: int | None = None
    lag: int | None = None
    leader_epoch: int | None = None


# Offsets of records -------------------------------------------------------------------------------


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    leaders: Leaders | None = None,
    attempts: int | None = None,
) -> Answers[TopicPartition, ListedOffset]:
    """Look up offsets by time: the first offset with at least that timestamp (ListOffsets).

    :param timestamps: partition → timestamp in ms, or :data:`LATEST` and so on
    :param isolation_level: with :data:`READ_COMMITTED`, :data:`LATEST` is the last stable offset
    :param leaders: keeps the leaders from call to call; None looks them up
    :param attempts: how often to ask while a partition has no leader; None for the whole time
    """

    request = KeyedRequest[TopicPartition, ListedOffset](
        lambda partitions: ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    topic,
                    [
                        ListOffsetsRequest.ListOffsetsPartition(
                            number, timestamp=timestamps[topic, number]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
            timeout_ms=cluster.timeout_ms,
        ),
        lambda response: {
            (topic, number): refused(
                f"asking for offsets of {topic}-{number}", answer, f"DESCRIBE on topic '{topic}'"
            )
            or ListedOffset(
                unless_negative(answer.offset),
                unless_negative(answer.timestamp),
                unless_negative(answer.leader_epoch),
            )
            for (topic, number), answer in partition_answers(response)
        },
    )
    places = leaders or Leaders(cluster)
    return await ask_brokers(cluster, places, timestamps, request, attempts=attempts)


def unless_negative(value: int) -> int | None:
    """Return a number; None if it is negative, which stands for an unknown one."""
    return None if value < 0 else value


async def log_bounds(
    cluster: Cluster, partitions: Collection[TopicPartition], isolation_level: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset of each log, and the one after its last record.

    :param isolation_level: with :data:`READ_COMMITTED`, the end is the last stable offset
    :raises ClientError: a leader refuses or does not answer
    """
    starts, ends = [
        raised(
            await list_offsets(
                cluster, dict.fromkeys(partitions, bound), isolation_level=isolation_level
            )
        )
        for bound in (EARLIEST, LATEST)
    ]
    return {key: (starts[key].offset or 0, ends[key].offset or 0) for key in partitions}


async def offsets_of_positions(
    cluster: Cluster,
    positions: Mapping[TopicPartition, Position],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    attempts: int | None = None,
) -> Answers[TopicPartition, int]:
    """Return the offsets of positions; those outside of their logs are moved to the nearest inside,
    and a time after the last record gives the end.

    :param isolation_level: see :func:`list_offsets`, as for ``attempts``
    """
    starts, ends, at_times = [
        await list_offsets(cluster, timestamps, isolation_level=isolation_level, attempts=attempts)
        for timestamps in (
            dict.fromkeys(positions, EARLIEST),
            dict.fromkeys(positions, LATEST),
            {key: at.time_ms for key, at in positions.items() if at.time_ms is not None},
        )
    ]
    offsets: Answers[TopicPartition, int] = {}
    for key, position in positions.items():
        bounds = []
        for answer in (starts[key], ends[key], at_times.get(key, ends[key])):
            if isinstance(answer, ClientError):
                offsets[key] = answer
                break
            bounds.append(answer.offset)
        else:
            start, end, target = bounds[0] or 0, bounds[1] or 0, bounds[2]
            if position.offset is not None:
                target = position.offset + (end if position.offset < 0 else 0)
            offsets[key] = end if target is None else min(max(target, start), end)
    return offsets


# Committed offsets --------------------------------------------------------------------------------


async def committed_offsets(
    cluster: Cluster,
    groups: Groups,
    *,
    require_stable: bool = False,
) -> Answers[str, dict[TopicPartition, CommittedOffset]]:
    """Return the committed offsets of groups (OffsetFetch, KIP-88, KIP-709), in one request to each
    coordinator. A missing group has none.

    :param groups: group ids; or group id → partitions, None for all with a committed offset
    :param require_stable: while a transaction has pending offsets, wait for its end (KIP-447)
    :returns: group id → partition → offset, without partitions that have none; or the error, which
        is UNSTABLE_OFFSET_COMMIT if a transaction has not ended in time
    """
    topics_of = _topics_of(
        groups,
        lambda topic, numbers: OffsetFetchRequest.OffsetFetchRequestTopics(
            topic, partition_indexes=numbers
        ),
    )
    request = KeyedRequest[str, dict[TopicPartition, CommittedOffset]](
        lambda group_ids: OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(name, topics=topics_of[name])
                for name in group_ids
            ],
            require_stable=require_stable,
        ),
        lambda response: {group.group_id: _committed(group) for group in response.groups},
    )
    retried = (ErrorCode.UNSTABLE_OFFSET_COMMIT,)
    return await ask_brokers(cluster, Coordinators(cluster), topics_of, request, retried=retried)


def _committed(group: Any) -> dict[TopicPartition, CommittedOffset] | RequestRefused:
    group_id = group.group_id
    what = f"asking for the offsets of group '{group_id}'"
    if refusal := refused(what, group, f"DESCRIBE on group '{group_id}'"):
        return refusal
    committed: dict[TopicPartition, CommittedOffset] = {}
    for (topic, number), answer in partition_answers(group):
        if answer.error_code:
            is_unstable = answer.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            return RequestRefused(
                f"{what} in {topic}-{number}",
                answer.error_code,
                _UNSTABLE_TEXT if is_unstable else None,
                needs=f"DESCRIBE on topic '{topic}'",
            )
        if answer.committed_offset >= 0:
            committed[topic, number] = CommittedOffset(
                answer.committed_offset,
                unless_negative(answer.committed_leader_epoch),
                # librdkafka stores a NUL at the end.
                (answer.metadata or "").partition("\0")[0],
            )
    return committed


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition]:
    """Commit offsets of a group without members, as Kafka's tools do to reset offsets.

    :param offsets: partition → next offset to read
    :returns: partition → None if it was committed, or the error
    """
    outcomes: Outcomes[TopicPartition] = {}
    what = f"committing offsets of group '{group_id}'"
    for keys in chunks(list(offsets), KEYS_PER_REQUEST):
        request = OffsetCommitRequest(
            group_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            number, offsets[topic, number]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(keys).items()
            ],
        )
        outcomes |= await _change(cluster, group_id, request, what, keys)
    return outcomes


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Partitions
) -> Outcomes[TopicPartition]:
    """Delete the committed offsets of a group for some partitions (OffsetDelete, KIP-496).

    :returns: partition → None if it has no offset any more, or the error:
        GROUP_SUBSCRIBED_TO_TOPIC while a member subscribes to the topic
    """
    keys = list(partitions)
    what = f"deleting offsets of group '{group_id}'"
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            topic, list(map(OffsetDeleteRequest.OffsetDeleteRequestPartition, numbers))
        )
        for topic, numbers in by_topic(keys).items()
    ]
    request = OffsetDeleteRequest(group_id, topics)
    return await _change(cluster, group_id, request, what, keys, "DELETE")


# Offsets of share groups --------------------------------------------------------------------------


async def share_offsets(
    cluster: Cluster, groups: Groups
) -> Answers[str, Answers[TopicPartition, ShareOffset]]:
    """Return the start offsets and lags of share groups (KIP-1226).

    :param groups: group ids; or group id → partitions, None for all with a state
    :returns: group id → partition → progress or error; or the group's error
    """
    return await describe_share_offsets(
        cluster,
        groups,
        lambda answer: (
            ShareOffset()
            if answer.start_offset < 0
            else ShareOffset(answer.start_offset, unless_negative(answer.lag), answer.leader_epoch)
        ),
    )


async def describe_share_offsets(
    cluster: Cluster,
    groups: Groups,
    progress_of: Callable[[Any], T],
    in_flight_limit: int = 0,
) -> Answers[str, Answers[TopicPartition, T]]:
    """Return what a function makes of each answer about the progress of share groups
    (DescribeShareGroupOffsets); the other parameters are those of :func:`share_offsets`.

    :param in_flight_limit: of spans in flight in each partition
    """
    topics_of = _topics_of(
        groups, DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic
    )
    request = KeyedRequest[str, Answers[TopicPartition, T]](
        lambda group_ids: DescribeShareGroupOffsetsRequest(
            [
                DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
                    name, topics_of[name]
                )
                for name in group_ids
            ],
            in_flight_limit=in_flight_limit,
        ),
        lambda response: {
            group.group_id: refused(
                f"asking for the offsets of share group '{group.group_id}'",
                group,
                f"DESCRIBE on group '{group.group_id}'",
            )
            or {
                (topic, number): refused(
                    f"asking for the offset of {topic}-{number}",
                    answer,
                    f"DESCRIBE on topic '{topic}'",
                )
                or progress_of(answer)
                for (topic, number), answer in partition_answers(group)
            }
            for group in response.groups
        },
    )
    return await ask_brokers(cluster, Coordinators(cluster), topics_of, request)


async def share_offsets_of_topics(
    cluster: Cluster, group_id: str, topics: Sequence[str]
) -> dict[TopicPartition, ShareOffset]:
    """Return the progress of a share group in every partition of topics; unknown where the broker
    refuses.

    :returns: ordered by topic and partition
    :raises UnknownTopic: a topic does not exist
    :raises ClientError: the coordinator refuses or does not answer
    """
    partitions = [
        (name, number)
        for name, topic in (await cluster.topics(topics)).items()
        for number in topic.leaders
    ]
    progress = raised(await share_offsets(cluster, {group_id: partitions}))
    return {
        partition: ShareOffset() if isinstance(offset, ClientError) else offset
        for partition, offset in sorted(progress[group_id].items())
    }


async def alter_share_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> Outcomes[TopicPartition]:
    """Set the start offsets of a share group without members; create the group if it is missing.

    :param offsets: partition → start offset
    :returns: partition → None if it was set, or the error
    """
    what = f"setting the offsets of share group '{group_id}'"
    topics = [
        AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
            topic,
            [
                AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                    number, offsets[topic, number]
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id, topics)
    return await _change(cluster, group_id, request, what, list(offsets))


async def delete_share_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str]
) -> Outcomes[str]:
    """Delete the state of a share group without members for some topics.

    :returns: topic → None if it was deleted, or the error
    """
    names = list(topics)
    what = f"deleting offsets of share group '{group_id}'"
    request = DeleteShareGroupOffsetsRequest(
        group_id,
        list(map(DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic, names)),
    )
    return await _change(cluster, group_id, request, what, names, "DELETE")


# Common parts -------------------------------------------------------------------------------------


def _topics_of(
    groups: Groups,
    topic_of: Callable[[str, list[int]], T],
) -> dict[str, list[T] | None]:
    """Return group id → the topics that a request asks about, None for all.

    :param topic_of: makes a topic of its name and the numbers of its partitions
    """
    if not isinstance(groups, Mapping):
        return dict.fromkeys(groups)
    return {
        group_id: None
        if partitions is None
        else [topic_of(topic, numbers) for topic, numbers in by_topic(partitions).items()]
        for group_id, partitions in groups.items()
    }


async def _change(
    cluster: Cluster,
    group_id: str,
    request: Message,
    what: str,
    keys: Sequence[K],
    operation: str = "READ",
) -> Outcomes[K]:
    """Send one request about a group's offsets to its coordinator.

    :param what: the change, for error texts
    :param keys: the partitions or topics that it is about
    :param operation: the permission that it needs on the group
    :returns: for each key None, or the error
    """
    needs = f"{operation} on group '{group_id}'"

    def answers_of(response: Any) -> Answers[str, dict[Any, RequestRefused | None]]:
        refusal = refused(what, response, needs) if hasattr(response, "error_code") else None
        if refusal is not None:
            return {group_id: refusal}
        outcomes = {}
        for key, answer in partition_answers(response):
            topic = key if isinstance(key, str) else key[0]
            is_of_group = answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            needed = needs if is_of_group else f"READ on topic '{topic}'"
            outcomes[key] = refused(f"{what} in {topic}", answer, needed)
        # OffsetCommit has error codes of partitions only, also that of a coordinator that moved.
        moved = (error for error in outcomes.values() if has_code(error, *MOVED))
        return {group_id: next(moved, None) or outcomes}

    send = KeyedRequest(lambda _: request, answers_of)
    answers = await ask_brokers(cluster, Coordinators(cluster), [group_id], send)
    outcomes = answers[group_id]
    if isinstance(outcomes, ClientError):
        return dict.fromkeys(keys, outcomes)
    missing = InvalidResponse(f"{what}: the broker's answer does not mention it")
    return {key: outcomes.get(key, missing) for key in keys}
