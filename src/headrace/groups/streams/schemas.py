"""The values of a streams group's coordinator records as bytes.
:mod:`headrace.groups.record_schemas` has their keys. All have version 0 and the flexible encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from headrace.groups.records import (
    CopartitionGroup,
    Endpoint,
    HeldTaskAssignment,
    HeldTasks,
    InternalTopic,
    StreamsAssignment,
    StreamsEpoch,
    StreamsMember,
    StreamsMemberState,
    Subtopology,
    TaskAssignment,
    Tasks,
    Topology,
)
from headrace.protocol.primitives import (
    NO_TAGS,
    Reader,
    compact_array,
    compact_i32s,
    compact_string,
    i8,
    i16,
    i32,
    i64,
    tagged_fields,
)

_ABSENT, _PRESENT = i8(-1), i8(1)
_NO_EPOCH = -1
_PORT = struct.Struct(">H")


def write_streams_epoch(value: StreamsEpoch) -> bytes:
    """Write the value of type 17."""
    tags = []
    if value.validated_topology_epoch != _NO_EPOCH:
        tags.append((0, i32(value.validated_topology_epoch)))
    if value.assignment_configs:
        tags.append((1, _pairs(value.assignment_configs)))
    return i16(0) + i32(value.epoch) + i64(value.metadata_hash) + tagged_fields(*tags)


def read_streams_epoch(reader: Reader) -> StreamsEpoch:
    """Read the value of type 17."""
    epoch, metadata_hash = reader.begin_flexible().i32(), reader.i64()
    tags = reader.tagged_fields()
    validated = Reader(tags[0]).i32() if 0 in tags else _NO_EPOCH
    configs = Reader(tags[1], flexible=True).array(_read_pair) if 1 in tags else ()
    return StreamsEpoch(epoch, metadata_hash, validated, configs)


def write_streams_member(value: StreamsMember) -> bytes:
    """Write the value of type 19."""
    names = (value.group_instance_id, value.rack_id, value.client_id, value.client_host)
    endpoint = value.user_endpoint
    return b"".join(
        (
            i16(0),
            *map(compact_string, names),
            i32(value.rebalance_timeout_ms),
            i32(value.topology_epoch),
            compact_string(value.process_id),
            _ABSENT if endpoint is None else _endpoint(endpoint),
            _pairs(value.client_tags),
            NO_TAGS,
        )
    )


def _endpoint(value: Endpoint) -> bytes:
    return _PRESENT + compact_string(value.host) + _PORT.pack(value.port) + NO_TAGS


def read_streams_member(reader: Reader) -> StreamsMember:
    """Read the value of type 19."""
    reader.begin_flexible()
    return StreamsMember(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.i32(),
        reader.i32(),
        reader.string(),
        _read_endpoint(reader),
        reader.array(_read_pair),
    )


def _read_endpoint(reader: Reader) -> Endpoint | None:
    if reader.i8() < 0:
        return None
    endpoint = Endpoint(reader.string(), reader.i16() & 0xFFFF)
    reader.tagged_fields()
    return endpoint


def _pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    return compact_array(
        compact_string(name) + compact_string(value) + NO_TAGS for name, value in pairs
    )


def _read_pair(reader: Reader) -> tuple[str, str]:
    pair = reader.string(), reader.string()
    reader.tagged_fields()
    return pair


# Topologies ---------------------------------------------------------------------------------------


def write_topology(value: Topology) -> bytes:
    """Write the value of type 23."""
    subtopologies = compact_array(map(_subtopology, value.subtopologies))
    return i16(0) + i32(value.epoch) + subtopologies + NO_TAGS


def _subtopology(value: Subtopology) -> bytes:
    return b"".join(
        (
            compact_string(value.subtopology_id),
            _strings(value.source_topics),
            _strings(value.source_topic_regex),
            compact_array(map(_internal_topic, value.state_changelog_topics)),
            _strings(value.repartition_sink_topics),
            compact_array(map(_internal_topic, value.repartition_source_topics)),
            compact_array(map(_copartition_group, value.copartition_groups)),
            NO_TAGS,
        )
    )


def _strings(texts: Iterable[str]) -> bytes:
    return compact_array(map(compact_string, texts))


def _internal_topic(value: InternalTopic) -> bytes:
    numbers = i32(value.partitions) + i16(value.replication_factor)
    return compact_string(value.name) + numbers + _pairs(value.configs) + NO_TAGS


def _copartition_group(value: CopartitionGroup) -> bytes:
    return b"".join(compact_array(map(i16, indexes)) for indexes in value) + NO_TAGS


def read_topology(reader: Reader) -> Topology:
    """Read the value of type 23."""
    return Topology(reader.begin_flexible().i32(), reader.array(_read_subtopology))


def _read_subtopology(reader: Reader) -> Subtopology:
    subtopology = Subtopology(
        reader.string(),
        reader.array(Reader.string),
        reader.array(Reader.string),
        reader.array(_read_internal_topic),
        reader.array(Reader.string),
        reader.array(_read_internal_topic),
        reader.array(_read_copartition_group),
    )
    reader.tagged_fields()
    return subtopology


def _read_internal_topic(reader: Reader) -> InternalTopic:
    topic = InternalTopic(reader.string(), reader.i32(), reader.i16(), reader.array(_read_pair))
    reader.tagged_fields()
    return topic


def _read_copartition_group(reader: Reader) -> CopartitionGroup:
    group = CopartitionGroup(
        reader.array(Reader.i16), reader.array(Reader.i16), reader.array(Reader.i16)
    )
    reader.tagged_fields()
    return group


# Assignments --------------------------------------------------------------------------------------


def write_streams_target(value: TaskAssignment) -> bytes:
    """Write the value of type 21."""
    return i16(0) + _tasks(value.active) + _tasks(value.standby) + _tasks(value.warmup) + NO_TAGS


def read_streams_target(reader: Reader) -> TaskAssignment:
    """Read the value of type 21."""
    reader.begin_flexible()
    return TaskAssignment(_read_tasks(reader), _read_tasks(reader), _read_tasks(reader))


def write_streams_assignment(value: StreamsAssignment) -> bytes:
    """Write the value of type 22."""
    epochs = i32(value.member_epoch) + i32(value.previous_member_epoch)
    tasks = _held(value.assigned) + _held(value.pending_revocation)
    return i16(0) + epochs + i8(value.state) + tasks + NO_TAGS


def read_streams_assignment(reader: Reader) -> StreamsAssignment:
    """Read the value of type 22. Brokers before 4.3 wrote no assignment epochs; the member epoch
    replaces them.
    """
    member_epoch, previous = reader.begin_flexible().i32(), reader.i32()
    state = StreamsMemberState(reader.i8())
    assigned, pending = (_read_held(reader, member_epoch) for _ in range(2))
    return StreamsAssignment(member_epoch, previous, state, assigned, pending)


def _held(value: HeldTaskAssignment) -> bytes:
    return _held_tasks(value.active) + _tasks(value.standby) + _tasks(value.warmup)


def _held_tasks(value: HeldTasks) -> bytes:
    return compact_array(
        compact_string(subtopology_id)
        + compact_i32s(epochs)
        + tagged_fields((0, compact_i32s(epochs.values())))
        for subtopology_id, epochs in value.items()
    )


def _tasks(value: Tasks) -> bytes:
    return compact_array(
        compact_string(subtopology_id) + compact_i32s(partitions) + NO_TAGS
        for subtopology_id, partitions in value.items()
    )


def _read_tasks(reader: Reader) -> dict[str, tuple[int, ...]]:
    def tasks(reader: Reader) -> tuple[str, tuple[int, ...]]:
        read = reader.string(), reader.array(Reader.i32)
        reader.tagged_fields()
        return read

    return dict(reader.array(tasks))


def _read_held(reader: Reader, member_epoch: int) -> HeldTaskAssignment:
    def tasks(reader: Reader) -> tuple[str, dict[int, int]]:
        subtopology_id, partitions = reader.string(), reader.array(Reader.i32)
        tags = reader.tagged_fields()
        epochs = (
            Reader(tags[0], flexible=True).array(Reader.i32)
            if 0 in tags
            else (member_epoch,) * len(partitions)
        )
        return subtopology_id, dict(zip(partitions, epochs, strict=True))

    active = dict(reader.array(tasks))
    return HeldTaskAssignment(active, _read_tasks(reader), _read_tasks(reader))
