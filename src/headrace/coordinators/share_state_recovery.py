"""Changes that a share group and the share coordinator make together, each in its own internal
topic.

The group's record of type 15 (``__consumer_offsets``) says in which partitions the group has share
state; the share coordinator (``__share_group_state``) has the state itself. A crash may come
between any two lines::

    initialize   group: initializing P    state: begin P, anew where it is    group: initialized P
    delete       group: deleting T        state: forget T                     group: T is gone
    topic gone   catalog: T is gone       group: T is gone                    state: forget T

So the group says what is about to happen before it happens. :func:`recover` finishes at the next
start: a deletion that had begun is done; what has state then is initialised, what has none will be
with the next heartbeat; nothing is left of topics that are gone. That holds as well when a power
cut takes more from the end of one topic than of the other. What was answered had been done whole;
what was not answered can simply be asked again.

A state epoch is never used twice for a share-partition, so that a leader from before the change is
fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from uuid import UUID

from headrace.groups.records import SharedTopic
from headrace.groups.share.group import ShareGroup
from headrace.share.records import SharePartitionKey, ShareRecord

from .coordinators import Coordinators

log = logging.getLogger("headrace.coordinators")

_MAX_EPOCH = 2**31 - 1


def initialize(
    coordinators: Coordinators,
    group: ShareGroup,
    starts: Mapping[UUID, Mapping[int, int]],
    least_state_epoch: int,
) -> None:
    """Begin share state, or begin it anew.

    :param group: a group, or one that begins with this
    :param starts: by topic id and partition of existing partitions: the start offset; -1 for one
        that the first fetch resolves by ``share.auto.offset.reset``
    :raises StorageError: when the disk refuses; some of it may have happened
    """
    group_id, topics = group.group_id, coordinators.environment.catalog.topics_by_id
    partitions = {
        topic_id: SharedTopic(topics[topic_id].name, tuple(sorted(of)))
        for topic_id, of in starts.items()
    }
    coordinators.group_runtime.write_now(group_id, group.initializing(partitions))
    state, wall_ms = coordinators.share_state, coordinators.environment.clock.wall_ms()
    snapshots: list[tuple[str, tuple[ShareRecord, ...]]] = []
    for topic_id, offsets in starts.items():
        count = topics[topic_id].partitions
        for partition, start_offset in offsets.items():
            key = SharePartitionKey(group_id, topic_id, partition)
            epoch = min(max(state.state_epoch(key) + 1, least_state_epoch), _MAX_EPOCH)
            outcome = state.initialize(key, epoch, start_offset, wall_ms, count)
            assert outcome.reply is None, outcome.reply
            snapshots.append((str(key), outcome.records))
            coordinators.share.fence(*key)
    coordinators.share_state_runtime.write_records_now(snapshots)
    registered = coordinators.groups.share.group(group_id)
    assert isinstance(registered, ShareGroup)
    coordinators.group_runtime.write_now(group_id, registered.initialized(partitions))


def delete(coordinators: Coordinators, group: ShareGroup, topic_ids: Collection[UUID]) -> None:
    """Forget a group's share state in topics.

    :raises StorageError: when the disk refuses; some of it may have happened
    """
    coordinators.group_runtime.write_now(group.group_id, group.deleting(topic_ids))
    _forget_state(coordinators, group.group_id, topic_ids)
    coordinators.group_runtime.write_now(group.group_id, group.deleted(topic_ids))


def _forget_state(coordinators: Coordinators, group_id: str, topic_ids: Collection[UUID]) -> None:
    tombstones: list[tuple[str, tuple[ShareRecord, ...]]] = []
    for topic_id in topic_ids:
        topic = coordinators.environment.catalog.topics_by_id.get(topic_id)
        partitions = 0 if topic is None else topic.partitions
        for partition in range(partitions):
            key = SharePartitionKey(group_id, topic_id, partition)
            tombstones.append((str(key), coordinators.share_state.delete(key, partitions).records))
            coordinators.share.drop(*key)
    coordinators.share_state_runtime.write_records_now(tombstones)


def recover(coordinators: Coordinators) -> None:
    """At start: finish what a crash interrupted. Writes nothing when nothing was.

    :raises StorageError: when the disk refuses; the next heartbeats and the administrator's
        requests still do right
    """
    state, topics = coordinators.share_state, coordinators.environment.catalog.topics_by_id
    for topic_id in [topic_id for topic_id in state.topic_ids() if topic_id not in topics]:
        for key, tombstones in state.topic_deleted(topic_id):
            coordinators.share_state_runtime.write_now(key, tombstones)
    for group in coordinators.groups.share.all():
        _forget_state(coordinators, group.group_id, group.state_partitions.deleting)
        stateful = {
            topic_id: SharedTopic(name, there)
            for topic_id, (name, partitions) in group.stateful().items()
            if (
                there := tuple(
                    p
                    for p in partitions
                    if state.knows(SharePartitionKey(group.group_id, topic_id, p))
                )
            )
        }
        settled = group.settled(stateful)
        if settled.records:
            log.warning(
                "a change of the offsets of share group %s was interrupted: settled", group.group_id
            )
            coordinators.group_runtime.write_now(group.group_id, settled)
