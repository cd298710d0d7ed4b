"""The end of every run: without faults everything is finished, nothing is missing and nothing is
left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.protocol import record_batch
from headrace.protocol.errors import ErrorCode

from .clients import Member
from .shelf import Partition
from .witness import Violation
from .world import DEAD_LETTERS, World

DRAIN_ROUNDS = 400
"""Fetches of each member that must be enough."""


def drain(world: World) -> None:
    """End all faults, and let members that accept everything finish every record."""
    world.power.restore()
    world.faults = dict.fromkeys(world.faults, 0)
    world.network.cut_all()
    world.end_step()
    world.machine.loop.advance(world.session_ms + world.limits.lock_ms)
    world.end_step()
    members = [
        Member(world.network, world.name("drainer"), group, world.topic_names)
        for group in world.groups * 2
    ]
    for _ in range(DRAIN_ROUNDS):
        for member in members:
            if member.next_heartbeat_ms <= world.machine.loop.now_ms:
                member.heartbeat(world.machine.loop.now_ms)
                world.end_step()
            member.fetch(world.rng)
            world.end_step()
            member.acknowledge_all()
            world.end_step()
        world.machine.loop.advance(500)
        world.end_step()
        if not undone(world):
            break
    else:
        raise Violation(f"cannot be drained: {undone(world)}")
    world.stop_and_start()
    world.end_step()
    left = undone(world)
    if left:
        raise Violation(f"was drained, and is not after a restart: {left}")
    _check_records(world)
    if world.has_dead_letters:
        _check_dead_letters(world)
    _check_leftovers(world)


def undone(world: World) -> list[str]:
    """Return the partitions that groups have not finished, according to their descriptions."""
    left = []
    for group_id in world.groups:
        answer = world.admin.describe_offsets(
            group_id, [(topic.name, topic.partitions) for topic in world.topics]
        )
        for topic in answer.groups[0].topics:
            for one in topic.partitions:
                where = (topic.topic_id, one.partition_index)
                is_empty = world.witness.end_offset(where) == world.witness.log_starts.get(where, 0)
                if one.lag != 0 and not (one.lag == -1 and is_empty):
                    name = f"{group_id}:{topic.topic_name}-{where[1]}"
                    left.append(f"{name} from {one.start_offset}: lag {one.lag}")
    return left


def _records(world: World, where: Partition) -> Iterator[record_batch.Record]:
    log = world.machine.broker.topic_logs.partition(*where)
    assert not isinstance(log, ErrorCode)
    offset = log.log_start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20)
        assert isinstance(data, bytes), data
        for position, header in record_batch.headers(data):
            yield from record_batch.records(memoryview(data)[position:])
            offset = header.last_offset + 1


def _check_records(world: World) -> None:
    """Check that every acknowledged record is in the log, and finished."""
    for where in world.partitions:
        log_start, end = world.witness.log_starts.get(where, 0), world.witness.end_offset(where)
        stored = {record.offset: record.value for record in _records(world, where)}
        if len(set(stored.values())) < len(stored):
            raise Violation(f"a record is twice in {where}, in spite of idempotence")
        if not world.witness.sent.get(where, set()).issuperset(stored.values()):
            raise Violation(f"{where} has records that nobody sent there")
        for offset, value in world.witness.produced.get(where, {}).items():
            if offset >= log_start and stored.get(offset) != value:
                raise Violation(
                    f"record {offset} of {where} was acknowledged, and is {stored.get(offset)!r}"
                )
        for shelf in world.witness.shelves.values():
            if shelf.key[1:] == where:
                for offset in range(log_start, end):
                    if not shelf.is_done(offset):
                        raise Violation(f"record {offset} of {shelf} was never finished")


def _check_dead_letters(world: World) -> None:
    """Check that every record that was rejected or delivered too often is in the
    dead-letter queue.
    """
    queue = world.machine.broker.catalog.topics[DEAD_LETTERS]
    letters = set()
    for partition in range(queue.partitions):
        for record in _records(world, (queue.topic_id, partition)):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            letters.add(
                tuple(
                    headers[f"__dlq.errors.{name}"]
                    for name in ("group", "topic", "partition", "offset")
                )
            )
    topics = world.machine.broker.catalog.topics_by_id
    for key, shelf in world.witness.shelves.items():
        log_start = world.witness.log_starts.get(key[1:], 0)
        for offset, record in shelf.records.items():
            letter = (key.group_id, topics[key.topic_id].name, str(key.partition), str(offset))
            if record.is_dead and offset >= log_start and letter not in letters:
                raise Violation(
                    f"record {offset} of {shelf} was given up, and is not in the dead-letter queue"
                )


def _check_leftovers(world: World) -> None:
    """Check that nothing is left of deleted topics."""
    broker = world.machine.broker
    kept = {key.topic_id for key in broker.coordinators.share_state.known_keys()} - set(
        broker.catalog.topics_by_id
    )
    if kept:
        raise Violation(f"share state is kept of {len(kept)} deleted topics")
    for group_id in world.groups:
        group: Any = broker.coordinators.groups.groups.get(group_id)
        if group is not None:
            kept = set(group.stateful()) - set(broker.catalog.topics_by_id)
            if kept:
                raise Violation(f"group {group_id} keeps partitions of {len(kept)} deleted topics")
