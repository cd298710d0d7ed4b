"""Changes of share groups that are written to two internal topics, and their recovery.

The group's record of type 15 in ``__consumer_offsets`` lists the partitions with share state. The
share coordinator keeps the state itself in ``__share_group_state``. Each change takes three writes,
and a crash may come between any two::

    initialize     group: initializing P     state: initialize P      group: initialized P
    delete         group: deleting T         state: delete T          group: T deleted
    delete topic   catalog: T deleted        group: T deleted         state: delete T

The group records a change before it is made. :func:`recover` completes it at the next start: it
completes deletions, marks partitions with state as initialized, and deletes the state of deleted
topics. The next heartbeat initializes partitions without state. Recovery also works when a power
cut removes more records from the end of one topic than of the other. An acknowledged change is
complete, and any other can be requested again.

Each initialization of a share-partition has a new state epoch, which fences the earlier leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from headrace.groups.records import SharedTopic
from headrace.groups.share.group import ShareGroup
from headrace.log_lines import get_logger
from headrace.share.records import SharePartitionKey, ShareRecord

from .coordinators import Coordinators

log = get_logger("headrace.coordinators")

_MAX_EPOCH = 2**31 - 1


def initialize(
    coordinators: Coordinators,
    group: ShareGroup,
    starts: Mapping[UUID, Mapping[int, int]],
    least_state_epoch: int,
) -> None:
    """Initialize share state, or initialize it again.

    :param group: a group, existing or new
    :param starts: topic id -> partition -> start offset, for existing partitions; with -1 the first
        fetch resolves ``share.auto.offset.reset``
    :param least_state_epoch: the lowest state epoch to use
    :raises StorageError: when the disk fails; the change may be incomplete
    """
    group_id = group.group_id
    partitions = _shared_topics(coordinators, starts)
    coordinators.group_runtime.write_now(group_id, group.initializing(partitions))
    state, wall_ms = coordinators.share_state, coordinators.environment.clock.wall_ms()
    snapshots: list[tuple[str, tuple[ShareRecord, ...]]] = []
    for topic_id, offsets in starts.items():
        for partition, start_offset in offsets.items():
            key = SharePartitionKey(group_id, topic_id, partition)
            epoch = min(max(state.state(key).state_epoch + 1, least_state_epoch), _MAX_EPOCH)
            outcome = state.initialize(key, epoch, start_offset, wall_ms)
            assert outcome.reply is None, outcome.reply
            snapshots.append((str(key), outcome.records))
            coordinators.share.fence(key)
    coordinators.share_state_runtime.write_records_now(snapshots)
    registered = coordinators.groups.share.group(group_id)
    assert isinstance(registered, ShareGroup)
    coordinators.group_runtime.write_now(group_id, registered.initialized(partitions))


def delete(coordinators: Coordinators, group: ShareGroup, topic_ids: Collection[UUID]) -> None:
    """Delete a group's share state in topics.

    :raises StorageError: when the disk fails; the change may be incomplete
    """
    coordinators.group_runtime.write_now(group.group_id, group.deleting(topic_ids))
    _delete_state(coordinators, group.group_id, topic_ids)
    coordinators.group_runtime.write_now(group.group_id, group.deleted(topic_ids))


def _delete_state(coordinators: Coordinators, group_id: str, topic_ids: Collection[UUID]) -> None:
    tombstones: list[tuple[str, tuple[ShareRecord, ...]]] = []
    for topic_id in topic_ids:
        topic = coordinators.environment.catalog.topics_by_id.get(topic_id)
        partitions = 0 if topic is None else topic.partitions
        for partition in range(partitions):
            key = SharePartitionKey(group_id, topic_id, partition)
            tombstones.append((str(key), coordinators.share_state.delete(key).records))
            coordinators.share.drop(key)
    coordinators.share_state_runtime.write_records_now(tombstones)


def _shared_topics(
    coordinators: Coordinators, partitions: Mapping[UUID, Iterable[int]]
) -> dict[UUID, SharedTopic]:
    topics = coordinators.environment.catalog.topics_by_id
    return {
        topic_id: SharedTopic(topics[topic_id].name, tuple(sorted(of_topic)))
        for topic_id, of_topic in partitions.items()
    }


def recover(coordinators: Coordinators) -> None:
    """Complete the changes that a crash has interrupted. Write nothing if there are none.

    :raises StorageError: when the disk fails; later requests are still served correctly
    """
    state, topics = coordinators.share_state, coordinators.environment.catalog.topics_by_id
    for topic_id in {key.topic_id for key in state.known_keys()} - topics.keys():
        for key, tombstones in state.topic_deleted(topic_id):
            coordinators.share_state_runtime.write_now(key, tombstones)
    for group in coordinators.groups.share.all():
        _delete_state(coordinators, group.group_id, group.state.partitions.deleting)
    # After a power cut a group may not list partitions with state: its topic may hold the end of a
    # deletion whose beginning is lost.
    partitions: dict[str, dict[UUID, list[int]]] = {}
    for group_id, topic_id, partition in state.known_keys():
        partitions.setdefault(group_id, {}).setdefault(topic_id, []).append(partition)
    for group in coordinators.groups.share.all():
        with_state = _shared_topics(coordinators, partitions.get(group.group_id, {}))
        recovered = group.settled(with_state)
        if recovered.records:
            log.warning(
                "completed an interrupted change of the offsets of share group %s", group.group_id
            )
            coordinators.group_runtime.write_now(group.group_id, recovered)
