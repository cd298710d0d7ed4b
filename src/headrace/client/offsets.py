"""Offsets: of records by time, committed by groups, and of share groups.

An answer about many partitions has for each its value or its error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from headrace.errors import ErrorCode
from headrace.positions import Position
from headrace.protocol.partitions import TopicPartition, by_topic

from .cluster import Cluster
from .connection import Connection
from .coordinators import MOVED, CoordinatorRequest, Leaders, ask_brokers
from .errors import ClientError, InvalidResponse, RequestRefused, raised, refused

K = TypeVar("K", str, TopicPartition)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps: the end, the start, the record with the largest timestamp (KIP-734)."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

_PARTITIONS_PER_REQUEST = 10_000
"""Bounds the work of a broker for one request, and the size of the response."""
_NO_GENERATION = -1
_UNSTABLE_TEXT = "a transaction that commits offsets there is open: wait for its end, or abort it"

Partitions = Iterable[TopicPartition]


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

    start_offset: int | None
    lag: int | None
    leader_epoch: int | None = None


# Offsets of records -------------------------------------------------------------------------------


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    leaders: Leaders | None = None,
    attempts: int | None = None,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """Look up offsets by time: the first offset with at least that timestamp (ListOffsets).

    :param timestamps: partition → timestamp in ms, or :data:`LATEST` and so on
    :param isolation_level: with :data:`READ_COMMITTED`, :data:`LATEST` is the last stable offset
    :param leaders: keeps the leaders from call to call; None looks them up
    :param attempts: how often to ask while a partition has no leader; None for the whole time
    """

    async def send(
        connection: Connection, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, ListedOffset | ClientError]:
        answers: dict[TopicPartition, ListedOffset | ClientError] = {}
        for at in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
            some = partitions[at : at + _PARTITIONS_PER_REQUEST]
            request = _list_request(connection, some, timestamps, isolation_level, timeout_ms)
            response = await connection.request(request, timeout_ms=timeout_ms)
            answers.update(_listed(response))
        return answers

    return await ask_brokers(
        cluster,
        leaders or Leaders(cluster),
        timestamps,
        send,
        cluster.timeout_ms,
        attempts=attempts,
    )


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
    cluster: Cluster, positions: Mapping[TopicPartition, Position], *, attempts: int | None = None
) -> dict[TopicPartition, int | ClientError]:
    """Return the offsets of positions; those outside of their logs are moved to the nearest inside,
    and a time after the last record gives the end.

    :param attempts: see :func:`list_offsets`
    """
    starts, ends, at_times = [
        await list_offsets(cluster, timestamps, attempts=attempts)
        for timestamps in (
            dict.fromkeys(positions, EARLIEST),
            dict.fromkeys(positions, LATEST),
            {key: at.time_ms for key, at in positions.items() if at.time_ms is not None},
        )
    ]
    offsets: dict[TopicPartition, int | ClientError] = {}
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


def _list_request(
    connection: Connection,
    partitions: Iterable[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: int,
) -> Any:
    messages = connection.messages("list_offsets")
    topics = tuple(
        messages.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                messages.ListOffsetsPartition(
                    partition_index=number,
                    current_leader_epoch=-1,
                    timestamp=timestamps[topic, number],
                )
                for number in numbers
            ),
        )
        for topic, numbers in by_topic(partitions).items()
    )
    return messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=topics,
        timeout=timedelta(milliseconds=timeout_ms),
    )


def _listed(response: Any) -> dict[TopicPartition, ListedOffset | ClientError]:
    listed: dict[TopicPartition, ListedOffset | ClientError] = {}
    for topic in response.topics:
        name = topic.name
        for answer in topic.partitions:
            number = answer.partition_index
            listed[name, number] = refused(
                f"asking for offsets of {name}-{number}", answer, f"DESCRIBE on topic '{name}'"
            ) or ListedOffset(
                _known(answer.offset), _known(answer.timestamp), _known(answer.leader_epoch)
            )
    return listed


def _known(value: int) -> int | None:
    return None if value < 0 else value


# Committed offsets --------------------------------------------------------------------------------


async def committed_offsets(
    cluster: Cluster,
    groups: Iterable[str] | Mapping[str, Partitions | None],
    *,
    require_stable: bool = False,
) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
    """Return the committed offsets of groups (OffsetFetch, KIP-88, KIP-709), in one request to each
    coordinator. A missing group has none.

    :param groups: group ids; or group id → partitions, None for all with a committed offset
    :param require_stable: while a transaction has pending offsets, wait for its end (KIP-447)
    :returns: group id → partition → offset, without partitions that have none; or the error, which
        is UNSTABLE_OFFSET_COMMIT if a transaction has not ended in time
    """
    topics_of = _topics_of(groups)

    def build(connection: Connection, group_ids: Sequence[str]) -> Any:
        messages = connection.messages("offset_fetch")
        return messages.OffsetFetchRequest(
            groups=tuple(
                messages.OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=_mapped(
                        topics_of[group_id],
                        lambda topic, numbers: messages.OffsetFetchRequestTopics(
                            name=topic, partition_indexes=numbers
                        ),
                    ),
                )
                for group_id in group_ids
            ),
            require_stable=require_stable,
        )

    def parse(
        response: Any,
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
        return {group.group_id: _committed(group) for group in response.groups}

    return await cluster.coordinators.ask(
        topics_of,
        CoordinatorRequest(build, parse),
        cluster.timeout_ms,
        retried=(ErrorCode.UNSTABLE_OFFSET_COMMIT,),
    )


def _committed(group: Any) -> dict[TopicPartition, CommittedOffset] | RequestRefused:
    group_id = group.group_id
    what = f"asking for the offsets of group '{group_id}'"
    refusal = refused(what, group, f"DESCRIBE on group '{group_id}'")
    if refusal is not None:
        return refusal
    committed: dict[TopicPartition, CommittedOffset] = {}
    for topic in group.topics:
        for answer in topic.partitions:
            if answer.error_code:
                is_unstable = answer.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                return RequestRefused(
                    f"{what} in {topic.name}-{answer.partition_index}",
                    int(answer.error_code),
                    _UNSTABLE_TEXT if is_unstable else None,
                    needs=f"DESCRIBE on topic '{topic.name}'",
                )
            if answer.committed_offset >= 0:
                committed[topic.name, answer.partition_index] = CommittedOffset(
                    answer.committed_offset,
                    _known(answer.committed_leader_epoch),
                    # librdkafka stores a NUL at the end.
                    (answer.metadata or "").partition("\0")[0],
                )
    return committed


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ClientError | None]:
    """Commit offsets of a group without members, as Kafka's tools do to reset offsets.

    :param offsets: partition → next offset to read
    :returns: partition → None if it was committed, or the error
    """
    outcomes: dict[TopicPartition, ClientError | None] = {}
    partitions = list(offsets)
    for at in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
        some = partitions[at : at + _PARTITIONS_PER_REQUEST]

        def build(connection: Connection, some: Sequence[TopicPartition] = some) -> Any:
            messages = connection.messages("offset_commit")
            return messages.OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=_NO_GENERATION,
                member_id="",
                group_instance_id=None,
                topics=tuple(
                    messages.OffsetCommitRequestTopic(
                        name=topic,
                        partitions=tuple(
                            messages.OffsetCommitRequestPartition(
                                partition_index=number,
                                committed_offset=offsets[topic, number],
                                committed_metadata="",
                            )
                            for number in numbers
                        ),
                    )
                    for topic, numbers in by_topic(some).items()
                ),
            )

        outcomes |= await _change(
            cluster, group_id, build, f"committing offsets of group '{group_id}'", some
        )
    return outcomes


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Partitions
) -> dict[TopicPartition, ClientError | None]:
    """Delete the committed offsets of a group for some partitions (OffsetDelete, KIP-496).

    :returns: partition → None if it has no offset any more, or the error:
        GROUP_SUBSCRIBED_TO_TOPIC while a member subscribes to the topic
    """
    keys = list(partitions)

    def build(connection: Connection) -> Any:
        messages = connection.messages("offset_delete")
        return messages.OffsetDeleteRequest(
            group_id=group_id,
            topics=tuple(
                messages.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=tuple(
                        messages.OffsetDeleteRequestPartition(partition_index=number)
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(keys).items()
            ),
        )

    what = f"deleting offsets of group '{group_id}'"
    return await _change(cluster, group_id, build, what, keys, operation="DELETE")


# Offsets of share groups --------------------------------------------------------------------------


async def share_offsets(
    cluster: Cluster, groups: Iterable[str] | Mapping[str, Partitions | None]
) -> dict[str, dict[TopicPartition, ShareOffset | ClientError] | ClientError]:
    """Return the start offsets and lags of share groups (DescribeShareGroupOffsets, KIP-1226).

    :param groups: group ids; or group id → partitions, None for all with a state
    :returns: group id → partition → progress or error; or the group's error
    """
    topics_of = _topics_of(groups)

    def build(connection: Connection, group_ids: Sequence[str]) -> Any:
        messages = connection.messages("describe_share_group_offsets")
        return messages.DescribeShareGroupOffsetsRequest(
            groups=tuple(
                messages.DescribeShareGroupOffsetsRequestGroup(
                    group_id=group_id,
                    topics=_mapped(
                        topics_of[group_id],
                        lambda topic, numbers: messages.DescribeShareGroupOffsetsRequestTopic(
                            topic_name=topic, partitions=numbers
                        ),
                    ),
                )
                for group_id in group_ids
            )
        )

    def parse(
        response: Any,
    ) -> dict[str, dict[TopicPartition, ShareOffset | ClientError] | ClientError]:
        return {group.group_id: _shared(group) for group in response.groups}

    return await cluster.coordinators.ask(
        topics_of, CoordinatorRequest(build, parse), cluster.timeout_ms
    )


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
        partition: ShareOffset(None, None) if isinstance(offset, ClientError) else offset
        for partition, offset in sorted(progress[group_id].items())
    }


def _shared(group: Any) -> dict[TopicPartition, ShareOffset | ClientError] | ClientError:
    group_id = group.group_id
    refusal = refused(
        f"asking for the offsets of share group '{group_id}'",
        group,
        f"DESCRIBE on group '{group_id}'",
    )
    if refusal is not None:
        return refusal
    progress: dict[TopicPartition, ShareOffset | ClientError] = {}
    for topic in group.topics:
        name = topic.topic_name
        for answer in topic.partitions:
            number = answer.partition_index
            start_offset = _known(answer.start_offset)
            has_state = start_offset is not None
            lag = getattr(answer, "lag", -1)  # version 0 has no lag
            progress[name, number] = refused(
                f"asking for the offset of {name}-{number}", answer, f"DESCRIBE on topic '{name}'"
            ) or ShareOffset(
                start_offset,
                lag if has_state and lag != -1 else None,
                answer.leader_epoch if has_state else None,
            )
    return progress


async def alter_share_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ClientError | None]:
    """Set the start offsets of a share group without members; create the group if it is missing.

    :param offsets: partition → start offset
    :returns: partition → None if it was set, or the error
    """

    def build(connection: Connection) -> Any:
        messages = connection.messages("alter_share_group_offsets")
        return messages.AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=tuple(
                messages.AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=tuple(
                        messages.AlterShareGroupOffsetsRequestPartition(
                            partition_index=number, start_offset=offsets[topic, number]
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(offsets).items()
            ),
        )

    what = f"setting the offsets of share group '{group_id}'"
    return await _change(cluster, group_id, build, what, list(offsets))


async def delete_share_offsets(
    cluster: Cluster, group_id: str, topics: Iterable[str]
) -> dict[str, ClientError | None]:
    """Delete the state of a share group without members for some topics.

    :returns: topic → None if it was deleted, or the error
    """
    names = list(topics)

    def build(connection: Connection) -> Any:
        messages = connection.messages("delete_share_group_offsets")
        return messages.DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=tuple(
                messages.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names
            ),
        )

    what = f"deleting offsets of share group '{group_id}'"
    return await _change(cluster, group_id, build, what, names, operation="DELETE")


# Common parts -------------------------------------------------------------------------------------


def _topics_of(
    groups: Iterable[str] | Mapping[str, Partitions | None],
) -> dict[str, dict[str, list[int]] | None]:
    if not isinstance(groups, Mapping):
        return dict.fromkeys(groups)
    return {
        group_id: None if partitions is None else by_topic(partitions)
        for group_id, partitions in groups.items()
    }


def _mapped(topics: Mapping[str, list[int]] | None, make: Any) -> tuple[Any, ...] | None:
    if topics is None:
        return None
    return tuple(make(topic, tuple(numbers)) for topic, numbers in topics.items())


async def _change(
    cluster: Cluster,
    group_id: str,
    build: Callable[[Connection], Any],
    what: str,
    keys: Sequence[K],
    *,
    operation: str = "READ",
) -> dict[K, ClientError | None]:
    """Send one request about a group's offsets to its coordinator.

    :param build: makes the request
    :param what: the change, for error texts
    :param keys: the partitions or topics that it is about
    :param operation: the permission that it needs on the group
    :returns: for each key None, or the error
    """
    needs = f"{operation} on group '{group_id}'"

    def parse(response: Any) -> dict[str, dict[Any, RequestRefused | None] | ClientError]:
        refusal = refused(what, response, needs) if hasattr(response, "error_code") else None
        if refusal is not None:
            return {group_id: refusal}
        outcomes = dict(_outcomes(response, what, needs))
        # OffsetCommit has error codes of partitions only, also that of a coordinator that moved.
        moved = (error for error in outcomes.values() if error and error.code in MOVED)
        return {group_id: next(moved, None) or outcomes}

    request = CoordinatorRequest(lambda connection, _: build(connection), parse)
    answers = await cluster.coordinators.ask([group_id], request, cluster.timeout_ms)
    outcomes = answers[group_id]
    if isinstance(outcomes, ClientError):
        return dict.fromkeys(keys, outcomes)
    missing = InvalidResponse(f"{what}: the broker's answer does not mention it")
    return {key: outcomes.get(key, missing) for key in keys}


def _outcomes(
    response: Any, what: str, needs: str
) -> Iterator[tuple[str | TopicPartition, RequestRefused | None]]:
    """Yield the topics or partitions in a response, each with its refusal."""
    for topic in response.responses if hasattr(response, "responses") else response.topics:
        name = str(topic.topic_name if hasattr(topic, "topic_name") else topic.name)
        on_topic = f"READ on topic '{name}'"
        if not hasattr(topic, "partitions"):
            yield name, refused(f"{what} in {name}", topic, on_topic)
            continue
        for answer in topic.partitions:
            is_of_group = answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            refusal = refused(f"{what} in {name}", answer, needs if is_of_group else on_topic)
            yield (name, answer.partition_index), refusal
